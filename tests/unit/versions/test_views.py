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
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import snapshots
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
        view.make()
        path = view.keep()
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


class ScriptedAgent:
    """Stands for a guest's agent: notes what it is told with the others."""

    def __init__(self, told):
        self._told = told

    def count(self, name):
        self._told.append(name)
        return 1


class NotedView(views.View):
    """A view of nothing that notes what becomes of it."""

    def __init__(self, told):
        self._told = told

    def check(self):
        self._told.append('check')

    def make(self):
        self._told.append('make')

    def keep(self):
        self._told.append('keep')
        return pathlib.Path('kept')

    def drop(self):
        self._told.append('drop')


class TestTogether(base.TestCase):

    def test_all_in_one_pause_and_that_while_filesystems_are_still(self):
        monitor = ScriptedMonitor()
        owner = views.Owner(monitor, ScriptedAgent(monitor.told))
        disks = [self.write_file(name, b'') for name in 'ab']
        with mock.patch.object(views, '_view',
                               lambda *_args: NotedView(monitor.told)):
            with views.Together(disks, owner) as together:
                path, taken = together.of(disks[1])
                together.of(disks[0])
        self.assertEqual(pathlib.Path('kept'), path)
        self.assertIs(True, taken.quiesced)
        self.assertEqual(
            ['drop', 'check', 'drop', 'check', 'guest-fsfreeze-freeze',
             'query-status', 'stop', 'make', 'make', 'cont',
             'guest-fsfreeze-thaw', 'keep', 'keep', 'drop', 'drop'],
            monitor.told)

    def test_a_snapshot_beside_is_taken_in_the_same_pause(self):
        class Disks(snapshots.Running):
            def actions(self, monitor, name):
                monitor.command(f'look for {name}')
                return [name]

        monitor = ScriptedMonitor()
        disks = [self.write_file(name, b'') for name in 'ab']
        owner = views.Owner(monitor, ScriptedAgent(monitor.told))
        beside = views.Beside(Disks(monitor, disks[1:]), 'now')
        with mock.patch.object(views, '_view',
                               lambda *_args: NotedView(monitor.told)):
            with views.Together(disks[:1], owner) as together:
                self.assertFalse(together.left())
                taken = together.take(beside)
                self.assertTrue(together.left())
                self.assertEqual((pathlib.Path('kept'), taken),
                                 together.of(disks[0]))
        self.assertEqual(
            ['drop', 'check', 'guest-fsfreeze-freeze', 'look for now',
             'query-status', 'stop', 'make', 'transaction', 'cont',
             'guest-fsfreeze-thaw', 'keep', 'drop'], monitor.told)

    def on_tmpfs(self):
        """A disk on a filesystem whose files share no extents."""
        directory = tempfile.TemporaryDirectory(dir='/dev/shm')
        self.addCleanup(directory.cleanup)
        disk = pathlib.Path(directory.name) / 'disk'
        disk.write_bytes(bytes(8192))
        return disk

    def test_a_filesystem_without_reflinks_says_what_to_do(self):
        disk, monitor = self.on_tmpfs(), ScriptedMonitor()
        with views.Together([disk], views.Owner(monitor)) as together:
            error = self.assertRaises(exceptions.PermanentError, together.of,
                                      disk)
        for words in (str(disk), 'tmpfs at /dev/shm', 'stop the server'):
            self.assertIn(words, str(error))
        self.assertEqual([], monitor.told)
        self.assertEqual([disk], list(disk.parent.iterdir()))

    def test_a_stopped_disk_there_is_read_as_it_is(self):
        disk = self.on_tmpfs()
        with views.Together([disk], None) as together:
            path, taken = together.of(disk)
        self.assertEqual((disk, 0.0, True),
                         (path, taken.pause_ms, taken.quiesced))
        self.assertTrue(disk.exists())

    def test_remains_of_killed_processes_go(self):
        disk = self.write_file('disk', b'')
        other = views.tag_of('other')
        left = [self.write_file(f'.disk.{tag}.view{end}', b'')
                for tag, end in (('0a1b2c3d', ''), (other, ''),
                                 (other, '.part'))]
        views.recover([disk], None, other)
        self.assertEqual([False, True, False],
                         [path.exists() for path in left])
        views.remove_abandoned(self.directory.parent, [other])
        self.assertTrue(left[1].exists())
        views.remove_abandoned(self.directory.parent, [])
        self.assertFalse(left[1].exists())
        self.assertTrue(disk.exists())

    def test_a_guest_that_a_killed_process_stopped_goes_on(self):
        class Paused(ScriptedMonitor):
            def command(self, name, /, **arguments):
                super().command(name, **arguments)
                return {'running': False, 'status': 'paused'}

        disk = self.write_file('disk', b'')
        for name, told in (('.disk.0a1b2c3d.view', []),
                           ('.disk.0a1b2c3d.view.part',
                            ['query-status', 'cont'])):
            self.write_file(name, b'')
            monitor = Paused()
            views.recover([disk], views.Owner(monitor), None)
            self.assertEqual(told, monitor.told)
