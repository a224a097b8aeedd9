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

import sqlalchemy as sa

from diffcache_openstack.db import catalogue
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from tests.unit.db import database

WHEN = datetime.datetime(2026, 1, 5, 12, 30, 1, 50, datetime.UTC)


class TestEntries(database.DatabaseTest):
    """Rows come as the texts that the database makes of them."""

    def part(self, model, key, *names, limit=10, marker=None):
        return self.database.look(
            listing.part_by_key, sa.select(*listing.columns(model, names)),
            getattr(model, key), listing.Page(limit, marker))

    def images(self, **page):
        return self.part(models.Image, 'id', 'id', 'name', 'size',
                         'owner', 'created_at', **page)

    def test_values_of_every_kind(self):
        name = 'Ünï "quoted" \\ [1, 2]'
        self.write(catalogue.put_image, database.image(
            1, name=name, size=2 ** 62, created_at=WHEN), WHEN)
        self.assertEqual([{
            'id': 't1', 'name': name, 'size': 2 ** 62, 'owner': None,
            'created_at': '2026-01-05T12:30:01.000050Z'}],
            self.images().entries)

    def test_truth_and_whole_seconds(self):
        whole = WHEN.replace(microsecond=0)
        self.write(host_rows.put_host, database.host('h1'), whole)
        [entry] = self.part(models.Host, 'name', 'name', 'alive',
                            'seen_at').entries
        self.assertIs(True, entry['alive'])
        self.assertEqual('2026-01-05T12:30:01Z', entry['seen_at'])

    def test_parts(self):
        for number in range(5):
            self.write(catalogue.put_image, database.image(number),
                       WHEN)
        first = self.images(limit=3)
        self.assertEqual('t2', first.next_marker)
        last = self.images(limit=3, marker='t2')
        self.assertEqual((['t3', 't4'], None), (
            [entry['id'] for entry in last.entries], last.next_marker))

    def test_nothing(self):
        self.assertEqual(([], None), self.images())
