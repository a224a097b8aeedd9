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
import dataclasses
import random

import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack.db.patches import pairs as patch_pairs
from diffcache_openstack.db.patches import sketches
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import patch_work
from tests.unit.db import database

HUB = patch_pairs.Worker('hub', 'patch 1', creations=1)
OTHER = dataclasses.replace(HUB, host='other')
HOUR = 3600


class PairsTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.patch(patch_pairs, 'NEAREST', 2)
        self.add_hosts()

    def add_hosts(self):
        for name in ('hub', 'other'):
            self.write(host_rows.put_host, database.host(
                name, role=objects.REPOSITORY), database.at(0))

    def add(self, *numbers, **about):
        """Images that are alike, on both repositories."""
        for number in numbers:
            self.write(catalogue.put_image, database.image(
                number, data_size=1000, **about), database.at(number))
        for host in ('hub', 'other'):
            held = self.read(database.holding_host, host).holdings
            self.write(held_rows.put_holdings, host, [
                *held, *map(database.holding, numbers)], database.at(0))
        self.write(sketches.put_sketches, [
            objects.ImageSketch(content_id=database.content(number),
                                data_size=1000, signature='0a' * 432)
            for number in numbers], database.at(0))

    def work(self, worker=HUB, seconds=0, **changes):
        return self.write(patch_pairs.work, dataclasses.replace(
            worker, **changes), database.at(seconds))

    def compared(self, worker=HUB, **changes):
        return numbers(self.work(worker, creations=0, **changes).compare)

    def created(self, worker=HUB, **changes):
        return numbers(self.work(worker, **changes).create)

    def report(self, *found, worker=HUB, seconds=0, **values):
        self.write(patch_pairs.report, worker.host, worker.terms, [
            objects.PairReport(base=database.content(base),
                               target=database.content(target),
                               **{'verdict': patch_work.ESTIMATED, **values})
            for base, target in found], database.at(seconds))

    def estimate(self, **sizes):
        """Report estimates: p12=5 is of the pair from 1 to 2."""
        for pair, size in sizes.items():
            self.report((int(pair[1]), int(pair[2])), size=size)

    def make(self, base, target):
        self.write(catalogue.put_patch, database.patch(base, target),
                   database.at(0))


def numbers(pairs):
    return [(int(pair.base, 16), int(pair.target, 16)) for pair in pairs]


