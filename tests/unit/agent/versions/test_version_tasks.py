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
"""Tasks are done once, told of, and survive the agent's end."""

import threading

import fixtures

from diffcache_openstack.agent.versions import version_tasks
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from tests import base

SECONDS = 30


def task(number=1, **values):
    return objects.VersionTask(**{
        'id': f'00000000-0000-4000-8000-{number:012d}',
        'kind': versions.SAVE, 'project_id': 'p', **values})


class TasksTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'diffcache_openstack.agent.versions.version_tasks.REPORT_SECONDS',
            0.05))
        self.done = []
        self.reports = []
        self.abandoned = []
        self.told = threading.Event()
        self.running = threading.Event()
        self.answer = True
        self.work = lambda doing: None

    def report(self, report):
        self.reports.append((report.task_id, report.state))
        if (report.task_id, report.state) == (task(2).id, versions.RUNNING):
            self.running.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        if report.state in versions.ENDED:
            self.told.set()
        return self.answer

    def perform(self, doing):
        self.done.append(doing.task.id)
        self.work(doing)

    def abandon(self, doing):
        self.abandoned.append((doing.task.id, dict(doing.notes)))

    def new(self):
        tasks = version_tasks.Tasks(self.directory / 'tasks', self,
                                    self.report)
        tasks.start()
        self.addCleanup(tasks.stop)
        return tasks

    def ended(self, doing):
        self.assertTrue(doing.ended.wait(SECONDS))
        return doing.report


