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
"""Profiles that are carried to images that no server has read."""

import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import carried_profiles
from diffcache_openstack.db.lazy import profiles as table
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.views import monitoring_views
from diffcache_openstack.db.views import profile_views
from diffcache_openstack import objects
from diffcache_openstack.prefetch import profiles
from tests.unit.db import database

OLD = table.Subject('t1', table.SHARED, 'm1.small')
NEW = OLD._replace(image_id='t2')
ROWS = [[0, 6, 60], [7, 3, 90]]
CARRIED = [[1, 6, 60], [9, 3, 90]]
EVERYBODY = listing.Viewer(None, True)
PAGE = listing.Page(100)


class CarriedTest(database.DatabaseTest):
    """A public image that was read, and the next build of it."""

    share = True

    def setUp(self):
        super().setUp()
        self.add_images()

    def add_images(self):
        """Register the images, at a repository."""
        self.write(host_rows.put_host, database.host(
            'hub', role=objects.REPOSITORY), database.at(0))
        self.add(1)
        self.add(2)
        self.pair(1, 2)

    def add(self, number, **values):
        """Register an image, at the repository."""
        self.write(catalogue.put_image, database.image(number, **{
            'size': 100 * profiles.CHUNK, 'visibility': 'public', **values}),
            database.at(0))
        held = self.read(database.holding_host, 'hub').holdings
        self.write(held_rows.put_holdings, 'hub', [
            *held, database.holding(number)], database.at(0))

    def pair(self, base, target, state='wanted'):
        """Have a patch wanted between two images."""
        self.write(lambda session: session.add(models.PatchPair(
            base=database.content(base), target=database.content(target),
            state=state)))

    def report(self, subject, rows, host='h1', number=1):
        self.write(table.report, subject, host, (1, number), rows,
                   database.at(1))

    def work(self, after=''):
        return self.read(carried_profiles.work, 'hub', after, self.share)

    def wanted(self):
        """Subjects of what is to be carried, by image."""
        found, after = {}, ''
        while work := self.work(after):
            after = work.image_id
            found[after] = sorted(
                (profile.image_id, profile.project_id, profile.label)
                for profile in map(self.profile, (
                    source.profile_id for source in work.sources)))
        return found

    def profile(self, profile_id):
        return self.read(lambda session: session.get(models.Profile,
                                                     profile_id))

    def store(self, rows=CARRIED, source=OLD, image='t2', profile=None):
        if profile is None:
            profile = self.read(table.find, source).id
        return self.write(
            carried_profiles.store, carried_profiles.CarriedProfile(
                'hub', image, profile, rows), self.share, database.at(2))

    def advice(self, subject=NEW):
        return self.read(lambda session: carried_profiles.supplemented(
            session, subject, table.find(session, subject)))

    def rows(self, subject=NEW):
        found = self.advice(subject)
        return found and profiles.listed(found.rows)

    def listed(self, viewer=EVERYBODY, image='t2'):
        return self.read(profile_views.list_profiles, viewer,
                         {'image_id': image}, PAGE).entries


