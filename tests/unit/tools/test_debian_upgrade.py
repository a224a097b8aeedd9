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
"""The trial of upgrades fails when requests do that may not."""

import contextlib
import io

from tests import base
from tests.unit.tools import loading

upgrade = loading.load('lib/debian_upgrade')


class Failing(upgrade.Load):
    """Fails twice, and then no longer."""

    pause = 0.001

    def __init__(self) -> None:
        super().__init__('failing')
        self.ends = [ConnectionRefusedError('first'), ValueError('second')]

    def request(self) -> None:
        if self.ends:
            raise self.ends.pop(0)


class MayFail(Failing):
    """Fails while the only one of a service is started again."""

    may_fail = True


class LoadTest(base.TestCase):

    def run_load(self, load: upgrade.Load) -> str:
        """Run a load until it has succeeded; return what is printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), upgrade.under([load]):
            upgrade.wait_for('a success', lambda: load.seconds)
        return printed.getvalue()

    def test_failures_are_counted_by_kind(self):
        printed = self.run_load(MayFail())
        self.assertIn(' 2 failed', printed)
        self.assertIn("{'ConnectionRefusedError': 1, 'ValueError': 1}",
                      printed)
        self.assertIn('ConnectionRefusedError: first', printed)

    def test_failures_of_a_load_that_may_not_fail_end_the_trial(self):
        error = self.assertRaises(RuntimeError, self.run_load, Failing())
        self.assertIn('failing: ', str(error))
        self.assertIn('ConnectionRefusedError: first', str(error))

    def test_a_request_that_is_never_answered_has_failed(self):
        load = MayFail()
        load.is_alive = lambda: True
        load.join = lambda seconds: None
        load.wait()
        self.assertEqual(['no answer within 30 s'], load.failures)
