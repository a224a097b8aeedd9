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
"""Servers saved on schedules, and versions that policies keep."""

import datetime
import uuid

import sqlalchemy as sa

from diffcache_openstack.conductor.versions import upkeep
from diffcache_openstack.db import models
from diffcache_openstack import objects
from tests.functional.agent import servers


@servers.NEEDS_LIBVIRT
class TestPolicies(servers.ServersTestCase):

    def set_policy(self, **values):
        return self.site.versions.set_policy(
            self.site.context, objects.VersionPolicy(
                id=str(uuid.uuid4()), project_id=servers.PROJECT, **values))

    def at_rest(self):
        """Whether nothing is being saved or deleted."""
        return {each['state'] for each in self.listed()} == {'available'}

    def round_of_upkeep(self):
        """What differs from one round of the conductor's to the next."""
        return self.site.database.read(
            lambda session: session.get(models.Lease, upkeep.LEASE).expires_at)

    def test_saved_on_a_schedule_and_dropped_as_the_policy_says(self):
        self.power_on()
        policy_id = self.set_policy(every=2, keep_last=2)
        seen = []

        def looked():
            for each in reversed(self.listed()):
                self.assertEqual('schedule', each['trigger'])
                if each['id'] not in seen:
                    self.writes(f'write -P {len(seen) + 1} 10M 64k')
                    seen.append(each['id'])
            return len(seen) >= 5 and self.gone(seen[2])

        self.site.wait(looked)
        self.site.versions.unset_policy(self.site.context, policy_id)
        # One that had read the policy is over when another has begun.
        before = self.round_of_upkeep()
        self.site.wait(lambda: self.round_of_upkeep() != before)
        self.site.wait(self.at_rest)
        # One may have been begun since the last look.
        looked()
        left = self.listed()
        self.assertLess(len(left), len(seen))
        self.assertEqual(seen[-len(left):],
                         [each['id'] for each in reversed(left)])
        self.assertEqual(len(left), len(self.stored()))
        self.power_off()
        before = self.content()
        newest, oldest = left[0], left[-1]
        kept = str(uuid.uuid4())
        self.restore(oldest, keep=kept)
        self.assertNotEqual(before, self.content())
        self.restore(self.saved(kept))
        self.assertEqual(before, self.content())
        self.assertEqual(2 * [newest['size']], [newest['size'],
                                                servers.DISK])

    def test_newest_of_hours_days_and_weeks_are_kept(self):
        # A Monday: two in one hour, then another hour, day and week.
        made = ('2026-03-02T10:10', '2026-03-02T10:50', '2026-03-02T11:10',
                '2026-03-03T09:00', '2026-03-10T09:00')
        found = [self.save()['id'] for _ in made]
        for version_id, when in zip(found, made):
            self.site.database.write(_date, version_id, when)
        contents = self.stored()
        self.assertEqual(5, len(contents))
        for keep, left in (({'keep_hourly': 4}, 4), ({'keep_daily': 3}, 3),
                           ({'keep_weekly': 2}, 2), ({'keep_last': 1}, 1)):
            self.set_policy(**keep)
            self.site.wait(lambda: self.gone(found[-left - 1]))
            self.site.wait(self.at_rest)
            self.assertEqual(found[-left:], [
                each['id'] for each in reversed(self.listed())])
            self.assertEqual(left, len(self.stored()))

    def test_server_has_a_policy_of_its_own(self):
        # First its own: a server without one may be saved at once.
        self.set_policy(server_id=self.server, keep_last=3)
        self.set_policy(every=2)
        other = str(uuid.uuid4())
        disk = self.make_disk('other')
        self.site.libvirt.define(other, disk)
        self.site.cloud.servers[other] = {
            **self.site.cloud.servers[self.server], 'id': other}
        self.server, mine = other, self.server
        self.site.wait(lambda: len(self.listed()) > 1)
        self.server = mine
        self.assertEqual([], self.listed())


def _date(session, version_id, when):
    table = models.ServerVersion
    session.execute(sa.update(table).where(table.id == version_id).values(
        created_at=datetime.datetime.fromisoformat(when).replace(
            tzinfo=datetime.UTC)))
