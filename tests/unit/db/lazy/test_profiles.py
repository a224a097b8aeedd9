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
"""Profiles by image, project and label."""

import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import profiles as table
from diffcache_openstack.db import models
from diffcache_openstack.prefetch import profiles
from tests.unit.db import database

SMALL = table.Subject('t1', table.SHARED, 'm1.small')


class TestProfiles(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        for number, visibility in ((1, 'public'), (2, 'private')):
            self.write(catalogue.put_image, database.image(
                number, size=100 * profiles.CHUNK, visibility=visibility),
                database.at(0), lambda *_: False)

    def report(self, subject, host, numbers, rows):
        self.write(table.report, subject, host, numbers, rows,
                   database.at(1))

    def rows(self, subject):
        def read(session):
            found = table.find(session, subject)
            if found is None:
                return None
            label = session.get(models.Profile, found.id).label
            return label, found.rows, found.generation

        return self.read(read)

    def test_a_profile_whose_chunks_are_not_read_ages(self):
        self.write(catalogue.put_image, database.image(
            1, size=20_000 * profiles.CHUNK), database.at(0),
            lambda *_: False)
        junk = [[chunk, 16, 0] for chunk in range(1000, 9000)]
        self.report(SMALL, 'bad', (1, 1), junk)
        read = [[chunk, 1, 10 * chunk] for chunk in range(100)]
        for number in range(1, 6):
            self.assertIn(1000, self.rows(SMALL)[1])
            # Repeated reports of a host change nothing for an hour.
            for step in (1, 2):
                self.report(SMALL, f'h{number}', (1, step), read)
        found = self.rows(SMALL)[1]
        self.assertNotIn(1000, found)
        self.assertEqual(100, len(found))

    def test_reports_of_hosts_are_summed_and_replaced(self):
        self.report(SMALL, 'h1', (1, 1), [[0, 1, 10]])
        self.report(SMALL, 'h2', (5, 1), [[0, 1, 30], [7, 1, 50]])
        self.report(SMALL, 'h1', (1, 2), [[0, 2, 24], [3, 1, 4]])
        self.assertEqual(
            ('m1.small', {0: (3, 54), 3: (1, 4), 7: (1, 50)}, 3),
            self.rows(SMALL))
        # Repeated, or overtaken.
        self.report(SMALL, 'h1', (1, 1), [[0, 1, 10]])
        self.report(SMALL, 'h1', (1, 2), [[0, 2, 24], [3, 1, 4]])
        self.assertEqual(3, self.rows(SMALL)[2])
        # Served anew: what was read before stays.
        self.report(SMALL, 'h1', (2, 1), [[0, 1, 6]])
        self.assertEqual((4, 60), self.rows(SMALL)[1][0])

    def test_a_label_without_a_profile_starts_from_the_most_read_one(self):
        self.assertIsNone(self.rows(SMALL))
        for label, count in (('a', 1), ('b', 3), ('c', 2)):
            self.report(SMALL._replace(label=label), 'h1', (1, 1),
                        [[0, count, 9], [1, count, 9]])
        self.assertEqual('b', self.rows(SMALL)[0])
        # Its own begins with one chunk: what others read is still told.
        self.report(SMALL, 'h1', (1, 1), [[0, 1, 9]])
        self.assertEqual(('m1.small', {0: (2, 12), 1: (1, 3)}, 2),
                         self.rows(SMALL))
        self.report(SMALL, 'h1', (1, 2), [[0, 4, 9]])
        self.assertEqual(('m1.small', {0: (4, 9)}, 2), self.rows(SMALL))

    def test_projects_see_their_own(self):
        ours = table.Subject('t2', 'p1', '')
        self.report(ours, 'h1', (1, 1), [[0, 1, 9]])
        self.assertIsNone(self.rows(ours._replace(project_id='p2')))

    def test_whose_reads_they_are(self):
        def scope(image, projects, share):
            return self.read(table.scope, image, projects, share)

        self.assertEqual(table.SHARED, scope('t1', ['p1', 'p2'], True))
        self.assertEqual('p1', scope('t1', ['p1'], False))
        self.assertEqual('p1', scope('t2', ['p1'], True))
        self.assertIsNone(scope('t2', ['p1', 'p2'], True))
        self.assertRaises(exceptions.NotFound, scope, 't9', ['p1'], True)

    def test_too_many_labels_count_for_none(self):
        for number in range(table.MOST_LABELS + 3):
            self.report(SMALL._replace(label=f'l{number}'), 'h1', (1, 1),
                        [[0, 1, 9]])
        with self.database.engine.connect() as connection:
            labels = connection.execute(
                models.Profile.__table__.select()).all()
        self.assertEqual(table.MOST_LABELS + 1, len(labels))
        # Another label: with the labels' common profile.
        self.assertEqual('', self.rows(SMALL)[0])

    def test_an_import_counts_for_one_host_and_replaces_the_last(self):
        self.report(SMALL, 'h1', (1, 1), [[0, 1, 10]])
        for count in (1000, 500):
            self.write(self.imported, str(uuid.uuid4()), [[5, count, count]])
        self.assertEqual({0: (1, 10), 5: (16, 16)}, self.rows(SMALL)[1])

    @staticmethod
    def imported(session, profile_id, rows):
        table.import_rows(session, profile_id, SMALL, rows, database.at(2))

    def test_a_chunk_that_the_image_does_not_have(self):
        self.assertRaises(exceptions.InvalidInput, self.report, SMALL, 'h1',
                          (1, 1), [[100, 1, 0]])
        self.assertIsNone(self.rows(SMALL))

    def test_they_go_with_their_image_or_by_themselves(self):
        self.report(SMALL, 'h1', (1, 1), [[0, 1, 10]])
        found = self.read(lambda session: table.find(session, SMALL).id)
        self.write(table.delete, found)
        self.assertRaises(exceptions.NotFound, self.write, table.delete,
                          found)
        self.report(SMALL, 'h1', (1, 1), [[0, 1, 10]])
        self.write(catalogue.remove_image, 't1')
        self.write(catalogue.put_image, database.image(1),
                   database.at(3), lambda *_: False)
        self.assertIsNone(self.rows(SMALL))
