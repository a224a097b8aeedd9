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
"""The search for similar images, with signatures of known similarity."""

import random
from unittest import mock

import hypothesis
from hypothesis import strategies
import sqlalchemy as sa

from diffcache_openstack.blocks import similarity
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack.db.patches import sketches
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from tests.unit.db import database

VALUES = 144


def signature(values):
    """A signature of numbers."""
    return ''.join(f'{value:06x}' for value in values)


def chosen(chance):
    """Values of an image that resembles none."""
    return [chance.randrange(1 << 24) for _ in range(VALUES)]


def variant(values, overlap, chance):
    """Values of an image of which another one shares a part."""
    return [value if chance.random() < overlap else chance.randrange(1 << 24)
            for value in values]


class SketchTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.add_host()

    def add_host(self):
        self.write(host_rows.put_host, database.host('hub'), database.at(0))

    def add(self, number, values, **about):
        """An image with a signature of some values."""
        self.write(catalogue.put_image,
                   database.image(number, created_at=database.at(number),
                                  **about), database.at(0))
        self.put(number, None if values is None else signature(values))

    def forget(self):
        """Empty the index: a property is tried several times in one test."""
        for table in (models.SketchKey, models.Sketch, models.Image):
            self.write(lambda session, table=table: session.execute(
                sa.delete(table)))

    def put(self, number, text):
        self.write(sketches.put_sketches, [objects.ImageSketch(
            content_id=database.content(number), data_size=100,
            signature=text)], database.at(0))

    def similar(self, number):
        """Numbers of the images that resemble one, with their scores."""
        def search(session):
            row = sketches.find(session, database.content(number))
            return sketches.similar(session, row)

        return {int(content, 16): score
                for content, score in self.read(search).items()}

    def fill(self, images, chance):
        """Images that resemble none, without the detour over a catalogue."""
        def insert(session):
            session.execute(sa.insert(models.Sketch), [
                {'id': 10_000 + n, 'content_id': database.content(10_000 + n),
                 'state': sketches.KNOWN, 'data_size': 1, 'requests': 0}
                for n in range(images)])
            session.execute(sa.insert(models.SketchKey), [
                {'tree': tree, 'label': label, 'sketch_id': 10_000 + n}
                for n in range(images) for tree, label in enumerate(
                    similarity.keys(signature(chosen(chance))))])

        self.write(insert)


class TestSearch(SketchTest):

    @hypothesis.settings(max_examples=8)
    @hypothesis.given(strategies.integers(0, 2 ** 32),
                      strategies.sampled_from([0.3, 0.5, 0.8, 0.98]))
    def test_a_similar_image_is_found_among_many(self, seed, overlap):
        """Of 24 trees one or more agree in their first value."""
        self.forget()
        chance = random.Random(seed)
        self.fill(300, chance)
        values = chosen(chance)
        self.add(1, values)
        self.add(2, variant(values, overlap, chance))
        self.assertIn(2, self.similar(1))
        self.assertIn(1, self.similar(2))

    @hypothesis.settings(max_examples=5)
    @hypothesis.given(strategies.integers(0, 2 ** 32))
    def test_the_nearest_of_very_many_similar_ones_is_found(self, seed):
        """Where all images have a system in common, too."""
        self.forget()
        chance = random.Random(seed)
        system = chosen(chance)
        for number in range(10, 80):
            self.add(number, variant(system, 0.7, chance))
        newest = variant(system, 0.7, chance)
        self.add(1, newest)
        self.add(2, variant(newest, 0.95, chance))
        scores = self.similar(2)
        self.assertEqual(1, max(scores, key=scores.get))
        self.assertGreaterEqual(sketches.MOST_SIMILAR, len(scores))

    def test_an_image_that_resembles_none_has_no_pairs(self):
        chance = random.Random(1)
        self.fill(2000, chance)
        self.add(1, chosen(chance))
        self.assertEqual({}, self.similar(1))

    def test_a_search_is_one_statement_that_reads_few_rows(self):
        chance = random.Random(2)
        values = chosen(chance)
        self.add(1, values)
        for number in range(2, 60):
            self.add(number, values)
        read = []

        def count(wanted, found):
            read.extend(found)
            return likeness(wanted, read)

        likeness = similarity.likeness
        with mock.patch.object(similarity, 'likeness', count):
            found = self.similar(1)
        self.assertGreater(len(found), sketches.MOST_SIMILAR / 2)
        self.assertGreaterEqual(similarity.TREES * 2 * 8, len(read))

    def test_equal_images_find_the_oldest_and_the_newest(self):
        values = chosen(random.Random(3))
        for number in range(1, 41):
            self.add(number, values)
        found = set(self.similar(20))
        self.assertLessEqual({1, 40}, found)

    def test_images_without_content_are_like_none(self):
        for number in (1, 2):
            self.add(number, [])
        self.assertEqual({}, self.similar(1))


