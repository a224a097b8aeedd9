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
"""A version that diffcached serves, and the agent reads from its store."""

import os
import pathlib
import signal
import types
from unittest import mock

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import lazy_versions
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.agent.local import local_api
from diffcache_openstack.agent.local import local_server
from diffcache_openstack.common import threads
from diffcache_openstack import objects
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions import version_store
from tests.functional.lazy import services

BLOCK = 4096
VERSION = '322bde76-949e-4c77-a812-310ab1466fc5'
IMAGE = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'


class Conductor:
    """Knows one version."""

    def __init__(self, disk):
        self.disk = disk

    def open_version(self, ctxt, host, version_id, project_id):
        return self.disk


class VersionsCase(services.LazyServicesTest):
    """A version in a store, an agent that reads it, and diffcached."""

    key: bytes | None = None

    def setUp(self):
        super().setUp()
        self.base = self.folder / 'base'
        self.base.write_bytes(os.urandom(700 * BLOCK))
        self.disk = self.folder / 'disk'
        self.disk.write_bytes(self.base.read_bytes() + bytes(300 * BLOCK))
        self.store = version_store.VersionStore.open(
            file.FileStore(self.folder / 'store'), self.key)
        self.version = self.save(*range(0, 900, 11))
        self.versions = version_reads.VersionReads(
            types.SimpleNamespace(open=lambda project: self.store),
            types.SimpleNamespace(bring=lambda disk, path: (
                self.base, disk.base_id)),
            Conductor(objects.VersionDisk(
                device='vda', version=self.version.id,
                size=self.version.size, base_id=self.version.base.id,
                base_name=str(self.base))),
            'h1', self.folder / 'versions', str(self.folder / 'agent.sock'))
        self.agent = self.start_agent()
        self.host = self.folder / 'host'
        # After the end of the service, which would start them again.
        self.start_service(self.host)
        self.daemon = diffcached.Diffcached(f'{self.host}/socket')

    def save(self, *places):
        with open(self.disk, 'r+b') as stream:
            for place in places:
                stream.seek(place * BLOCK)
                stream.write(os.urandom(BLOCK))
        [version] = self.store.save([version_store.Disk(
            self.disk, 's', self.base, format='raw', manifest=True)])
        return version

    def start_agent(self):
        """The agent's own socket, with what reads versions behind it."""
        rooms = [mock.Mock() for _ in range(6)]
        rooms[4] = local_api.Versions(mock.Mock(), self.versions, mock.Mock(),
                                      mock.Mock())
        found = local_server.LocalServer(self.folder / 'agent.sock',
                                         local_server.Access('socket'),
                                         local_api.LocalApi(*rooms))
        found.start()
        self.addCleanup(found.stop)
        return found

    def described(self):
        """The version, as servers boot from it."""
        disk = self.versions.disk_of(VERSION, 'p')
        return version_reads.ReadVersion(
            VERSION, 'p', disk.version, disk.base_id, disk.base_name, None,
            (IMAGE,))

    def serve(self, **options):
        prepared = self.versions.prepare(self.described())
        status = self.daemon.add(prepared.content_id, {
            'manifest': str(prepared.manifest),
            'sources': prepared.sources, 'wait': 30.0, **options})
        return prepared.content_id, pathlib.Path(status['path'])

    def sources(self, content_id):
        """Requests and failures of each source."""
        return [(each['requests'], each['failures'])
                for each in self.daemon.image(content_id)['sources']]


