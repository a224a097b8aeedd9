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
"""Cases in which a cache helps least, on a real OpenStack.

Measured are the seconds from the request until Nova calls the server active
(the last one, of several), and the bytes that crossed the link until the guest
has printed which image it runs.
"""

import collections.abc
import contextlib
import pathlib
import statistics
import time

from bench.harness import runs
from bench.openstack import site
from bench.site import scenarios
from onemachine import guests
from onemachine import modes

# The files of the base, of what its next build has more, of what other images
# of the distribution have more, and of images that have nothing in common.
SIZES = {'system': 180 * site.MIB, 'update': 3 * site.MIB,
         'web': 120 * site.MIB, 'database': 180 * site.MIB}
# Each is made from nothing, so that equal files are at other places.
FAMILY = (
    guests.Recipe('base', None, ('system',)),
    guests.Recipe('next', None, ('update', 'system')),
    guests.Recipe('other', None, ('web', 'system')),
    guests.Recipe('unrelated', None, ('database',)),
)


class Rig:
    """A site with empty caches, on which a case runs.

    :ivar figures: seconds that the measured requests took, bytes that crossed
        the link for them, and of each agent seconds of processors and the
        most memory since the case began
    """

    first, second = 'compute-1', 'compute-2'

    def __init__(self, stage, images: dict[str, str],
                 base: pathlib.Path) -> None:
        """Prepare.

        :param images: ids by name
        :param base: the raw file of the image of that name
        """
        self._stage = stage
        self._trial = stage.trial
        self._images = dict(images)
        self._base = base
        self._places: set[tuple[str, str]] = set()
        self.figures: dict = {'seconds': 0.0, 'wan_bytes': 0}

    def start(self, name: str, host: str) -> str:
        """Start a server before the clock does; return its id."""
        return self._start([(name, host)])[0]

    def delete(self, *servers: str) -> None:
        """Delete servers; their base images stay."""
        self._trial.delete(*servers)

    def request(self, *wanted: tuple[str, str]) -> None:
        """Request servers at once, each of an image and on a host."""
        started = time.monotonic()

        def note() -> None:
            self.figures['seconds'] += time.monotonic() - started
        self._start(wanted, note)

    def _start(self, wanted: collections.abc.Sequence[tuple[str, str]],
               when_active: collections.abc.Callable[[], None] = lambda: None
               ) -> list[str]:
        servers = [self._trial.create(self._images[name], host)
                   for name, host in wanted]
        for server in servers:
            self._trial.wait_active(server)
        when_active()
        for server, (name, host) in zip(servers, wanted):
            self._trial.wait_for_line(
                server, host, f'{guests.MARKER} name={name} ', 600)
            self._places.add((name, host))
        return servers

    @contextlib.contextmanager
    def counting(self) -> collections.abc.Iterator[None]:
        """Count the bytes that cross the link, and the work of agents."""
        if self._stage.mode.suite:
            self._stage.wait('the site knows its base images',
                             self._all_are_known)
        self._stage.await_quiet()
        used, before = self._stage.agents_use(), self._trial.wan_bytes()
        yield
        self.figures['wan_bytes'] += self._trial.wan_bytes() - before
        self.figures['agents'] = {
            name: [use.cpu_seconds - used[name].cpu_seconds,
                   use.memory_bytes]
            for name, use in self._stage.agents_use().items()}

    def _all_are_known(self) -> bool:
        for observer in self._trial.hosts:
            agent = self._stage.agent(observer)
            known = agent.status()['hosts']
            for name, host in self._places:
                content = agent.image(self._images[name])['content_id']
                if ['images', content] not in known.get(host, []):
                    return False
        return True

    @contextlib.contextmanager
    def new_image(self) -> collections.abc.Iterator[str]:
        """Publish a copy of the base image with another name in it.

        What crosses the link from the upload on is counted.

        :returns: its name
        """
        name = f'new-{time.time_ns():x}'
        path = self._base.with_name(f'{name}.raw')
        try:
            self._trial.run('cp', '--reflink=auto', '--sparse=always',
                            self._base, path)
            guests.name_guest(path, name)
            self._stage.shipped(path)
            with self.counting():
                self._images.update(self._stage.upload({name: path}))
                yield name
            self._stage.withdraw(self._images[name])
        finally:
            path.unlink(missing_ok=True)
            path.with_suffix('.qcow2').unlink(missing_ok=True)

    def plan(self, name: str) -> None:
        """Have Nova cache an image on all hosts, where that is used."""
        if self._stage.mode.suite or self._stage.mode.stock:
            self._stage.precache([self._images[name]])

    def restart(self, host: str) -> None:
        """Restart a compute host with everything on it."""
        self._stage.restart_host(host)

    @contextlib.contextmanager
    def without_conductor(self) -> collections.abc.Iterator[None]:
        """Leave the agents to themselves."""
        with contextlib.ExitStack() as stack:
            if self._stage.mode.suite:
                stack.enter_context(
                    self._trial.stopped('diffcache-conductor'))
            yield


