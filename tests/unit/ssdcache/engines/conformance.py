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

import os
import pathlib

from diffcache_openstack.ssdcache.engines import base as engines
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
        self.blocks = self.cache.capacity()

    def origin(self, name: str) -> str:
        path = pathlib.Path(self.directory) / name
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        return str(path)

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

    def test_it_has_blocks_and_a_socket(self):
        self.assertGreaterEqual(self.blocks, 100)
        self.assertTrue(self.cache.socket.startswith('/'))
        self.assertEqual({}, dict(self.cache.volumes()))

    def test_attach_and_detach(self):
        one, other = self.attach('a', 10), self.attach('b', 20)
        self.assertEqual({'a': one, 'b': other}, dict(self.cache.volumes()))
        self.assertEqual((10, 'write-through', 0),
                         (one.limit, one.mode, one.blocks))
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
        self.refused(self.attach, 'b', self.blocks)
        self.refused(self.attach, 'b', 1, mode='fast')
        self.refused(self.attach, 'b', 1, origin=f'{self.directory}/none')
        self.refused(self.attach, '', 1, origin=self.origin('b'))

    def test_limits(self):
        self.attach('a', 10)
        self.attach('b', 10)
        self.cache.set_limit('a', self.blocks - 10)
        self.assertEqual(self.blocks - 10, self.cache.volumes()['a'].limit)
        self.refused(self.cache.set_limit, 'b', 11)
        self.refused(self.cache.set_limit, 'c', 1)
        self.cache.detach('a')
        self.cache.set_limit('b', self.blocks)

    def test_modes(self):
        self.attach('a', 10)
        self.cache.set_mode('a', 'pass-through')
        self.assertEqual('pass-through', self.cache.volumes()['a'].mode)
        self.refused(self.cache.set_mode, 'a', 'fast')
        self.refused(self.cache.set_mode, 'c', 'pass-through')

    def test_resize(self):
        one = self.attach('a', 10)
        os.truncate(self.origin('a'), 2 * SIZE)
        self.cache.resize('a')
        self.assertEqual(one, self.cache.volumes()['a'])
        os.truncate(self.origin('a'), SIZE)
        self.refused(self.cache.resize, 'a')
        self.refused(self.cache.resize, 'c')

    def test_epochs_are_of_volumes_that_are_attached(self):
        self.attach('a', 10)
        self.attach('b', 10)
        self.cache.detach('b')
        found = self.cache.end_epoch()
        self.assertLessEqual(set(found), {'a'})
        for epoch in found.values():
            self.assertEqual((0, 0, 0), (
                epoch.curve.references, epoch.hit.count, epoch.miss.count))

    def test_flush_and_invalidate(self):
        self.attach('a', 10)
        self.cache.flush('a')
        self.cache.invalidate('a')
        self.refused(self.cache.flush, 'c')
        self.refused(self.cache.invalidate, 'c')
