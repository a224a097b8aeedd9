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
"""Hosts that wait at a repository for an image that is being added."""

import threading

from diffcache_openstack.agent.repository import arriving_images
from diffcache_openstack import objects
from tests import base

SIZE, MBPS = 100_000_000, 100.0
SECONDS = 60


def image(name='new', size=SIZE):
    return objects.Image(id=name, content_id='a' * 64, size=1, data_size=1,
                         file_size=size)


class ArrivingImagesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.possible = True
        self.known = {}
        self.hurried = []
        self.arriving = arriving_images.ArrivingImages(
            self.hurry, self.known.get, lambda: self.now)

    def hurry(self, name):
        self.hurried.append(name)
        return self.possible

    def wait(self, name='new', size=SIZE, mbps=MBPS):
        return self.arriving.wait(name, size, mbps)

    def add(self, name='new', seconds=1.0):
        """Add an image, which can be read after some seconds."""
        self.arriving.begin(name)
        self.now += seconds
        self.arriving.publish(image(name))
        self.arriving.end(name)

    def test_one_that_is_registered_already(self):
        self.known['new'] = image()
        self.assertIs(self.known['new'], self.wait())
        self.assertEqual([], self.hurried)

    def test_one_that_cannot_be_added(self):
        self.possible = False
        self.assertIsNone(self.wait())

    def test_one_whose_content_can_be_read(self):
        self.add()
        self.assertEqual('new', self.wait().id)

    def test_a_host_waits_until_the_content_can_be_read(self):
        # A slow link: it is worth to wait for a minute.
        self.add('earlier', 1.0)
        self.arriving.begin('new')
        found = []
        waiter = threading.Thread(
            target=lambda: found.append(self.wait(mbps=1.0)))
        waiter.start()
        while not self.arriving.is_awaited('new'):
            pass
        self.assertFalse(self.arriving.is_awaited('other'))
        self.arriving.publish(image())
        waiter.join(SECONDS)
        self.assertEqual(['new'], [each.id for each in found])
        self.assertFalse(self.arriving.is_awaited('new'))

    def test_what_no_host_would_have_waited_for_does_not_count(self):
        self.arriving.begin('earlier')
        self.now += 60.0
        self.arriving.publish(image('earlier'), 59.0)
        self.arriving.end('earlier')
        self.assertEqual(1.0, self.arriving._remaining('new', SIZE))

    def test_no_wait_that_costs_more_than_it_saves(self):
        # By the one before it takes 60 s more; 3.3 are saved.
        self.add('earlier', 60.0)
        self.arriving.begin('new')
        self.assertIsNone(self.wait())
        # Of which 58 have passed since.
        self.now += 58.0
        self.arriving.publish(image())
        self.assertEqual('new', self.wait().id)

    def test_the_wait_grows_with_what_hosts_take_to_unpack(self):
        self.add('earlier', 20.0)
        self.assertIsNone(self.wait())
        # 0.8 s of the transfer and 25 of unpacking are saved.
        self.arriving.note_unpacked(SIZE // 2, 12.5)
        self.assertAlmostEqual(25.8, self.arriving._longest_wait(SIZE, MBPS))
        self.assertAlmostEqual(
            60.0, self.arriving._longest_wait(100 * SIZE, MBPS))
        self.assertAlmostEqual(
            1.0, self.arriving._longest_wait(SIZE // 100, MBPS))

    def test_no_wait_behind_other_images(self):
        self.add('earlier', 0.1)
        self.arriving.begin('other')
        self.assertIsNone(self.wait())

    def test_only_so_many_hosts_wait(self):
        self.patch(arriving_images, '_MOST_WAITING', 0)
        self.add('earlier', 0.1)
        self.arriving.begin('new')
        self.assertIsNone(self.wait(mbps=1.0))

    def test_hosts_wait_no_longer_when_the_repository_stops(self):
        self.add('earlier', 1.0)
        self.arriving.begin('new')
        found = []
        host = threading.Thread(
            target=lambda: found.append(self.wait(mbps=1.0)), daemon=True)
        host.start()
        while not self.arriving.is_awaited('new'):
            pass
        self.arriving.close()
        host.join(SECONDS)
        self.assertEqual([None], found)
        # Nor does one that comes now.
        self.assertIsNone(self.wait(mbps=1.0))

    def test_one_that_failed_is_not_given_out(self):
        self.add('earlier', 60.0)
        self.add()
        self.arriving.withdraw('new')
        self.assertIsNone(self.wait())

    def test_what_is_remembered_is_bounded(self):
        self.patch(arriving_images, '_REMEMBERED', 2)
        for name in ('one', 'two', 'three'):
            self.add(name, 60.0)
        self.assertIsNone(self.wait('one'))
        self.assertEqual('three', self.wait('three').id)

    def test_report(self):
        self.arriving.begin('new')
        self.arriving.begin('other')
        self.arriving.publish(image())
        self.assertEqual([{'image': 'new', 'readable': True},
                          {'image': 'other', 'readable': False}],
                         self.arriving.report())
        self.arriving.end('new')
        self.arriving.end('other')
        self.assertEqual([], self.arriving.report())
