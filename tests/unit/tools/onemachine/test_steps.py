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
"""Steps are done in the order that they need."""

import threading

from onemachine import steps

from tests import base


class Silent(steps.Progress):
    """Remembers what it is told."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, text):
        """Nothing is printed."""
        self.lines.append(text)


class TestRun(base.TestCase):

    def setUp(self):
        super().setUp()
        self.progress = Silent()
        self.done = []

    def step(self, name, *after):
        """A step that notes that it was done."""
        return steps.Step(name, lambda: self.done.append(name), after)

    def test_order(self):
        steps.run([self.step('third', 'second'), self.step('first'),
                   self.step('second', 'first')], self.progress)
        self.assertEqual(['first', 'second', 'third'], self.done)
        self.assertEqual(3, len(self.progress.lines))

    def test_independent_steps_run_at_once(self):
        meeting = threading.Barrier(2, timeout=240)
        steps.run([steps.Step('one', meeting.wait),
                   steps.Step('other', meeting.wait)], self.progress)

    def test_nothing_to_do_is_not_told(self):
        steps.run([steps.Step('idle', lambda: False)], self.progress)
        self.assertEqual([], self.progress.lines)

    def test_failure_starts_nothing_that_comes_after(self):
        def fail():
            raise OSError('broken')

        error = self.assertRaises(
            OSError, steps.run,
            [steps.Step('bad', fail), self.step('later', 'bad')],
            self.progress)
        self.assertEqual('broken', str(error))
        self.assertEqual([], self.done)

    def test_unknown_step(self):
        self.assertRaises(KeyError, steps.run,
                          [self.step('one', 'missing')], self.progress)

    def test_circle(self):
        self.assertRaises(
            ValueError, steps.run,
            [self.step('one', 'other'), self.step('other', 'one')],
            self.progress)
