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
