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
"""What Nova's driver asks before a server goes."""

import queue
import threading

import fixtures

from diffcache_openstack.agent.versions import version_service
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from tests import base
from tests import waiting


SECONDS = 20
# More than there are workers.
MANY = 100


class Conductor:
    """Knows one policy."""

    def __init__(self):
        self.begun = []
        self.busy = 0
        self.required = False
        self.wanted = True
        self.reports = []

    def begin_local(self, ctxt, host, new):
        if self.busy:
            self.busy -= 1
            raise exceptions.Busy('another one first')
        if not self.wanted:
            return None
        self.begun.append((host, new.server_id, new.trigger, new.base_image))
        return objects.VersionTask(
            id='00000000-0000-4000-8000-000000000001', kind=versions.SAVE,
            project_id=new.project_id, server_id=new.server_id,
            version_id=new.id), self.required

    def report_task(self, ctxt, report):
        self.reports.append(report.state)
        return True


class ServiceCase(base.TestCase):
    """Has a service with a conductor that notes what is begun."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'diffcache_openstack.agent.versions.version_service.'
            '_AGAIN_SECONDS', 0.01))
        self.conf = opts.new_config()
        self.conf.set_override('state_dir', str(self.directory), 'agent')
        self.conductor = Conductor()
        self.service = version_service.VersionService(
            self.conf, None, self.conductor, 'h1')
        self.work = lambda doing: None
        self.service.tasks._work.perform = lambda doing: self.work(doing)
        self.service.start()
        self.addCleanup(self.service.stop)
        self.waits = True

    def save(self, trigger='delete'):
        return self.service.save_before(
            'a-server', 'p', trigger, 'an-image',
            lambda done, total: self.waits)


class ServiceTest(ServiceCase):

    def test_no_policy(self):
        self.conductor.wanted = False
        self.assertEqual({'version': None, 'required': False, 'error': None},
                         self.save())

    def test_saved_when_it_is_its_turn(self):
        self.conductor.busy = 3
        answer = self.save()
        self.assertIsNone(answer['error'])
        self.assertTrue(answer['version'])
        self.assertEqual([('h1', 'a-server', 'delete', 'an-image')],
                         self.conductor.begun)
        self.assertEqual(versions.DONE, self.conductor.reports[-1])

    def test_failure_is_told_and_whether_it_matters(self):
        def fail(doing):
            raise exceptions.NoSpace('full')

        self.work, self.conductor.required = fail, True
        self.assertEqual({'version': None, 'required': True,
                          'error': 'full'}, self.save())

    def test_nobody_waits_any_more(self):
        def work(doing):
            if doing.cancel.wait(waiting.SECONDS):
                raise exceptions.Cancelled('enough')

        self.work, self.waits = work, False
        answer = self.save()
        self.assertIn('was not saved', answer['error'])

    def test_turn_that_does_not_come(self):
        self.conductor.busy = 10 ** 9
        self.waits = False
        self.assertRaises(exceptions.Busy, self.save)

    def test_quota_that_a_required_version_exceeds(self):
        def refuse(_ctxt, _host, _new):
            raise exceptions.QuotaExceeded('too many')

        self.patch(self.conductor, 'begin_local', refuse)
        self.assertEqual({'version': None, 'required': True,
                          'error': 'too many'}, self.save())

    def test_unknown_trigger(self):
        self.assertRaises(exceptions.InvalidInput, self.save, 'boredom')

    def stop_while_waiting(self, name, work):
        """Stop while a task waits for a method of a conductor that is down."""
        answer, waits = threading.Event(), threading.Event()
        self.addCleanup(answer.set)

        def down(*_args):
            waits.set()
            answer.wait()

        setattr(self.conductor, name, down)
        self.work = work
        running = self.service.tasks.perform(objects.VersionTask(
            id='00000000-0000-4000-8000-000000000002', kind=versions.SAVE,
            project_id='p'))
        self.assertTrue(waits.wait(SECONDS))
        stop = threading.Thread(target=self.service.stop, daemon=True)
        stop.start()
        stop.join(SECONDS)
        self.assertFalse(stop.is_alive())
        return running

    def test_a_stop_ends_the_wait_for_a_decision_on_the_store(self):
        arbiter = self.service._arbiter_of(
            '00000000-0000-4000-8000-000000000002', 'a' * 16)
        running = self.stop_while_waiting('read_head',
                                          lambda doing: arbiter.read())
        # The next process resumes it.
        self.assertFalse(running.ended.is_set())
        self.assertEqual([running.task.id], self.service.tasks.left())

    def test_a_stop_ends_the_wait_for_a_report(self):
        running = self.stop_while_waiting('report_task', lambda doing: None)
        # The next process reports it.
        self.assertEqual(versions.DONE, running.report.state)
        self.assertFalse(running.reported)
        self.assertEqual([], self.service.tasks.left())


class TestFairness(ServiceCase):
    """A project's slow tasks hold no other project's, and no hook."""

    def setUp(self):
        super().setUp()
        self.may_end = threading.Event()
        self.addCleanup(self.may_end.set)
        self.started = queue.Queue()
        self.work = self.work_slowly_for_a

    def work_slowly_for_a(self, running):
        self.started.put(running.task.project_id)
        if running.task.project_id == 'a':
            self.may_end.wait(SECONDS)

    def perform(self, project, number):
        return self.service.tasks.perform(objects.VersionTask(
            id=f'00000000-0000-4000-8000-{number:012d}', kind=versions.SAVE,
            project_id=project, rate=1))

    def test_slow_tasks_of_a_project_hold_no_other(self):
        for number in range(100, 110):
            self.perform('a', number)
        self.assertEqual('a', self.started.get(timeout=SECONDS))
        other = self.perform('b', 200)
        self.assertTrue(other.ended.wait(SECONDS))
        self.assertEqual('b', self.started.get(timeout=SECONDS))

    def test_hooks_wait_for_no_task(self):
        """Nova does not wait for the tasks that users started."""
        self.conf.set_override('hook_timeout', SECONDS // 4, 'versions')
        hold = self.hold_workers()
        self.assertIsNone(self.save()['error'])
        hold.set()

    def hold_workers(self):
        """Occupy as many threads as there are for tasks."""
        hold = threading.Event()
        self.addCleanup(hold.set)

        def work(running):
            if running.task.version_id is None:
                hold.wait(SECONDS)

        self.work = work
        for number in range(300, 300 + MANY):
            self.perform(f'c{number}', number)
        return hold