class TestWork(PairsTest):

    def test_from_sketch_to_patch(self):
        self.write(catalogue.put_image, database.image(1),
                   database.at(0))
        self.write(held_rows.put_holdings, 'hub', [database.holding(1)],
                   database.at(0))
        found = self.work()
        self.assertEqual(([database.content(1)], True),
                         (found.sketch, found.pending))
        self.add(1, 2)
        self.assertEqual({(1, 2), (2, 1)}, set(self.compared()))
        self.estimate(p12=100, p21=50)
        self.assertEqual([(2, 1)], self.created())
        self.make(2, 1)
        self.assertEqual([(1, 2)], self.created())
        self.make(1, 2)
        self.assertEqual(objects.PatchWork(), self.work())

    def lose(self, *names):
        """Declare repositories dead; those that are left report."""
        for name in {'hub', 'other'} - set(names):
            self.write(host_rows.put_host, database.host(
                name, role=objects.REPOSITORY), database.at(100))
        self.write(host_rows.expire_hosts, database.at(50))

    def hold_patch(self, host, base, target, **values):
        held = self.read(database.holding_host, host).holdings
        patch = database.patch(base, target, **values)
        self.write(held_rows.put_holdings, host, [*held, objects.Holding(
            kind=objects.PATCHES, id=patch.id, bytes=1)], database.at(0))

    def test_patch_of_a_dead_repository_is_created_again(self):
        self.add(1, 2)
        self.compared()
        self.estimate(p12=100, p21=50)
        for pair in ((1, 2), (2, 1)):
            self.make(*pair)
        self.hold_patch('hub', 1, 2)
        self.hold_patch('hub', 2, 1)
        self.hold_patch('other', 2, 1)
        self.assertEqual([], self.created(OTHER, creations=9))
        self.lose('hub')
        self.assertEqual([(1, 2)], self.created(OTHER, creations=9))
        # As long as it is not there: it is this host's already.
        self.assertEqual([(1, 2)], self.created(OTHER, creations=9))
        self.hold_patch('other', 1, 2)
        self.make(1, 2)
        self.assertEqual([], self.created(OTHER, creations=9))

    def test_lost_patch_whose_images_are_lost_too_is_not_work(self):
        self.add(1, 2)
        self.compared()
        self.estimate(p12=100)
        self.make(1, 2)
        self.hold_patch('hub', 1, 2)
        self.write(held_rows.put_holdings, 'other', [database.holding(1)],
                   database.at(0))
        self.lose('hub')
        self.assertEqual([], self.created(OTHER, creations=9))

    def test_patch_that_differs_replaces_a_lost_one(self):
        self.add(1, 2)
        self.compared()
        self.estimate(p12=100)
        self.make(1, 2)
        self.hold_patch('hub', 1, 2)
        first = database.patch(1, 2)
        anew = database.patch(1, 2, id='e' * 64)
        kept, _ = self.write(catalogue.put_patch, anew, database.at(0))
        self.assertEqual(first.id, kept.id)
        self.lose('hub')
        kept, changed = self.write(catalogue.put_patch, anew, database.at(0))
        self.assertEqual(anew.id, kept.id)
        self.assertEqual({database.SITE}, changed)
        self.assertEqual([anew.id], [
            patch.id for patch in self.read(catalogue.list_patches)])
        self.hold_patch('other', 1, 2, id='e' * 64)
        self.assertEqual([], self.created(OTHER, creations=9))

    def test_unknown_host(self):
        self.assertRaises(exceptions.NotFound, self.work, host='nowhere')

    def test_what_a_host_does_not_hold_is_not_its_work(self):
        self.add(1, 2)
        self.write(held_rows.put_holdings, 'other', [database.holding(1)],
                   database.at(0))
        self.assertEqual([], self.compared(OTHER))
        self.compared()
        self.estimate(p12=1)
        self.assertEqual([], self.created(OTHER))
        self.assertEqual([(1, 2)], self.created())

    def test_patches_that_exist_are_not_made(self):
        self.write(catalogue.put_image, database.image(1),
                   database.at(0))
        self.write(catalogue.put_image, database.image(2),
                   database.at(0))
        self.make(1, 2)
        self.add(1, 2)
        self.assertEqual([(2, 1)], self.compared())

    def test_best_saving_first(self):
        self.add(1, 2, 3)
        self.compared()
        self.estimate(p12=600, p13=10, p21=300, p31=200)
        # Of image 1 the second base is worth half.
        expected = [(1, 3), (3, 1), (1, 2), (2, 1)]
        found = []
        while pairs := self.created():
            found += pairs
            self.make(*pairs[0])
        self.assertEqual(expected, found)

    def test_requested_images_come_first(self):
        self.add(1, 2, 3)
        self.compared()
        self.estimate(p12=600, p13=10)
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        self.write(history.put_requests, [
            database.request(number, image_id='t2')
            for number in range(9)])
        self.assertEqual(1, self.write(patch_pairs.refresh_demand,
                                       database.at(-1)))
        self.assertEqual(0, self.write(patch_pairs.refresh_demand,
                                       database.at(-1)))
        self.assertEqual([(1, 2)], self.created())

    def test_only_the_nearest_bases(self):
        self.add(1, 2, 3, 4)
        self.compared()
        self.estimate(p21=30, p31=20, p41=10)
        found = []
        while pairs := self.created():
            found += pairs
            self.make(*pairs[0])
        self.assertEqual([(4, 1), (3, 1)], found)
        self.patch(patch_pairs, 'NEAREST', 3)
        self.assertEqual([(2, 1)], self.created())


