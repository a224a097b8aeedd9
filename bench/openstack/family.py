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
"""Figure 5 of the DiffCache paper on a real OpenStack.

Servers are requested in random order on every compute host of a site at once.
Measured are the times from the request until Nova has the base image and to
the guest's message on its console, and the bytes that crossed the link. In
every way a host has the same room for images that are not in use; Nova has no
such limit, so the least recently used ones are deleted for it. The suite's
caches are filled by its plan before the clock starts.
"""

import concurrent.futures
import random
import statistics
import time

from bench.harness import runs
from bench.openstack import site
from onemachine import guests
from onemachine import modes
from onemachine.services import suite

# The family's files, small beside what they share.
SIZES = {'system': 180 * site.MIB, 'web': 6 * site.MIB,
         'database': 8 * site.MIB, 'update': 3 * site.MIB}
# Room for this many images of mean size on each host: two hosts hold fewer
# images than there are.
ROOM = 1.3


class Bench:
    """The measurement of one way after the other."""

    def __init__(self, run: runs.Run) -> None:
        self._run = run
        self._site = site.Site(run, 'bench', SIZES)
        self._stage = self._site.stage
        self._trial = self._stage.trial
        self._mean = statistics.mean(
            path.stat().st_blocks * 512
            for path in self._site.guests.ensure().values())

    def measure(self, way: str) -> dict:
        """Boot all servers; return what each took, and the bytes."""
        images = self._site.up(way, round(ROOM * self._mean))
        self._fill(images)
        before = self._trial.wan_bytes()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            working = [pool.submit(self._work, host, images)
                       for host in self._trial.hosts]
            requests = [request for future in working
                        for request in future.result()]
        return {'requests': requests,
                'wan_bytes': self._trial.wan_bytes() - before}

    def _room(self) -> float:
        """Return the room for base images that no server uses, in bytes."""
        return 0 if self._stage.mode.suite else ROOM * self._mean

    def _fill(self, images: dict[str, str]) -> None:
        """Have the site hold what it is able to know of."""
        if self._stage.mode.suite:
            self._trial.run(
                *self._trial.processes.enter('centre'),
                self._trial.where.suite_program('diffcache-manage'),
                '--config-file',
                self._trial.where.etc / 'diffcache/conductor.conf',
                'plan', 'create', suite.SITE)
            self._stage.wait('caches are filled', self._is_filled, settled=8)
        elif self._stage.mode.stock:
            self._stage.precache(images.values())
            for host in self._trial.hosts:
                self._stage.trim(host, self._room())

    def _is_filled(self) -> bool:
        agents = [self._stage.agent(host) for host in self._trial.hosts]
        return all(status['used'] > 0 and not status['missing']
                   for status in (agent.status() for agent in agents))

    def _work(self, host: str, images: dict[str, str]) -> list[dict]:
        """Boot one server after the other on a host; return what each took."""
        order = random.Random(f'{self._run.options.seed} {host}')
        done = []
        for _ in range(self._run.options.requests):
            name = order.choice(sorted(images))
            server, found = self._boot(images[name], host)
            self._run.say(f'{host} {name}: {found["seconds"]:.1f} s')
            done.append({'host': host, 'image': name, **found})
            self._trial.delete(server)
            self._stage.trim(host, self._room())
        return done

    def _boot(self, image: str, host: str) -> tuple[str, dict[str, float]]:
        """Boot a server; return its id, and what it took."""
        when, started = time.time(), time.monotonic()
        server = self._trial.create(image, host)
        self._trial.wait_active(server)
        active = time.monotonic() - started
        # Nova notes there when it began to use it.
        ready = self._stage.base_image(host, image).stat().st_ctime - when
        self._trial.wait_for_line(server, host, guests.MARKER)
        return server, {'seconds': time.monotonic() - started,
                        'active': active,
                        'ready': min(max(ready, 0.0), active)}


def mean(found: dict, field: str) -> float:
    """Return the mean seconds of the requests of a way."""
    return statistics.mean(request[field] for request in found['requests'])


def family(run: runs.Run) -> None:
    """Measure all ways."""
    with site.entered(run):
        bench = Bench(run)
        found = {way: run.keep(way, lambda way=way: bench.measure(way))
                 for way in run.options.ways}
    rows = [(f'{same[0]["host"]}, {same[0]["image"]}', *(
        f'{request["seconds"]:.1f}' for request in same))
        for same in zip(*(each['requests'] for each in found.values()))]
    for label, field in (('mean', 'seconds'),
                         ('until the base image is there', 'ready'),
                         ('until Nova calls it active', 'active')):
        rows.append((label, *(f'{mean(each, field):.1f}'
                              for each in found.values())))
    for other in ('plain', 'templates'):
        if other in found:
            slow = mean(found[other], 'ready')
            rows.append((f'base image, below {modes.MODES[other].title}', *(
                f'{100 * (1 - mean(each, "ready") / slow):.0f} %'
                for each in found.values())))
    rows.append(('MB over the WAN', *(f'{each["wan_bytes"] / 1e6:.1f}'
                                      for each in found.values())))
    run.table('Seconds from the request to the report of the guest', (
        'Host and image', *(modes.MODES[way].title for way in found)), rows)
    run.chart(lambda axes: plot(axes[0], found))


def plot(axes, found: dict[str, dict]) -> None:
    """Plot a bar for each request and way, on a logarithmic axis."""
    width = 0.8 / len(found)
    for number, (way, each) in enumerate(found.items()):
        axes.bar([index + number * width
                  for index in range(len(each['requests']))],
                 [request['seconds'] for request in each['requests']], width,
                 label=f'{modes.MODES[way].title},'
                       f' mean {mean(each, "seconds"):.1f} s,'
                       f' {each["wan_bytes"] / 1e6:.0f} MB')
    first = next(iter(found.values()))['requests']
    axes.set_xticks([index + 0.4 - width / 2 for index in range(len(first))],
                    [f'{request["image"].removeprefix("guest-")}\n'
                     f'{request["host"]}' for request in first], fontsize=8)
    axes.set_yscale('log')
    axes.set_ylabel('seconds from request to marker')
    axes.legend(fontsize=8, loc='lower center', bbox_to_anchor=(0.5, 1))
