#!/usr/bin/env python3
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
"""Write the literal blocks of a page as files, so that a trial can follow it.

usage: page_blocks.py PAGE DIRECTORY

Each section gets a folder, named by its title in lower case with hyphens. Its
blocks are numbered: 1.sh, 2.sh; 3.conf is one that begins with a group of
options. Blocks of what the page includes are among them.
"""

import collections
import collections.abc
import pathlib
import re
import sys
import textwrap

_UNDERLINE = re.compile(r'([=\-~^])\1{2,}')
_INCLUDE = re.compile(r'\.\. include:: (\S+)')

Block = tuple[str, str]


def _lines(page: pathlib.Path) -> list[str]:
    """Return the lines of a page, with those of the files it includes."""
    lines: list[str] = []
    for line in page.read_text().splitlines():
        found = _INCLUDE.fullmatch(line)
        lines += _lines(page.parent / found[1]) if found else [line]
    return lines


def _literal(lines: list[str], start: int) -> tuple[str, int]:
    """Return the block that begins at a line, and the line behind it."""
    end = start
    while end < len(lines) and (not lines[end] or lines[end].startswith(' ')):
        end += 1
    text = textwrap.dedent('\n'.join(lines[start:end])).strip('\n')
    return f'{text}\n', end


def blocks(page: pathlib.Path) -> collections.abc.Iterator[Block]:
    """Yield each literal block of a page behind the title of its section."""
    lines, title, number = _lines(page), '', 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if (number < len(lines) and line and not line.startswith(' ')
                and _UNDERLINE.fullmatch(lines[number])):
            title = line
        elif line.endswith('::') and not line.startswith('..'):
            text, number = _literal(lines, number)
            yield title, text


def main(words: list[str]) -> int:
    """Write the files; return the exit code."""
    if len(words) != 2:
        print('usage: page_blocks.py PAGE DIRECTORY', file=sys.stderr)
        return 2
    counts: collections.Counter[str] = collections.Counter()
    for title, text in blocks(pathlib.Path(words[0])):
        name = re.sub(r'\W+', '-', title.lower())
        folder = pathlib.Path(words[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        counts[name] += 1
        kind = 'conf' if text.startswith('[') else 'sh'
        (folder / f'{counts[name]}.{kind}').write_text(text)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
