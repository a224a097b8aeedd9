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
"""What can be measured: suites, their cases, and the options of these."""

import collections.abc
import dataclasses
import importlib
import typing

from bench.harness import errors

SUITES = ('patch', 'placement', 'versions', 'lazy', 'ssdcache', 'site',
          'openstack', 'scale')


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a case; ``seed`` is given as ``--seed``.

    :ivar quick: value with ``--quick``; None: the default
    :ivar kind: of one value; None: that of the default
    :ivar many: whether it takes several values
    :ivar selects: whether it only chooses what to measure, so that a result
        with another value is continued
    """

    name: str
    default: typing.Any
    help: str
    quick: typing.Any = None
    kind: type | None = None
    choices: tuple = ()
    many: bool = False
    selects: bool = False

    @property
    def type(self) -> type:
        """Type of one value."""
        if self.kind:
            return self.kind
        return type(self.default[0] if self.many else self.default)


@dataclasses.dataclass(frozen=True)
class Case:
    """One measurement.

    :ivar run: ``module:function`` below the suite's package; the function
        gets a :class:`.runs.Run`
    :ivar pages: documents that show it, below ``doc/source``, without suffix
    :ivar needs: programs without which it cannot run
    :ivar root: whether it mounts, or changes networks
    """

    name: str
    about: str
    run: str
    pages: tuple[str, ...]
    options: tuple[Option, ...] = ()
    needs: tuple[str, ...] = ()
    root: bool = False
    suite: str = ''

    def load(self) -> collections.abc.Callable:
        """Return the function that measures."""
        module, _, function = self.run.partition(':')
        return getattr(importlib.import_module(
            f'bench.{self.suite}.{module}'), function)


def describe(suite: str) -> str:
    """Return what a suite says of itself."""
    return importlib.import_module(f'bench.{suite}').__doc__.strip()


def of_suite(suite: str) -> dict[str, Case]:
    """Return the cases of a suite, by name."""
    return {case.name: dataclasses.replace(case, suite=suite)
            for case in importlib.import_module(f'bench.{suite}').CASES}


def find(suite: str, names: collections.abc.Sequence[str]) -> list[Case]:
    """Return cases of a suite; all of them without names.

    :raises BenchError: there is no such suite or case
    """
    if suite not in SUITES:
        raise errors.BenchError(
            f'no suite {suite}: it is one of {", ".join(SUITES)}')
    known = of_suite(suite)
    for name in names:
        if name not in known:
            raise errors.BenchError(f'{suite} has no case {name}: it has '
                                    + ', '.join(known))
    return [known[name] for name in names] or list(known.values())


def everything() -> list[Case]:
    """Return the cases of all suites."""
    return [case for suite in SUITES for case in of_suite(suite).values()]
