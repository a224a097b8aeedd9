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
"""Each key gets its turn, whatever the others do."""

import threading

from diffcache_openstack.agent.versions import fair_pool
from tests import base

SECONDS = 30


class Work:
    """Work that a test lets end."""

    def __init__(self, begun, name):
        self._begun = begun
        self._name = name
        self.started = threading.Event()
        self.may_end = threading.Event()
        self.ended = threading.Event()

    def __call__(self):
        self._begun.append(self._name)
        self.started.set()
        self.may_end.wait(SECONDS)
        self.ended.set()


class TestFairPool(base.TestCase):

    def setUp(self):
        super().setUp()
        self.begun = []
        self.works = []

    def pool(self, workers, share):
        pool = fair_pool.FairPool(workers, share, 'test')
        self.addCleanup(pool.shutdown)
        self.addCleanup(self.let_all_end)
        return pool

    def let_all_end(self):
        for work in self.works:
            work.may_end.set()

    def work(self, pool, key, number=0):
        work = Work(self.begun, f'{key}{number}')
        self.works.append(work)
        pool.submit(key, work)
        return work

    def started(self, *works):
        for work in works:
            self.assertTrue(work.started.wait(SECONDS))

    def test_slow_key_holds_no_other(self):
        pool = self.pool(2, 1)
        slow = [self.work(pool, 'a', number) for number in range(5)]
        self.started(slow[0])
        for number in range(3):
            other = self.work(pool, 'b', number)
            self.started(other)
            other.may_end.set()
            self.assertTrue(other.ended.wait(SECONDS))
        self.assertFalse(slow[1].started.is_set())

    def test_keys_take_turns(self):
        pool = self.pool(1, 1)
        first = self.work(pool, 'x')
        self.started(first)
        works = [self.work(pool, key, number)
                 for key in 'abc' for number in range(2)]
        self.let_all_end()
        self.started(*works)
        self.assertEqual(['x0', 'a0', 'b0', 'c0', 'a1', 'b1', 'c1'],
                         self.begun)

    def test_share(self):
        pool = self.pool(3, 2)
        works = [self.work(pool, 'a', number) for number in range(3)]
        self.started(*works[:2])
        other = self.work(pool, 'b')
        self.started(other)
        self.assertFalse(works[2].started.is_set())
        works[0].may_end.set()
        self.started(works[2])

    def test_work_that_fails_frees_its_thread(self):
        pool = self.pool(1, 1)

        def fail():
            raise ValueError('no')

        pool.submit('a', fail)
        self.started(self.work(pool, 'a'))

    def test_nothing_starts_after_the_end(self):
        pool = self.pool(1, 1)
        first = self.work(pool, 'a')
        self.started(first)
        waiting = self.work(pool, 'a', 1)
        ending = threading.Thread(target=pool.shutdown)
        ending.start()
        while not pool._closed:
            pass
        first.may_end.set()
        ending.join(SECONDS)
        self.assertFalse(ending.is_alive())
        late = self.work(pool, 'b')
        self.assertEqual([False, False], [
            each.started.is_set() for each in (waiting, late)])
