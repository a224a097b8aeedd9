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
"""What can be checked of the trials on a real OpenStack without one.

Few of them run with the other tests, so what breaks one could stay unseen.
"""

import ast
import collections.abc
import importlib
import inspect
import pkgutil
import textwrap

from tests import base
from tests.functional import openstack
from tests.functional.openstack import machine


def trials() -> set[type[base.TestCase]]:
    """Import all modules of trials; return their classes."""
    found: set[type[base.TestCase]] = set()
    for module in pkgutil.walk_packages(openstack.__path__,
                                        f'{openstack.__name__}.'):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and issubclass(each, machine.TestCase):
                found.add(each)
    return found


def helpers(case: type) -> dict[str, collections.abc.Callable]:
    """Functions that a class itself defines, by name."""
    return {name: value for name, value in vars(case).items()
            if inspect.isfunction(value)}


def redefined(case: type) -> list[str]:
    """Helpers that a class redefines with other parameters.

    What calls a helper by the parameters that a base has, in the base itself
    or in another of its classes, would call that of the class.
    """
    return [f'{case.__name__}.{name} is no {parent.__name__}.{name}'
            for parent in case.__mro__[1:] if issubclass(parent, base.TestCase)
            for name, value in helpers(parent).items()
            if parameters(getattr(case, name)) != parameters(value)]


def parameters(function: collections.abc.Callable) -> list[str]:
    """Names and defaults of a function's parameters."""
    return [str(each.replace(annotation=inspect.Parameter.empty)) for each in
            inspect.signature(function).parameters.values()]


def hidden(case: type) -> list[str]:
    """Helpers of a class that its instances replace with values."""
    return [f'{case.__name__}: self.{name} hides a helper'
            for parent in case.__mro__ if issubclass(parent, machine.TestCase)
            for name in assigned(parent)
            if inspect.isroutine(getattr(case, name, None))]


def assigned(case: type) -> set[str]:
    """Attributes of "self" that the code of a class assigns."""
    code = ast.parse(textwrap.dedent(inspect.getsource(case)))
    return {node.attr for node in ast.walk(code)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name) and node.value.id == 'self'}


def misfits(case: type) -> list[str]:
    """Calls of helpers on "self" with other arguments than they take."""
    return [f'{case.__name__}: self.{call.func.attr}() in line {call.lineno}'
            for name, value in helpers(case).items()
            for call in calls(value) if not fits(case, call)]


def calls(function: collections.abc.Callable) -> list[ast.Call]:
    """Calls on "self" in the code of a function."""
    code = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return [node for node in ast.walk(code) if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == 'self']


def fits(case: type, call: ast.Call) -> bool:
    """Return whether a helper takes the arguments of a call."""
    found = inspect.getattr_static(case, call.func.attr, None)
    is_unknown = any(isinstance(each, ast.Starred) for each in call.args) \
        or any(each.arg is None for each in call.keywords)
    if not inspect.isfunction(found) or is_unknown:
        return True
    try:
        inspect.signature(found).bind(
            None, *call.args,
            **{each.arg: each.value for each in call.keywords})
    except TypeError:
        return False
    return True


class TestNames(base.TestCase):

    def test_no_trial_redefines_a_helper_of_its_bases(self):
        for case in trials():
            with self.subTest(case.__qualname__):
                self.assertEqual([], redefined(case))

    def test_no_trial_hides_a_helper_behind_a_value(self):
        for case in trials():
            with self.subTest(case.__qualname__):
                self.assertEqual([], hidden(case))

    def test_helpers_are_called_with_what_they_take(self):
        """Regression: a helper had another name in a change made beside it."""
        for case in trials():
            with self.subTest(case.__qualname__):
                self.assertEqual([], misfits(case))


class Parent(machine.TestCase):

    def start(self, image, host=None):
        raise NotImplementedError


class TestFinding(base.TestCase):
    """Mistakes are found."""

    def test_other_parameters(self):
        class Child(Parent):
            def start(self, version, *options):
                raise NotImplementedError

        self.assertEqual(['Child.start is no Parent.start'], redefined(Child))

    def test_another_default(self):
        class Child(Parent):
            def start(self, image, host='compute-1'):
                raise NotImplementedError

        self.assertEqual(['Child.start is no Parent.start'], redefined(Child))

    def test_a_second_base(self):
        class Other(machine.TestCase):
            def start(self, version):
                raise NotImplementedError

        class Child(Other, Parent):
            pass

        self.assertEqual(['Child.start is no Parent.start'], redefined(Child))

    def test_a_call_without_an_argument(self):
        class Child(Parent):
            def test_it(self):
                self.start('image', host='compute-1')
                self.start()

        self.assertEqual(['Child: self.start() in line 3'], misfits(Child))

    def test_the_same_parameters(self):
        class Child(Parent):
            def start(self, image: str, host: str | None = None) -> str:
                raise NotImplementedError

        self.assertEqual([], redefined(Child))

    def test_a_value(self):
        class Child(Parent):
            def setUp(self):
                super().setUp()
                self.start = 1

        self.assertEqual(['Child: self.start hides a helper'], hidden(Child))