class TestTasks(TasksTest):

    def test_done_and_told(self):
        report = self.ended(self.new().perform(task()))
        self.assertEqual((versions.DONE, None), (report.state, report.error))
        self.assertIn((task().id, versions.DONE), self.reports)

    def test_sent_twice_is_done_once_over_restarts_too(self):
        tasks = self.new()
        self.ended(tasks.perform(task()))
        tasks.perform(task())
        tasks.stop()
        self.ended(self.new().perform(task()))
        self.assertEqual([task().id], self.done)

    def test_interrupted_by_the_end_is_left_and_begun_again(self):
        begun = threading.Event()

        def work(doing):
            begun.set()
            doing.cancel.wait(SECONDS)
            doing.progress(1, 2)

        tasks, self.work = self.new(), work
        tasks.perform(task())
        self.assertTrue(begun.wait(SECONDS))
        tasks.stop()
        self.assertEqual([task().id], tasks.left())
        self.work = lambda doing: None
        again = self.new()
        self.assertTrue(self.told.wait(SECONDS))
        self.assertEqual((2, []), (len(self.done), again.left()))

    def test_sent_again_after_its_end_is_told_again(self):
        tasks = self.new()
        self.ended(tasks.perform(task()))
        self.told.clear()
        tasks.perform(task())
        self.assertTrue(self.told.wait(SECONDS))
        self.assertEqual([task().id], self.done)

    def test_failure_says_why(self):
        def fail(doing):
            raise exceptions.NoSpace('the disk is full')

        self.work = fail
        report = self.ended(self.new().perform(task()))
        self.assertEqual((versions.FAILED, 'the disk is full'),
                         (report.state, report.error))

    def test_mistake_of_ours_is_a_failure_too(self):
        def fail(doing):
            raise KeyError('x')

        self.work = fail
        report = self.ended(self.new().perform(task()))
        self.assertEqual(versions.FAILED, report.state)
        self.assertIn('KeyError', report.error)

    def test_cancelled(self):
        tasks = self.new()

        def work(doing):
            tasks.cancel(doing.task.id)
            if doing.cancel.is_set():
                raise exceptions.Cancelled('enough')

        self.work = work
        self.assertEqual(versions.CANCELLED,
                         self.ended(tasks.perform(task())).state)

    def test_what_nobody_wants_is_given_up(self):
        self.answer = False

        def work(doing):
            if doing.cancel.wait(SECONDS):
                raise exceptions.Cancelled('enough')

        self.work = work
        self.assertEqual(versions.CANCELLED,
                         self.ended(self.new().perform(task())).state)

    def test_told_later_if_the_conductor_is_away(self):
        self.answer = exceptions.ServiceUnavailable('away')
        tasks = self.new()
        self.ended(tasks.perform(task()))
        self.assertFalse(self.told.is_set())
        tasks.stop()
        self.answer = True
        self.new()
        self.assertTrue(self.told.wait(SECONDS))
        self.assertEqual([task().id], self.done)

    def test_interrupted_is_begun_again_with_its_notes(self):
        started = threading.Event()
        notes = []

        def work(doing):
            notes.append(dict(doing.notes))
            doing.note(step=len(notes))
            if len(notes) == 1:
                started.set()
                doing.cancel.wait(SECONDS)
                raise exceptions.Cancelled('the agent ends')

        self.work = work
        tasks = self.new()
        tasks.perform(task())
        self.assertTrue(started.wait(SECONDS))
        tasks.stop()
        again = self.new()
        self.ended(again.perform(task()))
        self.assertEqual([{}, {'step': 1}], notes)

    def killed(self, **values):
        """A process was killed while it performed a task."""
        tasks = self.new()
        begun = threading.Event()

        def work(doing):
            doing.note(step=1)
            if values.get('cancelled'):
                tasks.cancel(doing.task.id)
            begun.set()
            doing.cancel.wait(SECONDS)
            self.assertTrue(doing.cancel.wait(SECONDS))
            raise exceptions.Interrupted('killed')

        self.work = work
        tasks.perform(task())
        self.assertTrue(begun.wait(SECONDS))
        tasks.stop()
        self.work = lambda doing: None
        self.done.clear()
        self.reports.clear()

    def test_one_that_was_cancelled_stays_so_after_a_kill(self):
        self.killed(cancelled=True)
        self.answer = exceptions.ServiceUnavailable('away')
        report = self.ended(self.new().perform(task()))
        self.assertEqual(versions.CANCELLED, report.state)
        self.assertEqual(([], [(task().id, {'step': 1})]),
                         (self.done, self.abandoned))

    def test_one_that_was_lost_meanwhile_is_not_resumed(self):
        self.killed()
        self.answer = False
        report = self.ended(self.new().perform(task()))
        self.assertEqual(versions.CANCELLED, report.state)
        self.assertEqual(([], [(task().id, {'step': 1})]),
                         (self.done, self.abandoned))

    def test_none_is_resumed_before_the_conductor_has_answered(self):
        self.killed()
        asked = threading.Event()

        def away(report):
            asked.set()
            raise exceptions.ServiceUnavailable('away')

        self.patch(self, 'report', away)
        tasks = self.new()
        self.assertTrue(asked.wait(SECONDS))
        self.assertEqual([], self.done)
        tasks.stop()
        self.assertEqual([task().id], tasks.left())
        self.patch(self, 'report', lambda report: True)
        self.ended(self.new().perform(task()))
        self.assertEqual([task().id], self.done)

    def test_one_that_another_host_has_now_is_given_up(self):
        self.answer = exceptions.Forbidden('sent to h2')
        tasks = self.new()
        self.work = lambda doing: doing.cancel.wait(SECONDS)
        doing = tasks.perform(task())
        self.ended(doing)
        self.assertTrue(doing.cancelled)
        self.assertTrue(doing.reported)

    def test_told_of_though_that_cannot_be_kept(self):
        def write(doing):
            if doing.report.state in versions.ENDED:
                raise exceptions.NoSpace('the disk is full')

        self.patch(version_tasks.RunningTask, 'write', write)
        self.ended(self.new().perform(task()))
        self.assertIn((task().id, versions.DONE), self.reports)

    def test_one_that_cannot_be_looked_at_stops_no_report(self):
        tasks = self.new()
        looked, go_on = threading.Event(), threading.Event()

        def forget_old(doing):
            looked.set()
            raise PermissionError('not allowed')

        self.patch(tasks, '_forget_old', forget_old)
        self.ended(tasks.perform(task(1)))
        self.assertTrue(looked.wait(SECONDS))
        self.work = lambda doing: go_on.wait(SECONDS)
        self.addCleanup(go_on.set)
        tasks.perform(task(2))
        self.assertTrue(self.running.wait(SECONDS))

    def test_file_of_a_newer_release_is_left_out(self):
        document = task().obj_to_primitive()
        document['diffcache_object.version'] = '9.0'
        files.write_json(self.write_file('tasks/x.json', b''), {
            'task': document, 'notes': {}, 'told': False, 'report': None})
        self.new()
        self.assertEqual([], list((self.directory / 'tasks').iterdir()))

    def test_unreadable_file_is_left_out(self):
        (self.directory / 'tasks').mkdir()
        self.write_file('tasks/x.json', b'{"task": 5}')
        self.write_file('tasks/y.json', b'')
        self.new()
        self.assertEqual([], list((self.directory / 'tasks').iterdir()))
