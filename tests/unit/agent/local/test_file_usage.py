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
from unittest import mock

from diffcache_openstack.agent.local import file_usage
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from tests import base


class UsageTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.usage = self.again()

    def again(self):
        return file_usage.FileUsage(self.directory / 'usage.json')

    def test_hits_outlive_the_process(self):
        for _ in range(3):
            self.usage.hit('a')
        self.assertEqual(3, self.again().of('a').hits)
        self.assertGreater(self.again().of('a').last_access, 0)
        self.assertEqual(0, self.again().of('b').hits)

    def test_dismissed_until_asked_for_again(self):
        self.usage.hit('a')
        self.usage.dismiss('a')
        self.assertEqual((0, True), (self.usage.of('a').hits,
                                     self.again().of('a').dismissed))
        self.usage.hit('a')
        self.assertFalse(self.usage.of('a').dismissed)

    def test_admitted_anew(self):
        self.usage.hit('a')
        self.usage.dismiss('a')
        self.usage.enqueue('a')
        self.usage.admit('a')
        self.assertEqual((0, False), (self.usage.of('a').hits,
                                      self.usage.of('a').dismissed))
        self.assertEqual([], self.usage.queue())

    def test_queue_in_order(self):
        for name in ('b', 'a', 'c'):
            self.assertTrue(self.usage.enqueue(name))
        self.assertFalse(self.usage.enqueue('a'))
        self.assertEqual(['b', 'a', 'c'], self.again().queue())
        self.assertTrue(self.usage.dequeue('a'))
        self.assertFalse(self.usage.dequeue('a'))
        self.assertEqual(['b', 'c'], self.again().queue())

    def test_fallbacks_add_up(self):
        self.usage.fallback('nova-compute', 'NoSpace', 2)
        self.usage.fallback('nova-compute', 'NoSpace', 1)
        self.usage.fallback('glance-api', 'ServiceUnavailable', 1)
        self.assertEqual({'nova-compute': {'NoSpace': 3},
                          'glance-api': {'ServiceUnavailable': 1}},
                         self.again().fallbacks())

    def test_gone_for_good(self):
        self.usage.hit('a')
        self.usage.enqueue('a')
        self.usage.hit('b')
        self.usage.forget({'a', 'never'})
        self.assertEqual((0, 1, []), (
            self.again().of('a').hits, self.again().of('b').hits,
            self.again().queue()))

    def test_a_damaged_file_costs_the_counts(self):
        self.write_file('usage.json', b'{')
        self.assertEqual([], self.again().queue())

    def test_a_full_disk_is_no_reason_to_refuse_an_image(self):
        """Each hit failed, and the image crossed the WAN in its place."""
        with mock.patch.object(files, 'write_json',
                               side_effect=exceptions.NoSpace('full')):
            self.usage.hit('a')
            self.usage.admit('b')
        self.assertEqual(1, self.usage.of('a').hits)
        self.usage.hit('a')
        self.assertEqual(2, self.again().of('a').hits)