class TestRelations(SketchTest):

    def test_origin_and_family_are_candidates_without_likeness(self):
        chance = random.Random(4)
        self.add(1, chosen(chance))
        self.add(2, chosen(chance), family='t1')
        self.add(3, chosen(chance), family='t1')
        self.add(4, chosen(chance))
        self.assertEqual({1, 3}, set(self.similar(2)))
        self.assertEqual({2, 3}, set(self.similar(1)))
        self.assertEqual({}, self.similar(4))

    def test_large_families_are_bounded(self):
        self.add(1, [])
        for number in range(2, 30):
            self.add(number, [], family='t1')
        found = self.similar(20)
        self.assertEqual(8, len(found))
        self.assertLessEqual({1, 29}, set(found))

    def test_withdrawn_relatives_are_none(self):
        self.add(1, [])
        self.add(2, [], family='t1')
        self.write(catalogue.put_image, database.image(
            1, status=objects.DEACTIVATED), database.at(0))
        self.assertEqual({}, self.similar(2))


class TestStates(SketchTest):

    def unsketched(self, seconds=0):
        def search(session):
            return sketches.unsketched(
                session, host_rows.host_id(session, 'hub'),
                database.at(seconds),
                10)

        return [int(content, 16) for content in self.read(search)]

    def hold(self, *numbers):
        self.write(held_rows.put_holdings, 'hub',
                   [database.holding(number) for number in numbers],
                   database.at(0))

    def test_only_the_holder_of_an_image_is_asked_for_its_sketch(self):
        for number in (1, 2):
            self.write(catalogue.put_image, database.image(number),
                       database.at(0))
        self.hold(2)
        self.assertEqual([2], self.unsketched())
        self.put(2, '')
        self.assertEqual([], self.unsketched())

    def test_what_could_not_be_read_is_tried_an_hour_later(self):
        self.hold(1)
        self.add(1, None)
        self.assertEqual([], self.unsketched(3599))
        self.assertEqual([1], self.unsketched(3600))

    def test_a_withdrawn_image_leaves_the_index(self):
        values = chosen(random.Random(5))
        self.add(1, values)
        self.add(2, values)
        self.write(catalogue.put_image, database.image(
            1, status=objects.DEACTIVATED), database.at(0))
        self.assertEqual({}, self.similar(2))
        self.write(catalogue.put_image, database.image(1),
                   database.at(0))
        self.hold(1)
        self.assertEqual([1], self.unsketched())

    def test_content_stays_as_long_as_an_active_image_has_it(self):
        self.add(1, [])
        self.write(catalogue.put_image, database.image(
            2, content_id=database.content(1)), database.at(0))
        self.write(catalogue.remove_image, 't1')
        self.assertIsNotNone(self.read(sketches.find, database.content(1)))
        self.write(catalogue.remove_image, 't2')
        self.assertIsNone(self.read(sketches.find, database.content(1)))

    def test_unknown_contents_are_ignored(self):
        self.put(9, signature(chosen(random.Random(6))))
        self.assertEqual(0, self.read(lambda session: session.scalar(
            sa.select(sa.func.count()).select_from(models.SketchKey))))
