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
import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import fingerprints
from tests.unit.db import database


class CatalogueTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        for number in (1, 2, 3):
            self.put(database.image(number))

    def put(self, thing):
        function = (catalogue.put_patch if hasattr(thing, 'base')
                    else catalogue.put_image)
        return self.write(function, thing, database.at(0))

    def patches(self):
        return self.read(catalogue.list_patches)


class TestImages(CatalogueTest):

    def test_known_as_registered(self):
        self.assertEqual(database.image(1),
                         self.read(catalogue.get_image, 't1'))

    def test_again_changes_nothing(self):
        known, changed = self.put(database.image(1))
        self.assertEqual((database.image(1), set()), (known, changed))

    def test_new_name_is_taken(self):
        _, changed = self.put(database.image(1, name='New'))
        self.assertEqual({database.SITE}, changed)
        self.assertEqual('New',
                         self.read(catalogue.get_image, 't1').name)

    def test_compressed_size_concerns_maps(self):
        known, changed = self.put(database.image(1, compressed_size=20))
        self.assertEqual((20, {database.SITE}),
                         (known.compressed_size, changed))
        self.assertEqual(20, self.read(catalogue.get_image, 't1')
                         .compressed_size)

    def test_agents_that_do_not_say_leave_the_compressed_size(self):
        self.put(database.image(1, compressed_size=20))
        known, changed = self.put(database.image(1))
        self.assertEqual((20, set()), (known.compressed_size, changed))
        known, changed = self.put(database.image(1, name='New'))
        self.assertEqual((20, 'New'), (known.compressed_size, known.name))

    def test_a_form_that_is_gone_counts_no_more(self):
        self.put(database.image(1, compressed_size=20))
        known, _changed = self.put(database.image(1, compressed_size=0))
        self.assertIsNone(known.compressed_size)

    def test_a_compressed_size_is_at_most_that_of_the_data(self):
        for size in (51, 2 ** 62):
            known, _changed = self.put(
                database.image(1, compressed_size=size))
            self.assertEqual(50, known.compressed_size)
        self.assertRaises(ValueError, database.image, 1,
                          compressed_size=-1)

    def test_repositories_that_take_turns_change_no_map(self):
        def keep(_session, known, given):
            return known.record != given.record

        self.put(database.image(1, record='first', compressed_size=20))
        for record, size in (('second', 1), ('first', 20), ('second', 0)):
            known, changed = self.write(
                catalogue.put_image, database.image(
                    1, record=record, compressed_size=size),
                database.at(0), keep)
            self.assertEqual(
                ('first', 20, set()),
                (known.record, known.compressed_size, changed))

    def test_new_members_concern_no_map(self):
        for members in (['p2', 'p1', 'p2'], ['p2', 'p3'], []):
            known, changed = self.put(database.image(1, members=members))
            self.assertEqual(sorted(set(members)), known.members)
            self.assertEqual(set(), changed)
            self.assertEqual(
                sorted(set(members)),
                self.read(catalogue.get_image, 't1').members)

    def test_members_go_with_their_image(self):
        self.put(database.image(1, members=['p1']))
        self.write(catalogue.remove_image, 't1')
        self.put(database.image(1))
        self.assertEqual([], self.read(catalogue.get_image, 't1').members)

    def test_other_content_is_a_conflict(self):
        error = self.assertRaises(
            exceptions.Conflict, self.put,
            database.image(1, content_id=database.content(9)))
        self.assertIn('t1', str(error))
        self.assertEqual(database.image(1),
                         self.read(catalogue.get_image, 't1'))

    def test_same_content_under_two_ids(self):
        self.put(database.image(1, id='copy'))
        self.assertEqual(4, len(self.read(catalogue.list_images)))

    def test_what_is_known_of_the_file(self):
        values = {'disk_format': 'qcow2', 'file_size': 30,
                  'os_hash_algo': 'sha512', 'os_hash_value': 'ab' * 64,
                  'owner': 'project', 'visibility': 'private',
                  'form_id': database.content(77), 'form_size': 3,
                  'family': 't2'}
        _, changed = self.put(database.image(1, **values))
        self.assertEqual({database.SITE}, changed)
        known = self.read(catalogue.get_image, 't1')
        for name, value in values.items():
            self.assertEqual(value, getattr(known, name))

    def test_withdrawn_is_known_and_takes_part_in_nothing(self):
        self.write(held_rows.put_holdings, 'h1', [
            database.holding(n) for n in (1, 2, 3)], database.at(0))
        self.put(database.patch(1, 2))
        self.put(database.patch(2, 3))
        self.put(database.image(1, status='deactivated'))
        self.assertEqual(3, len(self.read(catalogue.known_images)))
        self.assertEqual(['t2', 't3'], [
            t.id for t in self.read(catalogue.list_images)])
        self.assertEqual([database.patch(2, 3).id],
                         [p.id for p in self.patches()])

    def test_reactivated_has_its_patches_again(self):
        self.put(database.patch(1, 2))
        self.put(database.image(1, status='deactivated'))
        self.put(database.image(1))
        self.assertEqual(1, len(self.patches()))

    def test_deleted_stays_deleted(self):
        self.put(database.patch(1, 2))
        self.put(database.image(1, status='deleted'))
        known, changed = self.put(database.image(1))
        self.assertEqual(('deleted', set()), (known.status, changed))
        self.assertEqual([], self.patches())

    def test_content_of_another_image_survives_a_deletion(self):
        self.put(database.image(1, id='copy'))
        self.put(database.patch(1, 2))
        self.put(database.image(1, status='deleted'))
        self.assertEqual(1, len(self.patches()))

    def test_deleted_is_forgotten_once_nobody_holds_it(self):
        self.put(database.image(1, status='deleted'))
        self.write(held_rows.put_holdings, 'h1', [database.holding(1)],
                   database.at(0))
        for held, forgotten in (([database.holding(1)], 0), ([], 1)):
            self.write(held_rows.put_holdings, 'h1', held, database.at(1))
            self.assertEqual(forgotten, self.write(
                catalogue.forget_deleted, database.at(5)))

    def test_text_that_does_not_fit(self):
        for values in ({'id': 'x' * 129}, {'name': 'x' * 256}):
            error = self.assertRaises(
                exceptions.InvalidInput, database.image, 5, **values)
            self.assertIn(next(iter(values)), str(error))
        self.put(database.image(5, id='x' * 128, name='x' * 255))

    def test_unknown(self):
        self.assertRaises(exceptions.NotFound, self.read,
                          catalogue.get_image, 'T1')

    def test_removal_takes_patches_that_lost_an_end(self):
        for pair in ((1, 2), (2, 1), (2, 3)):
            self.put(database.patch(*pair))
        self.put(database.image(2, id='copy'))
        self.write(catalogue.remove_image, 't1')
        self.assertEqual([database.patch(2, 3)], self.patches())
        self.write(catalogue.remove_image, 't2')
        self.assertEqual([database.patch(2, 3)], self.patches())
        self.write(catalogue.remove_image, 'copy')
        self.assertEqual([], self.patches())

    def test_removal_of_nothing(self):
        self.assertRaises(exceptions.NotFound, self.write,
                          catalogue.remove_image, 't9')

    def test_what_is_stored_need_not_be_registered(self):
        """Each registration is known, as it was and in no other form."""
        forms = [{}, {'compressed_size': 40}, {'members': ['b', 'a']},
                 {'compressed_size': 70}, {'name': 'new'},
                 {'status': objects.DEACTIVATED}]
        for values in forms:
            image = database.image(1, **{'compressed_size': 0,
                                         **values})
            given = {'t1': fingerprints.of_image(image)}
            if values:
                self.assertEqual(['t1'], self.unregistered(given), values)
            self.write(catalogue.put_image, image, database.at(1))
            self.assertEqual([], self.unregistered(given), values)

    def test_deleted_images_need_not_be_registered(self):
        self.write(catalogue.put_image, database.image(
            1, status=objects.DELETED), database.at(1))
        given = fingerprints.of_image(database.image(1))
        self.assertEqual(['t2'], self.unregistered({'t1': given,
                                                    't2': given}))

    def unregistered(self, given):
        return self.read(catalogue.find_unregistered_images, given,
                         lambda session, known: False)


