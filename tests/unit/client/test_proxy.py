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
"""The SDK's proxy, over the API itself."""

from openstack import exceptions

from tests.unit.client import cloud  # Before services, which may be missing.

from diffcache_openstack.api import microversions
from diffcache_openstack.client.resources import base as resources
from diffcache_openstack.db import catalogue
from diffcache_openstack.objects import versioned
from tests.unit.db import database


class TestNames(cloud.CloudTest):

    def test_that_would_lead_elsewhere(self):
        for name in ('', '.', '..', '../plans', 'h1/objects'):
            for call in (self.cloud.get_host, self.cloud.delete_host,
                         self.cloud.site_report, self.cloud.get_plan,
                         self.cloud.explain_plan,
                         self.cloud.cancel_precache_job):
                self.assertRaises(exceptions.InvalidRequest, call, name)
            for listing in (self.cloud.host_objects, self.cloud.lookups,
                            self.cloud.precache_targets,
                            self.cloud.image_locations):
                self.assertRaises(exceptions.InvalidRequest,
                                  lambda: list(listing(name)))
        self.assertEqual([], self.wire.sent)

    def test_with_letters_that_mean_something_in_addresses(self):
        for name in ('h1?', 'h1#x', 'h%31', 'h 1', '\N{SNOWMAN}'):
            error = self.assertRaises(exceptions.NotFoundException,
                                      self.cloud.get_host, name)
            self.assertIn(f'Host {name} is not registered', str(error))


class TestReading(cloud.CloudTest):

    def test_all_parts_of_a_listing(self):
        self.conf.set_override('max_limit', 1, 'api')
        self.assertEqual(['h1', 'h2', 'hub'],
                         [host.id for host in self.cloud.hosts()])

    def test_parts_of_a_listing_of_several_images(self):
        for number in (1, 3):
            self.database.write(catalogue.put_patch,
                                database.patch(2, number), versioned.now())
        self.assertEqual(
            {(2, 1), (1, 2)},
            {(int(patch.base, 16), int(patch.target, 16))
             for patch in self.cloud.patches(target=['t1', 't2'], limit=1)})

    def test_no_page_is_requested_after_the_last(self):
        for limit, pages in ((1, 3), (2, 2), (3, 1), (100, 1)):
            del self.wire.sent[:]
            self.assertEqual(3, len(list(self.cloud.hosts(limit=limit))))
            self.assertEqual(pages, len([
                request for request in self.wire.sent
                if '/v1/hosts' in request.path_url]), limit)
        self.assertIn('limit=100', self.wire.sent[-1].path_url)

    def test_filters_are_sent(self):
        self.assertEqual(['hub'], [
            host.name for host in self.cloud.hosts(role='repository')])
        self.assertEqual(['t2'], [
            image.id for image in self.cloud.images(family='t1')])

    def test_latest_version_is_asked_for(self):
        self.assertEqual(str(microversions.MAXIMUM),
                         resources.MAX_MICROVERSION)
        self.assertEqual(1, self.cloud.get_image('t1').members)
        self.assertEqual(
            f'diffcache {resources.MAX_MICROVERSION}',
            self.wire.sent[-1].headers['OpenStack-API-Version'])

    def test_things_of_things(self):
        self.assertEqual(2, len(list(self.cloud.host_objects('h1'))))
        [held] = self.cloud.holdings(site='edge', kind='patches')
        self.assertEqual(
            ('h1', 'edge', 'patches', database.patch(1, 2).id, 5, []),
            (held.host, held.site, held.kind, held.object_id, held.bytes,
             held.images))
        self.assertEqual(['h1'], [
            place.host for place in self.cloud.image_locations('t1')])
        [patch] = self.cloud.patches(target='t2')
        self.assertEqual(patch, self.cloud.get_patch(patch.id))
        [pair] = self.cloud.patch_pairs(state='made')
        self.assertEqual((patch.base, patch.target),
                         (pair.base, pair.target))

    def test_lookups_of_all_hosts(self):
        one, two = self.cloud.lookups('t1', limit=1)
        self.assertEqual(('h1', 'edge', 'local', None),
                         (one.host, one.site, one.way['way'], one.lazy_boot))
        self.assertEqual(('h2', 'peer'), (two.host, two.way['way']))
        self.assertEqual([], list(self.cloud.lookups('t1', site='north')))

    def test_documents(self):
        self.assertEqual('local',
                         self.cloud.lookup('h1', 't1')['ways'][0]['way'])
        self.assertEqual('edge',
                         self.cloud.site_report('edge')['site']['name'])
        self.assertTrue(self.cloud.site_forecast('edge', limit=3))
        self.assertEqual(3, len(list(self.cloud.requests(site='edge'))))
        self.assertEqual(2, len(list(self.cloud.sites())))


