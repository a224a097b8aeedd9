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
"""Check the contributor documentation against the tree, and lengths of pages.

Usage: check_docs.py [DIRECTORY]

A literal in the documents (``agent.images.filling`` or
``agent/images/filling.py``) that begins with a package of the suite has to
name a module, or something in one. The document on architecture has to name
every package. No page of the documentation has more words than a reader takes
in at once. Prints one line for each finding, and exits with 1 if there was
any.
"""

import ast
import pathlib
import re
import sys
import typing

TREE = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = 'diffcache_openstack'
PAGES = 'doc/source'
DOCUMENTS = f'{PAGES}/contributor'
MOST_WORDS = 2500
OVERVIEW = 'architecture.rst'
LITERAL = re.compile(
    r'``([A-Za-z_]\w*(?:\.\w+)+|[a-z_]+(?:/\w+)+\.py)(?:\(\))?``')
# Modules of other projects whose names begin like a package of this one.
FOREIGN = ('nova.virt.',)
# Packages within packages are to be named, too, but nothing below those.
DEPTH = 2

Finding = tuple[pathlib.Path, int, str]


def packages(tree: pathlib.Path) -> list[str]:
    """List the dotted names of all packages below the suite's own."""
    top = tree / PACKAGE
    return sorted('.'.join(path.parent.relative_to(top).parts)
                  for path in top.rglob('__init__.py') if path.parent != top)


def names_in(path: pathlib.Path) -> set[str]:
    """Return the names that a module defines or imports."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets
                         if isinstance(target, ast.Name))
    return found


def exists(dotted: str, tree: pathlib.Path) -> bool:
    """Return whether a dotted name is a package, a module, or in a module."""
    path = tree / PACKAGE
    parts = dotted.split('.')
    for number, part in enumerate(parts, start=1):
        path = path / part
        if (path / '__init__.py').is_file():
            continue
        module = path.with_suffix('.py')
        if module.is_file():
            return number == len(parts) or parts[number] in names_in(module)
        package = path.parent / '__init__.py'
        return package.is_file() and part in names_in(package)
    return True


def check_names(document: pathlib.Path, tree: pathlib.Path
                ) -> typing.Iterator[Finding]:
    """Find literals that name no module."""
    tops = {name for name in packages(tree) if '.' not in name}
    for number, line in enumerate(document.read_text().splitlines(), 1):
        for literal in LITERAL.findall(line):
            dotted = literal.removesuffix('.py').replace('/', '.')
            dotted = dotted.removeprefix(f'{PACKAGE}.')
            if dotted.startswith(FOREIGN) or dotted.split('.')[0] not in tops:
                continue
            if not exists(dotted, tree):
                yield document, number, f'there is no {literal}'


def check_packages(document: pathlib.Path, tree: pathlib.Path
                   ) -> typing.Iterator[Finding]:
    """Find packages that the overview leaves out."""
    text = document.read_text()
    for name in packages(tree):
        if name.count('.') < DEPTH and f'``{name}``' not in text:
            yield document, 1, f'the package {name} is not named'


def check_length(page: pathlib.Path) -> typing.Iterator[Finding]:
    """Find out whether a page is too long."""
    count = len(page.read_text().split())
    if count > MOST_WORDS:
        yield page, 1, (f'the page has {count} words; divide what has more'
                        f' than {MOST_WORDS} by task')


def main(arguments: list[str]) -> int:
    """Print the findings; return the exit code."""
    tree = pathlib.Path(arguments[0]) if arguments else TREE
    directory = tree / DOCUMENTS
    findings = [finding for document in sorted(directory.glob('*.rst'))
                for finding in check_names(document, tree)]
    findings += check_packages(directory / OVERVIEW, tree)
    findings += [finding for page in sorted((tree / PAGES).rglob('*.rst'))
                 for finding in check_length(page)]
    for page, line, problem in findings:
        print(f'{page.relative_to(tree)}:{line}: {problem}')
    return 1 if findings else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
