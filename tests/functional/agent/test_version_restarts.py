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
"""Agents that are killed while they save and restore servers."""

import signal
import time
import uuid

from diffcache_openstack.versions.disks import rollback_journal
from tests.functional.agent import servers

MIB = servers.MIB


class KillingTestCase(servers.ServersTestCase):

    def kill(self):
        self.site.processes['host-1'].stop(signal.SIGKILL)

    def await_middle(self, task_id):
        """Wait until something of a task's work is done, and not all."""
        def some():
            found = self.site.task(task_id)
            self.assertIn(found['state'], ('queued', 'running'))
            return 0 < found['done'] < found['total']
        self.site.wait(some)


@servers.NEEDS_LIBVIRT
class TestSlow(KillingTestCase):
    """A disk is read slowly: 16 MiB take sixteen seconds."""

    def test_save_in_the_background_goes_on_with_its_moment(self):
        self.power_on()
        self.writes('write -P 1 10M 16M', 'flush')
        moment = self.content()
        version_id = self.begin(rate=1_000_000)
        self.await_middle(self.site.version(version_id)['task']['id'])
        # The guest works on meanwhile, and after the agent's end.
        self.writes('write -P 2 12M 1M')
        self.kill()
        self.writes('write -P 3 40M 1M', 'write -P 3 20M 1M')
        self.site.start_agent('host-1')
        version = self.saved(version_id)
        self.assertEqual(16 * MIB, version['bytes_changed'])
        # Read once, after the start, as fast as it may be.
        self.assertLess(version['bytes_read'], 17 * MIB)
        self.assertGreater(version['seconds'], 15)
        self.assertEqual(1, len(self.stored()))
        self.power_off()
        self.restore(version)
        self.assertEqual(moment, self.content())


@servers.NEEDS_LIBVIRT
class TestSlowAgent(KillingTestCase):
    """All disks are read slowly."""

    options = {'versions': {'rate': '1MB'}}

    def test_restore_goes_on_and_keeps_once(self):
        self.power_on()
        first = self.save()
        expected = self.content()
        self.writes('write -P 1 10M 16M')
        self.power_off()
        after = self.content()
        kept = str(uuid.uuid4())
        task_id = self.begin_to_restore(first, keep=kept)
        # It is the first work that is saved: what is, before it goes.
        self.await_middle(task_id)
        self.kill()
        self.site.start_agent('host-1')
        self.site.wait(lambda: self.site.version(kept)[
            'state'] == 'available')
        self.kill()
        self.site.start_agent('host-1')
        self.done(task_id)
        self.assertEqual(expected, self.content())
        self.assertEqual(2, len(self.stored()))
        self.restore(self.saved(kept))
        self.assertEqual(after, self.content())


@servers.NEEDS_LIBVIRT
class TestInTheMiddleOfWriting(KillingTestCase):

    def test_restore_goes_on_where_the_disk_is_neither_state(self):
        self.power_on()
        self.writes('write -P 1 9M 48M')
        first = self.save()
        expected = self.content()
        journal = rollback_journal.path_of(self.disk)
        task_id = self.kill_in_the_middle(first, expected, journal)
        # It is not saved as if it were something.
        refused = self.site.wait(lambda: self.refused_save())
        self.assertIn('being restored', refused)
        self.site.start_agent('host-1')
        self.assertEqual('rollback', self.done(task_id)['method'])
        self.assertEqual(expected, self.content())
        self.assertFalse(journal.exists())

    def kill_in_the_middle(self, first, expected, journal):
        """The task of a rollback that is cut short."""
        def is_cut_short():
            self.writes('write -P 2 9M 48M')
            self.power_off()
            task_id = self.begin_to_restore(first, way='rollback')
            self.site.wait(lambda: self.await_file(journal)
                           or self.task_ended(task_id))
            self.kill()
            if journal.exists() and self.content() != expected:
                return task_id
            # It was faster than the signal.
            self.site.start_agent('host-1')
            self.done(task_id)
            self.power_on()
            return None

        return self.site.wait(is_cut_short)

    def await_file(self, path):
        """Look often for a short while, for it may be gone soon."""
        for _ in range(1000):
            if path.exists():
                return True
            time.sleep(0.0001)
        return False

    def refused_save(self):
        try:
            self.begin()
        except Exception as error:
            return str(error)
