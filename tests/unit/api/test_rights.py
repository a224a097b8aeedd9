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
"""Rights on objects: rules are checked against what a request is about."""

from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from tests.unit.api import base
from tests.unit.conductor import fakes

PATH = '/v1/versions'
TASKS = '/v1/version-tasks'
POLICIES = '/v1/version-policies'
JOBS = '/v1/precache-jobs'
# They may look at each project's resources.
WIDE_READERS = ('service-member', 'system-member')


class RightsTest(base.ApiTest):
    """A version, a task, a policy and a job of another project."""

    def setUp(self):
        super().setUp()
        self.host = fakes.listen(self, 'h2')
        when = versioned.now()
        self.version = base.unknown_id()
        self.write(db.create, objects.NewVersion(
            id=self.version, server_id='foreign',
            project_id=base.OTHER_PROJECT), when)
        self.write(db.saved, self.version, 'h2', fakes.saved(), when)
        self.nova.change('foreign', status='SHUTOFF')

    def changes(self):
        """Requests that change something of the other project."""
        path = f'{PATH}/{self.version}'
        return [
            ('PATCH', path, {'version': {'generation': 1, 'name': 'mine'}}),
            ('DELETE', path, None),
            ('POST', f'{path}/restore', {'restore': {}}),
            ('POST', f'{path}/export', {'export': {}}),
            ('POST', f'{path}/diff', {'diff': {'against': self.version}})]

    def policy(self):
        """The ID of a policy of the other project."""
        _status, body, _headers = self.call('POST', POLICIES, {
            'version_policy': {'keep_last': 1}}, user='other')
        return body['version_policy']['id']

    def task(self):
        """The ID of an open task of the other project."""
        task = base.unknown_id()
        self.services.versions.export_version(self.ctxt, self.version, task,
                                              'x')
        return task

    def job(self):
        """The ID of a precache job of the other project."""
        job = base.unknown_id()
        self.services.control.create_precache_job(
            self.ctxt, objects.PrecacheJob(
                id=job, project_id=base.OTHER_PROJECT, images=['t1'],
                hosts=['h1']))
        return job


class TestReadingWideIsNotWritingWide(RightsTest):

    def test_versions(self):
        self.nova.wide = WIDE_READERS
        for user in WIDE_READERS:
            self.get(f'{PATH}/{self.version}', user=user)
            for method, path, body in self.changes():
                with self.subTest(user=user, method=method, path=path):
                    self.refused(403, method, path, body, user=user)
        self.assertEqual('', self.get(f'{PATH}/{self.version}')['version'][
            'name'])

    def test_policies_tasks_and_jobs(self):
        policy, task, job = self.policy(), self.task(), self.job()
        for user in WIDE_READERS:
            for path in (f'{POLICIES}/{policy}', f'{TASKS}/{task}',
                         f'{JOBS}/{job}'):
                self.get(path, user=user)
            for method, path, body in (
                    ('DELETE', f'{POLICIES}/{policy}', None),
                    ('POST', f'{TASKS}/{task}/cancel', {}),
                    ('PATCH', f'{JOBS}/{job}', {'precache_job': {
                        'generation': 1, 'name': 'mine'}}),
                    ('POST', f'{JOBS}/{job}/cancel', {}),
                    ('POST', f'{JOBS}/{job}/retry', {})):
                with self.subTest(user=user, method=method, path=path):
                    self.refused(403, method, path, body, user=user)

    def test_servers(self):
        # Nova shows each server to users with such roles.
        self.nova.wide = WIDE_READERS
        for user in WIDE_READERS:
            self.refused(403, 'POST', PATH, {
                'version': {'server_id': 'foreign'}}, user=user)
            self.refused(403, 'POST', POLICIES, {
                'version_policy': {'server_id': 'foreign'}}, user=user)

    def test_job_without_a_project_is_the_administrators(self):
        job = base.unknown_id()
        self.services.control.create_precache_job(
            self.ctxt, objects.PrecacheJob(id=job, images=['t1'],
                                           hosts=['h1']))
        self.refused(403, 'POST', f'{JOBS}/{job}/cancel', {},
                     user='system-member')
        self.assertEqual(200, self.call('POST', f'{JOBS}/{job}/cancel', {})[
            0])

    def test_administrators_and_the_project_may(self):
        self.nova.wide = ('admin',)
        path = f'{PATH}/{self.version}'
        for generation, user in enumerate(('admin', 'other'), 1):
            status, body, _headers = self.call('PATCH', path, {'version': {
                'generation': generation, 'name': user}}, user=user)
            self.assertEqual((200, user), (status, body['version']['name']))


class TestImagesOfHosts(base.ApiTest):

    def test_only_operators_learn_what_a_host_holds(self):
        for user in ('member', 'reader', 'other'):
            self.refused(403, 'GET', '/v1/images?host=h1', user=user)
        found = self.get('/v1/images?host=h1', user='auditor')
        self.assertEqual(['t1'], [t['id'] for t in found['images']])


class TestRestoringOthersServers(RightsTest):

    def restore(self, user, **options):
        return self.call('POST', f'{PATH}/{self.version}/restore',
                         {'restore': options}, user=user)[0]

    def test_locked_server_is_refused(self):
        self.nova.change('foreign', locked=True)
        error = self.refused(409, 'POST', f'{PATH}/{self.version}/restore',
                             {'restore': {}}, user='other')
        self.assertIn('locked', error['detail'])
        self.assertEqual(202, self.restore('other', dry_run=True))

    def test_administrator_restores_a_locked_server(self):
        self.nova.change('foreign', locked=True)
        self.assertEqual(202, self.restore('admin'))

    def test_server_that_the_caller_may_not_see(self):
        self.nova.hidden = {'foreign'}
        self.assertEqual(404, self.restore('other'))
        self.nova.hidden = set()
        self.assertEqual(202, self.restore('other'))

    def test_task_kinds_are_what_they_were(self):
        self.restore('other')
        self.assertEqual(versions.RESTORE, self.host.next().kind)
