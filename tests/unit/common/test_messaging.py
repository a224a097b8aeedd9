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
import pathlib
import socket
import uuid

from oslo_concurrency import lockutils
import oslo_messaging
from oslo_messaging._drivers import amqpdriver

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from testing import server
from tests import base
from tests import traces
from tests import waiting

TOPIC = 'topic'
# The endpoint below is a neighbour that has no more than 1.1.
HISTORY = rpc_history.History({
    '1.0': ('echo', 'refuse', 'refuse_in_its_own_way', 'break_down',
            'hidden'),
    '1.2': ('echo_later', 'echo.way')})


class SpecialInput(exceptions.InvalidInput):
    """An error that only its module knows."""


class Endpoint:

    target = oslo_messaging.Target(version='1.1')

    def __init__(self):
        self.contexts = []

    @oslo_messaging.expose
    def echo(self, ctxt, value):
        self.contexts.append(ctxt)
        return value

    @oslo_messaging.expose
    def refuse(self, ctxt):
        raise exceptions.NotFound('Thing 7 is not there.')

    @oslo_messaging.expose
    def refuse_in_its_own_way(self, ctxt):
        raise SpecialInput('Thing 8 is odd.')

    @oslo_messaging.expose
    def break_down(self, ctxt):
        raise KeyError('secret')

    def hidden(self, ctxt):
        return 'not for callers'


class OpenGate:
    """Admits every message."""

    def check(self, message):
        pass

    def admit(self, message):
        pass


class MessagingTest(base.TestCase):

    def setUp(self):
        super().setUp()
        conf = opts.new_config()
        conf.set_override('transport_url', 'fake:/')
        conf.set_override('control_exchange', uuid.uuid4().hex)
        self.bus = messaging.Bus(conf, versioned.Serializer())
        self.addCleanup(self.bus.close)
        self.endpoint = Endpoint()
        server = self.bus.server(
            oslo_messaging.Target(topic=TOPIC, server='one'),
            [self.endpoint], OpenGate())
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.ctxt = contexts.RequestContext.for_service('test')

    def client(self, topic=TOPIC, timeout=waiting.SECONDS):
        return self.bus.client(
            oslo_messaging.Target(topic=topic), timeout, HISTORY)


class TestMessaging(MessagingTest):

    def test_objects_cross(self):
        image = objects.Image(id='x', content_id='0' * 64, size=1,
                              data_size=1)
        answer = self.client().call(self.ctxt, 'echo', value=[image])
        self.assertEqual([image], answer)

    def test_context_crosses(self):
        self.client().call(self.ctxt, 'echo', value=None)
        known = self.endpoint.contexts[0]
        self.assertEqual(self.ctxt.request_id, known.request_id)
        self.assertEqual('test', known.user_id)
        self.assertTrue(known.is_admin)

    def test_a_trace_is_continued(self):
        collected = self.useFixture(traces.Traces())
        begun = tracing.Origin(str(uuid.uuid4()), str(uuid.uuid4()),
                               traces.KEY)
        with tracing.continued(begun):
            self.client().call(self.ctxt, 'echo', value=None)
        span = collected.one('rpc')
        self.assertEqual(begun[:2], (span['base_id'], span['parent_id']))
        self.assertEqual('method=echo',
                         span['info']['function']['args'])

    def test_a_forged_trace_is_ignored(self):
        collected = self.useFixture(traces.Traces())
        with tracing.continued(tracing.Origin(
                str(uuid.uuid4()), str(uuid.uuid4()), 'another key')):
            self.client().call(self.ctxt, 'echo', value=None)
        self.assertEqual([], collected.payloads)

    def test_own_error_arrives_as_raised(self):
        error = self.assertRaises(exceptions.NotFound, self.client().call,
                                  self.ctxt, 'refuse')
        self.assertIs(exceptions.NotFound, type(error))
        self.assertEqual('Thing 7 is not there.', str(error))

    def test_error_of_a_module_arrives_as_what_it_derives_from(self):
        error = self.assertRaises(
            exceptions.InvalidInput, self.client().call, self.ctxt,
            'refuse_in_its_own_way')
        self.assertEqual('Thing 8 is odd.', str(error))

    def test_other_error_arrives_as_failure_of_the_service(self):
        error = self.assertRaises(
            exceptions.ServiceUnavailable, self.client().call, self.ctxt,
            'break_down')
        self.assertIn('break_down failed with KeyError', str(error))
        self.assertNotIn('secret', str(error))

    def test_nobody_answers(self):
        client = self.client(topic='nobody', timeout=0.1)
        error = self.assertRaises(exceptions.ServiceUnavailable, client.call,
                                  self.ctxt, 'echo', value=1)
        self.assertIn('nobody', str(error))

    def test_newer_clients_call_what_an_earlier_server_has(self):
        self.assertEqual('1.2', HISTORY.latest)
        self.assertEqual(1, self.client().call(self.ctxt, 'echo', value=1))

    def test_newer_calls_are_refused_by_an_earlier_server(self):
        self.assertRaises(
            exceptions.ServiceUnavailable, self.client().call, self.ctxt,
            'echo', value=1, way='back')
        self.assertRaises(exceptions.ServiceUnavailable, self.client().call,
                          self.ctxt, 'echo_later')

    def test_methods_that_are_not_exposed_cannot_be_called(self):
        self.assertRaises(exceptions.ServiceUnavailable, self.client().call,
                          self.ctxt, 'hidden')


