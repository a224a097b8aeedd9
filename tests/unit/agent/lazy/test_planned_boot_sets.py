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
"""Which boot sets a host is to have, over restarts, and what it reports."""

import json
from unittest import mock

from diffcache_openstack.agent.lazy import planned_boot_sets
from diffcache_openstack.common import contexts
from diffcache_openstack.objects import boot_set
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import conductor_lazy_api
from tests import base

CONTENT = 'a' * 64


class FakeConductor:

    def __init__(self):
        self.generation, self.sets = 5, []
        self.calls = []
        self.error = None

    def exchange_boot_sets(self, ctxt, host, sets, known):
        if self.error is not None:
            raise self.error
        self.calls.append((host, sets, known))
        return None if known == self.generation else (
            self.generation, self.sets)


class BootSetsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.sets = self.open()
        self.sets.note({})
        self.conductor = FakeConductor()
        self.changes = 0
        self.exchange = self.new_exchange()
        self.ctxt = contexts.RequestContext.for_service('test')

    def open(self):
        return planned_boot_sets.PlannedBootSets(
            self.directory / 'boot_sets.json', self.directory / 'boot_sets')

    def new_exchange(self, interval=0.0):
        return planned_boot_sets.BootSetExchange(
            'h1', self.sets, self.conductor, self.note_change, interval)

    def note_change(self):
        self.changes += 1

    def want(self, *chunks):
        self.conductor.generation += 1
        self.conductor.sets = [conductor_lazy_api.BootSet(
            CONTENT, 'image', len(chunks) * profiles.CHUNK,
            {chunk: (2, 100) for chunk in chunks})]

    def test_what_the_conductor_wants_is_kept_over_restarts(self):
        self.want(1, 7)
        self.exchange.exchange(self.ctxt)
        self.exchange.exchange(self.ctxt)
        self.assertEqual(1, self.changes)
        self.assertEqual([None, 6], [known for *_others, known
                                     in self.conductor.calls])
        again = self.open()
        self.assertEqual(self.sets.wanted(), again.wanted())
        self.assertEqual(6, again.generation)
        self.assertEqual(
            {'format': 1, 'chunk': profiles.CHUNK,
             'profile': [[1, 2, 50.0], [7, 2, 50.0]]},
            json.loads(again.profile(CONTENT).read_text()))

    def test_other_chunks_are_another_set(self):
        self.want(1, 7)
        self.exchange.exchange(self.ctxt)
        before = self.sets.wanted()[CONTENT]
        self.want(1, 8)
        self.exchange.exchange(self.ctxt)
        self.assertNotEqual(before.digest,
                            self.sets.wanted()[CONTENT].digest)

    def test_profiles_of_sets_that_are_not_wanted_are_removed(self):
        self.want(1)
        self.exchange.exchange(self.ctxt)
        self.conductor.generation, self.conductor.sets = 9, []
        self.exchange.exchange(self.ctxt)
        self.assertFalse(self.sets.profile(CONTENT).exists())
        self.assertEqual({}, self.open().wanted())

    def test_what_is_served_alone_is_kept_over_restarts(self):
        self.sets.note_alone(CONTENT, 'd')
        self.assertEqual({CONTENT: 'd'}, self.open().alone())
        self.sets.forget_alone(CONTENT)
        self.assertEqual({}, self.open().alone())

    def test_news_are_reported_at_once_and_the_same_now_and_then(self):
        exchange = self.new_exchange(interval=1e9)
        exchange.exchange(self.ctxt)
        exchange.exchange(self.ctxt)
        self.assertEqual(1, len(self.conductor.calls))
        standing = {CONTENT: planned_boot_sets.Standing(4, boot_set.READY)}
        self.assertTrue(self.sets.note(standing))
        # How many bytes there are waits for the next heartbeat.
        self.assertFalse(self.sets.note(
            {CONTENT: planned_boot_sets.Standing(5, boot_set.READY)}))
        exchange.exchange(self.ctxt)
        self.assertEqual([(CONTENT, 5, 'ready', None)],
                         self.conductor.calls[1][1])
        exchange.repeat()
        exchange.exchange(self.ctxt)
        self.assertEqual(3, len(self.conductor.calls))

    def test_nothing_is_reported_before_this_host_has_looked(self):
        self.sets = self.open()
        exchange = self.new_exchange()
        exchange.exchange(self.ctxt)
        self.assertEqual([], self.conductor.calls)
        self.assertTrue(self.sets.note({}))
        exchange.exchange(self.ctxt)
        self.assertEqual(1, len(self.conductor.calls))

    def test_messages_are_cut(self):
        self.sets.note({CONTENT: planned_boot_sets.Standing(
            0, boot_set.FAILED, 'x' * 100_000)})
        [(_content, _bytes, _state, message)] = self.sets.report()
        self.assertEqual(planned_boot_sets.MESSAGE_LENGTH, len(message))

    def test_a_disk_that_is_full_ends_no_report(self):
        self.want(1)
        with mock.patch.object(self.sets, 'replace',
                               side_effect=OSError(28, 'full')):
            self.exchange.exchange(self.ctxt)
        self.assertEqual((0, None), (self.changes, self.sets.generation))
        self.exchange.exchange(self.ctxt)
        self.assertEqual({CONTENT}, set(self.sets.wanted()))
