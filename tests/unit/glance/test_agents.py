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
import threading

import fixtures

from diffcache_openstack.glance import agents
from tests import base


class HostAgentTest(base.TestCase):

    def test_fallbacks_that_go_on_are_warned_of_again(self):
        log = self.useFixture(fixtures.FakeLogger(agents.__name__))
        now = [1000.0]
        agent = agents.HostAgent(None, 1.0, lambda: now[0])
        warned = []
        for second in range(0, 100, 10):
            now[0] = 1000.0 + second
            before = log.output
            agent.fell_back('image', 'ServiceUnavailable', 'it is down')
            if log.output != before:
                warned.append(second)
        self.assertEqual([0, 30, 60, 90], warned)
        self.assertEqual(10, agent.fallbacks())

    def test_fills_do_not_wait_for_a_slow_download(self):
        """They waited for as long as its client had it open."""
        self.patch(agents, '_WATCH_SECONDS', 0.01)
        ended = threading.Event()

        class Client:
            @contextlib.contextmanager
            def expecting(self, image_id):
                yield
                ended.set()

        looks = iter([False, False, True])
        agent = agents.HostAgent(Client(), 1.0)
        with agent.expecting('image', lambda: next(looks)):
            self.assertTrue(ended.wait(60))
        ended.clear()
        with agent.expecting('image', lambda: False):
            self.assertFalse(ended.is_set())
        self.assertTrue(ended.is_set())
