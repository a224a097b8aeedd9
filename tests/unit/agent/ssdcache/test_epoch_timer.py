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
"""Ends of epochs, in time and before it."""

from unittest import mock

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import epoch_timer
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.common import exceptions
from tests import base


class TestEpochTimer(base.TestCase):

    def run_for(self, waits, early=(), error=None, unused=None, reopened=None,
                **rules):
        """Return what was called after how many seconds, of some waits."""
        cached = mock.create_autospec(cached_volumes.CachedVolumes,
                                      instance=True)
        cached.rules = volume_sizes.SizeRules(**rules)
        cached.give_back_unused.side_effect = unused
        cached.reopen_vhost.side_effect = reopened
        self.cached = cached
        timer = epoch_timer.EpochTimer(cached)
        now, called = 0.0, []

        def wait(seconds):
            nonlocal now
            now += seconds
            return len(waited.mock_calls) > waits

        def end_early():
            called.append((now, 'look'))
            if error is not None:
                raise error
            return now in early
        cached.end_epoch_early.side_effect = end_early
        cached.end_epoch.side_effect = lambda: called.append((now, 'end'))
        waited = mock.Mock(side_effect=wait)
        with mock.patch.object(timer, '_stopped') as stopped:
            stopped.wait = waited
            timer._run()
        return called

    def test_looks_and_ends(self):
        self.assertEqual(
            [(5.0, 'look'), (10.0, 'look'), (15.0, 'look'), (18.0, 'end'),
             (23.0, 'look')], self.run_for(5, epoch=18))

    def test_an_early_end_begins_a_whole_epoch(self):
        found = self.run_for(7, early=(10.0, ), epoch=20)
        self.assertEqual([(25.0, 'look'), (30.0, 'end'), (35.0, 'look')],
                         found[-3:])

    def test_epochs_that_may_not_end_early(self):
        for shortest in (10, 20, 300):
            found = self.run_for(4, epoch=10, shortest=shortest)
            ends = [time for time, what in found if what == 'end']
            self.assertEqual(10.0, ends[0])
            # One look is not enough to end an epoch early.
            looks = [time for time, what in found
                     if what == 'look' and time < 10]
            self.assertLessEqual(len(looks), 1)

    def test_it_goes_on_after_errors(self):
        for error in (exceptions.NoSpace('no'), ValueError()):
            found = self.run_for(4, error=error, epoch=18)
            self.assertEqual((18.0, 'end'), found[-1])

    def test_volumes_are_served_again_at_each_look(self):
        self.run_for(3, reopened=exceptions.ServiceUnavailable('no'))
        self.assertEqual(3, self.cached.reopen_vhost.call_count)
        self.assertEqual(3, self.cached.give_back_unused.call_count)

    def test_epochs_end_while_volumes_cannot_be_given_back(self):
        for error in (exceptions.ServiceUnavailable('no'), ValueError()):
            found = self.run_for(6, unused=error, epoch=18)
            self.assertEqual([(5.0, 'look'), (10.0, 'look'), (15.0, 'look'),
                              (18.0, 'end'), (23.0, 'look'), (28.0, 'look')],
                             found)
