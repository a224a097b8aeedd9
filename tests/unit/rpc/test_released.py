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
"""Calls as services of earlier versions send them.

``released_calls.json`` has one message of each method, as it was when the
method was released. While services are upgraded one after the other, these
messages are sent: they have to be accepted by every later version. Add a
method's message with the method; never change one. A method with a new
argument accepts calls without it.
"""

import json
import pathlib

from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import agent_versions_api
from diffcache_openstack.rpc import agent_volumes_api
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.rpc import conductor_control_api
from diffcache_openstack.rpc import conductor_costs_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.rpc import conductor_volumes_api
from diffcache_openstack.rpc import methods
from tests import base
from tests.unit.rpc import test_methods

TABLES = {'agent': methods.AGENT, 'conductor': methods.CONDUCTOR}
RELEASED = json.loads((pathlib.Path(__file__).parent
                       / 'released_calls.json').read_text())
VERSIONS = {
    agent_api: (1, 2), agent_versions_api: (1, 0),
    agent_volumes_api: (1, 0), conductor_api: (1, 8),
    conductor_control_api: (1, 0), conductor_costs_api: (1, 0),
    conductor_versions_api: (1, 3), conductor_volumes_api: (1, 0)}


class ReleasedCallsTest(base.TestCase):

    def calls(self):
        for service, calls in RELEASED.items():
            for call in calls:
                yield TABLES[service], (call['namespace'],
                                        call['method']), call

    def test_each_is_accepted(self):
        for table, key, call in self.calls():
            self.assertIn(key, table)
            self.assertRaises(test_methods.Called, test_methods.send, table,
                              key, call['arguments'])

    def test_each_without_what_may_be_left_out(self):
        for table, key, call in self.calls():
            arguments = {name: value for name, value
                         in call['arguments'].items()
                         if name not in call['optional']}
            self.assertRaises(test_methods.Called, test_methods.send, table,
                              key, arguments)

    def test_each_method_has_its_message(self):
        for service, table in TABLES.items():
            self.assertEqual(set(table), {
                (call['namespace'], call['method'])
                for call in RELEASED[service]}, service)

    def test_versions_accept_the_calls_of_earlier_ones(self):
        for api, (major, minor) in VERSIONS.items():
            found = tuple(int(part) for part in api.VERSION.split('.'))
            self.assertEqual(major, found[0], api.__name__)
            self.assertLessEqual(minor, found[1], api.__name__)