class TestCarried(CarriedTest):

    def test_from_the_read_image_to_the_next_build(self):
        self.assertIsNone(self.work())
        self.report(OLD, ROWS)
        work = self.work()
        [source] = work.sources
        self.assertEqual(
            ('t2', database.content(2), database.content(1), ROWS),
            (work.image_id, work.content_id, source.content_id,
             profiles.listed(source.rows)))
        self.assertIsNone(self.work('t2'))
        self.assertIsNone(self.rows())
        self.assertTrue(self.store())
        self.assertEqual(CARRIED, self.rows())
        # A label that nothing is known of begins with it, too.
        self.assertEqual(CARRIED, self.rows(NEW._replace(label='other')))
        self.assertIsNone(self.work())
        # An answer that was lost.
        generation = self.advice().generation
        self.assertFalse(self.store())
        self.assertEqual(generation, self.advice().generation)

    def test_it_is_shown_until_the_image_was_read(self):
        self.report(OLD, ROWS)
        self.store()
        [shown] = self.listed()
        self.assertEqual(('t1', 0, 2), tuple(
            shown[name] for name in ('carried_from', 'instances', 'chunks')))
        self.assertEqual([[1, 6, 10.0], [9, 3, 30.0]], self.read(
            profile_views.get_rows, shown['id']))
        self.assertEqual({'read': 1, 'carried': 1},
                         self.read(monitoring_views.profile_counts))
        self.report(NEW, [[4, 1, 5]])
        [shown] = self.listed()
        self.assertEqual(('t1', 1, 1), tuple(
            shown[name] for name in ('carried_from', 'instances', 'chunks')))
        self.assertEqual([[4, 1, 5.0]], self.read(
            profile_views.get_rows, shown['id']))
        self.report(NEW, [[4, 4, 5]], number=2)
        self.assertIsNone(self.listed()[0]['carried_from'])
        self.assertEqual([None], [each['carried_from']
                                  for each in self.listed(image='t1')])

    def test_a_source_that_became_private_is_not_named_to_others(self):
        self.report(OLD, ROWS)
        self.store()
        self.add(1, visibility='private', owner='p1')
        for viewer, expected in (
                (EVERYBODY, 't1'), (listing.Viewer('p1', False), 't1'),
                (listing.Viewer('p2', False), None),
                (listing.Viewer(None, False), None)):
            [shown] = self.listed(viewer)
            self.assertEqual(expected, shown['carried_from'], viewer)

    def test_real_counts_replace_it(self):
        self.report(OLD, ROWS)
        self.store()
        before = self.advice()
        self.report(NEW, [[1, 1, 30], [4, 1, 5]])
        # As much weight as what was read: one instance.
        self.assertEqual([[1, 2, 40], [4, 1, 5], [9, 1, 30]], self.rows())
        self.assertGreater(self.advice().generation, before.generation)
        self.report(NEW, [[1, 4, 30], [4, 4, 5]], number=2)
        self.assertEqual([[1, 4, 30], [4, 4, 5]], self.rows())
        self.assertIsNone(self.profile(self.advice().id).carried_rows)
        self.assertIsNone(self.work())

    def test_what_other_labels_read_counts_more(self):
        self.report(OLD, ROWS)
        self.store()
        self.report(NEW._replace(label='m1.large'), [[4, 5, 5]])
        self.assertEqual([[4, 5, 5]], self.rows())

    def test_an_import_replaces_it_and_is_not_replaced(self):
        self.report(OLD, ROWS)
        self.store()
        self.write(table.import_rows, str(uuid.uuid4()), NEW, [[3, 1, 1]],
                   database.at(3))
        self.assertEqual([[3, 1, 1]], self.rows())
        self.assertIsNone(self.work())
        self.assertFalse(self.store())

    def test_the_image_that_was_read_most_counts(self):
        self.add(3)
        self.pair(3, 2, 'made')
        self.report(OLD, ROWS)
        self.report(OLD._replace(image_id='t3'), [[5, 9, 90]])
        self.assertEqual([('t3', '', 'm1.small')], self.wanted()['t2'])

    def test_it_is_carried_again_from_twice_as_many_instances(self):
        self.report(OLD, [[0, 1, 10]])
        self.store([[1, 1, 10]])
        for count, due in ((1, False), (2, True), (9, True)):
            self.report(OLD, [[0, count, 10]], number=1 + count)
            self.assertEqual(due, self.work() is not None, count)
        self.assertTrue(self.store([[1, 9, 10]]))
        self.assertEqual([[1, 9, 10]], self.rows())

    def test_images_that_are_not_similar(self):
        self.report(OLD, ROWS)
        self.add(3)
        self.add(4)
        # Not estimated yet.
        self.pair(1, 3, 'found')
        self.pair(4, 1, 'wanted')
        self.assertEqual(['t2'], list(self.wanted()))

    def test_images_that_are_alike_count_until_a_near_one_was_read(self):
        self.add(3)
        self.pair(3, 2, 'declined')
        far = OLD._replace(image_id='t3')
        self.report(far, [[5, 9, 90]])
        self.assertEqual([('t3', '', 'm1.small')], self.wanted()['t2'])
        self.assertTrue(self.store([[6, 9, 90]], far))
        # Once: it is not carried again from more instances.
        self.report(far, [[5, 16, 90]], host='h2')
        self.assertIsNone(self.work())
        self.report(OLD, [[0, 1, 10]])
        self.assertEqual([('t1', '', 'm1.small')], self.wanted()['t2'])
        self.assertTrue(self.store([[1, 1, 10]]))
        self.assertEqual([[1, 1, 10]], self.rows())
        self.assertIsNone(self.work())

    def test_an_image_of_the_same_content(self):
        self.report(OLD, ROWS)
        self.add(5, content_id=database.content(1))
        self.assertEqual({'t2', 't5'}, set(self.wanted()))

    def test_carried_profiles_are_not_carried_on(self):
        self.report(OLD, ROWS)
        self.store()
        self.add(3)
        self.pair(2, 3)
        self.assertIsNone(self.work())

    def test_what_the_repository_does_not_hold(self):
        self.report(OLD, ROWS)
        self.write(held_rows.put_holdings, 'hub', [database.holding(2)],
                   database.at(2))
        self.assertIsNone(self.work())
        self.assertFalse(self.store())
        self.assertRaises(exceptions.NotFound, self.read,
                          carried_profiles.work, 'nobody', '', True)

    def test_images_deleted_meanwhile(self):
        self.report(OLD, ROWS)
        profile = self.read(table.find, OLD).id
        self.write(catalogue.put_image, database.image(
            2, status='deleted', visibility='public'), database.at(2))
        self.assertIsNone(self.work())
        self.assertFalse(self.store(profile=profile))
        self.write(catalogue.remove_image, 't2')
        self.assertFalse(self.store(profile=profile))
        self.assertEqual([], self.listed())

    def test_it_goes_with_its_image_and_outlives_the_other(self):
        self.report(OLD, ROWS)
        self.store()
        self.write(catalogue.remove_image, 't1')
        self.assertEqual(CARRIED, self.rows())
        self.write(catalogue.remove_image, 't2')
        self.assertEqual([], self.listed())

    def test_the_read_profile_was_deleted_meanwhile(self):
        self.report(OLD, ROWS)
        profile = self.read(table.find, OLD).id
        self.write(table.delete, profile)
        self.assertFalse(self.store(profile=profile))

    def test_forged_rows_change_nothing(self):
        self.report(OLD, ROWS)
        for rows in ([[100, 1, 1]], [[0, 1, 1], [0, 1, 1]], [[0, 7, 1]],
                     [[0, 1, 10 ** 15]]):
            self.assertRaises(exceptions.InvalidInput, self.store, rows)
        self.assertFalse(self.store([]))
        self.assertEqual([], self.listed())

    def test_it_counts_for_as_much_as_an_import(self):
        for host in ('h1', 'h2', 'h3'):
            self.report(OLD, [[0, 100, 100]], host=host)
        self.assertEqual(48, self.profile(self.read(table.find, OLD).id
                                          ).instances)
        self.store([[1, 48, 480]])
        self.assertEqual([[1, profiles.HOST_SHARE, 160]], self.rows())

    def test_labels_that_were_carried_leave_room_for_reports(self):
        for number in range(table.MOST_LABELS):
            subject = OLD._replace(label=f'l{number}')
            self.report(subject, ROWS)
            self.assertTrue(self.store(source=subject))
        self.assertEqual(table.MOST_LABELS, len(self.listed()))
        self.report(NEW, [[4, 5, 5]])
        self.assertEqual([[4, 5, 5]], self.rows())


