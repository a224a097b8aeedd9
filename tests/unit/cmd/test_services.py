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
import contextlib
import io
import os
import signal
import subprocess
import sys
import threading

from diffcache_openstack.cmd import services
from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import service
from tests import base


class Refusing(service.Service):

    def start(self):
        raise exceptions.InvalidInput('Option x of [y] is no good.')


class Stopping(service.Service):

    def start(self):
        threading.Thread(target=os.kill,
                         args=(os.getpid(), signal.SIGTERM)).start()


class TestRun(base.TestCase):

    def run_service(self, cls, *argv):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = services.run(services.Program(
                'diffcache-x', 'Test.', cls, lambda conf: 1), list(argv))
        return code, err.getvalue()

    def config(self, text):
        return ['--config-file', str(self.write_file('x.conf',
                                                     text.encode()))]

    def test_asked_to_stop(self):
        self.assertEqual(0, self.run_service(Stopping)[0])

    def test_service_that_cannot_work(self):
        code, err = self.run_service(Refusing)
        self.assertEqual(1, code)
        self.assertIn('diffcache-x: error: Option x of [y] is no good.', err)
        self.assertNotIn('Traceback', err)

    def test_unusable_configuration(self):
        for argv in (['--config-file', '/does/not/exist'],
                     self.config('[agent]\ncache_capacity = lots\n'),
                     self.config('[agent\n')):
            code, err = self.run_service(Stopping, *argv)
            self.assertEqual(1, code)
            self.assertIn('diffcache-x: error: ', err)

    def test_wrong_usage(self):
        leaving = self.assertRaises(SystemExit, self.run_service, Stopping,
                                    '--no-such-option')
        self.assertEqual(2, leaving.code)


class TestMain(base.TestCase):

    # Threads of a service that are in native code most of the time, and that
    # its stop does not end.
    BUSY = """
import atexit, os, signal, sys, threading
from diffcache_openstack.blocks import sketches
from diffcache_openstack.cmd import services
from diffcache_openstack.runtime import service

def work():
    while True:
        sketch.Sketch.of(IMAGE, lambda done, total: None)

class Busy(service.Service):
    def start(self):
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        threading.Timer(.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

def main(*argv):
    sys.argv[1:] = argv
    return services.main(services.Program(
        'diffcache-x', 'Test.', Busy, lambda conf: 1))
"""

    def run_main(self, *lines):
        image = self.write_file('image', os.urandom(1 << 22))
        script = '\n'.join((f'IMAGE = {str(image)!r}', self.BUSY, *lines))
        return subprocess.run([sys.executable, '-c', script],
                              capture_output=True, text=True)

    def test_threads_in_native_code_do_not_abort_the_end(self):
        for _ in range(4):
            done = self.run_main('sys.exit(main())')
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertNotIn('FATAL', done.stderr)
            self.assertNotIn('panicked', done.stderr)

    def test_what_is_registered_for_the_end_is_done(self):
        done = self.run_main(
            'class Ending(Busy):',
            '    def start(self):',
            '        atexit.register(print, "the end", end="")',
            '        super().start()',
            'Busy = Ending',
            'sys.exit(main())')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual('the end', done.stdout.splitlines()[-1])

    def test_exit_codes(self):
        for code, line in ((2, 'main("--no-such-option")'), (0, 'main("-h")'),
                           (1, 'sys.exit(main("--config-file", "/none"))')):
            self.assertEqual(code, self.run_main(line).returncode, line)
