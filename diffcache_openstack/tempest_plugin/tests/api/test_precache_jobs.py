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
"""Precache jobs, their life and whose they are."""

import time

from tempest import config
from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.tests.api import base

CONF = config.CONF
PATH = 'precache-jobs'


class TestPrecacheJobs(base.ApiTest):

    def create(self, **values):
        """Create a job for an image at a host; the test cancels it."""
        job = self.admin.send(PATH, {'precache_job': {
            'images': [self.some_image()['id']],
            'hosts': [self.compute_host()['name']], **values,
        }}, status=202)['precache_job']
        self.addCleanup(self.admin.send, f'{PATH}/{job["id"]}/cancel', {})
        return job

    @decorators.idempotent_id('e7d05b9a-3c1f-4f0c-b0a2-9a6f8d4c7b01')
    def test_life(self):
        path = f'{PATH}/{self.create(name="tempest")["id"]}'
        job = self.wait_for(path, 'precache_job', 'state', 'ready')
        self.assertEqual(job['progress']['targets'],
                         job['progress']['ready'])
        [target] = self.admin.fetch(f'{path}/targets')['targets']
        self.assertIn(target['way'], ('local', 'peer', 'build'))
        changed = self.admin.change(path, {'precache_job': {
            'generation': job['generation'], 'priority': 60}})
        self.assertEqual(60, changed['precache_job']['priority'])
        self.assertRaises(
            exceptions.Conflict, self.admin.change, path,
            {'precache_job': {'generation': job['generation'],
                              'priority': 70}})
        self.admin.send(f'{path}/retry', {}, status=202)
        self.assertEqual('cancelled', self.admin.send(
            f'{path}/cancel', {})['precache_job']['state'])

    @decorators.idempotent_id('e7d05b9a-3c1f-4f0c-b0a2-9a6f8d4c7b02')
    def test_of_another_project_is_not_there(self):
        path = f'{PATH}/{self.create()["id"]}'
        for client in (self.other, self.member):
            self.assertRaises(exceptions.NotFound, client.fetch, path)
            self.assertRaises(exceptions.NotFound, client.send,
                              f'{path}/cancel', {})
        # 403, or 404 where every user is given the role member besides.
        self.assertRaises((exceptions.Forbidden, exceptions.NotFound),
                          self.reader.send, f'{path}/cancel', {})

    @decorators.idempotent_id('e7d05b9a-3c1f-4f0c-b0a2-9a6f8d4c7b03')
    def test_paging(self):
        for _ in range(2):
            self.create()
        self.assert_paged(PATH, 'precache_jobs', state='running')

    @decorators.idempotent_id('e7d05b9a-3c1f-4f0c-b0a2-9a6f8d4c7b04')
    def test_malformed(self):
        for values in ({'images': []}, {'hosts': []}, {'priority': 101},
                       {'rate': 0}, {'window': 'at night'},
                       {'colour': 'red'}):
            self.assertRaises(
                exceptions.BadRequest, self.admin.send, PATH,
                {'precache_job': {'images': ['x'], 'hosts': ['y'],
                                  **values}})

    @decorators.idempotent_id('e7d05b9a-3c1f-4f0c-b0a2-9a6f8d4c7b05')
    def test_unknown_aggregate_is_told(self):
        job = self.create(hosts=[], aggregates=['tempest-none'])
        self.assertIn('tempest-none', self.message_of(job['id']))

    def message_of(self, job_id):
        """Return the conductor's message about a job."""
        deadline = time.monotonic() + CONF.diffcache.timeout
        while time.monotonic() < deadline:
            message = self.admin.fetch(
                f'{PATH}/{job_id}')['precache_job']['message']
            if message:
                return message
            time.sleep(1)
        self.fail(f'no message about job {job_id}')
