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
"""What every engine of the SSD cache does, whatever serves it."""

import dataclasses
import os
import pathlib

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.ssdcache import engines
from tests import base

SIZE = 1 << 20


class EngineConformance(base.TestCase):
    """Derive from it, with an engine of an empty cache of some blocks."""

    def engine(self) -> engines.Engine:
        """Return the engine; called once by each test."""
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        self.cache = self.engine()
        self.capacity = self.cache.capacity()

    def origin(self, name: str) -> str:
        path = pathlib.Path(self.directory) / name
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        return str(path)

    def change_size(self, name: str, size: int) -> None:
        """Change the size of a volume's origin."""
        os.truncate(self.origin(name), size)

    def attach(self, name: str, limit: int, **fields) -> engines.State:
        fields = {'origin': self.origin(name), 'mode': 'write-through'} \
            | fields
        return self.cache.attach(engines.Attachment(
            name=name, limit=limit, **fields))

    def refused(self, work, *args, **fields) -> str:
        before = dict(self.cache.volumes())
        error = self.assertRaises(engines.VolumeRefused, work, *args,
                                  **fields)
        self.assertEqual(before, dict(self.cache.volumes()))
        return str(error)

    def test_it_has_blocks_and_no_volumes(self):
        self.assertGreaterEqual(self.capacity, 100)
        self.assertTrue(self.cache.socket.startswith('/'))
        self.assertEqual({}, dict(self.cache.volumes()))

    def test_attach_and_detach(self):
        one, other = self.attach('a', 10), self.attach('b', 20)
        self.assertEqual({'a': one, 'b': other}, dict(self.cache.volumes()))
        self.assertEqual((10, 'write-through', 0, 'ok'),
                         (one.limit, one.mode, one.blocks, one.state))
        self.assertNotEqual(one.export, other.export)
        self.cache.detach('a')
        self.assertEqual({'b': other}, dict(self.cache.volumes()))
        self.cache.detach('a')
        again = self.attach('a', 10)
        self.assertNotEqual(one.export, again.export)

    def test_the_same_volume_again(self):
        one = self.attach('a', 10)
        again = self.attach('a', 30, mode='write-around')
        self.assertEqual((one.export, 30, 'write-around'),
                         (again.export, again.limit, again.mode))

    def test_what_is_refused(self):
        self.attach('a', 10)
        self.refused(self.attach, 'a', 10, origin=self.origin('b'))
        self.refused(self.attach, 'b', self.capacity)
        self.refused(self.attach, 'b', 1, mode='fast')
        self.refused(self.attach, 'b', 1, origin=f'{self.directory}/none')
        self.refused(self.attach, '', 1, origin=self.origin('b'))

    def test_limits(self):
        self.attach('a', 10)
        self.attach('b', 10)
        self.cache.set_limit('a', self.capacity - 10)
        self.assertEqual(self.capacity - 10, self.cache.volumes()['a'].limit)
        self.refused(self.cache.set_limit, 'b', 11)
        self.refused(self.cache.set_limit, 'c', 1)
        self.cache.detach('a')
        self.cache.set_limit('b', self.capacity)
        self.assertEqual('ok', self.cache.volumes()['b'].state)

    def test_modes(self):
        self.attach('a', 10)
        for mode in choices.MODES:
            self.cache.set_mode('a', mode)
            self.assertEqual((mode, 10), (self.cache.volumes()['a'].mode,
                                          self.cache.volumes()['a'].limit))
        self.refused(self.cache.set_mode, 'a', 'fast')
        self.refused(self.cache.set_mode, 'c', 'pass-through')

    def test_which_requests_are_cached(self):
        one = self.attach('a', 10, sequential=1 << 20, admission=2)
        self.assertEqual((1 << 20, 2), (one.sequential, one.admission))
        for sequential, admission in ((4096, 15), (0, None)):
            self.cache.set_filters('a', sequential, admission)
            found = self.cache.volumes()['a']
            self.assertEqual((sequential, admission or 1),
                             (found.sequential, found.admission))
            self.assertEqual(one, dataclasses.replace(
                found, sequential=one.sequential, admission=one.admission))
        self.refused(self.cache.set_filters, 'c', 0, 1)

    def test_rates(self):
        one = self.attach('a', 10, rates={'total_iops_sec': 500})
        self.assertEqual({'total_iops_sec': 500}, one.rates)
        rates = {'read_bytes_sec': 1 << 20, 'read_bytes_sec_max': 1 << 22}
        self.cache.set_rates('a', rates)
        self.assertEqual(rates, self.cache.volumes()['a'].rates)
        self.cache.set_rates('a', {})
        self.assertEqual({}, self.cache.volumes()['a'].rates)
        self.refused(self.cache.set_rates, 'c', {})

    def test_resize(self):
        one = self.attach('a', 10)
        self.change_size('a', 2 * SIZE)
        self.cache.resize('a')
        self.assertEqual(one, self.cache.volumes()['a'])
        self.change_size('a', SIZE)
        self.refused(self.cache.resize, 'a')
        self.refused(self.cache.resize, 'c')

    def test_connections_are_ended(self):
        one = self.attach('a', 10)
        self.cache.disconnect('a')
        self.assertEqual(one, self.cache.volumes()['a'])
        self.refused(self.cache.disconnect, 'c')

    def test_epochs_are_of_volumes_that_are_attached(self):
        self.attach('a', 10)
        self.attach('b', 10)
        self.cache.detach('b')
        found = self.cache.end_epoch()
        self.assertLessEqual(set(found), {'a'})
        for epoch in found.values():
            self.assertEqual((0, 0, 0), (
                epoch.curve.references, epoch.hit.count, epoch.miss.count))

    def test_blocks_that_nobody_requested(self):
        self.attach('a', 10)
        self.assertEqual([], self.cache.hot('a', 10))
        warmed = self.cache.warm('a', [hot_blocks.Run(0, 1)])
        self.assertEqual([hot_blocks.Run(0, 1)] if warmed.blocks else [],
                         self.cache.hot('a', 10))

    def test_what_ends_losses(self):
        one = self.attach('a', 10)
        self.assertEqual((), one.losses)
        for end in (self.cache.accept_loss, self.cache.end_guest):
            end('a')
            self.assertEqual(one, self.cache.volumes()['a'])
            self.refused(end, 'c')

    def test_flush_and_invalidate(self):
        self.attach('a', 10)
        self.cache.flush('a')
        one = self.cache.volumes()['a']
        self.cache.invalidate('a')
        self.assertEqual(one, self.cache.volumes()['a'])
        self.refused(self.cache.flush, 'c')
        self.refused(self.cache.invalidate, 'c')

    def test_a_socket_of_vhost_user_is_there_until_a_detach(self):
        one = self.attach('a', 10)
        self.assertIsNone(one.vhost)
        path = self.cache.open_vhost('a')
        self.assertEqual(one.export, pathlib.Path(path).name)
        self.assertEqual(path, self.cache.volumes()['a'].vhost)
        self.assertEqual(path, self.cache.open_vhost('a'))
        self.cache.detach('a')
        self.assertIsNone(self.attach('a', 10).vhost)
        self.refused(self.cache.open_vhost, 'c')
