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
"""Which versions a policy keeps."""

import datetime

import hypothesis
from hypothesis import strategies as st

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.upkeep import retention
from tests import base

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def version(number: int, hours: float) -> entries.Version:
    """A version that was made some hours after the start."""
    made = START + datetime.timedelta(hours=hours)
    return entries.Version(
        id=f'v{number}', series='a', number=number, parent=None,
        created_at=made.isoformat(), size=0, root=entries.ZERO_ROOT,
        base=None, alpha='0', blocks_changed=0, blocks_stored=0,
        bytes_read=0, bytes_stored=0, seconds=0.0, pause_ms=0.0)


class TestDropped(base.TestCase):

    def dropped(self, versions, **policy):
        found = retention.dropped(versions, retention.Policy(**policy))
        return [each.number for each in found]

    def test_without_a_policy_all_stay(self):
        self.assertEqual([], self.dropped([version(1, 0), version(2, 1)]))

    def test_the_last_ones_stay(self):
        versions = [version(i, i) for i in range(5)]
        self.assertEqual([0, 1, 2], self.dropped(versions, last=2))

    def test_each_period_keeps_its_newest(self):
        versions = [version(i, i * 0.5) for i in range(6)]
        # Hours 12, 12, 13, 13, 14, 14.
        self.assertEqual([0, 1, 2, 4], self.dropped(versions, hourly=2))

    def test_days_and_weeks_add_up(self):
        versions = [version(i, i * 24) for i in range(15)]
        self.assertEqual(
            [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12],
            self.dropped(versions, daily=2, weekly=3))

    def test_the_newest_always_stays(self):
        self.assertEqual([], self.dropped([version(1, 0)], monthly=1))

    def test_a_negative_number_is_refused(self):
        self.assertRaises(exceptions.InvalidInput, retention.Policy, last=-1)

    @hypothesis.given(
        st.lists(st.integers(0, 3000), max_size=30, unique=True),
        st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
    def test_what_is_kept_serves_the_policy(self, hours, last, daily, weekly):
        versions = [version(i, at) for i, at in enumerate(sorted(hours))]
        policy = retention.Policy(last=last, daily=daily, weekly=weekly)
        gone = {each.id for each in retention.dropped(versions, policy)}
        kept = [each for each in versions if each.id not in gone]
        if policy.keeps_all:
            self.assertEqual(versions, kept)
            return
        for each in versions[-last:] if last else []:
            self.assertIn(each, kept)
        self.assertLessEqual(len(kept), max(1, last) + daily + weekly)
        days = {each.created_at[:10] for each in versions}
        kept_days = {each.created_at[:10] for each in kept}
        self.assertLessEqual(set(sorted(days)[-daily:] if daily else []),
                             kept_days)
