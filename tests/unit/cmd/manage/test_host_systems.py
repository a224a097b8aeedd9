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
import ctypes
import os
import subprocess
from unittest import mock

from diffcache_openstack.cmd.manage import host_systems
from diffcache_openstack.common import exceptions
from tests import base


class TestVersionOf(base.TestCase):

    def setUp(self):
        super().setUp()
        self.environ({'PATH': f'{self.directory}:{os.environ["PATH"]}'})

    def environ(self, variables):
        """Change the environment for this test."""
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)

    def program(self, script):
        path = self.directory / 'prints-a-version'
        path.write_text(f'#!/bin/sh\n{script}\n')
        path.chmod(0o755)
        return host_systems.version_of(path.name)

    def test_what_programs_print(self):
        for text, version in (
                ('qemu-img version 7.2.22 (Debian 1:7.2+dfsg-7)', (7, 2, 22)),
                ('34.0.0', (34, 0, 0)), ('34.0.0.0rc1', (34, 0, 0, 0))):
            self.assertEqual(version, self.program(f"echo '{text}'"))

    def test_a_program_that_is_not_there(self):
        self.assertIsNone(host_systems.version_of('no-such-program'))

    def test_a_program_that_does_not_say(self):
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  self.program, 'echo unknown')
        self.assertIn('run it by hand', str(error))

    def test_a_program_that_hangs(self):
        self.patch(host_systems.subprocess, 'run', mock.Mock(
            side_effect=subprocess.TimeoutExpired('it', 1)))
        self.assertRaises(exceptions.ServiceUnavailable, self.program, '')


class TestClock(base.TestCase):

    def answer(self, value):
        """Have the kernel answer with a value."""
        libc = mock.Mock()
        libc.adjtimex.return_value = value
        self.patch(host_systems.ctypes, 'CDLL', lambda *_a, **_k: libc)
        return libc.adjtimex

    def test_the_kernel_of_this_host_answers(self):
        self.assertIn(host_systems.clock_is_synchronised(), (True, False))

    def test_states(self):
        # Leap seconds are announced and inserted by a clock that is right.
        for value, expected in ((0, True), (1, True), (3, True), (5, False)):
            self.answer(value)
            self.assertIs(expected, host_systems.clock_is_synchronised())

    def test_nothing_is_changed(self):
        call = self.answer(0)
        host_systems.clock_is_synchronised()
        [state] = call.call_args.args
        self.assertEqual(bytes(ctypes.sizeof(state)), state.raw)

    def test_a_kernel_that_refuses(self):
        self.answer(-1)
        ctypes.set_errno(1)
        error = self.assertRaises(OSError, host_systems.clock_is_synchronised)
        self.assertEqual('adjtimex', error.filename)