class TestBus(base.TestCase):

    def test_unusable_url_is_named(self):
        for url in ('nothing://x', 'rabbit://[x'):
            conf = opts.new_config()
            conf.set_override('transport_url', url)
            error = self.assertRaises(
                exceptions.InvalidInput, messaging.Bus, conf,
                versioned.Serializer())
            self.assertIn('transport_url', str(error))

    def test_messages_are_compressed_unless_the_url_has_another_way(self):
        for query, expected in (('', 'gzip'),
                                ('?kombu_compression=bz2', 'bz2')):
            bus = messaging.Bus(opts.new_config(), versioned.Serializer(),
                                f'rabbit://broker/{query}')
            self.assertEqual(expected, bus._transport._driver._url.query[
                'kombu_compression'])

    def test_the_queue_manager_finds_the_directory_of_locks(self):
        # It looks in the global configuration; services ended at their first
        # message with use_queue_manager.
        place, process = self.directory / 'locks', uuid.uuid4().hex
        conf = opts.new_config()
        conf.set_override('transport_url', 'fake:/')
        conf.set_override('lock_path', str(place), 'oslo_concurrency')
        self.addCleanup(lockutils.CONF.clear_default, 'lock_path',
                        'oslo_concurrency')
        self.addCleanup(messaging.Bus(
            conf, versioned.Serializer()).close)
        manager = amqpdriver.QManager('test', process)
        self.addCleanup(pathlib.Path(manager.file_name).unlink)
        self.assertEqual(f'test:{process}:1', manager.get())
        [lock] = place.iterdir()
        self.assertIn(process, lock.name)


class TestReach(base.TestCase):

    def setUp(self):
        super().setUp()
        # Of which no other process takes the port once it is closed.
        self.address = (server.LOOPBACK, server.free_port())
        self.listener = socket.create_server(self.address)
        self.addCleanup(self.listener.close)

    def test_nobody_listens(self):
        self.listener.close()
        reach = messaging.Reach([self.address])
        error = self.assertRaises(exceptions.ServiceUnavailable, reach.check)
        self.assertIn(f'127.0.0.1:{self.address[1]}', str(error))

    def test_one_of_a_cluster_is_enough(self):
        closed = (server.LOOPBACK, server.free_port())
        messaging.Reach([closed, self.address]).check()

    def test_not_looked_at_after_an_answer(self):
        reach = messaging.Reach([self.address])
        self.listener.close()
        reach.confirm()
        reach.check()

    def test_every_broker_is_tried(self):
        self.assertEqual(5, messaging.Reach([self.address] * 5).attempts)

    def test_call_does_not_wait_for_a_broker_that_is_down(self):
        self.listener.close()
        conf = opts.new_config()
        conf.set_override('transport_url',
                          f'rabbit://a:b@127.0.0.1:{self.address[1]}/')
        bus = messaging.Bus(conf, versioned.Serializer())
        self.addCleanup(bus.close)
        client = bus.client(
            oslo_messaging.Target(topic=TOPIC), 1000, HISTORY)
        ctxt = contexts.RequestContext.for_service('test')
        for send in (client.call, client.cast):
            self.assertRaises(exceptions.ServiceUnavailable, send, ctxt,
                              'echo')


class TestRemoteErrors(base.TestCase):

    def test_marked_class_is_unwrapped(self):
        marked = type('Busy_Remote', (exceptions.Busy,), {
            '__str__': lambda self: 'Busy now.\nTraceback ...'})
        error = messaging._local(marked('Busy now.'))
        self.assertIs(exceptions.Busy, type(error))
        self.assertEqual('Busy now.', str(error))
