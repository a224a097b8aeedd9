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
"""Calls as services send them.

``released_calls.json`` has one message of each method, the version of the
interface that the method came with, and the versions that brought what may be
left out. Until the first release all of it is version 1.0, and messages change
with their methods. After it, services are upgraded one after the other:
messages have to be accepted by every later version, and must not claim a newer
one than they need. Add a method's message with the method.
"""

import json
import pathlib
import queue
import uuid

import oslo_messaging

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.conf import opts
from diffcache_openstack.objects import versioned
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import gate
from diffcache_openstack.rpc import methods
from tests import base
from tests.unit.rpc import test_methods

TABLES = {'agent': methods.AGENT, 'conductor': methods.CONDUCTOR}
RELEASED = json.loads((pathlib.Path(__file__).parent
                       / 'released_calls.json').read_text())
CLIENTS = {(service, api.NAMESPACE): api for service, apis in (
    ('agent', methods.AGENT_APIS), ('conductor', methods.CONDUCTOR_APIS))
    for api in apis}


def required(call):
    """Return the names of the arguments that each call has."""
    return call['arguments'].keys() - call['optional'].keys()


def number(version):
    return tuple(int(part) for part in version.split('.'))


EARLIER_METHODS = (
    (None, 'hold'), (None, 'site_map_changed'), (None, 'status'))


class EarlierAgent:
    """An agent that knows version 1.0 of its interface."""

    target = oslo_messaging.Target(version='1.0')

    def __init__(self, called):
        self._called = called

    @oslo_messaging.expose
    def hold(self, ctxt, generation, items):
        self._called.put(('hold', generation))

    @oslo_messaging.expose
    def site_map_changed(self, ctxt, generation):
        self._called.put(('site_map_changed', generation))

    @oslo_messaging.expose
    def status(self, ctxt):
        return {'host': 'h1'}


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
            arguments = {name: call['arguments'][name]
                         for name in required(call)}
            self.assertRaises(test_methods.Called, test_methods.send, table,
                              key, arguments)

    def test_each_method_has_its_message(self):
        for service, table in TABLES.items():
            self.assertEqual(set(table), {
                (call['namespace'], call['method'])
                for call in RELEASED[service]}, service)

    def test_each_has_all_arguments(self):
        for table, key, call in self.calls():
            self.assertEqual(table[key].arguments.keys(),
                             call['arguments'].keys(), key)


class SentVersionsTest(base.TestCase):

    def calls(self):
        for service, calls in RELEASED.items():
            for call in calls:
                yield CLIENTS[service, call['namespace']].HISTORY, call

    def test_each_is_sent_with_the_version_that_brought_the_method(self):
        for history, call in self.calls():
            self.assertEqual(
                call['version'],
                history.needed(call['method'], required(call)),
                call['method'])

    def test_each_argument_is_sent_with_the_version_that_brought_it(self):
        for history, call in self.calls():
            for name, version in call['optional'].items():
                self.assertEqual(
                    version, history.needed(call['method'],
                                            [*required(call), name]),
                    f'{call["method"]}.{name}')

    def test_servers_have_the_version_of_their_newest_call(self):
        for (service, namespace), api in CLIENTS.items():
            sent = [version for call in RELEASED[service]
                    if call['namespace'] == namespace
                    for version in (call['version'],
                                    *call['optional'].values())]
            self.assertEqual(max(sent, key=number), api.HISTORY.latest,
                             api.__name__)


class EarlierAgentTest(base.TestCase):
    """Calls of this release to an agent of the one before."""

    HOLD = ('images', 'a' * 64, 0.0)

    def setUp(self):
        super().setUp()
        conf = opts.new_config()
        conf.set_override('transport_url', 'fake:/')
        conf.set_override('control_exchange', uuid.uuid4().hex)
        bus = messaging.Bus(conf, versioned.Serializer())
        self.addCleanup(bus.close)
        self.called = queue.Queue()
        server = bus.server(
            oslo_messaging.Target(topic=remote.agent_topic('h1'),
                                  server='h1'),
            [EarlierAgent(self.called)],
            gate.Gate({key: method for key, method in methods.AGENT.items()
                       if key in EARLIER_METHODS},
                      signatures.Security(), signatures.MemoryLedger(60)))
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.ctxt = contexts.RequestContext.for_service('test')
        self.agents = agent_api.AgentAPI(bus, conf)

    def test_announcements_arrive(self):
        self.agents.site_map_changed(self.ctxt, 'h1', 7)
        self.assertEqual(('site_map_changed', 7), self.called.get(timeout=60))

    def test_plans_arrive(self):
        self.agents.hold(self.ctxt, 'h1', 8, [self.HOLD])
        self.assertEqual(('hold', 8), self.called.get(timeout=60))

    def test_calls_are_answered(self):
        self.assertEqual({'host': 'h1'}, self.agents.status(self.ctxt, 'h1'))

    def test_what_it_does_not_have_is_refused_for_good(self):
        self.assertRaises(exceptions.InvalidInput, self.agents.await_image,
                          self.ctxt, 'h1', 'image', 1000, 20.0)
