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
"""Sending of spans."""

import os
import queue
import threading

from diffcache_openstack.common.telemetry import span_sender
from tests import base


def payload(name: str) -> dict:
    return {'name': name, 'info': {}}


class SpanSenderTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.sent: queue.SimpleQueue = queue.SimpleQueue()

    def names(self, count):
        return [self.sent.get(timeout=60)['name'] for _ in range(count)]

    def test_in_order_with_the_host(self):
        sender = span_sender.SpanSender('h1', lambda: self.sent.put)
        for name in 'abc':
            sender.put(payload(name))
        self.assertEqual(['a', 'b'], self.names(2))
        self.assertEqual({'host': 'h1'}, self.sent.get(timeout=60)['info'])

    def test_a_destination_that_is_down_delays_nothing(self):
        up = threading.Event()

        def connect():
            up.wait(60)
            return self.sent.put

        self.patch(span_sender, '_MOST_WAITING', 3)
        sender = span_sender.SpanSender('h1', connect)
        with self.assertLogs(span_sender.LOG, 'WARNING') as logged:
            for number in range(9):
                sender.put(payload(str(number)))
        self.assertEqual(1, len(logged.output))
        up.set()
        self.assertEqual(['0', '1', '2'], self.names(3))
        # What comes later is sent again.
        sender.put(payload('later'))
        self.assertEqual(['later'], self.names(1))

    def test_one_that_fails_does_not_stop_the_rest(self):
        def send(each):
            if each['name'] == 'bad':
                raise OSError('broken')
            self.sent.put(each)

        sender = span_sender.SpanSender('h1', lambda: send)
        for name in ('bad', 'good'):
            sender.put(payload(name))
        self.assertEqual(['good'], self.names(1))

    def test_a_process_that_was_forked_sends_too(self):
        reader, writer = os.pipe()
        sender = span_sender.SpanSender(
            'h1', lambda: lambda each: os.write(writer, each['name'].encode()))
        sender.put(payload('p'))
        self.assertEqual(b'p', os.read(reader, 1))
        # At the worst moment: another thread has the locks.
        held, forked = threading.Event(), threading.Event()

        def hold():
            with sender._waiting.mutex, sender._lock:
                held.set()
                forked.wait(60)

        threading.Thread(target=hold, daemon=True).start()
        held.wait(60)
        child = os.fork()
        if not child:
            sender.put(payload('c'))
            threading.Event().wait(60)
            os._exit(0)
        forked.set()
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, 9)
        self.assertEqual(b'c', os.read(reader, 1))

    def test_times_as_osprofiler_writes_them(self):
        self.assertEqual('1970-01-02T00:00:00.250000',
                         span_sender.timestamp(86400.25))
