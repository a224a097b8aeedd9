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
"""The stub of the native module says what the module has."""

import ast
import inspect
import pathlib
import typing

from diffcache_openstack import _native

from tests import base

STUB = pathlib.Path(__file__).parents[2] / 'diffcache_openstack/_native.pyi'
Signatures = dict[str, tuple[str, ...]]


def of_arguments(arguments: ast.arguments) -> tuple[str, ...]:
    """The parameters that a caller may name."""
    given = arguments.args + arguments.kwonlyargs
    if arguments.kwarg:
        given.append(arguments.kwarg)
    names = [a.arg for a in given]
    return tuple(name for name in names if name != 'self')


def of_stub() -> Signatures:
    """Parameters of each function, class and method; constants have none."""
    found = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = of_arguments(node.args)
        elif isinstance(node, ast.AnnAssign) \
                and not node.target.id.startswith('_'):
            found[node.target.id] = ()
        elif isinstance(node, ast.ClassDef):
            found[node.name] = ()
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    own = of_arguments(member.args)
                    if member.name == '__init__':
                        found[node.name] = own
                    elif not member.name.startswith('__'):
                        found[f'{node.name}.{member.name}'] = own
    return found


def parameters(thing: typing.Any) -> tuple[str, ...]:
    """The parameters that a native function or class says it takes."""
    if not getattr(thing, '__text_signature__', None):
        return ()
    return tuple(name for name in inspect.signature(thing).parameters
                 if name != 'self')


def of_module() -> Signatures:
    """The same as of_stub(), of the module itself."""
    found = {}
    for name, thing in vars(_native).items():
        if name.startswith('_'):
            continue
        found[name] = parameters(thing)
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            for member in vars(thing):
                if not member.startswith('_'):
                    found[f'{name}.{member}'] = parameters(
                        getattr(thing, member))
    return found


def differences(one: Signatures, other: Signatures) -> list:
    """What is in the one and not, or otherwise, in the other."""
    return sorted(set(one.items()) - set(other.items()))


class TestStub(base.TestCase):

    def test_module_has_nothing_that_the_stub_lacks(self):
        self.assertEqual([], differences(of_module(), of_stub()))

    def test_stub_has_nothing_that_the_module_lacks(self):
        self.assertEqual([], differences(of_stub(), of_module()))
