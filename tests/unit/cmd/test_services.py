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
import threading

from diffcache_openstack.cmd import services
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import service
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