class TestProjects(CarriedTest):

    def test_from_public_to_public_or_within_one_project(self):
        ours = {'owner': 'p1', 'visibility': 'private'}
        self.add(3, **ours)
        self.add(4, **ours)
        self.add(5, owner='p2', visibility='private')
        self.add(6, owner='p1', visibility='shared')
        for base in (1, 3):
            for target in (1, 2, 3, 4, 5, 6):
                if base != target and (base, target) != (1, 2):
                    self.pair(base, target)
        self.report(OLD, ROWS)
        self.report(table.Subject('t3', 'p1', 'a'), ROWS)
        self.assertEqual({'t2': [('t1', '', 'm1.small')],
                          't4': [('t3', 'p1', 'a')],
                          't6': [('t3', 'p1', 'a')]}, self.wanted())
        private = self.read(table.find, table.Subject('t3', 'p1', 'a')).id
        for image in ('t2', 't5'):
            self.assertFalse(self.store(image=image, profile=private))
        self.assertTrue(self.store(image='t4', profile=private))
        self.assertEqual(CARRIED, self.rows(table.Subject('t4', 'p1', 'b')))
        self.assertIsNone(self.rows(table.Subject('t4', 'p2', 'b')))
        self.assertEqual([], self.listed(listing.Viewer('p2', False), 't4'))

    def test_an_image_that_is_not_public_any_more(self):
        self.report(OLD, ROWS)
        self.write(catalogue.put_image, database.image(
            1, size=100 * profiles.CHUNK, visibility='private', owner='p1'),
            database.at(2))
        self.assertIsNone(self.work())


class TestUnshared(CarriedTest):

    share = False

    def test_each_project_learns_by_itself(self):
        self.add(3, owner='p1', visibility='private')
        self.pair(1, 3)
        for project in ('p1', 'p2'):
            self.report(table.Subject('t1', project, 'a'), ROWS)
        self.report(OLD, ROWS)
        self.assertEqual({'t2': [('t1', 'p1', 'a'), ('t1', 'p2', 'a')],
                          't3': [('t1', 'p1', 'a')]}, self.wanted())
