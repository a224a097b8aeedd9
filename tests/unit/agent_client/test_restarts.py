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

from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from tests import base


def gone():
    """Return the error of a client whose agent has ended."""
    error = exceptions.ServiceUnavailable('gone')
    error.__cause__ = ConnectionRefusedError()
    return error


class TestRestarts(base.TestCase):

    def setUp(self):
        super().setUp()
        self.now = 100.0
        self.asked = 0
        self.restarts = restarts.Restarts(30.0, lambda: self.now, self.sleep)

    def sleep(self, seconds):
        self.now += seconds

    def until(self, back, error=None):
        """Return a question that an agent answers from some time on."""
        def ask():
            self.asked += 1
            if self.now < back:
                raise error or gone()
            return 'answer'
        return ask

    def test_an_agent_that_comes_back(self):
        self.assertEqual('answer', self.restarts.over(self.until(110)))
        self.assertLess(self.now, 111)

    def test_one_that_does_not_come_back_is_waited_for_once(self):
        for _ in range(3):
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.restarts.over, self.until(1000))
        self.assertEqual(130, self.now)
        self.now = 1000
        self.assertEqual('answer', self.restarts.over(self.until(1000)))
        # It counts as running again.
        self.assertEqual('answer', self.restarts.over(self.until(1010)))

    def test_other_errors_are_not_waited_for(self):
        for error in (exceptions.ServiceUnavailable('busy'),
                      exceptions.NotFound('no such image')):
            self.assertRaises(type(error), self.restarts.over,
                              self.until(110, error))
        self.assertEqual((100, 2), (self.now, self.asked))

    def test_none_is_waited_for_without_the_time(self):
        none = restarts.Restarts(0.0, lambda: self.now, self.sleep)
        self.assertRaises(exceptions.ServiceUnavailable, none.over,
                          self.until(110))
        self.assertEqual(100, self.now)
