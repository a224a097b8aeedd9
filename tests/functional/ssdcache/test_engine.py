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
"""The engine of the cache that diffcache-ssdcached serves."""

import json
import os
import signal
import subprocess
import sys

from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import ssdcached
from tests.unit.ssdcache import conformance
from tests import waiting


class TestSsdcached(conformance.EngineConformance):

    def engine(self):
        self.config = self.directory / 'diffcache.conf'
        self.config.write_text('\n'.join((
            '[ssd_cache]', f'device = {self.directory}/device',
            'capacity = 4MiB', f'socket = {self.directory}/nbd',
            f'control = {self.directory}/control',
            f'state_dir = {self.directory}/state', '')))
        self.start('--format')
        return ssdcached.SsdcachedEngine(f'{self.directory}/control',
                                         f'{self.directory}/nbd')

    def start(self, *words):
        self.process = subprocess.Popen(
            [sys.executable, '-c',
             'from diffcache_openstack.cmd import ssd_cache;'
             ' raise SystemExit(ssd_cache.main())', '--config-file',
             str(self.config), *words],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, self.process)
        self.assertTrue(json.loads(self.process.stdout.readline())['ready'])

    @staticmethod
    def end(process):
        process.kill()
        process.wait(waiting.SECONDS)
        process.stdout.close()

    def test_capacity_is_that_of_the_option(self):
        self.assertEqual(1024, self.cache.capacity())

    def test_volumes_stay_over_a_kill(self):
        one = self.attach('a', 10)
        self.end(self.process)
        self.assertRaises(control.CacheUnreachable, self.cache.volumes)
        self.start()
        self.assertEqual({'a': one}, dict(self.cache.volumes()))

    def test_a_stop_ends_with_0(self):
        self.attach('a', 10)
        os.kill(self.process.pid, signal.SIGTERM)
        self.assertEqual(0, self.process.wait(waiting.SECONDS))
