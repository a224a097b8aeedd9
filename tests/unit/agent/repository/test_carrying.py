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
"""A repository carries profiles to images that no server has read."""

import threading

from diffcache_openstack.agent.repository import carrying
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.prefetch import carry
from diffcache_openstack.rpc import conductor_lazy_api
from tests import base
from tests import waiting

OLD, OTHER, NEW = 'a' * 64, 'b' * 64, 'c' * 64


def source(number, content_id=OLD, rows=None):
    return conductor_lazy_api.CarrySource(
        f'profile {number}', content_id, rows or {number: (2, 30)})


class FakeConductor:
    """Wants profiles carried until they are."""

    def __init__(self):
        self.images = {}
        self.calls = 0
        self.error = None
        self.refused = None
        self.late = False
        self.carried = {}
        self.looked = threading.Event()

    def carry_work(self, context, host, after):
        self.calls += 1
        if self.error is not None:
            self.looked.set()
            raise self.error
        for image, sources in sorted(self.images.items()):
            missing = [each for each in sources
                       if (image, each.profile_id) not in self.carried]
            if image > (after or '') and missing:
                return conductor_lazy_api.CarryWork(image, NEW, missing)
        self.looked.set()
        return None

    def report_carried(self, context, host, image_id, profile_id, rows):
        if self.refused is not None:
            raise self.refused
        self.carried[image_id, profile_id] = rows
        return not self.late


class FakeContent:
    """Each chunk of OLD is ten chunks further on in NEW."""

    def __init__(self):
        self.compared = []
        self.missing = set()
        self.stopped = False

    def stop(self):
        self.stopped = True

    def find(self, source, target, chunks):
        self.compared.append((source, target, chunks))
        if source in self.missing:
            raise exceptions.ObjectMissing('its manifest is gone')
        if source != OLD:
            return [({}, [])]
        return [(dict.fromkeys(chunks, 4), [
            carry.Common(chunk + 10, chunk, 4) for chunk in chunks])]


class CarryingTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conductor, self.content = FakeConductor(), FakeContent()
        self.carrying = carrying.Carrying('hub', self.conductor,
                                          self.content, 60.0)

    def counts(self, **expected):
        self.assertEqual({**dict.fromkeys(carrying.OUTCOMES, 0), **expected},
                         self.carrying.counts())


class TestCarrying(CarryingTest):

    def test_images_are_compared_once_for_all_labels(self):
        self.conductor.images = {'t2': [source(1), source(5)],
                                 't3': [source(1)]}
        self.assertEqual(3, self.carrying.carry_missing())
        self.assertEqual([(OLD, NEW, [1, 5]), (OLD, NEW, [1])],
                         self.content.compared)
        self.assertEqual({('t2', 'profile 1'): {11: (2, 30)},
                          ('t2', 'profile 5'): {15: (2, 30)},
                          ('t3', 'profile 1'): {11: (2, 30)}},
                         self.conductor.carried)
        self.counts(carried=3)
        self.assertEqual(0, self.carrying.carry_missing())

    def test_what_fails_is_logged_once_and_tried_again(self):
        self.conductor.images = {'t2': [source(1)], 't3': [source(2, OTHER)]}
        self.content.missing = {OLD}
        with self.assertLogs(carrying.LOG, 'WARNING') as logs:
            for _ in range(3):
                self.assertEqual(0, self.carrying.carry_missing())
        self.assertEqual(2, len(logs.output))
        self.assertIn('t2, will retry', logs.output[0])
        self.counts(failed=1, unlike=1)
        self.content.missing = set()
        self.assertEqual(1, self.carrying.carry_missing())
        # Failing anew after that is told again.
        self.conductor.carried.clear()
        self.content.missing = {OLD}
        with self.assertLogs(carrying.LOG, 'WARNING') as logs:
            self.carrying.carry_missing()
        self.assertEqual(1, len(logs.output))

    def test_one_that_fails_keeps_no_other_from_being_carried(self):
        self.conductor.images = {
            't2': [source(2, OTHER), source(1)], 't3': [source(1)]}
        self.content.missing = {OTHER}
        self.assertEqual(2, self.carrying.carry_missing())

    def test_what_the_conductor_refuses(self):
        self.conductor.images = {'t2': [source(1)]}
        self.conductor.refused = exceptions.InvalidInput('no such chunk')
        with self.assertLogs(carrying.LOG, 'WARNING') as logs:
            self.carrying.carry_missing()
            self.carrying.carry_missing()
        self.assertEqual(1, len(logs.output))
        self.counts(failed=1)

    def test_unlike_images_are_compared_again_when_the_profile_changes(self):
        self.conductor.images = {'t2': [source(1, OTHER)]}
        for _ in range(3):
            self.carrying.carry_missing()
        self.assertEqual(1, len(self.content.compared))
        self.conductor.images = {'t2': [source(1, OTHER, {1: (3, 30)})]}
        for _ in range(3):
            self.carrying.carry_missing()
        self.assertEqual(2, len(self.content.compared))
        self.counts(unlike=1)
        # Not wanted for a while.
        self.conductor.images = {}
        self.carrying.carry_missing()
        self.assertEqual(({}, {}), (self.carrying._problems,
                                    self.carrying._settled))

    def test_what_is_not_wanted_any_more(self):
        self.conductor.images = {'t2': [source(1)]}
        self.conductor.late = True
        self.assertEqual(0, self.carrying.carry_missing())
        self.counts(outdated=1)

    def test_one_that_is_not_taken_is_not_compared_again(self):
        self.conductor.images = {'t2': [source(1)]}
        self.conductor.late = True
        for _search in range(2):
            self.carrying.carry_missing()
            # An image with the most labels stays among the work.
            self.conductor.carried.clear()
        self.assertEqual(1, len(self.content.compared))

    def test_without_the_conductor_it_is_tried_again(self):
        self.conductor.images = {'t2': [source(1)]}
        for name in ('refused', 'error'):
            setattr(self.conductor, name,
                    exceptions.ServiceUnavailable('no answer'))
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.carrying.carry_missing)
            setattr(self.conductor, name, None)
        self.assertEqual(1, self.carrying.carry_missing())


class TestThread(CarryingTest):

    def look(self):
        """Have the thread look, and wait until it did."""
        self.conductor.looked.clear()
        self.carrying.wake()
        self.assertTrue(self.conductor.looked.wait(waiting.SECONDS))

    def test_it_looks_when_images_change(self):
        self.carrying.start()
        self.addCleanup(self.carrying.stop)
        self.look()
        self.conductor.images = {'t2': [source(1)]}
        self.look()
        self.assertEqual(1, len(self.conductor.carried))

    def test_it_survives_a_fault(self):
        self.conductor.error = RuntimeError('a fault')
        with self.assertLogs(threads.LOG, 'ERROR'):
            self.carrying.start()
            self.addCleanup(self.carrying.stop)
            self.look()
            self.conductor.error = None
            self.conductor.images = {'t2': [source(1)]}
            self.look()
        self.assertEqual(1, len(self.conductor.carried))