class TestPatches(CatalogueTest):

    def test_some_patches_are_found_without_looking_through_all(self):
        """The steps of SQLite do not grow with the catalogue."""
        known = [self.put(database.patch(1, 2))[0].id,
                 self.put(database.patch(2, 1))[0].id]
        some = [*known, *(f'{number:064d}' for number in range(100))]
        few = self.steps(catalogue.patches_of, some)
        for number in range(4, 100):
            self.put(database.image(number))
            self.put(database.patch(1, number))
            self.put(database.patch(number, 1))
        self.assertEqual(known, [patch.id for patch in self.read(
            catalogue.patches_of, some)])
        self.assertLess(self.steps(catalogue.patches_of, some), 2 * few)

    def test_all_patches_are_found_without_trying_all_pairs(self):
        """The steps of SQLite grow like the patches, not like the pairs."""
        taken = []
        for numbers in (range(4, 24), range(24, 84)):
            for number in numbers:
                self.put(database.image(number))
                self.put(database.patch(number - 1, number))
            taken.append(self.steps(catalogue.list_patches))
        self.assertEqual(80, len(self.read(catalogue.list_patches)))
        self.assertLess(taken[1], 8 * taken[0])

    def steps(self, function, *arguments):
        steps = []

        def count(connection, *_):
            connection.connection.driver_connection.set_progress_handler(
                lambda: steps.append(1), 10)

        engine = self.database.engine
        sa.event.listen(engine, 'before_cursor_execute', count)
        self.read(function, *arguments)
        sa.event.remove(engine, 'before_cursor_execute', count)
        return len(steps)

    def test_patch_of_a_pair_that_has_one_need_not_be_registered(self):
        given = [database.patch(1, 2), database.patch(2, 1),
                 database.patch(1, 2, id=database.content(77))]
        self.assertEqual([patch.id for patch in given],
                         self.unregistered(given))
        self.put(given[0])
        self.assertEqual([given[1].id], self.unregistered(given))

    def test_patch_of_a_pair_whose_patch_is_lost_is_registered(self):
        self.put(database.patch(1, 2))
        self.write(host_rows.put_host, database.host('hub', role='repository'),
                   database.at(0))
        self.write(held_rows.put_holdings, 'hub', [database.holding(
            0, kind=objects.PATCHES, id=database.patch(1, 2).id)],
            database.at(0))
        mine = database.patch(1, 2, id=database.content(77))
        self.assertEqual([], self.unregistered([mine]))
        self.write(host_rows.expire_hosts, database.at(1))
        self.assertEqual([mine.id], self.unregistered([mine]))

    def unregistered(self, given):
        return self.read(catalogue.find_unregistered_patches, given)

    def test_first_of_a_pair_stays(self):
        first, changed = self.put(database.patch(1, 2))
        self.assertEqual({database.SITE}, changed)
        second, changed = self.put(
            database.patch(1, 2, id=database.content(77)))
        self.assertEqual((first, set()), (second, changed))
        self.assertEqual([first], self.patches())

    def test_ends_have_to_be_known(self):
        for pair in ((1, 9), (9, 1)):
            error = self.assertRaises(exceptions.NotFound, self.put,
                                      database.patch(*pair))
            self.assertIn(database.content(9), str(error))

    def test_measured_times_settle(self):
        self.put(database.patch(1, 2))
        patch_id = database.patch(1, 2).id
        self.write(catalogue.time_patch, patch_id, 8.0)
        self.assertEqual(8.0, self.patches()[0].apply_seconds)
        for _ in range(20):
            self.write(catalogue.time_patch, patch_id, 4.0)
        self.assertAlmostEqual(4.0, self.patches()[0].apply_seconds, 1)

    def test_time_of_a_removed_patch_is_of_no_use(self):
        self.write(catalogue.time_patch, database.content(5), 1.0)
        self.assertEqual([], self.patches())
