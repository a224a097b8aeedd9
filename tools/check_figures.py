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
"""Check that front pages print no figure that no page explains.

Usage: check_figures.py [DIRECTORY]

Each figure of the README, the overview and the comparison that was measured
(a number with a fraction, with thousands apart, or of three digits and more)
has to be, as it is, on a page that the front page links to, and that names
what repeats it: a suite of bench/run, a trial or a tool. So has each figure in
a picture of a front page. Prints one line for each finding, and exits with 1
if there was any.
"""

import pathlib
import re
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = 'doc/source'
FRONT_PAGES = ('README.rst', f'{DOCUMENTS}/overview.rst',
               f'{DOCUMENTS}/comparison.rst')
FIGURE = re.compile(r'(?<![\w.,-])\d{1,3}(?:,\d{3})+|(?<![\w.,-])\d+\.\d+'
                    r'|(?<![\w.,-])\d{3,}(?![\w-])')
LINK = re.compile(r':doc:`(?:[^`<]*<)?/?([\w/-]+)>?`'
                  rf'|``{DOCUMENTS}/([\w/-]+)\.rst``')
PICTURE = re.compile(r'^\.\. image:: (\S+\.svg)$', re.MULTILINE)
SHOWN = re.compile(r'<text[^>]*>([^<]*)</text>')
INCLUDED = re.compile(r'^\.\. include:: (\S+)', re.MULTILINE)
# What a page names that has figures of its own.
REPEATED = re.compile(r'\b(?:bench/run|tests/functional/|tools/quickstart)')
# A year or a series of OpenStack, and what the README prints of a whole run.
YEAR = re.compile(r'\b20\d\d(?:\.[12])?\b')
PRINTED = re.compile(r'::\n\n(?: +\S.*\n|\n)+')


def read_page(path: pathlib.Path) -> str:
    """Return a page with the files that it includes."""
    text = path.read_text()
    return text + ''.join((path.parent / name).read_text()
                          for name in INCLUDED.findall(text))


def linked(text: str, tree: pathlib.Path) -> str:
    """Return the text of the pages with figures that a text links to."""
    names = {one or other for one, other in LINK.findall(text)}
    paths = (tree / DOCUMENTS / f'{name}.rst' for name in sorted(names))
    pages = (read_page(path) for path in paths if path.exists())
    return '\n'.join(page for page in pages if REPEATED.search(page))


def shown(page: pathlib.Path) -> str:
    """Return the words of all pictures of a page."""
    return '\n'.join(
        words for name in PICTURE.findall(page.read_text())
        for words in SHOWN.findall((page.parent / name).read_text()))


def check_page(page: pathlib.Path, tree: pathlib.Path) -> list[str]:
    """Return the figures of a front page that no page it links to has."""
    text = page.read_text()
    known = set(FIGURE.findall(linked(text, tree)))
    said = PRINTED.sub('::\n', text) if page.name == 'README.rst' else text
    said = f'{YEAR.sub("", said)}\n{shown(page)}'
    missing = set(FIGURE.findall(said)) - known
    return sorted(missing)


def main(arguments: list[str]) -> int:
    """Check the front pages; return the exit code."""
    tree = pathlib.Path(arguments[0]) if arguments else TREE
    found = [(name, figure) for name in FRONT_PAGES
             for figure in check_page(tree / name, tree)]
    for name, figure in found:
        print(f'{name}: {figure} is on no page that it links to and that says'
              ' how to repeat it')
    return bool(found)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
