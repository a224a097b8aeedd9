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
"""Working sets of the volumes in SSD caches, and the caches' room."""

from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db import volume_caches
from tests.unit.db import database
from tests.unit import volume_reports as reports

SERVER = volume_caches.VolumeOwner('server', 'p')


class TestDemands(database.DatabaseTest):
    """A server on h1; volumes of others on h1 and h2; none on h3."""

    def setUp(self):
        super().setUp()
        self.prepare()

    def prepare(self):
        for name, volumes in (('h1', ('a', 'b')), ('h2', ('c', 'd')),
                              ('h3', ())):
            self.write(host_rows.put_host, database.host(name), database.at(0))
            self.write(volume_caches.put_cache, name, reports.cache())
            self.write(volume_caches.put_volumes, name,
                       [reports.volume(each) for each in volumes],
                       {'a': SERVER,
                        'c': volume_caches.VolumeOwner('other', 'q')})

    def test_others_by_host(self):
        self.assertEqual(
            {'h1': (1024, 120), 'h2': (1024, 240), 'h3': (1024, 0)},
            self.read(volume_caches.demands, 'server'))
        self.assertEqual((1024, 240), self.read(
            volume_caches.demands, 'unknown')['h1'])

    def test_of_a_server(self):
        self.assertEqual(120, self.read(volume_caches.working_set_of,
                                        'server'))
        self.assertEqual(0, self.read(volume_caches.working_set_of,
                                      'unknown'))
