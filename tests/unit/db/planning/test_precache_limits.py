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
"""Limits of jobs, by the objects of a plan."""

from diffcache_openstack.db import catalogue
from diffcache_openstack.db.planning import precache
from diffcache_openstack.db.planning import precache_limits
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from tests.unit.db import database

PATCH = database.patch(1, 2)


def item(kind, object_id, host='h1'):
    return objects.PlanItem(host=host, kind=kind, id=object_id, bytes=1,
                            priority=0)


class TestLimits(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        for name in ('h1', 'h2'):
            self.write(host_rows.put_host, database.host(name), database.at(0))
        for number in (1, 2, 3):
            self.write(catalogue.put_image, database.image(number),
                       database.at(0))
        self.write(catalogue.put_patch, PATCH, database.at(0))
        self.jobs = []

    def job(self, number, host='h1', **values):
        """A job for an image; returns its id."""
        job = objects.PrecacheJob(
            id=f'00000000-0000-4000-8000-{len(self.jobs):012x}',
            images=[f't{number}'], hosts=[host], **values)
        self.jobs.append(job.id)
        self.write(precache.create, job, database.at(0))
        self.write(
            precache.sync_targets, job.id, [host], [precache.WantedImage(
                f't{number}', database.content(number), 5)], database.at(0))
        return job.id

    def limits(self, *items):
        plan = objects.Plan(
            site=database.SITE, generation=1, solver='greedy', cost_s=0,
            lower_bound_s=0, proved_optimal=False, solver_seconds=0,
            created_at=database.at(0), hosts=['h1', 'h2'], items=list(items))
        return self.read(precache_limits.of_plan, plan)

    def whole(self, number):
        return item(objects.IMAGES, database.content(number))

    def test_what_no_job_wants_has_none(self):
        self.job(1, rate=10)
        self.assertEqual({}, self.limits(self.whole(3)))

    def test_the_image_that_a_job_wants(self):
        job_id = self.job(1, rate=10, window='22:00-06:00')
        self.assertEqual(
            {(objects.IMAGES, database.content(1)):
             (job_id, 10, ['22:00-06:00'])}, self.limits(self.whole(1)))

    def test_what_the_image_is_built_of(self):
        job_id = self.job(2, rate=10)
        found = self.limits(self.whole(1), item(objects.PATCHES, PATCH.id,
                                                'h2'))
        self.assertEqual(
            {(objects.IMAGES, database.content(1)): (job_id, 10, []),
             (objects.PATCHES, PATCH.id): (job_id, 10, [])}, found)

    def test_what_is_built_of_what_the_image_is_built_of(self):
        """Regression: the first base of a chain came without any limit."""
        second = database.patch(2, 3)
        self.write(catalogue.put_patch, second, database.at(0))
        job_id = self.job(3, rate=10)
        found = self.limits(
            self.whole(1), *(item(objects.PATCHES, patch.id, 'h2')
                             for patch in (PATCH, second)))
        self.assertEqual(
            dict.fromkeys([(objects.IMAGES, database.content(1)),
                           (objects.PATCHES, PATCH.id),
                           (objects.PATCHES, second.id)], (job_id, 10, [])),
            found)

    def test_the_most_generous_job_counts(self):
        self.job(1, rate=10, window='22:00-06:00')
        fast = self.job(1, rate=30, window='12:00-13:00')
        self.assertEqual(
            [(fast, 30, ['12:00-13:00', '22:00-06:00'])],
            list(self.limits(self.whole(1)).values()))
        self.job(1, window='01:00-02:00')
        [limit] = self.limits(self.whole(1)).values()
        self.assertIsNone(limit.rate)
        self.assertEqual(3, len(limit.windows))
        self.job(1)
        self.assertEqual({}, self.limits(self.whole(1)))

    def test_jobs_that_ended_limit_nothing(self):
        job_id = self.job(1, rate=10)
        self.write(precache.cancel, job_id, None, database.at(1))
        self.assertEqual({}, self.limits(self.whole(1)))
