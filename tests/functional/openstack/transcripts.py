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
"""What a document shows of commands, and whether that is what they print.

What differs from run to run counts as equal: ids, hashes, instants, numbers
with or without a unit, and the widths of columns. In a document ``...`` stands
for what it leaves out: as a line for any lines, within one for any words.
"""

import re
import typing

ELLIPSIS = '...'
_COMMAND = '   $ '
_INDENT = '   '
# Each pattern, and the word that stands for what it matches.
_CHANGING = (
    (re.compile(r'\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b'), 'ID'),
    (re.compile(r'\b\d{4}-\d\d-\d\dT[\d:.]+Z?'), 'INSTANT'),
    (re.compile(r'\b[0-9a-f]{12,64}\b'), 'HASH'),
    (re.compile(r'(?<![\w.-])-?\d+(\.\d+)?( ?[kMGT]?B\b|%)?'), 'NUMBER'),
    (re.compile(r'-{2,}'), '-'),
    (re.compile(r'\s+'), ' '))


class Step(typing.NamedTuple):
    """A command, and the lines that a document shows of its output."""

    command: str
    shown: list[str]


def steps(document: str) -> list[Step]:
    """The commands of a document, in its order."""
    found: list[Step] = []
    inside = False
    for line in document.splitlines():
        if line.startswith(_COMMAND):
            found.append(Step(line.removeprefix(_COMMAND), []))
            inside = True
        elif inside and line.startswith(_INDENT):
            found[-1].shown.append(line.removeprefix(_INDENT))
        else:
            inside = False
    return found


def sections(document: str) -> dict[str, list[Step]]:
    """The commands of a document below each of its headings."""
    parts = re.split(r'^(.+)\n=+\n', document, flags=re.MULTILINE)
    return {heading: steps(text)
            for heading, text in zip(parts[1::2], parts[2::2])}


def agree(shown: list[str], printed: str) -> bool:
    """Whether a command printed what a document shows."""
    pattern = ''.join(map(_line, shown))
    lines = ''.join(f'{_steady(line)}\n' for line in printed.splitlines())
    return re.fullmatch(pattern, lines) is not None


def _line(text):
    if text.strip() == ELLIPSIS:
        return r'(?:.*\n)*?'
    # Apart, because a word that is left out is beside no number.
    parts = map(re.escape, _steady(text).split(ELLIPSIS))
    return '.*'.join(parts) + r'\n'


def _steady(line):
    for pattern, word in _CHANGING:
        line = pattern.sub(word, line)
    return line.strip()
