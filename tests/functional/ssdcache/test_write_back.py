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
"""Volumes of servers in write-back: the cache, and the agent's part."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from unittest import mock
import uuid

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.cached_volumes import origins
from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.ssdcache import engines
from diffcache_openstack.ssdcache import ssdcached
from testing import nbd
from tests.functional.ssdcache import test_origins
from tests.functional.ssdcache import test_serve

BLOCK = test_serve.BLOCK
WRITE_BACK = volume_specs.WRITE_BACK
BOOT_ID = '/proc/sys/kernel/random/boot_id'


class WriteBackTest(test_origins.OriginTest):
    """A cache as that of a compute host, and a volume served over NBD."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(origins, 'is_allowed',
                                            return_value=True))
        self.config = self.directory / 'diffcache.conf'
        self.config.write_text('\n'.join((
            '[ssd_cache]', f'device = {self.directory}/device',
            'capacity = 16MiB', f'socket = {self.directory}/nbd',
            f'control = {self.control}', f'state_dir = {self.state}',
            'dirty_age = 3600', '')))
        self.server = self.serve_image()
        self.process = self.start_cache('--format')
        self.agent = self.new_agent()
        self.notes = write_back_notes.Notes(
            self.directory / write_back_notes.NAME)

    def start_cache(self, *words, before=()):
        process = subprocess.Popen(
            [*before, sys.executable, '-c',
             'from diffcache_openstack.cmd import ssd_cache;'
             ' raise SystemExit(ssd_cache.main())', '--config-file',
             str(self.config), *words], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        ready = process.stdout.readline()
        if not ready:
            self.fail(process.stderr.read())
        self.assertTrue(json.loads(ready)['ready'])
        return process

    def new_agent(self):
        """Return an agent that starts."""
        engine = ssdcached.SsdcachedEngine(self.control,
                                           f'{self.directory}/nbd')
        return cached_volumes.CachedVolumes(
            engine, cached_volumes.CacheOptions(()),
            self.directory / 'ssd_cache.json',
            volume_sizes.SizeRules())

    def restart_host(self):
        """End the cache as a power cut does, and start it as after a boot."""
        self.end(self.process)
        boot = self.directory / 'boot'
        boot.write_text(f'{uuid.uuid4()}\n')
        enter = ['unshare', '--mount', 'sh', '-c',
                 f'mount --bind {boot} {BOOT_ID} && exec "$@"', 'sh']
        if subprocess.run([*enter, 'true'], capture_output=True).returncode:
            self.skipTest('needs the right to make a mount namespace')
        self.process = self.start_cache(before=enter)
        self.agent = self.new_agent()

    def connect(self, attachment='at1', mode=WRITE_BACK):
        """Attach the volume as Nova does; return a client."""
        found = self.agent.attach('v', volume_settings.VolumeSettings(
            self.address, mode, attachment=attachment))
        self.assertEqual(mode == WRITE_BACK, found['noted'])
        return self.enterContext(nbd.Client(
            f'nbd+unix:///{found["export"]}?socket={found["socket"]}'))

    def write(self, client, value, block=0):
        """Write a block, and have it flushed as a guest does."""
        for kind, data in ((nbd.WRITE, bytes([value]) * BLOCK),
                           (nbd.FLUSH, b'')):
            client.send(kind, block * BLOCK * bool(data), len(data), data)
            self.assertEqual(0, client.receive().error)

    def on_volume(self, block=0):
        """Return the byte that the volume itself has in a block."""
        with open(self.image, 'rb') as image:
            image.seek(block * BLOCK)
            return image.read(1)[0]

    def shown(self):
        found = self.agent.status()['volumes']['v']
        return found['mode'], found['dirty']

    def refusal(self, work, *args):
        return str(self.assertRaises(engines.VolumeRefused, work, *args))


class TestModes(WriteBackTest):

    def test_a_volume_has_what_was_written_once_it_is_drained(self):
        self.write(self.connect(), 7)
        self.assertEqual(((WRITE_BACK, 1), 0, True), (
            self.shown(), self.on_volume(), self.notes.has('v')))
        self.agent.drain('v', 60, False)
        self.assertEqual((('write-through', 0), 7, False), (
            self.shown(), self.on_volume(), self.notes.has('v')))

    def test_it_stays_out_of_write_back_until_it_is_given_back(self):
        client = self.connect()
        self.agent.drain('v', 60, True)
        self.agent = self.new_agent()
        self.agent.follow_type('v', volume_specs.settings(
            volume_specs.Specs(WRITE_BACK)))
        self.agent.end_epoch()
        self.agent.give_back_unused()
        self.write(client, 7)
        self.assertEqual((('write-through', 0), 7),
                         (self.shown(), self.on_volume()))
        self.agent.give_back('v')
        self.write(client, 8)
        self.assertEqual(((WRITE_BACK, 1), 7, True), (
            self.shown(), self.on_volume(), self.notes.has('v')))

    def test_a_drain_that_takes_long_goes_on(self):
        self.write(self.connect(), 7)
        self.server.kill()
        self.server.wait()
        self.server = self.serve_image(('--filter=delay', ), ('wdelay=2', ))
        error = self.assertRaises(exceptions.Busy, self.agent.drain, 'v', 0,
                                  True)
        self.assertIn('1 blocks', str(error))
        # A migration that is aborted meanwhile.
        self.agent.give_back('v')
        self.wait_until(lambda: self.on_volume() == 7)
        self.wait_until(lambda: self.shown()[0] == 'write-through')

        def is_given_back():
            self.agent.give_back_unused()
            return self.shown()[0] == WRITE_BACK

        self.wait_until(is_given_back)
        self.assertTrue(self.notes.has('v'))


class TestDetach(WriteBackTest):

    def test_storage_that_cannot_be_written_keeps_the_data(self):
        self.write(self.connect(), 7)
        self.server.kill()
        self.server.wait()
        self.refusal(self.agent.detach, 'v')
        self.assertEqual(((WRITE_BACK, 1), True),
                         (self.shown(), self.notes.has('v')))
        self.server = self.serve_image()

        def is_detached():
            with contextlib.suppress(engines.VolumeRefused):
                self.agent.detach('v')
                return True

        self.wait_until(is_detached)
        self.assertEqual((7, False, {}), (
            self.on_volume(), self.notes.has('v'),
            self.agent.status()['volumes']))

    def test_a_cache_that_was_killed(self):
        self.write(self.connect(), 7)
        self.end(self.process)
        self.assertRaises(exceptions.RetryableError, self.agent.detach, 'v')
        self.assertTrue(self.notes.has('v'))
        self.process = self.start_cache()
        self.agent.detach('v')
        self.assertEqual((7, False), (self.on_volume(),
                                      self.notes.has('v')))

    def test_a_device_that_was_lost(self):
        self.write(self.connect(), 7)
        self.end(self.process)
        (self.directory / 'device').unlink()
        # Another host's, with another directory for notes.
        for name in os.listdir(self.state):
            os.unlink(self.state / name)
        self.process = self.start_cache('--format')
        for work, args in ((self.agent.detach, ('v', )), (
                self.agent.attach, ('v', volume_settings.VolumeSettings(
                    self.address, 'write-through', attachment='at1')))):
            self.assertIn(str(self.notes.path('v')), self.refusal(work, *args))
        self.notes.path('v').unlink()
        self.agent.detach('v')


class TestRestartOfTheHost(WriteBackTest):

    def setUp(self):
        super().setUp()
        self.write(self.connect(), 7)
        self.restart_host()

    def test_nothing_is_written_before_its_server_starts(self):
        self.assertEqual('held',
                         self.agent.status()['volumes']['v']['state'])
        self.assertIn('Start its server', self.refusal(self.agent.detach,
                                                       'v'))
        # It ends without an error, and holds it again.
        self.assertEqual(0, self.end(self.process, signal.SIGTERM))
        self.process = self.start_cache()
        self.assertEqual(((WRITE_BACK, 1), 0),
                         (self.shown(), self.on_volume()))
        self.connect()
        self.assertEqual(((WRITE_BACK, 0), 7),
                         (self.shown(), self.on_volume()))

    def test_a_volume_that_was_attached_elsewhere_meanwhile(self):
        for attachment in ('at2', None):
            self.assertIn('may have been changed elsewhere', self.refusal(
                self.agent.attach, 'v', volume_settings.VolumeSettings(
                    self.address, WRITE_BACK, attachment=attachment)))
        self.assertEqual(((WRITE_BACK, 1), 0),
                         (self.shown(), self.on_volume()))

    def test_a_server_that_was_evacuated_meanwhile(self):
        with self.assertLogs(level='ERROR') as logs:
            self.agent.forget('v')
        self.assertIn('1 blocks', logs.output[0])
        self.assertEqual((0, False, {}), (
            self.on_volume(), self.notes.has('v'),
            self.agent.status()['volumes']))
