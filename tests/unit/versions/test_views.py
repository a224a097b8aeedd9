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
"""Views of raw disks: LVM's by a mock of its commands, and what goes wrong.

Real reflinks are in ``tests/functional/versions/test_views.py``.
"""

import pathlib
import tempfile

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import views
from tests import base


class MockLvm:
    """Stands for LVM's commands: notes them, and fails when it is told to."""

    def __init__(self, fails=None):
        self.commands = []
        self._fails = fails

    def __call__(self, command):
        self.commands.append(command)
        if command[0] == self._fails:
            raise exceptions.PermanentError('the volume group is full')


class ScriptedMonitor:
    """Stands for a guest's monitor: notes what it is told."""

    def __init__(self, running=True):
        self.told = []
        self._running = running

    def command(self, name, /, **_arguments):
        self.told.append(name)
        return {'running': self._running}


class TestLvm(base.TestCase):

    def test_a_snapshot_is_made_and_removed_under_one_name(self):
        lvm = MockLvm()
        view = views.Lvm(pathlib.Path('/dev/vg/disk'), lvm)
        path = view.make()
        view.drop()
        view.drop()
        made, removed = lvm.commands
        self.assertEqual('/dev/vg/disk', made[-1])
        self.assertEqual(path.name, made[made.index('--name') + 1])
        self.assertEqual(['lvremove', '--yes', str(path)], removed)

    def test_what_was_not_made_is_not_removed(self):
        lvm = MockLvm(fails='lvcreate')
        view = views.Lvm(pathlib.Path('/dev/vg/disk'), lvm)
        self.assertRaises(exceptions.PermanentError, view.make)
        view.drop()
        self.assertEqual(1, len(lvm.commands))


class TestStill(base.TestCase):

    def test_a_guest_goes_on_whatever_happens(self):
        monitor = ScriptedMonitor()
        with self.assertRaises(ValueError):
            with views.still(monitor):
                raise ValueError
        self.assertEqual(['query-status', 'stop', 'cont'], monitor.told)

    def test_a_guest_that_stood_still_is_left_so(self):
        monitor = ScriptedMonitor(running=False)
        with views.still(monitor):
            pass
        self.assertEqual(['query-status'], monitor.told)

    def test_a_filesystem_without_reflinks_says_what_to_do(self):
        # A tmpfs has none.
        with tempfile.NamedTemporaryFile(dir='/dev/shm') as disk:
            view = views.Reflink(pathlib.Path(disk.name))
            self.assertRaises(exceptions.PermanentError, view.make)
            self.assertEqual([], list(pathlib.Path('/dev/shm').glob(
                f'.{pathlib.Path(disk.name).name}*')))

    def test_remains_of_killed_processes_go(self):
        disk = self.write_file('disk', b'')
        left = self.write_file('.disk.0a1b2c3d.view', b'')
        views.remove_remains(disk)
        self.assertFalse(left.exists())
        self.assertTrue(disk.exists())
