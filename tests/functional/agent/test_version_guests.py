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
"""Servers whose guests have filesystems, and an agent that keeps them still.

The agent is QEMU's own, in a guest that runs.
"""

import json
import signal
import subprocess
import unittest

from tests.functional.agent import servers
from tests.functional.fixtures import guest


@servers.NEEDS_LIBVIRT
@unittest.skipUnless(guest.is_there(), guest.NEEDS)
class TestGuestAgent(servers.ServersTestCase):

    def make_base(self):
        with open(self.base, 'wb') as stream:
            stream.truncate(servers.DISK)
        subprocess.run(['mkfs.ext4', '-q', '-F', self.base], check=True)

    def define(self):
        self.guest = self.useFixture(guest.Guest())
        # The second is one that the guest does not look at.
        return self.site.libvirt.define(
            self.server, self.disk, self.make_disk('data'),
            boots=self.guest)

    def ask(self, name, **arguments):
        """What the guest's agent answers."""
        import libvirt_qemu
        return json.loads(libvirt_qemu.qemuAgentCommand(
            self.domain, json.dumps({'execute': name,
                                     'arguments': arguments}), 60, 0))[
                                         'return']

    def is_connected(self):
        return "state='connected'" in self.domain.XMLDesc()

    def text(self):
        """The file that the guest wrote, as its disk has it."""
        return subprocess.run(
            ['debugfs', '-R', 'cat /text', self.raw()], check=True,
            capture_output=True).stdout

    def test_filesystems_are_kept_still_while_the_server_is_saved(self):
        self.power_on()
        self.site.wait(lambda: guest.WRITTEN in self.guest.said())
        self.site.wait(self.is_connected)
        self.assertEqual('thawed', self.ask('guest-fsfreeze-status'))
        # The guest has the text, and its disk has not.
        self.writes('flush')
        self.assertNotEqual(guest.TEXT, self.text())
        version = self.save()
        self.assertIs(True, version['quiesced'])
        self.assertEqual('thawed', self.ask('guest-fsfreeze-status'))
        self.in_the_hands_of_somebody_else()
        self.frozen_by_an_agent_that_was_killed()
        before = self.guest.count()
        self.site.wait(lambda: self.guest.count() > before)
        self.without_an_agent()
        self.power_off()
        self.restore(version)
        self.assertEqual(guest.TEXT, self.text())
        # As after an unmount: nothing has to be done again or mended.
        raw = self.raw()
        subprocess.run(['e2fsck', '-f', '-n', raw], check=True,
                       capture_output=True)
        told = subprocess.run(['dumpe2fs', '-h', raw], check=True,
                              capture_output=True, text=True).stdout
        self.assertNotIn('needs_recovery', told)

    def in_the_hands_of_somebody_else(self):
        """What others keep still stays so."""
        self.assertEqual(1, self.ask('guest-fsfreeze-freeze'))
        self.assertIs(False, self.save()['quiesced'])
        self.assertEqual('frozen', self.ask('guest-fsfreeze-status'))
        self.assertEqual(1, self.ask('guest-fsfreeze-thaw'))

    def frozen_by_an_agent_that_was_killed(self):
        """It is thawed by the next one, though that takes no snapshot."""
        self.site.libvirt.guest_writes(self.domain, 'write -P 1 40M 16M',
                                       number=1)
        version_id = self.begin(rate=1_000_000)
        self.site.wait(lambda: (self.site.version(version_id)['task'] or {})
                       .get('done'))
        self.site.processes['host-1'].stop(signal.SIGKILL)
        self.assertEqual(1, self.ask('guest-fsfreeze-freeze'))
        self.site.start_agent('host-1')
        self.assertIs(False, self.saved(version_id)['quiesced'])
        self.assertEqual('thawed', self.ask('guest-fsfreeze-status'))

    def without_an_agent(self):
        """Once its agent is gone the same server is saved as it stands."""
        self.ask('guest-exec', path='/bin/busybox',
                 arg=['killall', '-9', 'qemu-ga'])
        self.site.wait(lambda: not self.is_connected())
        self.assertIs(False, self.save()['quiesced'])