class TestErrors(cloud.CloudTest):

    def test_says_what_the_service_said(self):
        error = self.assertRaises(exceptions.NotFoundException,
                                  self.cloud.get_host, 'h9')
        self.assertIn('Host h9 is not registered', str(error))

    def test_of_rights(self):
        other = self.connect('reader')
        error = self.assertRaises(exceptions.ForbiddenException, list,
                                  other.hosts())
        self.assertIn('diffcache:hosts:list', str(error))


class TestPlans(cloud.CloudTest):

    def test_propose_and_apply(self):
        plan = self.cloud.create_plan(site='edge')
        plan = self.cloud.wait_for_plan(plan.id, 60, interval=0.01)
        self.assertEqual('proposed', plan.state)
        self.assertTrue(self.cloud.explain_plan(plan.id))
        self.cloud.apply_plan(plan.id, plan.base_generation)
        self.assertEqual('current', self.cloud.get_plan(plan.id).state)
        self.assertRaises(exceptions.ConflictException,
                          self.cloud.cancel_plan, plan.id)

    def test_too_long_to_wait_for(self):
        plan = self.cloud.create_plan(site='edge')
        self.cloud.get_plan = lambda plan_id: plan
        error = self.assertRaises(
            exceptions.ResourceTimeout, self.cloud.wait_for_plan, plan.id, 0)
        self.assertIn(plan.id, str(error))

    def test_what_if(self):
        answer = self.cloud.what_if('edge', demand_factor=2.0)
        self.assertEqual({'demand_factor': 2.0}, answer['changes'])


class TestPrecacheJobs(cloud.CloudTest):

    def create(self, **values):
        return self.cloud.create_precache_job(**{
            'images': ['t1'], 'hosts': ['h1'], **values})

    def test_wait(self):
        job = self.create()
        self.conductor._precacher.round()
        seen = []
        job = self.cloud.wait_for_precache_job(
            job.id, 60, progress=lambda job: seen.append(job.progress))
        self.assertEqual(('ready', 1), (job.state, seen[-1]['ready']))

    def test_wait_for_what_cannot_be(self):
        job = self.create(hosts=['h9'])
        self.conductor._precacher.round()
        job = self.cloud.wait_for_precache_job(job.id, 60)
        self.assertEqual(('running', 1), (job.state, job.progress['failed']))
        [target] = self.cloud.precache_targets(job.id, state='failed')
        self.assertIn('not registered', target.message)

    def test_change_that_meets_another_one_is_tried_again(self):
        job = self.create()
        look, late = self.cloud.get_precache_job, []

        def look_and_be_late(job_id):
            found = look(job_id)
            if not late:
                late.append(look(job_id).change(self.cloud,
                                                {'priority': 70}))
            return found

        self.cloud.get_precache_job = look_and_be_late
        self.cloud.update_precache_job(job.id, pinned=True)
        found = look(job.id)
        self.assertEqual((70, True, 3), (found.priority, found.is_pinned,
                                         found.generation))

    def test_change_of_what_has_ended(self):
        job = self.create()
        self.cloud.cancel_precache_job(job.id)
        self.assertRaises(
            exceptions.ConflictException, self.cloud.update_precache_job,
            job.id, priority=1)
        [found] = self.cloud.precache_jobs(state='cancelled')
        self.assertEqual(job.id, found.id)
        self.assertEqual([database.SITE], [
            site.name for site in self.cloud.sites()
            if site.name == database.SITE])

    def test_retry(self):
        job = self.create()
        self.assertEqual(job.id, self.cloud.retry_precache_job(job.id).id)
