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
"""Traces across services."""

import base64
import hashlib
import hmac
import importlib.util
import json
import queue
import subprocess
import sys
import threading
import uuid

from osprofiler import notifier
from osprofiler import profiler
from osprofiler import web

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.conf import opts
from tests import base
from tests import traces

KEY = traces.KEY
BASE, PARENT = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


def signed(document: object, key: str = KEY) -> tuple[str, str]:
    """Sign a document as osprofiler does."""
    info = base64.urlsafe_b64encode(json.dumps(document).encode()).decode()
    return info, hmac.new(key.encode(), info.encode(),
                          hashlib.sha1).hexdigest()


class ImportTest(base.TestCase):

    def test_the_client_of_the_socket_needs_the_standard_library_alone(self):
        loaded = subprocess.run(
            [sys.executable, '-c', '''
import sys
from diffcache_openstack.agent_client import local_client
print([name for name in ('oslo_config', 'oslo_log', 'osprofiler')
       if name in sys.modules])'''],
            capture_output=True, text=True, check=True).stdout
        self.assertEqual('[]', loaded.strip().splitlines()[-1])


class SetupTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = opts.new_config()
        self.addCleanup(tracing.stop)
        self.addCleanup(notifier.set, notifier.get())

    def enable(self, keys):
        self.conf.set_override('enabled', True, 'profiler')
        self.conf.set_override('hmac_keys', keys, 'profiler')

    def test_off_by_default_and_osprofiler_is_not_needed(self):
        self.patch(importlib.util, 'find_spec', lambda _name: None)
        tracing.setup(self.conf, 'test')
        self.assertFalse(tracing.is_on())

    def test_a_key_that_is_a_secret_is_needed(self):
        for keys in ('', ' , ', 'SECRET_KEY', 'good, SECRET_KEY'):
            self.enable(keys)
            error = self.assertRaises(exceptions.InvalidInput, tracing.setup,
                                      self.conf, 'test')
            self.assertIn('hmac_keys', str(error))
            self.assertFalse(tracing.is_on())

    def test_without_osprofiler_the_error_says_what_to_install(self):
        self.enable(KEY)
        self.patch(importlib.util, 'find_spec', lambda _name: None)
        error = self.assertRaises(exceptions.InvalidInput, tracing.setup,
                                  self.conf, 'test')
        self.assertIn('the package osprofiler is missing', str(error))

    def test_spans_reach_the_driver_with_the_service(self):
        self.enable(f'other, {KEY}')
        sent = queue.SimpleQueue()

        def create(connection, **options):
            # What the drivers read is registered, and ours was not replaced.
            self.assertEqual('2m', options['conf'].profiler.es_scroll_time)
            self.assertEqual(f'other, {KEY}',
                             options['conf'].profiler.hmac_keys)
            return lambda payload: sent.put(
                (connection, options['service'], payload))

        self.patch(notifier, 'create', create)
        tracing.setup(self.conf, 'diffcache-agent')
        with tracing.continued(tracing.Origin(BASE, PARENT, KEY)), \
                tracing.span('lookup', object='x') as span:
            span.note(routes=2)
        started, stopped = sent.get(timeout=60), sent.get(timeout=60)
        self.assertEqual(('messaging://', 'diffcache-agent'), started[:2])
        self.assertEqual(
            ('lookup-start', BASE, PARENT, 'object=x'),
            (started[2]['name'], started[2]['base_id'],
             started[2]['parent_id'],
             started[2]['info']['function']['args']))
        self.assertEqual(
            ('lookup-stop', 'routes=2'),
            (stopped[2]['name'], stopped[2]['info']['function']['result']))


class SpanTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.collected = self.useFixture(traces.Traces())

    def continued(self):
        return tracing.continued(tracing.Origin(BASE, PARENT, KEY))

    def test_nothing_is_sent_without_a_trace(self):
        with tracing.span('lookup') as span:
            span.note(found=1)
        self.assertIsNone(tracing.current())
        self.assertEqual([], self.collected.payloads)

    def test_spans_nest(self):
        with self.continued(), tracing.span('delivery'):
            with tracing.span('fetch'):
                pass
        fetch, delivery = (self.collected.one(name)
                           for name in ('fetch', 'delivery'))
        self.assertEqual(PARENT, delivery['parent_id'])
        self.assertEqual(delivery['trace_id'], fetch['parent_id'])

    def test_facts_are_bounded(self):
        with self.continued(), tracing.span('lookup', path='x' * 10000):
            pass
        self.assertEqual(500, len(self.collected.one('lookup')['info'][
            'function']['args']))

    def test_an_error_ends_a_span_and_is_in_it(self):
        with self.continued():
            self.assertRaises(exceptions.NoSpace, self.fail_in_span)
            self.assertEqual(PARENT, tracing.current().parent_id)
        info = self.collected.one('fetch', 'stop')['info']
        self.assertEqual(('NoSpace', 'full'),
                         (info['etype'], info['message']))

    def fail_in_span(self):
        with tracing.span('fetch'):
            raise exceptions.NoSpace('full')

    def test_another_thread_continues(self):
        with self.continued(), tracing.span('wsgi'):
            origin = tracing.current()

            def work():
                with tracing.continued(origin), tracing.span('delivery'):
                    pass

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        self.assertEqual(self.collected.one('wsgi')['trace_id'],
                         self.collected.one('delivery')['parent_id'])

    def test_a_thread_is_left_without_a_trace(self):
        with self.continued():
            pass
        self.assertIsNone(profiler.get())

    def test_what_ended_before_is_sent_with_its_times(self):
        tracing.report(tracing.Origin(BASE, PARENT, KEY), 'serve',
                       tracing.Times(0.0, 1.5), bytes=7)
        start, stop = (self.collected.one('serve', event)
                       for event in ('start', 'stop'))
        self.assertEqual(('1970-01-01T00:00:00.000000',
                          '1970-01-01T00:00:01.500000'),
                         (start['timestamp'], stop['timestamp']))
        self.assertEqual((BASE, PARENT, start['trace_id']), (
            stop['base_id'], stop['parent_id'], stop['trace_id']))
        self.assertEqual('bytes=7', start['info']['function']['args'])


class SignedTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(traces.Traces())

    def test_a_ticket_is_opened_with_its_key(self):
        with tracing.continued(tracing.Origin(BASE, PARENT, KEY)):
            ticket = tracing.ticket()
        self.assertEqual(tracing.Origin(BASE, PARENT, KEY),
                         tracing.open_ticket(ticket))
        self.assertNotIn(KEY, base64.urlsafe_b64decode(
            ticket.partition('.')[0]).decode())

    def test_there_is_no_ticket_without_a_trace(self):
        self.assertIsNone(tracing.ticket())
        self.assertEqual({}, tracing.headers())

    def test_headers_are_those_of_osprofiler(self):
        profiler.init(KEY, BASE, PARENT)
        self.addCleanup(profiler.clean)
        self.assertEqual(web.get_trace_id_headers(), tracing.headers())

    def test_headers_in_a_service_that_traces_by_itself(self):
        tracing.stop()
        profiler.init('of-nova-alone', BASE, PARENT)
        self.addCleanup(profiler.clean)
        self.assertEqual(web.get_trace_id_headers(), tracing.headers())

    def test_headers_in_a_service_without_osprofiler(self):
        self.patch(sys, 'modules', {
            name: module for name, module in sys.modules.items()
            if not name.startswith('osprofiler')})
        self.assertEqual({}, tracing.headers())

    def test_only_what_a_known_key_signed_is_continued(self):
        good = {'base_id': BASE, 'parent_id': PARENT}
        info, signature = signed(good)
        self.assertEqual(tracing.Origin(BASE, PARENT, KEY),
                         tracing.verify(info, signature))
        self.assertEqual(tracing.Origin(BASE, BASE, KEY),
                         tracing.verify(*signed({'base_id': BASE})))
        for bad in ((info, None), (None, signature), (info, ''),
                    (info, signature[:-1] + 'x'), (info, 'é'),
                    (info + 'A', signature), signed(good, 'another key')):
            self.assertIsNone(tracing.verify(*bad), bad)
        for text in (None, 7, '', '.', info, f'{info}.', f'.{signature}'):
            self.assertIsNone(tracing.open_ticket(text), text)

    def test_signed_nonsense_is_ignored(self):
        for document in (7, [], {}, {'base_id': 7}, {'base_id': 'x\n[CRIT'},
                         {'base_id': BASE, 'parent_id': 'y'},
                         {'base_id': BASE, 'parent_id': [BASE]},
                         {'base_id': BASE, 'more': 'x' * 600}):
            self.assertIsNone(tracing.verify(*signed(document)), document)
        info = '!no base64!'
        self.assertIsNone(tracing.verify(info, hmac.new(
            KEY.encode(), info.encode(), hashlib.sha1).hexdigest()))

    def test_nothing_is_continued_while_off(self):
        tracing.stop()
        self.assertIsNone(tracing.verify(*signed({'base_id': BASE})))


class Answer:
    """What an application answers."""

    def __init__(self):
        self.closed = False

    def __iter__(self):
        yield b'first'
        with tracing.span('delivery'):
            yield b'second'

    def close(self):
        self.closed = True


class WsgiTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.collected = self.useFixture(traces.Traces())
        self.answer = Answer()

    def application(self, environ, start_response):
        start_response('200 OK', [])
        with tracing.span('lookup'):
            pass
        return self.answer

    def ask(self, *headers):
        environ = dict(zip(('HTTP_X_TRACE_INFO', 'HTTP_X_TRACE_HMAC'),
                           headers), REQUEST_METHOD='GET', PATH_INFO='/x')
        return tracing.traced(self.application)(environ, lambda *_: None)

    def test_the_span_lasts_as_long_as_the_answer(self):
        answer = self.ask(*signed({'base_id': BASE, 'parent_id': PARENT}))
        self.assertEqual([b'first', b'second'], list(answer))
        self.assertTrue(self.answer.closed)
        wsgi = self.collected.one('wsgi')
        self.assertEqual(PARENT, wsgi['parent_id'])
        self.assertEqual('method=GET path=/x',
                         wsgi['info']['function']['args'])
        for name in ('lookup', 'delivery'):
            self.assertEqual(wsgi['trace_id'],
                             self.collected.one(name)['parent_id'])
        self.assertEqual('wsgi-stop', self.collected.payloads[-1]['name'])

    def test_a_client_that_leaves_ends_it(self):
        answer = self.ask(*signed({'base_id': BASE}))
        self.assertEqual(b'first', next(answer))
        answer.close()
        self.assertTrue(self.answer.closed)
        self.assertEqual('wsgi-stop', self.collected.payloads[-1]['name'])
        self.assertIsNone(profiler.get())

    def test_others_are_answered_without_one(self):
        for headers in ((), signed({'base_id': BASE}, 'another key')):
            self.assertIs(self.answer, self.ask(*headers))
        self.assertEqual([], self.collected.payloads)

    def test_nothing_is_between_while_off(self):
        tracing.stop()
        self.assertEqual(self.application, tracing.traced(self.application))
