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
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import sites
from tests.unit.db import database


class CatalogueTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.write(sites.put_host, database.host('h1'), database.at(0))
        for number in (1, 2, 3):
            self.put(database.template(number))

    def put(self, thing):
        function = (catalogue.put_patch if hasattr(thing, 'base')
                    else catalogue.put_template)
        return self.write(function, thing, database.at(0))

    def patches(self):
        return self.read(catalogue.list_patches)


class TestTemplates(CatalogueTest):

    def test_known_as_registered(self):
        self.assertEqual(database.template(1),
                         self.read(catalogue.get_template, 't1'))

    def test_again_changes_nothing(self):
        known, changed = self.put(database.template(1))
        self.assertEqual((database.template(1), set()), (known, changed))

    def test_new_name_is_taken(self):
        _, changed = self.put(database.template(1, name='New'))
        self.assertEqual({database.SITE}, changed)
        self.assertEqual('New',
                         self.read(catalogue.get_template, 't1').name)

    def test_other_content_is_a_conflict(self):
        error = self.assertRaises(
            exceptions.Conflict, self.put,
            database.template(1, content_id=database.content(9)))
        self.assertIn('t1', str(error))
        self.assertEqual(database.template(1),
                         self.read(catalogue.get_template, 't1'))

    def test_same_content_under_two_ids(self):
        self.put(database.template(1, id='copy'))
        self.assertEqual(4, len(self.read(catalogue.list_templates)))

    def test_text_that_does_not_fit(self):
        for values in ({'id': 'x' * 129}, {'name': 'x' * 256}):
            error = self.assertRaises(exceptions.InvalidInput, self.put,
                                      database.template(5, **values))
            self.assertIn(next(iter(values)), str(error))
        self.put(database.template(5, id='x' * 128, name='x' * 255))
        self.assertRaises(exceptions.InvalidInput, self.put,
                          database.template(1, name='x' * 256))

    def test_unknown(self):
        self.assertRaises(exceptions.NotFound, self.read,
                          catalogue.get_template, 'T1')

    def test_removal_takes_patches_that_lost_an_end(self):
        for pair in ((1, 2), (2, 1), (2, 3)):
            self.put(database.patch(*pair))
        self.put(database.template(2, id='copy'))
        self.write(catalogue.remove_template, 't1')
        self.assertEqual([database.patch(2, 3)], self.patches())
        self.write(catalogue.remove_template, 't2')
        self.assertEqual([database.patch(2, 3)], self.patches())
        self.write(catalogue.remove_template, 'copy')
        self.assertEqual([], self.patches())

    def test_removal_of_nothing(self):
        self.assertRaises(exceptions.NotFound, self.write,
                          catalogue.remove_template, 't9')


class TestPatches(CatalogueTest):

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


class TestMissingPairs(CatalogueTest):

    def missing(self, limit=100):
        return self.read(catalogue.missing_pairs, 'h1', limit)

    def hold(self, *numbers):
        self.write(sites.put_holdings, 'h1',
                   [database.holding(n) for n in numbers], database.at(0))

    def test_pairs_of_what_is_held_and_known(self):
        self.hold(1, 2, 9)
        one, two = database.content(1), database.content(2)
        self.assertEqual([(one, two), (two, one)], self.missing())
        self.put(database.patch(1, 2))
        self.assertEqual([(two, one)], self.missing())

    def test_limit(self):
        self.hold(1, 2, 3)
        self.assertEqual(6, len(self.missing()))
        self.assertEqual(4, len(self.missing(4)))

    def test_nothing_held(self):
        self.assertEqual([], self.missing())
