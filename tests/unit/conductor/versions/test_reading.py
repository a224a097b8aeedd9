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
"""Versions that hosts read while servers boot from them."""

import datetime
import functools

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import policy_servers
from diffcache_openstack.conductor.versions import service
from diffcache_openstack.conductor.versions import transactions
from diffcache_openstack.conductor.versions import upkeep
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from tests.unit.conductor import fakes
from tests.unit.conductor.versions import test_upkeep
from tests.unit.db import database

PROJECT = test_upkeep.PROJECT
VERSION = '322bde76-949e-4c77-a812-310ab1466fc5'
OTHER = '322bde76-949e-4c77-a812-310ab1466fc6'


class ReadingTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.nova = fakes.Nova(PROJECT, 'q')
        self.service = service.VersionService(
            self.conf, self.database, test_upkeep.Dispatcher(), self.nova,
            None)
        self.open, self.close, self.delete = (
            functools.partial(method, None) for method in (
                self.service.open_version, self.service.close_version,
                self.service.delete_version))
        self.nova.change('stopped', host='h2')
        self.create(VERSION)

    def create(self, version_id, saved=None):
        now = versioned.now()
        self.write(db.create, objects.NewVersion(
            id=version_id, server_id='s', project_id=PROJECT), now)
        self.write(db.saved, version_id, 'h1', saved or fakes.saved(), now)

    def state(self, version_id=VERSION):
        return self.read(db.need, version_id).state

    def later(self, seconds):
        return versioned.now() + datetime.timedelta(seconds=seconds)

    def test_a_host_gets_what_the_store_has_of_the_disk(self):
        disk = self.open('h1', VERSION, PROJECT)
        [expected] = fakes.saved().disks
        self.assertEqual((expected.device, expected.size),
                         (disk.device, disk.size))

    def test_a_host_without_a_server_of_the_project_gets_nothing(self):
        self.assertRaises(exceptions.Forbidden, self.open, 'h3',
                          VERSION, PROJECT)
        self.delete(VERSION)
        self.assertEqual(versions.DELETING, self.state())

    def test_nor_does_one_whose_server_is_gone(self):
        self.open('h2', VERSION, PROJECT)
        self.nova.change('stopped', host='h1')
        self.assertRaises(exceptions.Forbidden, self.open, 'h2',
                          VERSION, PROJECT)

    def test_a_host_that_a_server_moves_to_gets_it(self):
        self.nova.change('stopped', task='migrating')
        self.assertIsNotNone(self.open('h3', VERSION, PROJECT))

    def test_while_nova_is_silent_only_who_reads_it_goes_on(self):
        self.open('h1', VERSION, PROJECT)

        def silent(_project_id):
            raise exceptions.ServiceUnavailable('Nova does not answer')

        self.patch(self.nova, 'of_project', silent)
        self.assertIsNotNone(self.open('h1', VERSION, PROJECT))
        self.assertRaises(exceptions.ServiceUnavailable, self.open,
                          'h2', VERSION, PROJECT)

    def test_of_another_project_it_gets_nothing(self):
        self.nova.change('foreign', host='h1')
        self.assertRaises(exceptions.NotFound, self.open, 'h1',
                          VERSION, 'q')
        self.assertRaises(exceptions.NotFound, self.open, 'h1', OTHER,
                          PROJECT)

    def test_one_that_is_being_deleted_is_not_opened(self):
        self.delete(VERSION)
        self.assertRaises(exceptions.Conflict, self.open, 'h1',
                          VERSION, PROJECT)

    def test_of_several_disks_none_is_chosen(self):
        saved = fakes.saved()
        saved.disks = saved.disks * 2
        self.create(OTHER, saved)
        self.assertRaises(exceptions.Conflict, self.open, 'h1',
                          OTHER, PROJECT)

    def test_while_a_host_reads_it_it_is_not_deleted(self):
        self.open('h1', VERSION, PROJECT)
        self.open('h2', VERSION, PROJECT)
        error = self.assertRaises(exceptions.Conflict, self.delete,
                                  VERSION)
        self.assertIn('while it arrives', str(error))
        self.assertEqual(versions.AVAILABLE, self.state())
        self.write(transactions.forget, VERSION,
                   self.later(versions.READ_SECONDS + 1))
        self.assertEqual(versions.DELETING, self.state())

    def test_when_all_hosts_have_read_it_it_is_deleted(self):
        self.open('h1', VERSION, PROJECT)
        self.open('h2', VERSION, PROJECT)
        self.close('h1', VERSION)
        self.close('h1', VERSION)
        self.assertRaises(exceptions.Conflict, self.delete, VERSION)
        self.close('h2', VERSION)
        self.delete(VERSION)
        self.assertEqual(versions.DELETING, self.state())

    def test_no_lease_is_left_of_a_version_that_is_deleted(self):
        self.open('h1', VERSION, PROJECT)
        self.write(transactions.forget, VERSION,
                   self.later(versions.READ_SECONDS + 1))
        self.assertEqual(set(), self.read(
            plans.leased, 'version-read:', versioned.now()))

    def test_other_versions_are_deleted_all_the_same(self):
        self.create(OTHER)
        self.open('h1', VERSION, PROJECT)
        self.delete(OTHER)
        self.assertEqual(versions.DELETING, self.state(OTHER))

    def test_a_policy_deletes_it_in_a_later_round(self):
        worker = upkeep.Upkeep(
            self.conf, self.database, self.service,
            policy_servers.PolicyServers(self.nova, fakes.Cinder()), 'me')
        self.open('h1', VERSION, PROJECT)
        worker._forget(VERSION, versioned.now())
        self.assertEqual(versions.AVAILABLE, self.state())
        worker._forget(VERSION, self.later(versions.READ_SECONDS + 1))
        self.assertEqual(versions.DELETING, self.state())