class PlainStoreTest(VersionsCase):
    """diffcached reads the packs itself."""

    def test_no_read_waits_for_the_agent(self):
        expected = self.disk.read_bytes()
        content_id, path = self.serve()
        self.agent.stop()
        self.assertEqual(expected, path.read_bytes())
        (requests, failures), agent = self.sources(content_id)
        self.assertLess(0, requests)
        self.assertEqual((0, (0, 0)), (failures, agent))

    def test_the_rate_of_its_first_server_holds_before_that_is_known(self):
        served = lazy_versions.LazyVersions(
            self.daemon, self.versions,
            lazy_servers.Servers(self.folder / 'servers'),
            threads.KeyedLocks())
        opened = served.open(self.described(), {
            'hydrate': 'idle', 'wait': 30.0, 'prefetch': False, 'rate': 1})
        expected = self.disk.read_bytes()
        [found] = self.wait_until(lambda: [
            each for each in self.daemon.images() if each['present']])
        # One request, and the next one after its bytes have taken their time.
        self.assertEqual((1, False, 1), (
            found['hydration']['rate'], found['complete'],
            found['sources'][0]['requests']))
        self.assertEqual(expected, pathlib.Path(opened['path']).read_bytes())

    def test_what_a_prune_rewrote_the_agent_finds(self):
        content = self.disk.read_bytes()
        self.save(*range(0, 900, 7))
        content_id, path = self.serve(prefetch=False)
        with open(path, 'rb', buffering=0) as stream:
            self.assertEqual(content[:BLOCK],
                             os.pread(stream.fileno(), BLOCK, 0))
            [index] = (self.folder / 'store').glob('index-00000001-*')
            [pack] = (self.folder / 'store').glob('pack-00000001-*')
            # As if the packs had other names now.
            self.store.save([version_store.Disk(
                self.base, 'other', format='raw')])
            self.store.prune(rule=pruning.PruneRule(level=9))
            self.assertFalse(index.exists() or pack.exists())
            os.kill(self.daemon.image(content_id)['worker_pid'],
                    signal.SIGKILL)
            self.assertEqual(
                content[400 * BLOCK:450 * BLOCK],
                os.pread(stream.fileno(), 50 * BLOCK, 400 * BLOCK))
        (_, failures), (requests, agents_failures) = self.sources(content_id)
        self.assertLess(0, failures)
        self.assertLess(0, requests)
        self.assertEqual(0, agents_failures)


class SealedStoreTest(VersionsCase):
    """Only the agent has the store's key."""

    key = b'k' * 32

    def test_it_is_the_disk_as_it_was_saved(self):
        expected = self.disk.read_bytes()
        self.save(*range(50))
        content_id, path = self.serve()
        with open(path, 'rb', buffering=0) as stream:
            self.assertEqual(expected[7:9000], os.pread(stream.fileno(), 8993,
                                                        7))
        found = self.daemon.image(content_id)
        self.assertLess(found['present'], found['data_chunks'])
        self.assertEqual(expected, path.read_bytes())
        found = self.daemon.image(content_id)
        self.assertEqual((0, 0, True), (found['errors'], found['corrupt'],
                                        found['complete']))
        [source] = found['sources']
        self.assertEqual((f'version {VERSION}, by the agent', 0),
                         (source['url'], source['failures']))

    def test_reads_wait_for_an_agent_that_restarts(self):
        expected = self.disk.read_bytes()
        content_id, path = self.serve(prefetch=False)
        with open(path, 'rb', buffering=0) as stream:
            self.assertEqual(expected[:5], os.pread(stream.fileno(), 5, 0))
            self.agent.stop()
            pid = os.fork()
            if not pid:
                # The agent is back while a guest waits.
                found = os.pread(stream.fileno(), BLOCK, 500 * BLOCK)
                os._exit(found != expected[500 * BLOCK:501 * BLOCK])
            self.wait_until(lambda: self.daemon.image(content_id)[
                'sources'][0]['failures'])
            self.agent = self.start_agent()
            self.assertEqual(0, os.waitstatus_to_exitcode(
                os.waitpid(pid, 0)[1]))

    def test_it_becomes_whole_and_survives_a_pruned_store(self):
        expected = self.disk.read_bytes()
        content_id, path = self.serve(hydrate='idle')
        self.save(*range(400))
        self.store.prune()
        self.wait_until(lambda: self.daemon.image(content_id)['complete'])
        os.kill(self.daemon.image(content_id)['worker_pid'], signal.SIGKILL)
        self.assertEqual(expected, path.read_bytes())
        found = self.daemon.image(content_id)
        self.assertEqual(expected,
                         pathlib.Path(found['data_path']).read_bytes())

    def test_wrong_bytes_of_the_base_image_are_not_served(self):
        expected = self.disk.read_bytes()
        content_id, path = self.serve(prefetch=False, wait=0.0)
        # After the agent has opened it, under the same name.
        with open(self.base, 'r+b') as stream:
            stream.seek(600 * BLOCK)
            stream.write(bytes(BLOCK))
        with open(path, 'rb', buffering=0) as stream:
            self.assertRaises(OSError, os.pread, stream.fileno(), BLOCK,
                              600 * BLOCK)
            self.assertEqual(expected[:BLOCK],
                             os.pread(stream.fileno(), BLOCK, 0))
        self.assertLess(0, self.daemon.image(content_id)['corrupt'])
