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
"""Hydrations of a host, as reports and changes leave them."""

import datetime

import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db.lazy import hydrations
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.views import hydration_views
from tests.unit import arriving
from tests.unit.db import database

_EVERYTHING = listing.Viewer(None, True)


class TestReportsAndChanges(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        self.report(mode='none')

    def report(self, **values):
        """What the host had at the time of a report."""
        self.write(hydrations.put, 'h1', [arriving.hydration('s1', **values)],
                   {'s1': 'p1'})

    def change(self, **values):
        """What the host answered to a change."""
        self.write(hydrations.update, 'h1',
                   arriving.hydration('s1', **values))

    def mode(self):
        return self.read(hydration_views.get_hydration, _EVERYTHING,
                         's1')['mode']

    def test_a_report_from_before_a_change_does_not_undo_it(self):
        """It showed the former settings until the next report."""
        self.change(mode='idle', generation=1)
        self.report(mode='none')
        self.assertEqual('idle', self.mode())
        self.report(mode='idle', generation=1, present=3)
        self.report(mode='deadline', generation=2)
        self.assertEqual('deadline', self.mode())

    def test_an_image_that_is_served_anew_begins_at_0(self):
        self.change(mode='idle', generation=7)
        self.write(lambda session: session.execute(
            sa.update(models.Hydration).values(
                updated_at=database.at(0) - datetime.timedelta(days=1))))
        self.report(mode='none')
        self.assertEqual('none', self.mode())

    def test_another_image_of_a_rebuilt_server_begins_at_0(self):
        self.change(mode='idle', generation=7)
        self.report(mode='none', content_id='d' * 64)
        self.assertEqual('none', self.mode())

    def test_a_change_of_what_is_gone_adds_nothing(self):
        self.write(hydrations.put, 'h1', [], {})
        self.change(mode='idle', generation=1)
        self.assertRaises(exceptions.NotFound, self.mode)

    def test_a_host_that_is_not_registered(self):
        self.assertRaises(
            exceptions.NotFound, self.write, hydrations.update, 'h9',
            arriving.hydration('s1'))
