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
from diffcache_openstack.ssdcache import engines
from diffcache_openstack.ssdcache import ssdcached
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


class TestHeld(base.TestCase):

    def setUp(self):
        super().setUp()
        self.state = 'held'
        self.send = self.enterContext(mock.patch.object(
            control, 'send', side_effect=self.answer))
        self.engine = ssdcached.SsdcachedEngine('control', 'nbd')

    def answer(self, _path, command, **fields):
        counts = dict.fromkeys(ssdcached._TRAFFIC, 0)
        return {'volumes': {'a': {
            **counts, 'export': 'e', 'sequential': 0, 'admission': 1,
            'mode': 'write-back', 'limit': 1, 'blocks': 1, 'dirty': 1,
            'losses': [], 'vhost': None, 'rates': {},
            'state': self.state}}}

    def test_dirty_blocks_of_held_volumes_alone_are_discarded(self):
        self.engine.discard('a')
        self.send.assert_called_with(
            'control', 'detach', timeout=ssdcached.TIMEOUT_S, volume='a',
            discard_dirty=True)
        self.state = 'ok'
        for name in 'ab':
            error = self.assertRaises(engines.VolumeRefused,
                                      self.engine.discard, name)
            self.assertIn('is not held', str(error))
        self.assertEqual('status', self.send.call_args.args[1])

    def test_a_held_volume_is_recovered_where_it_is_now(self):
        self.engine.recover('a', '/dev/sdy')
        self.send.assert_called_once_with(
            'control', 'recover', timeout=ssdcached.TIMEOUT_S, volume='a',
            origin='/dev/sdy')
