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

from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache.engines import ssdcached
from tests import base


class TestCapacity(base.TestCase):

    def capacity(self, state):
        answer = {'device': {'state': state, 'blocks': 7}, 'volumes': {}}
        with mock.patch.object(control, 'send', return_value=answer):
            return ssdcached.SsdcachedEngine('control', 'nbd').capacity()

    def test_a_slow_device_keeps_its_volumes_and_takes_others(self):
        self.assertEqual((7, 7), (self.capacity('ok'), self.capacity('slow')))

    def test_a_device_that_failed(self):
        self.assertEqual(0, self.capacity('failed'))
