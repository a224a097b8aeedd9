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
"""The catalogue of a repository's images."""

import dataclasses
import os
import threading

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests.unit.agent import fakes
from tests.unit.agent.repository import repositories
from tests import waiting

BASE, TARGET = repositories.BASE, repositories.TARGET
ID = repositories.ID


class RepositoryTest(repositories.RepositoryCase):

    def test_register_keeps_a_copy_of_its_own(self):
        record = self.repository.register(self.base_file, ID, 'base')
        self.base_file.write_bytes(b'changed')
        key = views.Key(views.IMAGES, record.content_id)
        self.assertEqual(BASE, self.held.path(key).read_bytes())
        self.assertEqual(record, self.catalogue.images[ID])
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_register_twice_is_once(self):
        first = self.repository.register(self.base_file, ID, 'base')
        self.assertEqual(first, self.repository.register(
            self.base_file, ID, 'base'))
        self.assertEqual([first], self.repository.images())

    def test_an_id_keeps_its_content(self):
        self.repository.register(self.base_file, ID, 'base')
        error = self.assertRaises(
            exceptions.Conflict, self.repository.register, self.target_file,
            ID, 'base')
        self.assertIn(ID, str(error))
        self.assertNotIn(fakes.key_of(TARGET), self.held)

    def test_missing_file(self):
        path = self.directory / 'none.raw'
        error = self.assertRaises(
            exceptions.InvalidInput, self.repository.register, path, ID, '')
        self.assertIn(str(path), str(error))

    def test_a_dead_conductor_is_told_later(self):
        self.catalogue.dead = True
        self.register_both()
        self.assertFalse(self.repository.announce())
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.maker.make_missing)
        self.catalogue.dead = False
        self.assertTrue(self.repository.announce())
        self.assertEqual({'base', 'target'}, set(self.catalogue.images))

    def test_a_conductor_that_is_busy_is_told_in_the_end(self):
        # Regression: one attempt was made, when contact was found again.
        self.patch(catalogue, 'RETRY_SECONDS', 0.001)
        self.catalogue.dead = True
        self.register_both()
        compare, refused = self.catalogue.find_unregistered, [1, 2]

        def find(images, patches):
            if refused:
                refused.pop()
            else:
                self.catalogue.dead = False
            return compare(images, patches)
        self.patch(self.catalogue, 'find_unregistered', find)
        self.repository.announce_in_time()
        self.assertEqual({'base', 'target'}, set(self.catalogue.images))

    def test_a_conductor_that_stays_away_keeps_no_agent_from_stopping(self):
        self.catalogue.dead = True
        self.register_both()
        thread = threading.Thread(target=self.repository.announce_in_time)
        thread.start()
        self.repository.interrupt()
        thread.join(waiting.SECONDS)
        self.assertFalse(thread.is_alive())

    def test_known_images_and_patches_are_not_reported_again(self):
        self.register_both()
        self.maker.make_missing()
        del self.catalogue.images['base']
        self.catalogue.registered.clear()
        self.patch(self.catalogue, 'register_patch', None)
        self.assertTrue(self.new().announce())
        self.assertEqual(['base'], self.catalogue.registered)
        self.assertEqual([(2, 2)], self.catalogue.compared)

    def test_images_are_compared_some_at_a_time(self):
        self.patch(catalogue, '_COMPARED', 2)
        for number in range(5):
            path = self.write_file('image.raw', b'%d' % number)
            self.repository.register(path, f'image-{number}', 'name')
        self.repository.announce()
        self.assertEqual([(2, 0), (2, 0), (1, 0)], self.catalogue.compared)

    def test_deleted_images_are_reported_whatever_is_known(self):
        record = self.repository.register(self.base_file, ID, 'base')
        self.catalogue.dead = True
        self.repository.put(dataclasses.replace(record, status=views.DELETED))
        self.catalogue.dead = False
        self.assertTrue(self.repository.announce())
        self.assertEqual(views.DELETED, self.catalogue.images[ID].status)
        self.assertEqual([], self.repository.images())
