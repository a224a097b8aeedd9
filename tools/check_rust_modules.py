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
"""Check that no two modules of a Rust crate need each other.

A module needs its submodules, and each other one that a path in its code,
outside of tests, leads into. What it is itself a part of counts as no other.
Prints one line for each circle, and exits with 1 if there is one.
"""

import pathlib
import re
import sys

NATIVE = pathlib.Path(__file__).resolve().parent.parent / 'native'

Graph = dict[str, set[str]]

COMMENT = re.compile(r'//[^\n]*')
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
TESTS = re.compile(r'#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub )?mod \w+')
USE = re.compile(r'\buse ([^;]+);')
PATH = re.compile(r'\b(?:crate|super|self)(?:::\w+)+')


def paths_of(tree: str) -> list[str]:
    """Return the paths that the tree of a ``use`` declaration stands for."""
    tree = re.sub(r'\s+', ' ', tree).strip()
    before, brace, inside = tree.partition('{')
    if not brace:
        return [tree.split(' as ')[0].strip()]
    parts, depth, part = [], 0, ''
    for letter in inside[:inside.rindex('}')]:
        depth += (letter == '{') - (letter == '}')
        if letter == ',' and not depth:
            parts.append(part)
            part = ''
        else:
            part += letter
    parts.append(part)
    return [path for part in parts if part.strip()
            for path in paths_of(before.strip() + part.strip())]


def code_of(text: str) -> str:
    """Return a file's code, without comments, texts, and tests at its end."""
    text = TEXT.sub('""', COMMENT.sub('', text))
    tests = TESTS.search(text)
    if tests and '{' in text[tests.end():].lstrip()[:1]:
        text = text[:tests.start()]
    return text


def module_of(path: pathlib.Path, source: pathlib.Path) -> str:
    """Return the path of the module that a file has; empty for the crate."""
    parts = list(path.relative_to(source).with_suffix('').parts)
    if parts[-1] in ('mod', 'lib', 'main'):
        parts.pop()
    return '::'.join(parts)


def absolute(path: str, module: str) -> list[str]:
    """Return the parts of a path in a module, from the crate on."""
    parts = path.removeprefix('::').split('::')
    start = module.split('::') if module else []
    if parts[0] == 'crate':
        return parts[1:]
    if parts[0] == 'self':
        parts.pop(0)
    elif parts[0] != 'super':
        return start + parts
    while parts and parts[0] == 'super':
        start, parts = start[:-1], parts[1:]
    return start + parts


def needs(module: str, code: str, modules: set[str]) -> set[str]:
    """Return the modules of its crate that a module's code leads into."""
    uses = [path for tree in USE.findall(code) for path in paths_of(tree)]
    found = set()
    for path in uses + PATH.findall(USE.sub('', code)):
        parts = absolute(path, module)
        while parts and '::'.join(parts) not in modules:
            parts.pop()
        target = '::'.join(parts)
        # What it is itself a part of is no other one.
        if target and not f'{module}::'.startswith(f'{target}::'):
            found.add(target)
    return found


def graph_of(source: pathlib.Path) -> Graph:
    """Return which modules each module of a crate needs."""
    files = {module_of(path, source): path for path in source.rglob('*.rs')
             if 'tests' not in path.relative_to(source).with_suffix('').parts}
    graph = {module: needs(module, code_of(path.read_text()), set(files))
             for module, path in files.items() if module}
    for module in graph:
        above = module.rpartition('::')[0]
        if above in graph:
            graph[above].add(module)
    return graph


def circles_of(graph: Graph) -> list[tuple[str, ...]]:
    """Return the groups of modules that need each other, each in order."""
    reached = {module: _reached(module, graph) for module in graph}
    groups = {tuple(sorted(other for other in reached[module]
                           if module in reached[other]))
              for module in graph if module in reached[module]}
    return sorted(groups)


def _reached(module: str, graph: Graph) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def main() -> int:
    """Check every crate."""
    found = {(source.parent.name, *circle) for source in NATIVE.glob('*/src')
             for circle in circles_of(graph_of(source))}
    for crate, *modules in sorted(found):
        print(f'native/{crate}: these modules need each other: '
              f'{", ".join(modules)}')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
