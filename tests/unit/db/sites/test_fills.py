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
import datetime

from diffcache_openstack.common import exceptions
from diffcache_openstack.db.sites import fills
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from tests.unit.db import database


def a_fill(number, **values):
    return objects.Fill(**{'kind': objects.IMAGES,
                           'id': database.content(number), **values})


class TestFills(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.write(host_rows.put_host, database.host('h1'), database.at(0))

    def put(self, *found):
        self.write(fills.put, 'h1', found)

    def test_latest_report_holds(self):
        last = a_fill(2, active=True, bytes_done=5, bytes_total=9,
                      attempts=2, error='No.', retry_at=database.at(60))
        self.put(a_fill(1), a_fill(2))
        self.put(last)
        self.assertEqual({('h1', database.content(2)): last},
                         self.read(fills.by_object))
        self.put()
        self.assertEqual({}, self.read(fills.by_object))

    def test_what_dead_hosts_said_does_not_count(self):
        self.put(a_fill(1))
        self.write(host_rows.expire_hosts,
                   database.at(0) + datetime.timedelta(days=1))
        self.assertEqual({}, self.read(fills.by_object))

    def test_goes_with_its_host(self):
        self.put(a_fill(1))
        self.write(host_rows.remove_host, 'h1')
        self.assertEqual({}, self.read(fills.by_object))

    def test_unknown_host(self):
        self.assertRaises(exceptions.NotFound, self.write, fills.put, 'h9',
                          [])
