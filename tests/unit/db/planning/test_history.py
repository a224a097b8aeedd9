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
import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import host_rows
from tests.unit.db import database


class TestHistory(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.add_images()

    def add_images(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        for number in (1, 2):
            self.write(catalogue.put_image, database.image(number),
                       database.at(0))

    def put(self, *requests):
        return self.write(history.put_requests, list(requests))

    def demand(self, since=0):
        return self.read(history.demand, database.SITE, database.at(since))

    def test_known_as_reported(self):
        request = database.request(
            1, mode='on_the_fly', way='build', detail='x' * 1000,
            seconds=1.5, predicted_seconds=1.25, wan_bytes=2 ** 40,
            lan_bytes=7, fallbacks=2, error='No room.')
        self.put(request)
        self.assertEqual([request], self.read(database.requests, 10))

    def test_repeated_reports_count_once(self):
        self.assertEqual(2, self.put(database.request(1),
                                     database.request(2)))
        self.assertEqual(1, self.put(database.request(2),
                                     database.request(3)))
        self.assertEqual(3, len(self.demand()))

    def test_demand_is_by_content_and_host(self):
        self.put(database.request(1), database.request(2, image_id='t2'))
        self.assertEqual(
            [('h1', database.content(1), database.at(1)),
             ('h1', database.content(2), database.at(2))],
            sorted(self.demand()))

    def test_demand_since(self):
        self.put(*(database.request(n) for n in range(5)))
        self.assertEqual([database.at(3), database.at(4)],
                         sorted(d.started_at for d in self.demand(3)))

    def test_unknown_image_is_no_demand(self):
        self.put(database.request(1, image_id='t9'))
        self.assertEqual([], self.demand())
        self.assertEqual(1, len(self.read(database.requests, 10)))

    def test_what_a_host_may_not_report_is_refused(self):
        for kind, request in (
                (exceptions.NotFound, database.request(1, host='h9')),
                (exceptions.Forbidden, database.request(1, way='nova')),
                (exceptions.Forbidden, database.request(1, way='glance'))):
            self.assertRaises(kind, self.put, database.request(2), request)
        self.assertEqual([], self.read(database.requests, 10))

    def test_where_nova_notifies_no_request_without_a_server_is_demand(self):
        self.put(*(database.request(n, way='build') for n in range(100)))
        self.assertEqual(100, len(self.demand()))
        self.write(history.put_boot, database.request(
            200, started_at=database.at(0), seconds=9.0))
        self.assertEqual(1, len(self.demand()))
        self.write(history.put_boot, database.request(
            201, started_at=database.at(0), seconds=9.0))
        self.assertEqual(2, len(self.demand()))

    def test_demand_outlives_the_image(self):
        self.put(database.request(1))
        self.write(catalogue.remove_image, 't1')
        self.assertEqual(1, len(self.demand()))

    def test_failed_request_is_demand(self):
        self.put(database.request(1, error='No source is left.'))
        self.assertEqual(1, len(self.demand()))

    def test_application_is_timed_once(self):
        self.write(catalogue.put_patch, database.patch(1, 2), database.at(0))
        timed = database.request(1, patch_id=database.patch(1, 2).id,
                                 apply_seconds=6.0)
        self.put(timed, timed)
        self.assertEqual(
            6.0, self.read(catalogue.list_patches)[0].apply_seconds)

    def test_latest_first(self):
        self.put(*(database.request(n) for n in range(5)))
        self.assertEqual(
            [database.at(4), database.at(3)],
            [r.started_at for r in self.read(database.requests, 2)])

    def test_prune(self):
        self.put(*(database.request(n) for n in range(5)))
        self.assertEqual(3, self.write(history.prune, database.at(3)))
        self.assertEqual(2, len(self.demand()))


class TestLookUps(database.DatabaseTest):
    """What is looked for with each request costs what that host asked for."""

    def plans(self, function, *args):
        """How the database goes about each look at the history."""
        asked = []

        def note(_connection, _cursor, statement, parameters, *_more):
            if 'FROM requests' in statement and 'requests.host =' in statement:
                asked.append((statement, parameters))

        engine = self.database.engine
        sa.event.listen(engine, 'before_cursor_execute', note)
        self.addCleanup(sa.event.remove, engine, 'before_cursor_execute', note)
        self.write(function, *args)
        with engine.connect() as connection:
            return [' '.join(row[-1] for row in connection.exec_driver_sql(
                f'EXPLAIN QUERY PLAN {statement}', parameters))
                for statement, parameters in list(asked)]

    def test_by_an_index_and_time(self):
        for number, function in enumerate((history.put_request,
                                           history.put_boot)):
            plans = self.plans(function, database.request(number))
            self.assertTrue(plans)
            for plan in plans:
                # Few requests begin in the time of one boot, of whatever
                # host: SQLite may take either index.
                self.assertRegex(
                    plan, r'USING INDEX ix_requests_(host_image_id \(host=\?'
                          r' AND image_id=\?|way_started_at \(way=\?)'
                          r' AND started_at>\? AND started_at<\?')
