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
import os
import signal
import subprocess
import sys
import threading

from diffcache_openstack.conf import opts
from diffcache_openstack.runtime import service
from tests import base


class RecordingService(service.Service):
    """Sends itself signals once it has started."""

    def __init__(self, conf, *signals):
        super().__init__(conf)
        self.events = []
        self._signals = signals

    def start(self):
        self.events.append('start')
        threading.Thread(target=self._send).start()

    def _send(self):
        for number in self._signals:
            os.kill(os.getpid(), number)

    def stop(self, graceful=False):
        self.events.append('stop')
        super().stop(graceful)


class RereadingService(RecordingService):
    """Asks to read the files again, and to stop when that was done."""

    def __init__(self, conf):
        super().__init__(conf, signal.SIGHUP)
        self._mutate = conf.mutate_config_files
        conf.mutate_config_files = self._reread

    def _reread(self):
        try:
            return self._mutate()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)


class WaitingService(RecordingService):
    """Does not get done with starting."""

    def start(self):
        super().start()
        threading.Event().wait()


class UninterruptedService(WaitingService):
    """Has another thread than the main one take the signals.

    To whoever waits in the main thread this is as a signal that comes just
    before the wait begins: nothing interrupts it.
    """

    def _send(self):
        for number in self._signals:
            signal.pthread_kill(threading.get_ident(), number)


class FailingService(service.Service):

    def start(self):
        raise KeyError('x')


class TestRun(base.TestCase):

    def test_stop_while_starting(self):
        instance = WaitingService(opts.new_config(), signal.SIGTERM)
        self.assertEqual(0, service.run(instance.conf, instance))
        self.assertEqual(['start'], instance.events)

    def test_signal_that_interrupts_nobody(self):
        instance = UninterruptedService(opts.new_config(), signal.SIGTERM)
        self.assertEqual(0, service.run(instance.conf, instance))
        self.assertEqual(['start'], instance.events)

    def test_failure_to_start_is_raised(self):
        instance = FailingService(opts.new_config())
        self.assertRaises(KeyError, service.run, instance.conf, instance)

    def test_signals_stop(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            instance = RecordingService(opts.new_config(), number)
            self.assertEqual(0, service.run(instance.conf, instance))
            self.assertEqual(['start', 'stop'], instance.events)

    def test_handlers_are_put_back(self):
        before = signal.getsignal(signal.SIGTERM)
        instance = RecordingService(opts.new_config(), signal.SIGTERM)
        service.run(instance.conf, instance)
        self.assertEqual(before, signal.getsignal(signal.SIGTERM))

    def test_sighup_changes_mutable_options(self):
        path = self.write_file('x.conf', b'[planner]\nhops = 1\n')
        conf = opts.new_config(['--config-file', str(path)])
        self.assertEqual(1, conf.planner.hops)
        path.write_text('[planner]\nhops = 3\n')
        instance = RereadingService(conf)
        service.run(conf, instance)
        self.assertEqual(3, conf.planner.hops)

    def test_broken_file_at_sighup_changes_nothing(self):
        path = self.write_file('x.conf', b'[planner]\nhops = 2\n')
        conf = opts.new_config(['--config-file', str(path)])
        path.write_text('[planner\n')
        instance = RereadingService(conf)
        self.assertEqual(0, service.run(conf, instance))
        self.assertEqual(2, conf.planner.hops)


class TestBackend(base.TestCase):
    """What is loaded, in a process that loaded nothing else."""

    def run_python(self, *lines):
        done = subprocess.run([sys.executable, '-c', '\n'.join(lines)],
                              capture_output=True, text=True)
        self.assertEqual('', done.stderr)
        return done.stdout.split()

    def test_works_where_eventlet_is_not_installed(self):
        self.assertEqual(['threading'], self.run_python(
            'import sys',
            'sys.modules["eventlet"] = None',
            'from diffcache_openstack.cmd import conductor, agent, manage',
            'from oslo_service import backend',
            'print(backend.get_backend_type().value)'))

    def test_nothing_is_patched_where_eventlet_is_installed(self):
        self.assertEqual(['threading', 'False'], self.run_python(
            'from diffcache_openstack.cmd import conductor, agent, manage',
            'from oslo_service import backend',
            'print(backend.get_backend_type().value)',
            'from oslo_utils import eventletutils',
            'print(eventletutils.is_monkey_patched("thread"))'))