def just_uploaded(rig: Rig) -> None:
    """First server of the site, seconds after the image was uploaded."""
    with rig.new_image() as name:
        rig.request((name, rig.first))


def full_cache(rig: Rig) -> None:
    """First server from an image, when caches are full of another."""
    rig.delete(*[rig.start('unrelated', host)
                 for host in (rig.first, rig.second)])
    with rig.counting():
        rig.request(('base', rig.first))


_ROOMY, _SMALL = scenarios.ROOMY, scenarios.SMALL
# What is requested, and the room in each cache.
CASES = {
    'cold image': (scenarios.cold_image, _ROOMY),
    'cold image, just uploaded': (just_uploaded, _ROOMY),
    'second host': (scenarios.second_host, _ROOMY),
    'next build, planned': (scenarios.next_planned, _ROOMY),
    'next build, unplanned': (scenarios.next_build, _ROOMY),
    'next build, another host': (scenarios.next_elsewhere, _ROOMY),
    'same distribution': (scenarios.same_distribution, _ROOMY),
    'unrelated image': (scenarios.requested(('unrelated', 'first'),
                                            before='base'), _ROOMY),
    'cold image, small cache': (scenarios.cold_image, _SMALL),
    'second host, small cache': (scenarios.second_host, _SMALL),
    'next build, small cache': (scenarios.next_build, _SMALL),
    'cold image, full cache': (full_cache, scenarios.FULL),
    'next build, after a restart': (scenarios.after_restart, _SMALL),
    'conductor outage': (scenarios.conductor_outage, _SMALL),
    '4 servers at once': (scenarios.four_at_once, _SMALL),
    '16 servers at once': (scenarios.sixteen_at_once, _SMALL),
}


class Bench:
    """Runs cases, in one way after the other."""

    def __init__(self, run: runs.Run) -> None:
        self._site = site.Site(run, 'cases', SIZES, FAMILY)
        self._data = self._site.guests.ensure()['base'].stat().st_blocks * 512

    def measure(self, name: str, way: str) -> dict:
        """Run a case with empty caches."""
        case, room = CASES[name]
        images, stage = self._site.up(way, self._data), self._site.stage
        stage.clear_servers()
        stage.renew_site(round(self._data * room))
        stage.await_site(images)
        rig = Rig(stage, images, self._site.guests.path('base'))
        case(rig)
        return rig.figures


def hard(run: runs.Run) -> None:
    """Run cases in all ways; those of one way after the other."""
    options, found = run.options, {}
    with site.entered(run):
        bench = Bench(run)
        for way in options.ways:
            for name in options.only:
                found[name, way] = [run.keep(
                    f'{way}: {name}, run {number}', lambda name=name, way=way:
                    bench.measure(name, way))
                    for number in range(1, options.runs + 1)]
    rows = [scenarios.row(name, {
        way: {field: statistics.median(one[field] for one in found[name, way])
              for field in ('wan_bytes', 'seconds')} for way in options.ways},
        'plain', 'diffcache') for name in options.only]
    run.table(f'A link of {options.wan:g} Mbit/s', scenarios.head(
        modes.MODES[way].title for way in options.ways), rows)
    run.table('Agents', ('Case', 'Way', 'Agent', 'CPU s', 'MB'), [
        (name, way, agent, f'{cpu:.2f}', f'{memory / 1e6:.0f}')
        for (name, way), every in found.items()
        for agent, (cpu, memory) in every[-1]['agents'].items()])
