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
"""What the help of a command shows: our options first, examples at the end."""

import argparse
import collections.abc

from cliff import _argparse

_EXAMPLES = 'Examples:\n'
# As documents have it, in which lines stay as they are.
_LITERAL = 'Examples::\n\n'
_COLUMNS = 76
# Of the options that cliff adds to commands with output.
_SHOWN = ('formatter', 'columns', 'sort_columns')


class HelpFormatter(_argparse.SmartHelpFormatter):
    """Keeps the lines of a paragraph of examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return '\n\n'.join(
            part if part.startswith(_EXAMPLES)
            else super(HelpFormatter, self)._fill_text(part, width, indent)
            for part in text.replace(_LITERAL, _EXAMPLES).split('\n\n'))


def shorten(parser: argparse.ArgumentParser) -> None:
    """Hide the options of output that are rarely used; they keep working."""
    parser.formatter_class = HelpFormatter
    for group in parser._action_groups:
        if 'formatter' not in (group.title or '').lower():
            continue
        group.description = None
        for action in group._group_actions:
            if action.dest not in _SHOWN:
                action.help = argparse.SUPPRESS
    # argparse cannot format the usage of a group with nothing to show.
    parser._mutually_exclusive_groups[:] = [
        group for group in parser._mutually_exclusive_groups
        if any(action.help != argparse.SUPPRESS
               for action in group._group_actions)]


def with_examples(parser: argparse.ArgumentParser,
                  examples: collections.abc.Sequence[str]) -> str:
    """Return the text at the end of a command's help."""
    lines = [line for each in examples
             for line in _wrapped(parser.prog, each.split())]
    return '\n\n'.join(filter(None, [
        _LITERAL + '\n'.join(f'  {line}' for line in lines),
        parser.epilog]))


def _wrapped(command: str, words: list[str]) -> list[str]:
    """Return lines that a shell joins; an option stays with its value."""
    lines = [command]
    for number, word in enumerate(words):
        option = word.startswith('-')
        value = number > 0 and words[number - 1].startswith('-') and not option
        following = words[number + 1:number + 2] if option else []
        if value or len(' '.join([lines[-1], word, *following])) < _COLUMNS:
            lines[-1] += f' {word}'
        else:
            lines[-1] += ' \\'
            lines.append(f'    {word}')
    return lines
