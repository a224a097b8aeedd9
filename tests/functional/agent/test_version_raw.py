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
"""Servers whose disks are raw, as Nova has them with ``images_type = raw``."""

import signal
import subprocess
import unittest

from tests.functional.agent import servers
from tests.functional.fixtures import filesystems
from tests.functional.fixtures import guest

MIB = servers.MIB
# At which both disks take four seconds.
RATE = 4_000_000


class RawTestCase(servers.ServersTestCase):
    """The server lies on an XFS, and its disks on nothing."""

    def place(self):
        return self.useFixture(filesystems.Xfs(self.directory)).path

    def make_base(self):
        self.site.libvirt.disk_format = 'raw'
        self.folder = self.site.instances / self.server
        self.folder.mkdir()

    def make_disk(self, name):
        disk = self.folder / name
        with open(disk, 'wb') as stream:
            stream.truncate(servers.DISK)
        return disk

    def raw(self, disk=None):
        return disk or self.disk

    def files(self):
        """What is in the server's folder."""
        return sorted(path.name for path in self.folder.iterdir())


@filesystems.NEEDED
@servers.NEEDS_LIBVIRT
class TestRaw(RawTestCase):

    def define(self):
        self.data = self.make_disk('data')
        return self.site.libvirt.define(self.server, self.disk, self.data)

    def both(self):
        return self.content(), self.content(self.data)

    def write_both(self, pattern, place):
        for number in (0, 1):
            self.site.libvirt.guest_writes(
                self.domain, f'write -P {pattern} {place} 8M', 'flush',
                number=number)

    def test_running_server_is_saved_goes_on_and_goes_back(self):
        self.power_on()
        self.write_both(1, '2M')
        moment = self.both()
        version_id = self.begin(rate=RATE)
        self.site.wait(lambda: self.is_copied() or self.ended(version_id))
        # What it writes while it is read is of the next version.
        self.write_both(2, '6M')
        first = self.saved(version_id)
        self.assertEqual(16 * MIB, first['bytes_changed'])
        self.assertGreater(first['pause_ms'], 0)
        second = self.save()
        # All of it is read, and only what differs is stored.
        self.assertEqual(16 * MIB, second['bytes_changed'])
        self.assertGreaterEqual(second['bytes_read'], 24 * MIB)
        self.assertLess(second['bytes_read'], 40 * MIB)
        self.assertLess(second['bytes_stored'], MIB)
        later = self.both()
        self.power_off()
        for version, way, expected in (
                (first, 'rollback', moment), (second, 'rebuild', later),
                (first, 'rebuild', moment)):
            self.assertEqual(way, self.restore(version, way=way)['method'])
            self.assertEqual(expected, self.both())
        self.assertEqual(['data', 'disk'], self.files())

    def is_copied(self):
        """Whether copies are there, and the guest runs again."""
        copies = [name for name in self.files() if name.endswith('.view')]
        return len(copies) == 2 and self.domain.info()[0] == 1

    def interrupt(self, end, pattern):
        """A version whose agent ended meanwhile, and that state."""
        moment = self.both()
        version_id = self.begin(rate=RATE)
        task = self.site.version(version_id)['task']['id']
        self.site.wait(lambda: self.site.task(task)['done'])
        self.site.processes['host-1'].stop(end)
        self.write_both(pattern, '20M')
        self.site.start_agent('host-1')
        version = self.saved(version_id)
        self.assertEqual(['data', 'disk'], self.files())
        return version, moment

    def test_agent_that_ends_leaves_no_copy_and_loses_no_moment(self):
        self.power_on()
        self.write_both(1, '2M')
        ended = [self.interrupt(signal.SIGKILL, 2),
                 self.interrupt(signal.SIGTERM, 3)]
        self.power_off()
        for version, moment in ended:
            self.restore(version)
            self.assertEqual(moment, self.both())

    def test_copies_that_nobody_asks_for_again_go_at_the_start(self):
        left = [self.folder / '.disk.0123456789abcdef.view',
                self.folder / '.data.0123456789abcdef.view.part']
        for path in left:
            path.write_bytes(b'x')
        self.site.processes['host-1'].stop(signal.SIGKILL)
        self.site.start_agent('host-1')
        self.site.wait(lambda: not any(path.exists() for path in left))
        self.assertEqual(['data', 'disk'], self.files())


@filesystems.NEEDED
@servers.NEEDS_LIBVIRT
@unittest.skipUnless(guest.is_there(), guest.NEEDS)
class TestRawWithAgent(RawTestCase):

    def make_disk(self, name):
        disk = super().make_disk(name)
        subprocess.run(['mkfs.ext4', '-q', '-F', disk], check=True)
        return disk

    def define(self):
        self.guest = self.useFixture(guest.Guest())
        return self.site.libvirt.define(self.server, self.disk,
                                        boots=self.guest)

    def test_filesystems_are_kept_still_while_the_copy_is_made(self):
        self.power_on()
        self.site.wait(lambda: guest.WRITTEN in self.guest.said())
        self.site.wait(lambda: "state='connected'" in self.domain.XMLDesc())
        version = self.save()
        self.assertIs(True, version['quiesced'])
        before = self.guest.count()
        self.site.wait(lambda: self.guest.count() > before)
        self.power_off()
        self.restore(version)
        subprocess.run(['e2fsck', '-f', '-n', self.disk], check=True,
                       capture_output=True)
        text = subprocess.run(['debugfs', '-R', 'cat /text', self.disk],
                              check=True, capture_output=True).stdout
        self.assertEqual(guest.TEXT, text)


@servers.NEEDS_LIBVIRT
class TestWithoutSharedExtents(servers.ServersTestCase):

    def place(self):
        place = self.directory / 'servers'
        place.mkdir()
        subprocess.run(['mount', '-t', 'tmpfs', 'none', place], check=True)
        self.addCleanup(subprocess.run, ['umount', place], check=True)
        return place

    def make_disk(self, name):
        self.site.libvirt.disk_format = 'raw'
        disk = self.site.instances / name
        with open(disk, 'wb') as stream:
            stream.truncate(servers.DISK)
        return disk

    def test_what_can_be_done_is_told_and_the_guest_not_disturbed(self):
        self.power_on()
        begun = self.begin()
        failed = self.site.wait(lambda: self.ended(begun))
        self.assertEqual('error', failed['state'])
        for words in (str(self.disk), 'tmpfs at', 'Stop the server',
                      'XFS or Btrfs'):
            self.assertIn(words, failed['error'])
        self.assertEqual(['base', 'disk'], sorted(
            path.name for path in self.site.instances.iterdir()))
        self.power_off()
        self.save()
