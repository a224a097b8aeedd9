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
"""Disks by privileged processes: entry points, run in this process."""

import os
import socket
import threading

from diffcache_openstack.agent.privileged import contexts
from diffcache_openstack.agent.privileged import privileged_disks
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files
from tests import base
from tests.unit.versions.disks import test_disk_files


SECONDS = 30


class PrivilegedDiskFilesTest(test_disk_files.DiskFilesTest):
    """They do the same as the rights of a process of its own."""

    def setUp(self):
        super().setUp()
        self.addCleanup(privileged_disks.configure, ())
        privileged_disks.configure((str(self.roots),))
        self.files = privileged_disks.PrivilegedDiskFiles((str(self.roots),))

    def test_descriptors_stay_in_this_process(self):
        fd = self.files.open(self.disk)
        self.addCleanup(os.close, fd)
        self.assertFalse(os.get_inheritable(fd))
        self.assertEqual(b'old', os.read(fd, 9))

    def test_what_fails_passes_nothing_on(self):
        self.assertRaises(FileNotFoundError, self.files.open,
                          self.disk.with_name('none'))
        self.test_descriptors_stay_in_this_process()


class DescriptorsTest(base.TestCase):

    def test_a_call_that_waits_holds_no_other_up(self):
        """As one for a disk whose file system hangs."""
        slow, fast = (os.open(self.write_file(name, name.encode()),
                              os.O_RDONLY) for name in ('slow', 'fast'))
        sent, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        found = []

        def wait():
            number = contexts.READER.send(slow)
            sent.set()
            self.assertTrue(go_on.wait(SECONDS))
            return 'slow', number

        thread = threading.Thread(target=lambda: found.append(
            contexts.READER.receiving(wait)), daemon=True)
        thread.start()
        self.assertTrue(sent.wait(SECONDS))
        result, fd = contexts.READER.receiving(
            lambda: ('fast', contexts.READER.send(fast)))
        self.assertEqual(('fast', b'fast', []),
                         (result, os.read(fd, 9), found))
        go_on.set()
        thread.join(SECONDS)
        [(result, other)] = found
        self.assertEqual(('slow', b'slow'), (result, os.read(other, 9)))
        for each in (slow, fast, fd, other):
            os.close(each)


class ArgumentsTest(base.TestCase):
    """An agent that was taken over may call them with anything."""

    def test_what_is_no_path(self):
        for value in (None, 1, b'/etc/passwd', ['/'], 'x' * 5000):
            for call in (privileged_disks.open_disk,
                         privileged_disks.open_writable,
                         privileged_disks.create,
                         privileged_disks.remove, privileged_disks.create_room,
                         privileged_disks.adopt,
                         privileged_disks.replace,
                         privileged_disks.remove_room,
                         privileged_disks.companions,
                         privileged_disks.sync_directory):
                self.assertRaises(exceptions.InvalidInput, call, value)

    def test_without_roots_nothing_is_allowed(self):
        for path in ('/', '/etc/passwd', 'etc', ''):
            self.assertRaises(exceptions.DiffCacheError,
                              privileged_disks.open_disk,
                              path)

    def test_servers(self):
        self.assertRaises(exceptions.InvalidInput, privileged_disks.serve,
                          '/disk', 1,
                          'vmdk', None)
        for number in (0, None, 'x', [1]):
            self.assertRaises(exceptions.NotFound, privileged_disks.serve,
                              '/disk',
                              number, 'raw', None)
        for call in (privileged_disks.end_server,
                     privileged_disks.wait_for_server):
            for number in (0, 1, None, 'x', [1]):
                self.assertRaises(exceptions.NotFound, call, number)


class ContextTest(base.TestCase):

    def test_capabilities_that_a_process_keeps(self):
        for context, permitted, kept in (
                (contexts.FILES, {0, 1, 2}, {0, 1}),
                (contexts.FILES, {0}, {0}),
                (contexts.READER, {0, 1, 2}, {2}),
                (contexts.READER, {0, 1, 3}, {1}),
                (contexts.FILES, {2}, set()),
                (contexts.PROGRAMS, {0, 1, 2}, {1})):
            self.assertEqual(kept, context.granted(permitted))

    def test_one_that_ended_is_not_started_again(self):
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  contexts.READER.start)
        self.assertIn('restart the agent', str(error))

    def test_one_that_is_not_needed_ends(self):
        context = contexts.Context('UNNEEDED', ())
        context.fork((), self.fail)
        context.end()
        self.assertRaises(ChildProcessError, os.waitpid, context.pid, 0)

    def test_settings_arrive_whole_and_nothing_after_them(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        settings = {'roots': ['/instances'] * 1000}
        contexts.send_settings(ours, settings)
        ours.sendall(b'x')
        self.assertEqual(settings, contexts.receive_settings(theirs))
        self.assertEqual(b'x', theirs.recv(2))
        ours.shutdown(socket.SHUT_WR)
        self.assertIsNone(contexts.receive_settings(theirs))

    def test_this_process_opens_disks_itself_by_default(self):
        self.assertIs(disk_files.DiskFiles, type(disk_files.access()))
