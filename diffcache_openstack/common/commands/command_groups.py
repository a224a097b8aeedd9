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
"""Groups of commands, such as ``diffcache patch``: listing what is in them.

cliff knows only complete commands. A group is the first words of several.
"""

import argparse
import ast
import collections.abc
import importlib.metadata
import importlib.util
import typing

from cliff import command
from cliff import commandmanager

_USAGE_ERROR = 2

# How to load a command. cliff has no name for it before 4.13.
Entry = commandmanager.EntryPointWrapper | importlib.metadata.EntryPoint
# By the words of a command.
Commands = collections.abc.Mapping[str, Entry]


def summary(entry: Entry) -> str:
    """Return the first line of a command's docstring without importing it.

    Help stays quick: the modules of commands import large libraries.
    """
    if isinstance(entry, commandmanager.EntryPointWrapper):
        text = entry.command_class.__doc__ or ''
    else:
        text = _docstring(entry.module, entry.attr)
    return text.strip().split('\n')[0].rstrip('.')


def _docstring(module: str, name: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ''
    with open(spec.origin, encoding='utf-8') as stream:
        tree = ast.parse(stream.read())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or ''
    return ''


def members(commands: Commands, words: collections.abc.Sequence[str] = ()
            ) -> list[str]:
    """Return the names of the commands that begin with some words, sorted.

    Words may be abbreviated, as cliff allows for complete commands.
    """
    return sorted(
        name for name in commands
        if len(parts := name.split(' ')) > len(words)
        and all(part.startswith(word) for part, word in zip(parts, words)))


def listing(commands: Commands, names: collections.abc.Iterable[str]) -> str:
    """Return a table of commands with a line for each."""
    lines = {name: summary(commands[name]) for name in names}
    width = max(map(len, lines), default=0)
    return '\n'.join(['commands:', *(f'  {name:<{width}}  {text}'
                                     for name, text in lines.items())])


class Group(command.Command):
    """List the commands of a group."""

    app: typing.Any
    # Read by cliff: the application's own list shows complete commands only.
    deprecated = True
    # Read by the openstack client: no login to print help.
    auth_required = False

    def _load_hooks(self) -> None:
        self._hooks = []

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Build a parser whose help lists the commands."""
        commands = self.app.command_manager.commands
        parser = argparse.ArgumentParser(
            prog=prog_name, usage='%(prog)s COMMAND ...',
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=listing(commands, self._names()))
        parser.add_argument('words', nargs=argparse.REMAINDER,
                            help=argparse.SUPPRESS)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print what commands there are to standard error."""
        name = f'{self.app.NAME} {self.cmd_name}'
        stream = self.app.stderr
        if parsed_args.words:
            wrong = f'{self.cmd_name} {parsed_args.words[0]}'
            stream.write(
                f'{self.app.NAME}: error: no command "{wrong}"; there are'
                f' {", ".join(self._names())}: see {name} --help\n')
        else:
            self.get_parser(name).print_help(stream)
            stream.write(f'{self.app.NAME}: error: "{self.cmd_name}" is a'
                         f' group of commands; name one of them\n')
        return _USAGE_ERROR

    def _names(self) -> list[str]:
        groups = self.app.command_manager.commands
        return [name for name in members(groups, (self.cmd_name or '').split())
                if not is_group(groups[name])]


def is_group(entry: Entry) -> bool:
    """Return whether an entry is a group's, not a complete command's."""
    return entry.value == f'{Group.__module__}:{Group.__name__}'
