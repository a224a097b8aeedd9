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
from diffcache_openstack.versions.disks import disk_views
from diffcache_openstack.versions.guests import guest_views
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.guests import view_cleanup
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
        view = disk_views.Lvm(pathlib.Path('/dev/vg/disk'), lvm)
        view.create()
        path = view.publish()
        view.remove()
        view.remove()
        made, removed = lvm.commands
        self.assertEqual('/dev/vg/disk', made[-1])
        self.assertEqual(path.name, made[made.index('--name') + 1])
        self.assertEqual(['lvremove', '--yes', str(path)], removed)

    def test_what_was_not_made_is_not_removed(self):
        lvm = MockLvm(fails='lvcreate')
        view = disk_views.Lvm(pathlib.Path('/dev/vg/disk'), lvm)
        self.assertRaises(exceptions.PermanentError, view.create)
        view.remove()
        self.assertEqual(1, len(lvm.commands))


class TestStill(base.TestCase):

    def test_a_guest_goes_on_whatever_happens(self):
        monitor = ScriptedMonitor()
        with self.assertRaises(ValueError):
            with guest_views.paused(monitor):
                raise ValueError
        self.assertEqual(['query-status', 'stop', 'cont'], monitor.told)

    def test_a_guest_goes_on_that_stops_without_an_answer(self):
        class Slow(ScriptedMonitor):
            def command(self, name, /, **arguments):
                answer = super().command(name, **arguments)
                if name == 'stop':
                    raise exceptions.ServiceUnavailable('no answer')
                return answer

        monitor = Slow()
        with self.assertRaises(exceptions.ServiceUnavailable):
            with guest_views.paused(monitor):
                self.fail('it is not known to stand still')
        self.assertEqual(['query-status', 'stop', 'cont'], monitor.told)

    def test_a_guest_that_stood_still_is_left_so(self):
        monitor = ScriptedMonitor(running=False)
        with guest_views.paused(monitor):
            pass
        self.assertEqual(['query-status'], monitor.told)


class ScriptedAgent:
    """Stands for a guest's agent: notes what it is told with the others."""

    def __init__(self, told):
        self._told = told

    def count(self, name):
        self._told.append(name)
        return 1


class NotedView(disk_views.DiskView):
    """A view of nothing that notes what becomes of it."""

    def __init__(self, told):
        self._told = told

    def check(self):
        self._told.append('check')

    def create(self):
        self._told.append('create')

    def publish(self):
        self._told.append('publish')
        return pathlib.Path('kept')

    def remove(self):
        self._told.append('remove')


class TestTogether(base.TestCase):

    def test_all_in_one_pause_and_that_while_filesystems_are_still(self):
        monitor = ScriptedMonitor()
        owner = snapshots.Guest(monitor, ScriptedAgent(monitor.told))
        disks = [self.write_file(name, b'') for name in 'ab']
        with mock.patch.object(disk_views, 'of_disk',
                               lambda *_args: NotedView(monitor.told)):
            with guest_views.GuestViews(disks, owner) as together:
                path, taken = together.open(disks[1])
                together.open(disks[0])
        self.assertEqual(pathlib.Path('kept'), path)
        self.assertIs(True, taken.quiesced)
        self.assertEqual(
            ['remove', 'check', 'remove', 'check', 'guest-fsfreeze-freeze',
             'query-status', 'stop', 'create', 'create', 'cont',
             'guest-fsfreeze-thaw', 'publish', 'publish', 'remove', 'remove'],
            monitor.told)

    def test_a_snapshot_beside_is_taken_in_the_same_pause(self):
        class Disks(snapshots.RunningSnapshotter):
            def actions(self, monitor, name):
                monitor.command(f'look for {name}')
                return [name]

        monitor = ScriptedMonitor()
        disks = [self.write_file(name, b'') for name in 'ab']
        owner = snapshots.Guest(monitor, ScriptedAgent(monitor.told))
        beside = guest_views.PairedSnapshot(Disks(monitor, disks[1:]), 'now')
        with mock.patch.object(disk_views, 'of_disk',
                               lambda *_args: NotedView(monitor.told)):
            with guest_views.GuestViews(disks[:1], owner) as together:
                self.assertFalse(together.has_all())
                taken = together.create_with(beside)
                self.assertTrue(together.has_all())
                self.assertEqual((pathlib.Path('kept'), taken),
                                 together.open(disks[0]))
        self.assertEqual(
            ['remove', 'check', 'guest-fsfreeze-freeze', 'look for now',
             'query-status', 'stop', 'create', 'transaction', 'cont',
             'guest-fsfreeze-thaw', 'publish', 'remove'], monitor.told)

    def on_tmpfs(self):
        """A disk on a filesystem whose files share no extents."""
        directory = tempfile.TemporaryDirectory(dir='/dev/shm')
        self.addCleanup(directory.cleanup)
        disk = pathlib.Path(directory.name) / 'disk'
        disk.write_bytes(bytes(8192))
        return disk

    def test_a_filesystem_without_reflinks_says_what_to_do(self):
        disk, monitor = self.on_tmpfs(), ScriptedMonitor()
        guest = snapshots.Guest(monitor)
        with guest_views.GuestViews([disk], guest) as together:
            error = self.assertRaises(exceptions.PermanentError, together.open,
                                      disk)
        for words in (str(disk), 'tmpfs at /dev/shm', 'Stop the server'):
            self.assertIn(words, str(error))
        self.assertEqual([], monitor.told)
        self.assertEqual([disk], list(disk.parent.iterdir()))

    def test_a_stopped_disk_there_is_read_without_snapshot(self):
        disk = self.on_tmpfs()
        with guest_views.GuestViews([disk], None) as together:
            path, taken = together.open(disk)
        self.assertEqual((disk, 0.0, True),
                         (path, taken.pause_ms, taken.quiesced))
        self.assertTrue(disk.exists())

    def test_remains_of_killed_processes_go(self):
        disk = self.write_file('disk', b'')
        other = view_cleanup.tag_of('other')
        left = [self.write_file(f'.disk.{tag}.view{end}', b'')
                for tag, end in (('0a1b2c3d', ''), (other, ''),
                                 (other, '.part'))]
        view_cleanup.recover([disk], None, other)
        self.assertEqual([False, True, False],
                         [path.exists() for path in left])
        view_cleanup.remove_abandoned(self.directory.parent, [other])
        self.assertTrue(left[1].exists())
        view_cleanup.remove_abandoned(self.directory.parent, [])
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
            view_cleanup.recover([disk], snapshots.Guest(monitor), None)
            self.assertEqual(told, monitor.told)
