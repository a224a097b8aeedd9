#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.
"""Completion of cliff's programs in zsh; cliff itself has bash only.

``diffcache complete --shell zsh`` finds it by the entry point
``cliff.formatter.completion``, and so does ``openstack complete``.
"""

import typing

from cliff import complete

_FUNCTION = r'''
  )
  local found=cmds word next
  for word in "${(@)words[2,CURRENT-1]}"; do
    next="${found}_${word//-/_}"
    if (( ${+candidates[$next]} )); then
      found=$next
    elif [[ $word != -* || $found != cmds ]]; then
      break
    fi
  done
  local -a offered=(${=candidates[$found]})
  if [[ $offered[1] == -* && $words[CURRENT] != -* ]]; then
    _files
  else
    compadd -- $offered
  fi
}
'''


class CompleteZsh(complete.CompleteShellBase):
    """Prints a script for zsh.

    It may be sourced, or stored in a directory of ``fpath`` under the name
    of its function.
    """

    def get_header(self) -> str:
        """Return the beginning of the function."""
        return (f'#compdef {self.name}\n_{self.escaped_name}() {{\n'
                f'  local -A candidates=(\n')

    def get_trailer(self) -> str:
        """Return the rest of the function, and its registration."""
        function = f'_{self.escaped_name}'
        return (_FUNCTION +
                f'if [[ $funcstack[1] == {function} ]]; then\n'
                f'  {function} "$@"\nelse\n'
                f'  compdef {function} {self.name}\nfi\n')

    def write(self, cmdo: str, data: list[tuple[str, str]]) -> None:
        """Write the script.

        :param cmdo: the first words of commands
        :param data: for the words before, joined by ``_``, those that follow
        """
        self.output.write(self.get_header())
        self.output.writelines(self._lines(cmdo, data))
        self.output.write(self.get_trailer())

    @staticmethod
    def _lines(cmdo: str, data: list[tuple[str, str]]
               ) -> typing.Iterator[str]:
        yield f"    cmds '{cmdo}'\n"
        for words, following in data:
            yield f"    cmds_{words.replace('-', '_')} '{following}'\n"
