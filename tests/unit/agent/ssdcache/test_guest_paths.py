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
"""Volumes are served by vhost-user where that is wanted and possible."""

from unittest import mock

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import guest_paths
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.common import exceptions
from tests.unit.agent.ssdcache import test_cached_volumes


class GuestPathsTest(test_cached_volumes.VolumesTest):

    preferred = choices.VHOST_USER

    def new(self, policy='latency'):
        return cached_volumes.CachedVolumes(
            self.engine, cached_volumes.CacheOptions(
                (str(self.directory), ), guest_path=self.preferred),
            self.path)

    def attach(self, nbd_reason=None):
        return self.volumes.attach('a', self.wanted(nbd_reason=nbd_reason))

    def shown(self):
        found = self.volumes.status()['volumes']['a']
        return found['guest_path'], found['guest_path_reason']


class TestAttach(GuestPathsTest):

    def test_the_socket_is_there_when_the_volume_is_attached(self):
        found = self.attach()
        self.assertEqual(f'/fake/nbd.vhost/{found["export"]}', found['vhost'])
        self.assertEqual((choices.VHOST_USER, None), self.shown())
        # A hard reboot: nothing of the earlier way is left.
        again = self.attach('limits')
        self.assertIsNone(again['vhost'])
        self.assertNotEqual(found['export'], again['export'])
        self.assertEqual((choices.NBD, 'limits'), self.shown())
        self.assertIsNone(self.engine.volumes()['a'].vhost)

    def test_a_cache_that_cannot(self):
        self.engine.vhost_refusal = 'vhost-user needs io_uring'
        with self.assertLogs(guest_paths.LOG, 'WARNING'):
            self.assertIsNone(self.attach()['vhost'])
        self.assertEqual((choices.NBD, 'vhost-user needs io_uring'),
                         self.shown())
        # It stays so, as its server uses NBD.
        self.engine.vhost_refusal = None
        self.new().reopen_vhost()
        self.assertIsNone(self.engine.volumes()['a'].vhost)

    def test_a_cache_that_does_not_answer_keeps_nothing(self):
        """Nova does not use the cache then."""
        with mock.patch.object(
                self.engine, 'open_vhost',
                side_effect=exceptions.ServiceUnavailable('down')):
            self.assertRaises(exceptions.ServiceUnavailable, self.attach)
        self.assertEqual({}, self.engine.volumes())

    def test_a_reason_is_not_reported_whole_if_it_is_long(self):
        self.attach('x' * 1000)
        self.assertEqual('x' * 250, self.shown()[1])

    def test_one_that_was_attached_by_hand(self):
        self.attach()
        self.path.unlink()
        self.engine.set_vhost('a', None)
        self.assertEqual((choices.NBD, volume_settings.BY_HAND), self.shown())
        self.engine.open_vhost('a')
        self.assertEqual((choices.VHOST_USER, None), self.shown())


class TestDisabled(GuestPathsTest):

    preferred = choices.NBD

    def test_the_reason_names_the_option(self):
        self.assertIsNone(self.attach()['vhost'])
        path, reason = self.shown()
        self.assertEqual(choices.NBD, path)
        self.assertIn('[ssd_cache] guest_path', reason)
        # What Nova says comes first.
        self.attach('limits')
        self.assertEqual((choices.NBD, 'limits'), self.shown())


class TestReopen(GuestPathsTest):

    def setUp(self):
        super().setUp()
        self.found = self.attach()
        # The cache was stopped, and its sockets removed.
        self.engine.set_vhost('a', None)

    def test_after_a_stop_of_the_cache(self):
        self.volumes.attach('b', self.wanted('b'))
        self.assertEqual((choices.VHOST_USER, None), self.shown())
        # Also by another agent.
        self.new().reopen_vhost()
        states = self.engine.volumes()
        self.assertEqual(self.found['vhost'], states['a'].vhost)
        self.assertIsNone(states['b'].vhost)

    def test_a_cache_that_refuses_is_logged_once(self):
        self.engine.vhost_refusal = 'needs io_uring'
        with self.assertLogs(guest_paths.LOG, 'ERROR') as logs:
            self.volumes.reopen_vhost()
            self.volumes.reopen_vhost()
        [line] = logs.output
        self.assertIn('needs io_uring', line)
        self.engine.vhost_refusal = None
        self.volumes.reopen_vhost()
        self.assertIsNotNone(self.engine.volumes()['a'].vhost)

    def test_a_cache_that_serves_none_so_is_not_asked(self):
        self.volumes.detach('a')
        with mock.patch.object(self.engine, 'volumes') as asked:
            self.volumes.reopen_vhost()
        asked.assert_not_called()

    def test_not_while_it_is_held_or_detached(self):
        self.engine.dirty('a', 1, choices.HELD)
        self.volumes.reopen_vhost()
        self.assertIsNone(self.engine.volumes()['a'].vhost)
        self.engine.dirty('a', 0)
        with self.volumes._alone.of('a'):
            self.volumes.reopen_vhost()
        self.assertIsNone(self.engine.volumes()['a'].vhost)
