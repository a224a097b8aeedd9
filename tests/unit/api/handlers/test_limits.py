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
"""Quotas over the API."""

from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import conductor_versions_api
from tests.unit.api import base

LIMITS = '/v1/limits'
VERSIONS = '/v1/versions'
POLICIES = '/v1/version-policies'
JOBS = '/v1/precache-jobs'


class LimitsTest(base.ApiTest):

    def setUp(self):
        super().setUp()
        self.conductor._dispatcher.wake = lambda: None

    def limit(self, **values):
        for name, value in values.items():
            self.conf.set_override(name, value, 'quota')

    def create(self, path=VERSIONS, user='member', **body):
        return self.call('POST', path, body or {
            'version': {'server_id': 'stopped'}}, user=user)

    def exceeded(self, name, path, body, user='member'):
        error = self.refused(403, 'POST', path, body, user=user)
        self.assertEqual('diffcache.quota_exceeded', error['code'])
        self.assertIn(name, error['detail'])


class TestEnforcing(LimitsTest):

    def test_versions(self):
        self.limit(version_count_total=1)
        self.assertEqual(202, self.create()[0])
        self.exceeded('version_count_total', VERSIONS,
                      {'version': {'server_id': 'running'}})

    def test_tasks(self):
        self.limit(version_task_count_total=1)
        self.assertEqual(202, self.create()[0])
        self.exceeded('version_task_count_total', VERSIONS,
                      {'version': {'server_id': 'running'}})

    def test_policies(self):
        self.limit(version_policy_count_total=1)
        for _again in range(2):
            # One that is replaced is no other.
            self.assertEqual(200, self.create(POLICIES, version_policy={})[0])
        self.exceeded('version_policy_count_total', POLICIES,
                      {'version_policy': {'server_id': 'running'}})

    def test_precache_jobs(self):
        self.limit(precache_job_count_total=0)
        self.exceeded('precache_job_count_total', JOBS, {'precache_job': {
            'images': ['t1'], 'hosts': ['h1']}}, user='admin')

    def test_other_projects_have_their_own(self):
        self.limit(version_count_total=1)
        self.assertEqual(202, self.create()[0])
        self.assertEqual(202, self.create(
            version={'server_id': 'foreign'}, user='other')[0])

    def test_hook_is_refused_only_if_the_version_is_required(self):
        self.limit(version_count_total=0)
        calls = conductor_versions_api.VersionsAPI(self.bus, self.conf)
        new = objects.NewVersion(
            id=base.unknown_id(), server_id='stopped',
            project_id=base.PROJECT, trigger=versions.DELETE)
        self.nova.change('stopped', task='deleting')
        self.create(POLICIES, version_policy={'on_delete': True})
        self.assertIsNone(calls.begin_local(self.ctxt, 'h1', new))
        self.create(POLICIES, version_policy={'on_delete': True,
                                              'required': True})
        self.assertRaises(exceptions.QuotaExceeded, calls.begin_local,
                          self.ctxt, 'h1', new)


class TestShowing(LimitsTest):

    def test_own_project(self):
        self.limit(version_count_total=7)
        self.create()
        found = self.get(LIMITS, user='reader')['limits']
        self.assertEqual(base.PROJECT, found['project_id'])
        self.assertEqual({'limit': 7, 'usage': 1},
                         found['version_count_total'])

    def test_other_projects_are_the_operators(self):
        path = f'{LIMITS}?project_id={base.PROJECT}'
        self.refused(403, 'GET', path, user='other')
        self.get(path, user='auditor')

    def test_token_without_a_project_names_one(self):
        self.refused(400, 'GET', LIMITS, user='auditor')