class TestAssignment(PairsTest):

    def setUp(self):
        super().setUp()
        self.add_pair()

    def add_pair(self):
        self.add(1, 2)
        self.compared()
        self.estimate(p12=1)

    def test_a_host_gets_its_pair_again_and_no_other_host_does(self):
        for _ in range(2):
            self.assertEqual([(1, 2)], self.created())
            self.assertEqual([], self.created(OTHER))

    def test_a_host_that_died_loses_its_pair(self):
        self.created()
        self.assertEqual([], self.created(OTHER, seconds=HOUR - 1))
        self.assertEqual([(1, 2)], self.created(OTHER, seconds=HOUR))
        self.assertEqual([], self.created(seconds=HOUR))

    def test_an_estimate_of_another_host_takes_no_pair_away(self):
        """Both compared the images; one of them got the pair since."""
        self.assertEqual([(1, 2)], self.created())
        self.report((1, 2), worker=OTHER, size=2)
        self.assertEqual([], self.created(OTHER))
        self.assertEqual([(1, 2)], self.created())

    def test_reports_of_a_host_that_lost_the_pair_are_ignored(self):
        self.created()
        self.assertEqual([(1, 2)], self.created(OTHER, seconds=HOUR))
        for verdict in (patch_work.FAILED, patch_work.DECLINED):
            self.report((1, 2), verdict=verdict, size=900, reason='late',
                        seconds=HOUR + 1)
            self.assertEqual([(1, 2)], self.created(OTHER, seconds=HOUR + 2))
            self.assertEqual([], self.created(seconds=HOUR + 2))
        self.report((1, 2), worker=OTHER, verdict=patch_work.FAILED,
                    reason='disk', seconds=HOUR + 3)
        self.assertEqual([(1, 2)], self.created(seconds=HOUR + 63))

    def test_patches_of_both_hosts_count_once(self):
        """The first host was slow, and the other one got its pair."""
        self.created()
        self.created(OTHER, seconds=HOUR)
        made, changed = self.write(
            catalogue.put_patch, database.patch(1, 2), database.at(HOUR))
        self.assertEqual((database.patch(1, 2).id, True),
                         (made.id, bool(changed)))
        late, changed = self.write(
            catalogue.put_patch, database.patch(1, 2, id=database.content(9)),
            database.at(HOUR))
        self.assertEqual((made.id, set()), (late.id, changed))
        self.assertEqual([made.id], [
            patch.id for patch in self.read(catalogue.list_patches)])
        for worker in (HUB, OTHER):
            self.assertEqual([], self.created(worker, seconds=9 * HOUR))

    def test_no_pair_is_two_hosts_at_once(self):
        """Hosts work, fail, forget and come late, in any order."""
        self.add(3)
        while self.compared():
            for worker in (HUB, OTHER):
                pairs = self.compared(worker)
                self.report(*pairs, worker=worker, size=5)
        chance, now, taken, made = random.Random(1), 0, {}, []
        had = {HUB: set(), OTHER: set()}
        for _ in range(300):
            now += chance.choice((1, 60, HOUR // 2))
            worker = chance.choice((HUB, OTHER))
            for pair in self.created(worker, seconds=now):
                host, until = taken.get(pair, (worker.host, 0))
                self.assertTrue(host == worker.host or until <= now, pair)
                taken[pair] = worker.host, now + HOUR
                had[worker].add(pair)
            if not had[worker]:
                continue
            pair, step = chance.choice(sorted(had[worker])), chance.random()
            if step < 0.3:
                self.report(pair, worker=worker, verdict=patch_work.FAILED,
                            reason='disk', seconds=now)
                if pair in taken and taken[pair][0] == worker.host:
                    del taken[pair]
            elif step < 0.4:
                made += [pair] if self.write(
                    catalogue.put_patch, database.patch(*pair),
                    database.at(now))[1] else []
        self.assertEqual(len(made), len(set(made)))
        self.assertEqual({(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)},
                         set(made))

    def test_a_conductor_that_was_slower_assigns_nothing(self):
        def late(session):
            host_id = host_rows.host_id(session, 'other')
            rows = [(database.content(1), database.content(2))]
            self.patch(session, 'execute', _Late(session.execute, rows))
            return patch_pairs._assign(session, host_id, OTHER,
                                       database.at(0))

        self.created()
        self.assertEqual([], self.write(late))

    def test_failures_wait_twice_as_long_each_time(self):
        due = 0
        for minutes in (1, 2, 4):
            self.assertEqual([(1, 2)], self.created(seconds=due))
            self.report((1, 2), verdict=patch_work.FAILED, reason='disk',
                        seconds=due)
            due += 60 * minutes
            self.assertEqual([], self.created(seconds=due - 1))

    def test_declined_pairs_are_remembered_with_their_reason(self):
        self.created()
        self.report((1, 2), verdict=patch_work.DECLINED, size=900,
                    reason='too large')
        self.assertEqual([], self.created())
        row = self.read(lambda session: session.get(
            models.PatchPair, (database.content(1), database.content(2))))
        self.assertEqual(('declined', 900, 'too large', 'patch 1'),
                         (row.state, row.size, row.reason, row.terms))

    def test_other_terms_have_pairs_considered_again(self):
        self.report((1, 2), verdict=patch_work.DECLINED, size=900)
        self.report((2, 1), verdict=patch_work.DECLINED, size=900)
        self.assertEqual([], self.compared())
        # Another host has another opinion, which is none of this one's.
        self.assertEqual([], self.compared(OTHER, terms='patch 9'))
        self.assertEqual({(1, 2), (2, 1)},
                         set(self.compared(terms='patch 2')))
        self.report((1, 2), verdict=patch_work.DECLINED, size=900,
                    worker=dataclasses.replace(HUB, terms='patch 2'))
        self.assertEqual([(2, 1)], self.compared(terms='patch 2'))


class TestChanges(PairsTest):

    def pairs(self):
        return {(int(base, 16), int(target, 16)) for base, target in
                self.read(lambda session: session.execute(sa.select(
                    models.PatchPair.base, models.PatchPair.target)).all())}

    def test_a_deleted_image_takes_its_pairs_along(self):
        self.add(1, 2, 3)
        self.compared()
        self.estimate(p12=1, p21=2)
        self.created()
        self.write(catalogue.put_image, database.image(
            1, data_size=1000, status=objects.DELETED), database.at(0))
        self.assertEqual({(2, 3), (3, 2)}, self.pairs())
        self.report((1, 2), verdict=patch_work.FAILED, reason='gone')
        self.assertEqual({(2, 3), (3, 2)}, self.pairs())

    def test_a_target_that_lost_its_base_gets_others(self):
        self.add(1, 2)
        self.compared()
        self.estimate(p12=1)
        self.write(catalogue.remove_image, 't1')
        self.assertTrue(self.work(creations=0).pending)
        self.assertFalse(self.work(creations=0).pending)

    def test_an_image_that_is_reactivated_keeps_its_patches(self):
        self.add(1, 2)
        self.compared()
        self.make(1, 2)
        for status in (objects.DEACTIVATED, objects.ACTIVE):
            self.write(catalogue.put_image, database.image(
                1, data_size=1000, status=status), database.at(0))
        again = objects.ImageSketch(content_id=database.content(1),
                                    data_size=1000, signature='0a' * 432)
        self.write(sketches.put_sketches, [again], database.at(0))
        self.assertEqual([(2, 1)], self.compared())

    def test_a_family_that_is_learnt_later_is_looked_at(self):
        for number in (1, 2):
            self.write(catalogue.put_image, database.image(
                number, data_size=1000), database.at(0))
        self.write(held_rows.put_holdings, 'hub',
                   [database.holding(1), database.holding(2)],
                   database.at(0))
        self.write(sketches.put_sketches, [
            objects.ImageSketch(content_id=database.content(number),
                                signature='') for number in (1, 2)
        ], database.at(0))
        self.assertEqual([], self.compared())
        self.write(catalogue.put_image, database.image(
            2, data_size=1000, family='t1'), database.at(0))
        self.assertEqual({(1, 2), (2, 1)}, set(self.compared()))

    def test_bases_of_a_target_are_bounded(self):
        self.add(*range(1, 100))
        while found := self.work(creations=0).compare:
            self.report(*numbers(found), size=10)
        counts = self.read(lambda session: session.execute(sa.select(
            models.PatchPair.target, sa.func.count()).group_by(
            models.PatchPair.target)).all())
        self.assertEqual(99, len(counts))
        self.assertGreaterEqual(patch_pairs.MOST_BASES,
                                max(count for _target, count in counts))


class _Late:
    """Answers the first query as it was before another conductor's change."""

    def __init__(self, execute, rows):
        self._execute = execute
        self._rows = rows

    def __call__(self, statement):
        if self._rows is None:
            return self._execute(statement)
        rows, self._rows = self._rows, None
        return _Rows(rows)


class _Rows(list):

    def all(self):
        return self
