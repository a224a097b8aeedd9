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
import threading

from diffcache_openstack.agent.repository import on_demand
from diffcache_openstack.agent.repository import pair_choice
from diffcache_openstack.agent.repository import records
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import patch_work
from tests import base

TARGET = 'f' * 64
NEAR, FAR, OTHER = 'a' * 64, 'b' * 64, 'c' * 64
MEGABYTE = 10 ** 6


class Repository:
    """Images with sketches; patches are as large as a test says.

    Creates a patch once the test lets it, as the maker of a repository does.
    """

    def __init__(self):
        self.contents = {TARGET, NEAR, FAR, OTHER}
        self.sketched = {TARGET, NEAR, FAR, OTHER}
        self.sizes = {NEAR: 10 * MEGABYTE, FAR: 50 * MEGABYTE,
                      OTHER: 400 * MEGABYTE}
        self.declines = False
        self.made = {}
        self.created = []
        self.entered = threading.Event()
        self.may_create = threading.Event()
        self.may_create.set()

    def has_content(self, content):
        return content in self.contents

    def has_sketch(self, content):
        return content in self.sketched

    def data_size(self, content):
        return 600 * MEGABYTE

    def patches(self):
        return list(self.made.values())

    def find_patch(self, base, target):
        return self.made.get((base, target))

    def estimate(self, base, target):
        return pair_choice.judge_estimate(
            self.sizes[base], self.data_size(target), 0.25)

    def create(self, base, target):
        if (base, target) in self.made:
            return False
        self.created.append((base, target))
        self.entered.set()
        self.may_create.wait()
        if self.declines:
            return False
        self.made[base, target] = records.PatchRecord(
            'd' * 64, base, target, self.sizes[base], 10.0, 1.0)
        return True


class OnDemandTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.repository = Repository()
        self.now = 0.0
        self.patches = self.new()

    def new(self, most=20):
        return on_demand.OnDemand(self.repository, self.repository, most,
                                  lambda: self.now)

    def create(self, *bases, target=TARGET, seconds=100.0, mbps=20.0):
        return self.patches.create(
            on_demand.PatchRequest(target, bases, seconds, mbps))

    def test_the_smallest_patch_is_created(self):
        found = self.create(FAR, NEAR)
        self.assertEqual((NEAR, TARGET), (found.base, found.target))
        self.assertEqual([(NEAR, TARGET)], self.repository.created)

    def test_a_patch_is_created_once(self):
        first = self.create(NEAR)
        self.assertEqual(first, self.create(NEAR))
        self.assertEqual(1, len(self.repository.created))

    def test_none_is_created_if_the_image_comes_sooner(self):
        # 600 MB are 20 s of work until one was timed; 50 MB cross in 40 s at
        # 10 Mbit/s.
        self.assertIsNone(self.create(FAR, seconds=59.9, mbps=10.0))
        self.assertEqual([], self.repository.created)
        self.assertIsNotNone(self.create(FAR, seconds=60.1, mbps=10.0))

    def test_none_is_created_that_the_host_would_not_wait_for(self):
        # 20 s of work; the host waits half the time of the image.
        self.assertIsNone(self.create(NEAR, seconds=39.9))
        self.assertEqual([], self.repository.created)
        self.assertIsNotNone(self.create(NEAR, seconds=40.1))

    def test_a_patch_that_exists_is_returned_without_any_work(self):
        self.create(NEAR)
        self.assertIsNotNone(self.create(NEAR, seconds=5.1))
        self.assertEqual(1, len(self.repository.created))

    def test_the_time_of_patches_created_before_counts(self):
        self.create(FAR)
        # That took 10 s, and will be applied twice, in 1 s each.
        self.assertIsNone(self.create(NEAR, seconds=23.9))
        self.assertIsNotNone(self.create(NEAR, seconds=24.1))

    def test_unlike_images_are_left_out(self):
        self.assertIsNone(self.create(OTHER, seconds=10 ** 6))

    def test_what_was_not_sketched_is_not_read(self):
        self.repository.sketched.remove(NEAR)
        self.assertEqual(FAR, self.create(NEAR, FAR).base)

    def test_an_image_is_no_base_of_itself(self):
        self.repository.sizes[TARGET] = 0
        self.assertIsNone(self.create(TARGET))

    def test_a_patch_that_turned_out_too_large_is_not_created_again(self):
        self.repository.declines = True
        for _attempt in range(3):
            self.assertIsNone(self.create(NEAR))
        self.assertEqual(1, len(self.repository.created))

    def test_unknown_images_are_refused(self):
        self.assertRaises(exceptions.NotFound, self.create, NEAR,
                          target='9' * 64)

    def test_nothing_is_created_if_it_is_turned_off(self):
        self.patches = self.new(0)
        self.assertIsNone(self.create(NEAR))
        self.assertEqual([], self.repository.created)

    def test_so_many_are_created_within_an_hour(self):
        self.patches = self.new(2)
        self.create(NEAR)
        self.now = 1800.0
        self.create(FAR)
        self.repository.sizes['e' * 64] = MEGABYTE
        self.repository.sketched.add('e' * 64)
        error = self.assertRaises(exceptions.Busy, self.create, 'e' * 64)
        self.assertIn('patches_on_demand', str(error))
        # What there is already can still be had.
        self.assertEqual(NEAR, self.create(NEAR).base)
        self.now = 3600.0
        self.assertEqual('e' * 64, self.create('e' * 64).base)

    def test_a_failure_frees_the_way(self):
        self.repository.create = None
        self.assertRaises(TypeError, self.create, NEAR)
        del self.repository.create
        self.assertEqual(NEAR, self.create(NEAR).base)

    def test_a_failed_estimate_is_passed_over(self):
        estimate = self.repository.estimate

        def fail(base, target):
            if base == NEAR:
                return pair_choice.Verdict(patch_work.FAILED, None, 'damaged')
            return estimate(base, target)

        self.repository.estimate = fail
        self.assertEqual(FAR, self.create(NEAR, FAR).base)

    def creating(self):
        """Begin to create a patch, in a thread; returns it and its result."""
        self.repository.may_create.clear()
        results = []
        thread = threading.Thread(
            target=lambda: results.append(self.create(NEAR, FAR)))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.repository.may_create.set)
        self.assertTrue(self.repository.entered.wait(60))
        return thread, results

    def test_other_images_are_refused_meanwhile(self):
        self.creating()
        for _attempt in range(1000):
            self.assertRaises(exceptions.Busy, self.create, NEAR,
                              target=FAR)
        self.assertEqual(1, len(self.repository.created))

    def test_hosts_that_want_the_same_image_wait_for_one_patch(self):
        thread, results = self.creating()
        waiting = [threading.Thread(
            target=lambda bases=bases: results.append(self.create(*bases)))
            for bases in ((NEAR,), (FAR, NEAR), (FAR,))]
        for each in waiting:
            each.start()
        self.repository.may_create.set()
        for each in (thread, *waiting):
            each.join()
        self.assertEqual(4, len(results))
        # The one with another base gets none, or, if late, one of its own.
        self.assertEqual(3, sum(found is not None and found.base == NEAR
                                for found in results))

    def test_waiting_ends_when_the_image_would_have_come(self):
        self.creating()
        self.assertRaises(exceptions.Busy, self.create, NEAR, seconds=0.0)

    def test_few_requests_wait(self):
        self.creating()
        self.patches._waiting = on_demand._MOST_WAITING
        error = self.assertRaises(exceptions.Busy, self.create, NEAR)
        self.assertIn('another patch', str(error))
