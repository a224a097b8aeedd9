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
"""Several writers of one store at once, in every order of their steps."""

import functools
import itertools
import os
import shutil
import threading

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import shared_commits
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture
from tests.unit.versions.store.commits import test_arbitration

BLOCKS = 40


class Killed(BaseException):
    """The process of a writer ends."""


class Turns:
    """Has threads take steps one at a time, in a given order.

    :param order: which writer takes each step; after it, the first that can
    """

    def __init__(self, order):
        self._order = list(order)
        self._turn = threading.Condition()
        self._waiting = set()
        self._running = 0
        self._next = None

    def run(self, works):
        """Perform works; return what each returned, or its error."""
        results = [None] * len(works)

        def perform(number, work):
            try:
                self.step(number)
                results[number] = work()
            except (exceptions.DiffCacheError, Killed) as exc:
                results[number] = exc
            finally:
                with self._turn:
                    self._running -= 1
                    self._choose()

        self._running = len(works)
        threads = [threading.Thread(target=perform, args=each)
                   for each in enumerate(works)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def step(self, number):
        """Wait until it is a writer's turn."""
        with self._turn:
            self._waiting.add(number)
            self._running -= 1
            self._choose()
            self._turn.wait_for(lambda: self._next == number)
            self._next = None
            self._waiting.discard(number)
            self._running += 1

    def _choose(self):
        """Choose the next writer once all of them wait."""
        if self._running or not self._waiting:
            return
        while self._order:
            number = self._order.pop(0)
            if number in self._waiting:
                break
        else:
            number = min(self._waiting)
        self._next = number
        self._turn.notify_all()


class SteppingStore(file.FileStore):
    """A store whose lock and whose removals are steps.

    :param steps: called before each
    """

    def __init__(self, directory, step):
        super().__init__(directory)
        self._step = step

    def lock(self, purpose=''):
        self._step('lock')
        return super().lock(purpose)

    def delete(self, name):
        if name.startswith(('pack-', 'map-')):
            self._step('delete')
        super().delete(name)


class WritersTest(fixture.VersionsTestCase):

    blocks = BLOCKS
    # At once, and not an hour later.
    removes_remains = True

    def setUp(self):
        super().setUp()
        # Orders of steps count here, not power cuts.
        self.patch(os, 'fsync', lambda handle: None)
        self.patch(file, '_PAUSE_S', 0.001)
        self.messages = set()
        for module in (saving, pruning, shared_commits):
            self.patch(module.LOG, 'info', lambda message, *args:
                       self.messages.add(message.split(',')[0].split(':')[0]))
        self.disks = {name: self.write_file(
            f'disk-{name}', self.blocks_of(BLOCKS)) for name in 'abc'}
        # Blocks that only a version has that is deleted.
        shutil.copy(self.disks['a'], self.disks['c'])
        self.first = self.save(self.disks['a'])
        self.begin()
        self.template = self.directory / 'template'
        shutil.copytree(self.directory / 'store', self.template)

    def begin(self):
        """What there is before the writers begin."""

    def stored(self, access):
        """What versions have, by their series."""
        output = self.directory / 'restored'
        found = []
        for version in access.head().versions.values():
            restoring.restore(access, version.id,
                              restoring.Output(output, 'raw'))
            found.append((version.series, output.read_bytes()))
        return sorted(found)

    def run_in(self, order, works, kill=None):
        """Run works on a new copy of the store; return their results.

        :param kill: writer, and the step before which it is killed
        """
        shutil.rmtree(self.directory / 'store')
        shutil.copytree(self.template, self.directory / 'store')
        turns = Turns(order)
        counts = [0] * len(works)

        def step(number, _what):
            counts[number] += 1
            if kill == (number, counts[number]):
                raise Killed
            turns.step(number)

        self.prepare()
        return turns.run([
            functools.partial(work, self.open(functools.partial(step, number)))
            for number, work in enumerate(works)])

    def prepare(self):
        """Begin a run."""

    def open(self, step=lambda what: None):
        """The store, for a writer whose steps are these."""
        return store_access.StoreAccess(SteppingStore(
            self.directory / 'store', step))

    def save_as(self, series, access):
        return saving.save(access, save_request.SaveRequest(
            self.disks[series], series))

    def delete_first(self, access):
        return pruning.delete(access, [self.first.id])

    def prune(self, access):
        return pruning.prune(access, rule=pruning.PruneRule(0))

    def check(self, expected):
        access = self.open()
        found = verification.verify(access)
        self.assertTrue(found.intact, found)
        self.assertEqual(
            sorted((series, self.disks[series].read_bytes())
                   for series in expected), self.stored(access))
        numbers = [version.number for version
                   in access.head().versions.values()]
        self.assertEqual(len(numbers), len(set(numbers)))
        pruning.prune(access, rule=pruning.PruneRule(0))
        if self.removes_remains:
            self.assertEqual(0, verification.verify(access).orphans)
        self.assertTrue(verification.verify(access).intact)


class TestSaves(WritersTest):

    def test_saves_in_every_order_never_conflict(self):
        works = [functools.partial(self.save_as, series) for series in 'bc']
        for order in sorted(set(itertools.permutations([0] * 4 + [1] * 4))):
            results = self.run_in(order, works)
            self.assertEqual([], [each for each in results
                                  if isinstance(each, BaseException)], order)
            self.check('abc')
        self.assertEqual({'Committing behind another writer'}, self.messages)

    def test_a_save_that_is_killed_at_any_step_hinders_none(self):
        works = [functools.partial(self.save_as, series) for series in 'bc']
        for order in ((0, 1) * 8, (0,) * 8, (1,) * 8):
            for step in range(1, 6):
                killed, other = self.run_in(order, works, (0, step))
                self.assertNotIsInstance(other, BaseException)
                self.check('abc' if not isinstance(killed, Killed) else 'ac')


class SteppingArbiter(test_arbitration.Arbiter):
    """What one writer asks of an arbiter: each question is a step."""

    def __init__(self, shared, step):
        self._shared, self._step = shared, step

    def read(self):
        self._step('read')
        return self._shared.read()

    def take_numbers(self, least, count):
        self._step('take')
        return self._shared.take_numbers(least, count)

    def move(self, base, new):
        self._step('move')
        self._shared.move(base, new)
        self._step('moved')


class TestArbitratedSaves(WritersTest):
    """Where no lock excludes another writer."""

    def prepare(self):
        self.arbiter = test_arbitration.Arbiter()

    def open(self, step=lambda what: None):
        return store_access.StoreAccess(
            test_arbitration.RacyStore(self.directory / 'store'),
            arbiter=SteppingArbiter(self.arbiter, step))

    def begin(self):
        self.delete_first(self.access)

    def test_in_every_order_all_are_saved(self):
        works = [functools.partial(self.save_as, series) for series in 'bc']
        for order in sorted(set(itertools.permutations([0] * 4 + [1] * 4))):
            results = self.run_in(order, works)
            self.assertEqual([], [each for each in results
                                  if isinstance(each, BaseException)], order)
            self.check('bc')

    def test_beside_a_prune_no_version_lacks_a_block(self):
        works = [functools.partial(self.save_as, 'c'), self.prune]
        for order in sorted(set(itertools.permutations([0] * 4 + [1] * 4))):
            results = self.run_in(order, works)
            self.assertEqual([], [each for each in results
                                  if isinstance(each, BaseException)], order)
            self.check('c')
        self.assertIn('Saving again', self.messages)

    def test_a_writer_that_is_killed_at_any_step_hinders_none(self):
        works = [functools.partial(self.save_as, series) for series in 'bc']
        for order in ((0, 1) * 8, (0,) * 8, (1,) * 8):
            for step in range(1, 7):
                _killed, other = self.run_in(order, works, (0, step))
                self.removes_remains = False
                self.assertNotIsInstance(other, BaseException)
                # It may have been decided before it was killed.
                access = self.open()
                with access.writing():
                    pass
                series = ''.join(sorted(
                    each.series for each in access.head().versions.values()))
                self.assertIn(series, ('c', 'bc'))
                self.check(series)


class TestSaveAndPrune(WritersTest):
    """A save refers to blocks that a prune beside it wants to remove."""

    def begin(self):
        self.delete_first(self.access)

    def test_in_every_order_no_version_lacks_a_block(self):
        works = [functools.partial(self.save_as, 'c'), self.prune]
        for order in sorted(set(itertools.permutations([0] * 4 + [1] * 5))):
            results = self.run_in(order, works)
            self.assertEqual([], [each for each in results
                                  if isinstance(each, BaseException)], order)
            self.check('c')
        self.assertEqual({'Committing behind another writer', 'Saving again',
                          'Pruning again'}, self.messages)

    def test_a_kill_at_any_step_leaves_a_store_that_is_intact(self):
        works = [functools.partial(self.save_as, 'c'), self.prune]
        for order in ((0, 1) * 8, (0, 0, 1) * 6, (0, 1, 1) * 6):
            for writer, step in itertools.product(range(2), range(1, 9)):
                saved, pruned = self.run_in(order, works, (writer, step))
                self.check('' if isinstance(saved, Killed) else 'c')


class TestSaveAndDelete(WritersTest):

    def test_a_parent_that_is_deleted_and_pruned_meanwhile(self):
        self.write_blocks(self.disks['a'], 3)
        works = [functools.partial(self.save_as, 'a'),
                 lambda access: (self.delete_first(access),
                                 self.prune(access))]
        for before in range(6):
            order = [0] * before + [1] * 30
            results = self.run_in(order, works)
            self.assertEqual([], [each for each in results
                                  if isinstance(each, BaseException)], order)
            self.check('a')
        self.assertIn('Saving again', self.messages)
