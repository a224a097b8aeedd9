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
"""Services are replaced by those of another version while images are served.

Both are builds of this tree; only the number differs. It takes minutes, so
that it runs only if ``DIFFCACHE_ROLLING`` is set, as "tools/test release" sets
it.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import typing
import unittest
import venv

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.db import migration
from diffcache_openstack.nova import sources
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.sites import views
from testing import server
from tests import base
from tests.functional.agent import family
from tests.functional.fixtures import deployment
from tests import waiting

CHECKOUT = pathlib.Path(base.__file__).parents[1]
NEXT = '1.999.0'
HOSTS = ('host-1', 'host-2')
# While one is replaced, hosts read from the other.
REPOSITORIES = ('hub-1', 'hub-2')
CONDUCTORS = ('conductor-1', 'conductor-2')
# What hosts hold; all else comes from the other host or the repository.
HELD = {'host-1': 'java', 'host-2': 'other'}


class Release(typing.NamedTuple):
    """An installation of the suite.

    :ivar programs: directory of its console scripts
    """

    name: str
    programs: pathlib.Path


def build(version: str, directory: pathlib.Path) -> Release:
    """Install this tree with another version, and the same native parts."""
    tree, environment = directory / 'tree', directory / 'environment'
    subprocess.run(['git', 'clone', '--quiet', '--shared', CHECKOUT, tree],
                   check=True)
    subprocess.run([tree / 'tools/version.py', version], check=True,
                   stdout=subprocess.DEVNULL)
    module = 'diffcache_openstack/_native.abi3.so'
    shutil.copy(CHECKOUT / module, tree / module)
    venv.create(environment)
    programs = environment / 'bin'
    wheels = [subprocess.run(
        [sys.executable, tree / 'tools/lib/editable.py', project, directory],
        check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        for project in (tree, tree / 'plugins')]
    subprocess.run(['uv', 'pip', 'install', '--quiet', '--no-deps', '--python',
                    programs / 'python', *wheels], check=True)
    [packages] = environment.glob('lib/python3*/site-packages')
    # What it depends on is what the tests have.
    (packages / 'zz-dependencies.pth').write_text(
        sysconfig.get_path('purelib') + '\n')
    for name in ('diffcached', 'diffcache-ssdcached'):
        shutil.copy(pathlib.Path(sys.executable).parent / name, programs)
    return Release(version, programs)


class Served(typing.NamedTuple):
    """A request for an image.

    :ivar outcome: the way in which it was served, or the error
    :ivar seconds: that it took
    """

    host: str
    outcome: str
    seconds: float
    failed: bool


class Site(deployment.Deployment):
    """Conductors, repositories and hosts, two of each, of any release."""

    def __init__(self, release):
        super().__init__()
        self._release = release

    def create_schema(self):
        config = self.configuration('schema')
        subprocess.run(
            [self._release.programs / 'diffcache-manage', '--config-file',
             config, 'db', 'sync'], check=True)

    def _setUp(self):
        super()._setUp()
        self.key_file = self.directory / 'site.key'
        keys.create_key(self.key_file)
        self.agents = agent_api.AgentAPI(self.bus, self.conf)
        self.processes = {}
        # As in a deployment, they stay the same over restarts.
        self.ports = {name: server.free_port()
                      for name in (*REPOSITORIES, *HOSTS)}
        for name in (*CONDUCTORS, *REPOSITORIES, *HOSTS):
            self.launch(name, self._release)
        self.wait(self.is_whole)

    def is_whole(self):
        """Whether each agent answers, and each host has all on its map."""
        return all(self.status(name) for name in REPOSITORIES) and all(
            len(self.status(name)['hosts']) == 4 for name in HOSTS)

    def launch(self, name, release):
        """Start a service, and wait until it is ready."""
        # A log of its own: that of the service before has the same words.
        number = sum(name in path.name for path
                     in self.directory.glob('*.log'))
        known = f'{name}-{release.name}-{number}'
        if name in CONDUCTORS:
            process = self.run_program(
                release.programs / 'diffcache-conductor', known)
            process.wait_for('is ready')
        else:
            process = self.run_program(
                release.programs / 'diffcache-agent', known,
                **self.agent_options(name))
            process.wait_for(f'Agent {name} serves')
        self.processes[name] = process

    def agent_options(self, name):
        return {
            'agent': {
                'host': name, 'site': 'edge', 'heartbeat_interval': 2,
                'role': 'repository' if name in REPOSITORIES else 'compute',
                'state_dir': self.directory / name,
                'socket': self.socket(name), 'keep_requested': False,
                'output_directories': tempfile.gettempdir()},
            'repository': {'image_directories': tempfile.gettempdir()},
            'data_plane': {'listen': f'127.0.0.1:{self.ports[name]}',
                           'key_file': self.key_file}}

    def socket(self, host):
        return self.directory / f'{host}.sock'

    def status(self, host):
        return self.agents.status(self.context, host)

    def wait(self, ready):
        """Wait until something is so; what does not answer is not so."""
        waiting.until(ready, 'the site', exceptions.ServiceUnavailable,
                      seen=self.printed)


class Load:
    """Requests images of the hosts' agents, as Nova's driver does."""

    def __init__(self, site, images, directory):
        self._site = site
        self._images = images
        self._directory = directory
        self._ended = threading.Event()
        self.served: list[Served] = []
        self._threads = [
            threading.Thread(target=self._run, args=(host,), daemon=True)
            for host in HOSTS]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error):
        self._ended.set()
        for thread in self._threads:
            thread.join(waiting.SECONDS)

    def _run(self, host):
        source = sources.Source(
            local_client.LocalClient(str(self._site.socket(host))), None,
            60.0, image_records.Verifier(signatures.Security()),
            restarts.Restarts(120.0))
        number = 0
        while not self._ended.is_set():
            name = list(self._images)[number % len(self._images)]
            number += 1
            self._request(source, host, name)
            time.sleep(0.1)

    def _request(self, source, host, name):
        output = self._directory / f'{host}-{name}'
        started = time.monotonic()
        try:
            delivery = source.deliver(
                sources.Wanted(name, 'active', 'raw', None, None),
                str(output))
            whole = family.sha256(output) == self._images[name]
            outcome = delivery.way if whole else 'damaged'
            failed = not whole
            output.unlink()
        except Exception as error:
            outcome, failed = f'{type(error).__name__}: {error}', True
        self.served.append(Served(host, outcome, time.monotonic() - started,
                                  failed))

    def since(self, count):
        """Number of requests of each host after the first this many."""
        return [sum(each.host == host for each in self.served[count:])
                for host in HOSTS]


@unittest.skipUnless(os.environ.get('DIFFCACHE_ROLLING'),
                     'DIFFCACHE_ROLLING is not set')
class RollingTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.present = Release('present', pathlib.Path(sys.executable).parent)
        self.next = build(NEXT, self.directory)
        self.assertIn(NEXT, subprocess.run(
            [self.next.programs / 'diffcache', '--version'], check=True,
            capture_output=True, text=True).stdout)
        self.site = self.useFixture(Site(self.present))
        images = family.write(self.directory)
        self.contents = {name: self.site.agents.register_image(
            self.site.context, repository, str(path), name, name).content_id
            for repository in REPOSITORIES for name, path in images.items()}
        self.site.wait(lambda: all(
            [views.IMAGES, content] in self.site.status(host)['hosts'][each]
            for host in HOSTS for each in REPOSITORIES
            for content in self.contents.values()))
        self.sha256 = {name: family.sha256(path)
                       for name, path in images.items()}
        self.hold(1)
        self.site.wait(lambda: all(
            self.site.status(name)['images'] == len(images)
            for name in HOSTS))

    def hold(self, generation):
        """Have hosts hold images, and the other hosts know of it."""
        wanted = {host: [views.IMAGES, self.contents[name]]
                  for host, name in HELD.items()}
        for host, key in wanted.items():
            self.site.agents.hold(self.site.context, host, generation,
                                  [(*key, 0)])
        self.site.wait(lambda: all(
            key in self.site.status(name)['hosts'][host]
            for name in HOSTS for host, key in wanted.items()))

    def replace(self, name, release):
        self.assertEqual(0, self.site.processes[name].stop())
        self.site.launch(name, release)
        self.site.wait(self.site.is_whole)
        # Both hosts are served in this state of the upgrade.
        count = len(self.load.served)
        self.site.wait(lambda: min(self.load.since(count)) >= 8)

    def test_upgrade_and_back_under_load(self):
        with Load(self.site, self.sha256, self.directory) as self.load:
            migration.upgrade(self.site.conf)
            for name in (*CONDUCTORS, *REPOSITORIES, *HOSTS):
                self.replace(name, self.next)
            upgraded = len(self.load.served)
            self.hold(2)
            for name in (*HOSTS, *REPOSITORIES):
                self.replace(name, self.present)
            for name in CONDUCTORS:
                self.replace(name, self.present)
            self.hold(3)
        self.report(self.load.served[:upgraded])
        self.report(self.load.served[upgraded:])
        self.assertEqual([], [each for each in self.load.served
                              if each.failed])
        self.assertLessEqual({'local', 'peer'}, {
            each.outcome for each in self.load.served})
        for process in self.site.processes.values():
            self.assertNotIn('UnsupportedVersion', process.printed())

    def report(self, served):
        """Print the figures of the documentation."""
        ways = {}
        for each in served:
            way = 'failed' if each.failed else each.outcome
            ways[way] = ways.get(way, 0) + 1
        seconds = sorted(each.seconds for each in served)
        print(json.dumps({
            'requests': len(served), 'ways': ways,
            'failed': sum(each.failed for each in served),
            'median_seconds': round(seconds[len(seconds) // 2], 3),
            'longest_seconds': round(seconds[-1], 3)}))
