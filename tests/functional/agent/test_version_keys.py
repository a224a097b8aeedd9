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
"""Servers saved with keys that Barbican keeps."""

import unittest

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.keys import key_ids
from tests.functional.agent import servers
from tests.functional.fixtures import barbican


@servers.NEEDS_LIBVIRT
@unittest.skipUnless(barbican.is_there(), 'needs barbican')
class TestBarbican(servers.ServersTestCase):

    def setUp(self):
        self.barbican = self.useFixture(barbican.Barbican())
        self.options = {'versions': {'key_manager': True},
                        **self.barbican.options()}
        super().setUp()

    def failed(self, version_id):
        """Why a version was not saved."""
        found = self.site.wait(lambda: self.ended(version_id))
        self.assertEqual('error', found['state'])
        return found['error']

    def test_saved_and_restored_with_a_key_of_the_project(self):
        mark = b'nobody else may read this, ' * 40000
        text = self.write_file('text', mark[:servers.MIB])
        self.power_on()
        self.writes(f'write -s {text} 10M 1M')
        first = self.save()
        self.writes('write -P 1 10M 1M')
        self.power_off()
        self.restore(first)
        self.power_on()
        self.writes(f'write -s {text} 30M 1M')
        # What is there is found, though it is sealed.
        self.assertLess(self.save()['bytes_stored'], servers.MIB // 10)
        self.power_off()
        raw = self.raw().read_bytes()
        self.assertEqual(2 * [mark[:servers.MIB]], [
            raw[at * servers.MIB:(at + 1) * servers.MIB] for at in (10, 30)])
        store = self.site.directory / 'store'
        blobs = [path for path in store.rglob('*') if path.is_file()]
        self.assertFalse([path for path in blobs
                          if mark[:27] in path.read_bytes()])
        [packed] = {path.read_bytes()[20] for path in blobs
                    if path.name.startswith('pack-')}
        self.assertEqual(1, packed, 'frames are not sealed')

    def test_key_manager_that_is_away_and_key_that_is_gone(self):
        self.barbican.stop()
        version_id = self.begin()
        self.site.wait(lambda: 'Retrying task' in self.site.processes[
            'host-1'].printed())
        self.barbican.start()
        self.saved(version_id)
        key_id = key_ids.read(file.FileStore(
            self.site.directory / 'store' / servers.PROJECT))
        self.barbican.delete(key_id)
        error = self.failed(self.begin())
        for part in (servers.PROJECT, key_id, 'restore it'):
            self.assertIn(part, error)
