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
"""How many queries a request makes does not depend on how much there is."""

import sqlalchemy as sa

from diffcache_openstack.db import catalogue
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.planning import precache
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests.unit.api import base
from tests.unit.db import database

PATHS = ('/v1/hosts', '/v1/hosts/h1', '/v1/hosts/h1/objects',
         '/v1/holdings', '/v1/holdings?site=edge&not_in_plan={plan}',
         '/v1/images', '/v1/images/t1', '/v1/images/t1/locations',
         '/v1/patches', '/v1/patches?target=t1&target=t2', '/v1/patch-pairs',
         '/v1/plans', '/v1/plans/{plan}', '/v1/requests',
         '/v1/sites', '/v1/sites/edge/report', '/v1/sites/edge/forecast',
         '/v1/precache-jobs', '/v1/precache-jobs/{job}',
         '/v1/precache-jobs/{job}/targets')
MORE = range(10, 40)


class TestQueries(base.ApiTest):

    def setUp(self):
        super().setUp()
        # Nobody else shall use the database meanwhile.
        self.conductor.tg.stop()
        plan = self.api.plan_now(self.ctxt, 'edge')
        self.assertIsNotNone(plan)
        [found] = self.get('/v1/plans?state=current')['plans']
        self.plan = found['id']
        self.job = base.unknown_id()
        self.add_job(self.job, range(1, 3))

    def add_job(self, job_id, numbers):
        images = [f't{number}' for number in numbers]
        self.write(precache.create, objects.PrecacheJob(
            id=job_id, images=images, hosts=['h1']), versioned.now())
        self.write(precache.sync_targets, job_id, ['h1'], [
            precache.WantedImage(image, database.content(1), 5)
            for image in images], versioned.now())

    def count(self, path):
        """Statements that answering a request sends to the database."""
        seen = []

        def note(connection, cursor, statement, *_rest):
            seen.append(statement)

        sa.event.listen(self.database.engine, 'before_cursor_execute', note)
        try:
            self.get(path.format(plan=self.plan, job=self.job))
        finally:
            sa.event.remove(self.database.engine, 'before_cursor_execute',
                            note)
        self.assertTrue(seen)
        return len(seen)

    def add_much(self):
        when = versioned.now()
        for number in MORE:
            self.write(catalogue.put_image, database.image(
                number, family='t1'), when)
            self.write(catalogue.put_patch, database.patch(1, number), when)
            self.write(host_rows.put_host, database.host(f'g{number}'), when)
            self.write(held_rows.put_holdings, f'g{number}', [
                database.holding(1), database.holding(number)], when)
            self.add_job(base.unknown_id(), range(1, 3))
        self.write(held_rows.put_holdings, 'h1', [
            database.holding(number) for number in MORE], when)
        self.write(history.put_requests, [
            database.request(number, started_at=when) for number in MORE])
        self.write(precache.sync_targets, self.job, ['h1'], [
            precache.WantedImage(f't{number}', database.content(1), 5)
            for number in MORE], when)
        self.api.plan_now(self.ctxt, 'edge')

    def test_lookups_read_a_map_once_for_all_hosts(self):
        path = '/v1/images/t1/lookups'
        counts = []
        for add in (list, self.add_much):
            add()
            self.get(path)
            counts.append(self.count(path))
        self.assertEqual(counts[0], counts[1])
        self.assertLessEqual(counts[0], 10)

    def test_number_is_constant(self):
        before = {path: self.count(path) for path in PATHS}
        self.add_much()
        self.assertEqual(before, {path: self.count(path) for path in PATHS})
        self.assertLessEqual(max(before.values()), 18, before)
