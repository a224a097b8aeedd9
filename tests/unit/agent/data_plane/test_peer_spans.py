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
"""Spans of what peers read."""

import threading
import uuid

from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.data_plane import peer_spans
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.sites import views
from tests import base
from tests import traces

PATCH = views.Key(views.PATCHES, '5' * 64)
BASE, PARENT = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


class Plane:
    """Has what peers read, until it is taken."""

    name = 'host-1'

    def __init__(self, *tickets):
        self.left = [orders.PeerRead(ticket, PATCH, 10.0, 12.5, 3, 4096)
                     for ticket in tickets]
        self.taken = []
        self.was_asked = threading.Event()

    def take_served(self, quiet):
        self.taken.append(quiet)
        self.was_asked.set()
        found, self.left = self.left, []
        return found


class ServedSpansTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.collected = self.useFixture(traces.Traces())
        with tracing.continued(tracing.Origin(BASE, PARENT, traces.KEY)):
            self.ticket = tracing.ticket()

    def test_a_span_continues_the_trace_of_the_peer(self):
        peer_spans.PeerSpans(Plane(self.ticket)).send(2.0)
        start, stop = (self.collected.one('serve', event)
                       for event in ('start', 'stop'))
        self.assertEqual((BASE, PARENT),
                         (start['base_id'], start['parent_id']))
        self.assertEqual('1970-01-01T00:00:10.000000', start['timestamp'])
        self.assertEqual('1970-01-01T00:00:12.500000', stop['timestamp'])
        self.assertEqual(
            f'host=host-1 object={PATCH} bytes=4096 requests=3',
            start['info']['function']['args'])

    def test_forged_traces_are_ignored(self):
        peer_spans.PeerSpans(Plane(self.ticket[:-1] + 'x', 'x')).send(2.0)
        self.assertEqual([], self.collected.payloads)

    def test_what_is_left_is_sent_at_the_end(self):
        self.patch(peer_spans, 'INTERVAL_SECONDS', 0.01)
        plane = Plane()
        spans = peer_spans.PeerSpans(plane)
        spans.start()
        self.assertTrue(plane.was_asked.wait(60))
        plane.left = [orders.PeerRead(self.ticket, PATCH, 1.0, 2.0, 1, 1)]
        spans.stop()
        self.assertEqual(0.0, plane.taken[-1])
        self.collected.one('serve')
