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
"""A volume whose storage hangs keeps no other one waiting."""

import threading
from unittest import mock

from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import control
from tests.unit.agent.ssdcache import test_cached_volumes

PATIENCE_S = 120


class TestHangingStorage(test_cached_volumes.VolumesTest):

    def setUp(self):
        super().setUp()
        self.volumes.attach('a', self.wanted(
            mode='write-back', attachment='at1'))
        self.hangs, self.ends = threading.Event(), threading.Event()

    def hang(self, command, work):
        """Begin what waits for the storage of the first volume."""
        plain = getattr(self.engine, command)

        def wait(name, *args):
            if name == 'a':
                self.hangs.set()
                self.ends.wait(PATIENCE_S)
            return plain(name, *args)

        self.enterContext(mock.patch.object(self.engine, command, wait))
        self.hanging = threading.Thread(target=work, daemon=True)
        self.hanging.start()
        self.addCleanup(self.hanging.join, PATIENCE_S)
        self.addCleanup(self.ends.set)
        self.assertTrue(self.hangs.wait(PATIENCE_S))

    def use_another(self):
        """Do all that is done with a volume; a lock would hang the test."""
        self.volumes.attach('b', self.wanted('b'))
        self.volumes.change('b', 0, {'weight': 2.0})
        self.volumes.set_mode('b', 'write-around')
        self.volumes.drain('b', 0, True)
        self.volumes.give_back('b')
        self.volumes.end_epoch()
        self.volumes.give_back_unused()
        self.assertTrue(self.hanging.is_alive())
        self.volumes.detach('b')

    def test_a_recovery(self):
        self.engine.dirty('a', 3, choices.HELD)
        self.hang('recover', lambda: self.volumes.attach('a', self.wanted(
            mode='write-back', attachment='at1')))
        self.use_another()

    def test_a_detach(self):
        self.hang('detach', lambda: self.volumes.detach('a'))
        self.use_another()

    def test_leaving_write_back(self):
        self.hang('set_mode',
                  lambda: self.volumes.set_mode('a', 'write-through'))
        self.use_another()

    def test_a_detach_of_one_that_was_held(self):
        self.volumes.hold('a', 'h1', 30.0, 60.0)
        self.hang('detach', lambda: self.volumes.detach('a'))
        self.use_another()

    def test_one_that_does_not_return_to_its_mode(self):
        self.volumes.attach('b', self.wanted('b', mode='write-back'))
        for name in ('a', 'b'):
            self.volumes.drain(name, 60.0, True)
            self.volumes._store.keep_leave(name, volume_settings.Leave(0.0))
        plain = self.engine.set_mode

        def set_mode(name, mode):
            if name == 'a':
                raise control.CacheSlow('no answer in 60 s')
            plain(name, mode)

        with mock.patch.object(self.engine, 'set_mode', set_mode):
            self.volumes.give_back_unused()
        self.assertEqual(['write-through', 'write-back'], [
            self.engine.volumes()[name].mode for name in ('a', 'b')])

    def slow(self, name, limit):
        if name == 'a' and limit < 1000:
            raise control.CacheSlow('no answer in 5 s')
        self.set_limit(name, limit)

    def test_one_that_gives_no_blocks_back(self):
        self.volumes.attach('b', self.wanted('b', max=100))
        self.set_limit = self.engine.set_limit
        with mock.patch.object(self.engine, 'set_limit',
                               side_effect=self.slow) as called:
            self.volumes.change('a', 0, {'max': 900})
            self.volumes.detach('b')
            self.set_limit('a', 1000)
            self.volumes._limits._stuck.clear()
            error = self.assertRaises(
                exceptions.NoSpace, self.volumes.attach, 'c',
                self.wanted('c', min=400))
            self.assertIn('whose storage hangs', str(error))
            called.reset_mock()
            # It is not asked again at once; others have what is left.
            self.volumes.attach('c', self.wanted('c'))
            called.assert_not_called()
        self.assertEqual({'a': 1000, 'c': 0}, self.limits())
