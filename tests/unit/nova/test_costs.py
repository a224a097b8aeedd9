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
"""Costs of images, as the scheduler keeps them."""

import threading

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import costs
from tests import base

LONG = 60.0


class Conductor:
    """Answers with what a test says, and remembers the questions."""

    def __init__(self):
        self.asked = []
        self.answer = {'h1': 1.0, 'h2': 2.0}
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.answered = threading.Event()

    def __call__(self, image_id, hosts):
        self.asked.append((image_id, hosts))
        self.may_answer.wait(LONG)
        self.answered.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class TestCosts(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conductor = Conductor()
        self.now = 1000.0

    def costs(self, timeout=LONG):
        return costs.Costs(self.conductor, timeout, lifetime=10.0,
                           retry_interval=30.0, clock=lambda: self.now)

    def test_an_answer_is_remembered_for_its_lifetime(self):
        known = self.costs()
        for _ in range(3):
            self.assertEqual({'h1': 1.0, 'h2': 2.0},
                             known.of('image', ['h1', 'h2']))
        self.assertEqual([('image', ['h1', 'h2'])], self.conductor.asked)
        self.conductor.answer = {'h1': 5.0}
        self.now += 10.5
        self.assertEqual({'h1': 5.0}, known.of('image', ['h1', 'h2']))

    def test_an_answer_about_fewer_hosts_is_none(self):
        known = self.costs()
        known.of('image', ['h1'])
        known.of('image', ['h1', 'h2'])
        known.of('image', ['h2'])
        self.assertEqual([['h1'], ['h1', 'h2']],
                         [hosts for _, hosts in self.conductor.asked])

    def test_images_have_their_own_answers(self):
        known = self.costs()
        known.of('one', ['h1'])
        self.conductor.answer = {'h1': 7.0}
        self.assertEqual({'h1': 7.0}, known.of('other', ['h1']))
        self.assertEqual({'h1': 1.0, 'h2': 2.0}, known.of('one', ['h1']))

    def test_a_conductor_that_fails_is_left_alone_for_a_while(self):
        known = self.costs()
        self.conductor.answer = exceptions.ServiceUnavailable('no conductor')
        for _ in range(3):
            self.assertEqual({}, known.of('image', ['h1']))
        self.assertEqual(1, len(self.conductor.asked))
        self.assertEqual(1, known.failures)
        self.conductor.answer = {'h1': 3.0}
        self.now += 31
        self.assertEqual({'h1': 3.0}, known.of('image', ['h1']))

    def test_an_error_of_any_kind_costs_no_server(self):
        known = self.costs()
        self.conductor.answer = KeyError('surprise')
        self.assertEqual({}, known.of('image', ['h1']))

    def test_nobody_waits_longer_than_the_timeout(self):
        known = self.costs(timeout=0.01)
        self.conductor.may_answer.clear()
        self.assertEqual({}, known.of('image', ['h1']))
        # While the first question is under way no second one is asked, even
        # after the pause.
        self.now += 31
        self.assertEqual({}, known.of('image', ['h1']))
        self.conductor.may_answer.set()
        self.assertTrue(self.conductor.answered.wait(LONG))
        self.assertEqual(1, len(self.conductor.asked))
        known._running.result(LONG)
        # The late answer serves the next server.
        self.assertEqual({'h1': 1.0, 'h2': 2.0}, known.of('image', ['h1']))

    def test_only_so_many_images_are_remembered(self):
        known = self.costs()
        for number in range(costs._KEPT + 1):
            known.of(f'image {number}', ['h1'])
        known.of('image 1', ['h1'])
        self.assertEqual(costs._KEPT + 1, len(self.conductor.asked))
        known.of('image 0', ['h1'])
        self.assertEqual(costs._KEPT + 2, len(self.conductor.asked))
