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
"""Check files of this tree for what no general linter knows.

Usage: check_tree.py FILE...

Each file is checked for paths that only exist on one machine, for its length,
for its ending and its trailing blanks; Python files for the licence header,
for imports of names where the project imports modules, for imports that
point from outside into the tests, and for files of others that are handled by
their path; Rust files for their opening documentation.
Prints one line for each finding, and exits with 1 if there was any.
"""

import ast
import os
import pathlib
import re
import sys
import typing

TREE = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = 'diffcache_openstack'

# What tests and benchmarks share is in "testing"; nothing imports the tests.
OURS = (PACKAGE, 'testing', 'tests')
TESTS = 'tests'

# A longer file has more than one purpose.
MAX_LINES = 900
# Written by programs, or not to be split.
ANY_LENGTH = {'LICENSE',
              'diffcache_openstack/dashboard/locale/de/LC_MESSAGES/django.po',
              'doc/source/reference/api-routes.inc',
              'etc/diffcache/diffcache.conf.sample',
              'native/Cargo.lock', 'native/fuzz/Cargo.lock'}

# Directories of people and of build machines. Written in parts, so that this
# file does not find itself.
MACHINE_PATH = re.compile(
    r'(?<![\w.$}-])/(?:home|Users|work|root' + r')/[\w.-]+')
CHECKOUT_PATH = re.compile(rf'(?<![\w.$}}-]){re.escape(str(TREE))}(?![\w.-])')
LICENCE_LINES = 11
CONFLICT = re.compile(r'^(<{7}|>{7}|\|{7})( |$)')

# What handles files in directories that other users may change; a descriptor
# of the directory, not a path, is what its files are handled by.
FOREIGN = (f'{PACKAGE}/agent/images/delivery/outputs.py',
           f'{PACKAGE}/agent/privileged/',
           f'{PACKAGE}/versions/disks/', f'{PACKAGE}/versions/guests/',
           f'{PACKAGE}/versions/restore/rollback')
BY_PATH = {'chmod', 'chown', 'link', 'link_to', 'mkdir', 'makedirs', 'move',
           'open', 'read_bytes', 'read_text', 'remove', 'rename', 'replacing',
           'rmdir', 'rmtree', 'symlink', 'symlink_to', 'touch', 'unlink',
           'write_bytes', 'write_json', 'write_text'}
# Where they are functions on paths; elsewhere they are methods of a path.
PATH_MODULES = ('files', 'os', 'shutil')
PATH_METHODS = BY_PATH - {'link', 'move', 'open', 'remove', 'rename',
                          'replacing', 'write_json'}
BY_DESCRIPTOR = {'dir_fd', 'src_dir_fd'}

Finding = tuple[int, str]


def licence(path: pathlib.Path = TREE / PACKAGE / '__init__.py') -> list[str]:
    """Return the lines that every Python file starts with."""
    return path.read_text().splitlines()[:LICENCE_LINES]


def check_lines(name: str, text: str) -> typing.Iterator[Finding]:
    """Check paths, lengths, endings and blanks of any text file."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES and name not in ANY_LENGTH:
        yield len(lines), f'more than {MAX_LINES} lines: split the file'
    if text and not text.endswith('\n') and not name.endswith('.json'):
        yield len(lines), 'the last line has no end'
    for number, line in enumerate(lines, 1):
        if found := MACHINE_PATH.search(line):
            yield number, f'path of one machine: {found.group()}'
        if CHECKOUT_PATH.search(line):
            yield number, 'path of this checkout'
        if line != line.rstrip() and not name.endswith('.svg'):
            yield number, 'trailing blanks'
        if CONFLICT.match(line):
            yield number, 'unresolved merge conflict'


def is_module(dotted: str, tree: pathlib.Path) -> bool:
    """Return whether a dotted name is a module or package of this tree."""
    path = tree.joinpath(*dotted.split('.'))
    return (path.is_dir() or path.with_suffix('.py').is_file()
            or path.name == '_native')


def check_imports(text: str, tree: pathlib.Path = TREE,
                  ) -> typing.Iterator[Finding]:
    """Find names imported from this package's modules."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            yield node.lineno, 'relative import: name the whole module'
        elif (node.module or '').split('.')[0] in OURS:
            for alias in node.names:
                if not is_module(f'{node.module}.{alias.name}', tree):
                    yield (node.lineno, f'{alias.name} is no module of '
                           f'{node.module}: import the module')


def check_direction(name: str, text: str) -> typing.Iterator[Finding]:
    """Find imports of tests by other modules."""
    if name.startswith(f'{TESTS}/'):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or '']
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        if any(module.split('.')[0] == TESTS for module in modules):
            yield node.lineno, 'imports a test: move what is shared to testing'


def check_foreign_files(name: str, text: str) -> typing.Iterator[Finding]:
    """Find files handled by path where another user may replace them."""
    if not name.startswith(FOREIGN):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and _goes_by_path(node):
            yield (node.lineno, 'handles a file by its path: use the'
                   ' descriptor of its directory (runtime/directories.py)')


def _goes_by_path(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == 'open'
    if not isinstance(call.func, ast.Attribute):
        return False
    if any(each.arg in BY_DESCRIPTOR for each in call.keywords):
        return False
    owner, called = call.func.value, call.func.attr
    if isinstance(owner, ast.Name) and owner.id in PATH_MODULES:
        return called in BY_PATH
    # A directory or an access to disks has methods of these names.
    return called in PATH_METHODS and not (
        isinstance(owner, ast.Name)
        and owner.id in ('directory', 'room', 'staging')
        or isinstance(owner, ast.Attribute) and owner.attr == '_directory')


def check_python(name: str, text: str) -> typing.Iterator[Finding]:
    """Check the licence header and the imports."""
    yield from check_direction(name, text)
    yield from check_foreign_files(name, text)
    lines = text.splitlines()
    if lines and lines[0].startswith('#!'):
        lines = lines[1:]
    if lines[:LICENCE_LINES] != licence():
        yield 1, 'does not start with the licence header'
    # What a package offers as a whole, its __init__ may gather.
    if not name.endswith('__init__.py'):
        yield from check_imports(text)


def check_rust(text: str) -> typing.Iterator[Finding]:
    """Check that a Rust file starts with its documentation."""
    if not text.startswith('//!'):
        yield 1, 'does not start with its documentation (//!)'


def is_python(name: str, text: str) -> bool:
    """Return whether a file is a module or a script of Python."""
    return name.endswith('.py') or (
        text.startswith('#!') and 'python' in text.partition('\n')[0])


def check_file(name: str) -> typing.Iterator[Finding]:
    """Find everything that is wrong with one file.

    :param name: the file's path, relative to the tree
    """
    text = (TREE / name).read_text(encoding='utf-8')
    yield from check_lines(name, text)
    if text and is_python(name, text):
        yield from check_python(name, text)
    elif name.endswith('.rs'):
        yield from check_rust(text)


def main(names: list[str]) -> int:
    """Print the findings in all files; return the exit code."""
    os.chdir(TREE)
    status = 0
    for name in names:
        for line, problem in check_file(name):
            print(f'{name}:{line}: {problem}')
            status = 1
    return status


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
