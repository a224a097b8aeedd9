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
"""What is requested in the cases in which a cache helps least.

They run on an embedded site (bench/site) and on a real OpenStack
(bench/openstack).
"""

import collections.abc
import contextlib
import typing

from bench.harness import tables


class Rig(typing.Protocol):
    """A site with empty caches, on which a case runs.

    :ivar first: name of a compute host
    :ivar second: name of another one
    """

    first: str
    second: str

    def start(self, name: str, host: str) -> typing.Any:
        """Start a server of an image on a host, before anything counts."""

    def request(self, *wanted: tuple[str, str]) -> None:
        """Request servers at once, each of an image and on a host."""

    def counting(self) -> contextlib.AbstractContextManager:
        """Wait until the site knows what its hosts have, and count."""

    def plan(self, name: str) -> None:
        """Have caches hold an image, where there is a way."""

    def restart(self, host: str) -> None:
        """Restart a host with all services on it."""

    def without_conductor(self) -> contextlib.AbstractContextManager:
        """Leave the agents to themselves."""


def requested(*wanted: tuple[str, str], before: str | None = None,
              planned: bool = False, restarted: bool = False,
              ) -> collections.abc.Callable[[Rig], None]:
    """Return a case that requests servers, each of an image and on a host.

    :param wanted: images and hosts, ``first`` or ``second``
    :param before: image of a server that the first host runs already
    :param planned: the first image was planned; what fills caches counts
    :param restarted: the first host was restarted
    """
    def case(rig: Rig) -> None:
        if before is not None:
            rig.start(before, rig.first)
        if restarted:
            rig.restart(rig.first)
        with rig.counting():
            if planned:
                rig.plan(wanted[0][0])
            rig.request(*((name, getattr(rig, host))
                          for name, host in wanted))
    return case


def conductor_outage(rig: Rig) -> None:
    """A second host, and the next build there, without the conductor."""
    rig.start('base', rig.first)
    with rig.counting(), rig.without_conductor():
        rig.request(('base', rig.second))
        rig.request(('next', rig.second))


cold_image = requested(('base', 'first'))
second_host = requested(('base', 'second'), before='base')
next_planned = requested(('next', 'first'), before='base', planned=True)
next_build = requested(('next', 'first'), before='base')
next_elsewhere = requested(('next', 'second'), before='base')
same_distribution = requested(('other', 'first'), before='base')
after_restart = requested(('next', 'first'), before='base', restarted=True)
four_at_once = requested(*[('base', 'first'), ('base', 'second')] * 2)
sixteen_at_once = requested(*[('base', 'first'), ('base', 'second')] * 8)

# Capacity of each host's cache, as a share of the base image's data.
ROOMY, FULL, SMALL = 2.5, 1.2, 0.8


def row(case: str, found: dict[str, dict | None], plain: str, ours: str,
        ) -> tuple[str, ...]:
    """Return bytes and seconds of a case in all ways, and ratios of two.

    :param found: figures by way
    """
    cells = [case]
    for figures in found.values():
        cells += (['-', '-'] if figures is None else [
            tables.megabytes(figures['wan_bytes']),
            f'{figures["seconds"]:.1f}'])
    for field in ('wan_bytes', 'seconds'):
        part, whole = found.get(ours), found.get(plain)
        cells.append(f'{part[field] / whole[field]:.2f}'
                     if part and whole and whole[field] else '-')
    return tuple(cells)


def head(titles: collections.abc.Iterable[str]) -> tuple[str, ...]:
    """Return the head of a table with such rows."""
    return ('Case', *(f'{title}, {unit}' for title in titles
                      for unit in ('MB', 's')), 'Ratio, MB', 'Ratio, s')
