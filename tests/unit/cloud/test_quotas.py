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
"""Quotas by options and by Keystone's unified limits."""

import uuid

from oslo_limit import fixture as limit_fixture

from diffcache_openstack.cloud import limits
from diffcache_openstack.cloud import quotas
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import quota_usage
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from tests.unit.conductor import fakes
from tests.unit.db import database

PROJECT = 'p'
MIB = 2 ** 20


class QuotasTest(database.DatabaseTest):

    def add_version(self, stored=5000):
        """A version that was saved."""
        when = versioned.now()
        new = objects.NewVersion(id=str(uuid.uuid4()), server_id='s',
                                 project_id=PROJECT)
        self.write(db.create, new, when)
        self.write(db.saved, new.id, 'h1',
                   fakes.saved(bytes_stored=stored), when)
        return new.id

    def quotas(self):
        return quotas.Quotas(self.conf, self.database)

    def admit(self, *names, project=PROJECT):
        with self.quotas().admission(project, *names):
            pass

    def refusal(self, *names):
        """The text of the refusal of one more of each resource."""
        return str(self.assertRaises(exceptions.QuotaExceeded, self.admit,
                                     *names))


class TestOptions(QuotasTest):

    def limit(self, name, value):
        self.conf.set_override(name, value, 'quota')

    def test_refusal_names_quota_limit_and_use(self):
        self.limit(quotas.VERSIONS, 2)
        self.add_version()
        self.admit(quotas.VERSIONS)
        self.add_version()
        text = self.refusal(quotas.VERSIONS)
        for part in ('version_count_total', 'limit is 2', '2 are in use',
                     PROJECT):
            self.assertIn(part, text)
        self.admit(quotas.VERSIONS, project='another')

    def test_no_limit(self):
        self.limit(quotas.VERSIONS, -1)
        self.add_version()
        self.admit(quotas.VERSIONS)

    def test_operators_own_has_no_quota(self):
        self.limit(quotas.JOBS, 0)
        self.admit(quotas.JOBS, project=None)
        self.refusal(quotas.JOBS)

    def test_versions_that_failed_do_not_count(self):
        self.limit(quotas.VERSIONS, 1)
        version_id = self.add_version()
        self.refusal(quotas.VERSIONS)
        self.write(db.failed, version_id, db.Failure('x', None),
                   versioned.now())
        self.admit(quotas.VERSIONS)

    def test_size_is_what_the_store_takes(self):
        """What deleted versions leave in the store counts until pruned."""
        self.limit(quotas.VERSION_MIB, 3)
        version_id = self.add_version(3 * MIB)
        self.refusal(quotas.VERSION_MIB)
        self.report_size(version_id, 3 * MIB)
        self.write(db.remove, version_id)
        self.refusal(quotas.VERSION_MIB)
        self.report_size(version_id, MIB + 1)
        self.admit(quotas.VERSION_MIB)
        self.assertEqual(
            2, self.quotas().show(PROJECT)[quotas.VERSION_MIB]['usage'])

    def report_size(self, version_id, size):
        """Have an agent report on a task that changed the store."""
        task = objects.VersionTask(id=str(uuid.uuid4()), kind=versions.PRUNE,
                                   project_id=PROJECT)
        when = versioned.now()
        self.write(version_tasks.create, task, when)
        self.write(version_tasks.sent, task.id, 'h1', when)
        self.write(version_tasks.report, objects.TaskReport(
            task_id=task.id, state=versions.DONE, store_bytes=size), when)

    def test_tasks_that_users_start_count_while_they_are_open(self):
        self.limit(quotas.TASKS, 1)
        task = objects.VersionTask(id=str(uuid.uuid4()), kind=versions.EXPORT,
                                   project_id=PROJECT)
        when = versioned.now()
        self.write(version_tasks.create, task, when)
        self.write(version_tasks.create, objects.VersionTask(
            id=str(uuid.uuid4()), kind=versions.FORGET, project_id='p'), when)
        self.refusal(quotas.TASKS)
        self.write(version_tasks.cancel, task.id, when)
        self.admit(quotas.TASKS)

    def test_show(self):
        self.limit(quotas.POLICIES, 7)
        self.add_version()
        shown = self.quotas().show(PROJECT)
        self.assertEqual({'limit': 7, 'usage': 0}, shown[quotas.POLICIES])
        self.assertEqual(1, shown[quotas.VERSIONS]['usage'])
        self.assertEqual(set(quotas.NAMES), set(shown))


class TestKeystone(QuotasTest):
    """Limits as the fixture of oslo.limit has Keystone answer."""

    def setUp(self):
        super().setUp()
        self.conf.set_override('use_keystone_limits', True, 'quota')
        self.conf.set_override('version_count_total', 0, 'quota')
        self.useFixture(limit_fixture.LimitFixture(
            {quotas.VERSIONS: 1, quotas.POLICIES: 4},
            {'rich': {quotas.VERSIONS: 10}}))

    def test_refusal_names_quota_limit_and_use(self):
        self.admit(quotas.VERSIONS)
        self.add_version()
        text = self.refusal(quotas.VERSIONS)
        for part in ('version_count_total', 'limit is 1', '1 are in use'):
            self.assertIn(part, text)

    def test_resource_without_a_registered_limit_is_refused(self):
        self.assertIn('limit is 0', self.refusal(quotas.JOBS))

    def test_show(self):
        shown = self.quotas().show('rich')
        self.assertEqual(
            {quotas.VERSIONS: 10, quotas.POLICIES: 4, quotas.JOBS: 0},
            {name: shown[name]['limit'] for name in
             (quotas.VERSIONS, quotas.POLICIES, quotas.JOBS)})

    def test_keystone_that_does_not_answer(self):
        def fail(*_arguments, **_names):
            raise limits.ksa_exceptions.ConnectFailure('refused')

        self.patch(limits.limit, 'Enforcer', fail)
        error = self.assertRaises(exceptions.ServiceUnavailable, self.admit,
                                  quotas.VERSIONS)
        self.assertIn('[oslo_limit]', str(error))


class TestUsage(QuotasTest):

    def test_store_whose_size_was_not_reported(self):
        self.assertEqual(0, self.read(quota_usage.version_mib, PROJECT))
        self.add_version(5 * MIB)
        self.add_version(1)
        self.assertEqual(6, self.read(quota_usage.version_mib, PROJECT))
