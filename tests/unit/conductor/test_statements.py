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
"""How many statements the conductor and the API's lists send."""

import threading

import sqlalchemy as sa

from diffcache_openstack.db import listing
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.views import host_views
from diffcache_openstack.db.views import image_views
from diffcache_openstack.db.views import request_views
from diffcache_openstack.db.views import site_views
from diffcache_openstack.objects import versioned
from tests.unit.conductor.endpoints import test_agents
from tests.unit.db import database

FEW, MANY = 2, 20


class StatementsTest(test_agents.ConductorTest):
    """A number of rows changes no number of statements."""

    CHECK_INTERVAL = 3600

    def grow(self, first: int, last: int) -> None:
        """Register images, hosts that hold them, and requests."""
        for number in range(first, last):
            self.api.register_image(self.ctxt, database.image(number))
            name = f'h{number}'
            self.api.register_host(self.ctxt, database.host(name))
            self.api.report_holdings(self.ctxt, name,
                                     [database.holding(number)])
        self.api.report_requests(self.ctxt, [
            database.request(number, host='h0', image_id='t0')
            for number in range(first, last)])

    def sent(self, call) -> list[str]:
        """The statements that a call sends in this thread.

        The conductor notifies agents in others.
        """
        sent, caller = [], threading.get_ident()

        def note(_connection, _cursor, statement, *_rest):
            if threading.get_ident() == caller:
                sent.append(statement)

        used = [self.database.engine, self.conductor._database.engine]
        for each in used:
            sa.event.listen(each, 'before_cursor_execute', note)
        try:
            # The first time there may be more to do.
            call()
            sent.clear()
            call()
        finally:
            for each in used:
                sa.event.remove(each, 'before_cursor_execute', note)
        return sent

    def assert_constant(self, calls) -> None:
        """With many rows a call sends what it sends with few."""
        self.grow(0, FEW)
        few = {name: len(self.sent(call)) for name, call in calls.items()}
        self.grow(FEW, MANY)
        many = {name: len(self.sent(call)) for name, call in calls.items()}
        self.assertNotIn(0, few.values())
        self.assertEqual(few, many)

    def test_rounds_in_which_nothing_happens(self):
        self.assert_constant({
            each.__name__: each for each in (
                self.conductor._check_hosts, self.conductor._precache,
                self.conductor._look_after_versions,
                self.conductor._tidy_ledger)})

    def test_nothing_is_written_for_tasks_while_there_is_none(self):
        self.assertEqual([], [
            statement for statement in self.sent(
                self.conductor._dispatcher.look)
            if not statement.startswith(('BEGIN', 'SELECT'))])

    def test_lists(self):
        everybody, page = listing.Viewer(None, True), listing.Page(100)

        def look(function, *arguments):
            return lambda: self.database.look(function, *arguments)

        self.assert_constant({
            'images': look(image_views.list_images, everybody, {}, page),
            'hosts': look(host_views.list_hosts, {}, page),
            'requests': look(request_views.list_requests, {}, page),
            'sites': look(site_views.list_sites, page)})

    def test_maps(self):
        self.assert_constant({
            'whole': lambda: self.conductor._maps.update(database.SITE,
                                                         None)})

    def test_heartbeats(self):
        host = database.host('h0')
        self.assert_constant({
            'heartbeat': lambda: self.database.write(
                host_rows.put_host, host, versioned.now())})
