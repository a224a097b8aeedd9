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
"""A site under load and faults, for a minute each, from seeds.

Real conductors, agents, RabbitMQ, MariaDB and libvirt; Nova and Glance are
answered for. Processes are killed and stopped, cut off from the broker and
from each other, bytes are flipped on the wire and on the disk, disks fill up,
broker and database restart. Meanwhile images are requested on both hosts, and
two servers are saved, restored and their versions deleted. What must hold is
checked all the time, and once all is mended.

``python -m tests.functional.chaos.campaign --seconds 600`` runs seeds one
after the other; ``--seed N`` begins with (or repeats) one, ``--only 2,5`` with
two of its faults. A seed whose promises were not kept is repeated with fewer
faults as long as it fails.
"""

import argparse
import collections
import json
import logging
import pathlib
import random
import signal
import sys
import tempfile
import time

from diffcache_openstack.db import listing
from diffcache_openstack.db.versions import server_versions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store
from tests.functional.agent import family
from tests.functional.agent import servers
from tests.functional.chaos import faults
from tests.functional.chaos import site
from tests.functional.chaos import users
from tests import waiting

LOG = logging.getLogger('tests.chaos')

FAULTS_SECONDS = 60.0


class Run:
    """A site, its users, and faults."""

    def __init__(self, where: site.Site, seed: int) -> None:
        noise = random.Random(seed)
        self.faults = faults.draw(noise, FAULTS_SECONDS)
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self._site = where
        images = family.write(where.instances)
        for name, path in images.items():
            where.register(name, path)
        sums = {name: family.sha256(path) for name, path in images.items()}
        self._hosts = [users.Nova(where, host, sums) for host in site.HOSTS]
        self._servers = [
            users.Server(where, host, random.Random(noise.random()))
            for host in site.HOSTS]
        where.wait(lambda: all(where.status(host)['images'] == len(images)
                               for host in site.HOSTS), 'the images')

    def run(self, some: list[faults.Fault]) -> None:
        """Apply faults under load, then check what must hold."""
        everybody = [*self._hosts, *self._servers]
        for user in everybody:
            user.start()
        schedule = faults.Schedule(self._site, some)
        schedule.run()
        LOG.info('All is mended')
        for user in everybody:
            user.finish()
            self.counts.update(user.counts)
            self.wrong += user.wrong
        self.wrong += schedule.errors
        self._check('the site', lambda: self._site.wait(self._site.is_whole))
        for name in ('images', 'versions', 'leftovers', 'reports', 'capacity'):
            self._check(name, getattr(self, f'_check_{name}'))

    def _check(self, name, check):
        LOG.info('Checking %s', name)
        try:
            check()
        except Exception as error:
            self.wrong.append(f'{name}: {type(error).__name__}: {error}')

    def _check_images(self):
        """All images are delivered again, and right."""
        for user in self._hosts:
            for _ in range(len(family.contents())):
                self.counts[f'{user.act()} at the end'] += 1

    def _check_versions(self):
        """Each version is there, is what was saved, and nothing else is."""
        for server in self._servers:
            for version_id in list(server.known):
                came_to = server.restore(version_id)
                if came_to != 'restored':
                    raise users.Wrong(came_to)
                self.counts['restored at the end'] += 1
        expected = {version_id for server in self._servers
                    for version_id in server.known}
        disks = {disk.version for version_id in expected
                 for disk in self._site.database.read(_disks, version_id)}
        waiting.until(lambda: (self._listed(), self._stored())
                      == (expected, disks),
                      'versions that are listed and stored to be those saved',
                      seen=lambda: (self._listed() ^ expected,
                                    self._stored() ^ disks))

    def _listed(self):
        rows = self._site.database.read(
            server_versions.list_versions, users.EVERYBODY, {},
            listing.Page(1000)).entries
        # What could not be saved is listed until its user deletes it.
        return {row['id'] for row in rows if row['state'] != 'error'}

    def _stored(self):
        blobs = file.FileStore(
            pathlib.Path(self._site.directory, 'store', servers.PROJECT))
        return {version.id for version
                in version_store.VersionStore.open(blobs).versions()}

    def _check_leftovers(self):
        """Nothing is left of what was cut off."""
        waiting.until(lambda: not self._leftovers(), 'the end of leftovers',
                      seen=self._leftovers)

    def _leftovers(self):
        return [str(path) for name in site.AGENTS for path in (
            self._site.state(name) / 'objects' / 'staging').iterdir()] + [
            str(path) for path in self._site.instances.glob('.*')]

    def _check_reports(self):
        """The conductor knows of all requests."""
        self._site.wait(lambda: not any(
            self._site.status(host)['unreported_requests']
            for host in site.HOSTS), 'the reports of requests')

    def _check_capacity(self):
        """No host holds more than it may."""
        for host in site.HOSTS:
            used = self._site.status(host)['used']
            if used > site.CAPACITY:
                raise users.Wrong(f'{host} holds {used} bytes')


def _disks(session, version_id):
    return server_versions.disks(server_versions.need(session, version_id))


def attempt(seed: int, only: list[int] | None = None) -> Run:
    """Return what came of a seed's faults, or of some of them."""
    with site.Site() as where:
        run = Run(where, seed)
        run.run(run.faults if only is None
                else [run.faults[number] for number in only])
        if run.wrong:
            kept = pathlib.Path(tempfile.gettempdir(), f'chaos-{seed}.log')
            kept.write_text(where.printed())
            print(f'What the processes printed: {kept}')
    return run


def minimise(seed: int, count: int) -> list[int]:
    """Return the fewest faults found with which a seed fails."""
    wanted = list(range(count))
    for number in range(count):
        fewer = [each for each in wanted if each != number]
        if attempt(seed, fewer).wrong:
            wanted = fewer
    return wanted


def main() -> int:
    """Run seeds until the time is over; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seconds', type=float, default=600,
                        help='Seconds after which no further seed begins')
    parser.add_argument('--seed', type=int, default=1,
                        help='First seed; default: 1')
    parser.add_argument('--next', type=pathlib.Path,
                        help='File with the first seed, in which the one'
                             ' after the last is left')
    parser.add_argument('--only', help='Numbers of faults, from 0, of one'
                                       ' seed')
    args = parser.parse_args()
    # What was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    logging.basicConfig(level=logging.CRITICAL)
    logging.getLogger('tests').setLevel(logging.INFO)
    if args.only is not None:
        return report(args.seed, attempt(
            args.seed, [int(number) for number in args.only.split(',')]))
    deadline = time.monotonic() + args.seconds
    seed = args.seed
    if args.next and args.next.exists():
        seed = int(args.next.read_text())
    while time.monotonic() < deadline:
        run = attempt(seed)
        if report(seed, run):
            print('fails with the faults', minimise(seed, len(run.faults)))
            return 1
        seed += 1
        if args.next:
            args.next.write_text(f'{seed}\n')
    return 0


def report(seed: int, run: Run) -> int:
    """Print what came of a seed; return 1 if promises were not kept."""
    print(json.dumps({'seed': seed, 'faults': [str(f) for f in run.faults],
                      'counts': run.counts, 'wrong': run.wrong}, indent=1),
          flush=True)
    return 1 if run.wrong else 0


if __name__ == '__main__':
    sys.exit(main())
