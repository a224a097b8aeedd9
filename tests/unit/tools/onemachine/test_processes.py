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
"""Daemons are started once, found again, restarted and ended by pid."""

import contextlib
import json
import os
import pathlib
import sys

from onemachine import errors
from onemachine import layout
from onemachine import processes

from tests import base


class TestUse(base.TestCase):

    def test_of_this_process(self):
        before = processes.use_of(os.getpid())
        while processes.use_of(os.getpid()).cpu_seconds \
                <= before.cpu_seconds:
            pass
        self.assertGreater(before.memory_bytes, 1 << 20)

    def test_of_one_that_does_not_run(self):
        where = layout.Layout(self.directory)
        self.assertEqual(processes.Use(0.0, 0),
                         processes.Processes(where).use('nobody'))


class TestProcesses(base.TestCase):

    def setUp(self):
        super().setUp()
        self.layout = layout.Layout(self.directory)
        self.processes = processes.Processes(self.layout)

    def daemon(self, code='import time\nprint("up", flush=True)\n'
                          'time.sleep(600)', **more):
        """A daemon at no special place, ready when it has printed."""
        log = self.processes.log('one')
        more.setdefault('ready', lambda: 'up' in log.read_text())
        return processes.Daemon(
            name='one', place='machine',
            command=(sys.executable, '-c', code), **more)

    def ensure(self, daemon):
        """Start it; it ends with the test."""
        self.addCleanup(self.processes.stop, daemon.name)
        return self.processes.ensure(daemon, seconds=30)

    def test_started_once(self):
        self.assertTrue(self.ensure(self.daemon()))
        pid = self.processes.pid('one')
        self.assertFalse(self.ensure(self.daemon()))
        self.assertEqual(pid, self.processes.pid('one'))

    def test_found_by_the_next_command(self):
        self.ensure(self.daemon())
        other = processes.Processes(self.layout)
        self.assertEqual(self.processes.pid('one'), other.pid('one'))
        self.assertEqual(['one'], other.names())

    def test_restarted_when_an_input_changes(self):
        config = self.write_file('one.conf', b'old')
        daemon = self.daemon(inputs=(config,))
        self.ensure(daemon)
        pid = self.processes.pid('one')
        config.write_bytes(b'new')
        self.assertTrue(self.ensure(daemon))
        self.assertNotEqual(pid, self.processes.pid('one'))

    def test_stopped(self):
        self.ensure(self.daemon())
        pid = self.processes.pid('one')
        self.processes.stop('one')
        self.assertIsNone(self.processes.pid('one'))
        self.assertIsNone(processes.start_time(pid))
        self.processes.stop('one')

    def test_stopped_at_the_same_time(self):
        # Each ends in peace only after the other was asked, too.
        code = """
import pathlib, signal, sys, time
own, other = (pathlib.Path(path) for path in sys.argv[1:])
def end(*_):
    own.with_suffix('.asked').touch()
    while not other.with_suffix('.asked').exists():
        time.sleep(0.01)
    own.with_suffix('.ended').touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
own.with_suffix('.ready').touch()
while True:
    time.sleep(600)
"""
        names = ('one', 'two')
        paths = {name: self.directory / name for name in names}
        for name, other in (names, names[::-1]):
            self.ensure(processes.Daemon(
                name=name, place='machine', command=(
                    sys.executable, '-c', code, paths[name], paths[other]),
                ready=paths[name].with_suffix('.ready').exists))
        self.processes.stop_all(names)
        for name in names:
            self.assertTrue(paths[name].with_suffix('.ended').exists())
        self.assertEqual([], self.processes.names())

    def test_end_shows_the_log(self):
        error = self.assertRaises(
            errors.OpenStackError, self.ensure,
            self.daemon('raise SystemExit("no such thing")',
                        ready=lambda: False))
        self.assertIn('one has ended', str(error))
        self.assertIn('no such thing', str(error))

    def test_one_that_ends_before_it_is_recorded(self):
        # Regression: it was waited for until the time was up, and could not
        # be ended.
        find = processes.start_time

        def find_when_ended(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return find(pid)

        self.patch(processes, 'start_time', find_when_ended)
        error = self.assertRaises(
            errors.OpenStackError, self.ensure,
            self.daemon('raise SystemExit("no such thing")',
                        ready=lambda: False))
        self.assertIn('one has ended', str(error))

    def test_another_process_with_that_pid_is_not_ours(self):
        record = self.layout.folder('run') / 'one.json'
        record.write_text(json.dumps(
            {'pid': os.getpid(), 'start_time': 1, 'digest': ''}))
        self.assertIsNone(self.processes.pid('one'))
        self.processes.stop('one')
        self.assertFalse(record.exists())

    def test_members_of_this_namespace_are_spared(self):
        error = self.assertRaises(errors.OpenStackError,
                                  self.processes.end_members, os.getpid())
        self.assertIn('no mount namespace of its own', str(error))

    def test_start_time_of_nobody(self):
        last = int(pathlib.Path('/proc/sys/kernel/pid_max').read_text())
        self.assertIsNone(processes.start_time(last + 1))

    def test_a_user_gets_the_capabilities_that_are_named(self):
        self.assertEqual([], processes._as_user(None, None))
        self.assertEqual(
            ['setpriv', '--reuid=u', '--regid=u', '--init-groups', '--'],
            processes._as_user('u', None))
        for names, kept in (((), '-all'), (('chown',), '-all,+chown')):
            words = processes._as_user('u', names)
            self.assertIn('--no-new-privs', words)
            for option in ('inh-caps', 'ambient-caps', 'bounding-set'):
                self.assertIn(f'--{option}={kept}', words)
