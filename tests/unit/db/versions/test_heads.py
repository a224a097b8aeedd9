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
"""The heads of version stores, which writers move."""

import concurrent.futures

from diffcache_openstack.common import exceptions
from diffcache_openstack.db.versions import heads as version_heads
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from tests.unit.db import database

STORE = version_heads.ProjectStore('p1', 'a' * 16)
TASK = '00000000-0000-4000-8000-000000000001'


def position(number, letter='a'):
    return number, letter * 64


class TestVersionHeads(database.DatabaseTest):

    def move(self, base, new, store=STORE):
        self.write(version_heads.move, store, base, new, 'h1', database.at(0))

    def head(self, store=STORE):
        return self.read(version_heads.read, store)

    def test_a_head_moves_to_the_next_catalogue(self):
        self.assertIsNone(self.head())
        self.move(None, position(1))
        self.move(position(1), position(2))
        self.assertEqual(position(2), self.head())
        self.assertIsNone(
            self.head(version_heads.ProjectStore('p2', 'a' * 16)))

    def test_of_two_writers_one_moves_it(self):
        for base in (None, position(1)):
            new = [position(base[0] + 1 if base else 1, letter)
                   for letter in 'ab']
            self.move(base, new[0])
            self.assertRaises(exceptions.Busy, self.move, base, new[1])
            self.assertEqual(new[0], self.head())

    def test_of_many_writers_at_once_one_moves_it(self):
        self.move(None, position(1))

        def attempt(letter):
            try:
                self.move(position(1), position(2, letter))
            except exceptions.Busy:
                return None
            return position(2, letter)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            moved = list(filter(None, pool.map(attempt, 'abcdef')))
        self.assertEqual([self.head()], moved)

    def test_a_call_whose_answer_was_lost_is_repeated(self):
        for _attempt in range(2):
            self.move(None, position(1))
            self.move(position(1), position(2))
            # What the first call changed is not changed back.
            self.assertEqual(position(2), self.head())
            self.assertRaises(exceptions.Busy, self.move, None,
                              position(1, 'b'))
            self.write(version_heads.forget, 'p1')

    def test_a_head_that_was_not_accepted_is_forgotten_once(self):
        self.move(None, position(1))
        self.move(position(1), position(2))
        for number, letter in ((1, 'a'), (2, 'b')):
            self.write(version_heads.forget_void, 'p1',
                       *position(number, letter))
            self.assertEqual(position(2), self.head())
        self.write(version_heads.forget_void, 'p1', *position(2))
        self.assertIsNone(self.head())
        self.move(position(1), position(2, 'b'))
        self.write(version_heads.forget_void, 'p1', *position(2))
        self.assertEqual(position(2, 'b'), self.head())

    def test_writers_without_a_conductor_are_followed(self):
        self.move(None, position(1))
        self.move(position(7, 'c'), position(8))
        self.assertEqual(position(8), self.head())
        self.assertRaises(exceptions.Busy, self.move, position(7, 'c'),
                          position(8, 'b'))

    def test_numbers_are_taken_once(self):
        def take(least, count):
            return self.write(version_heads.take_numbers, STORE, least, count)

        self.assertEqual([1, 1, 1], take([1, 1, 1], [9, 1, 1]))
        self.move(None, position(1))
        self.assertEqual([1, 1, 1], take([1, 1, 1], [9, 1, 1]))
        self.assertEqual([10, 2, 2], take([3, 2, 2], [5, 1, 1]))
        self.move(position(1), position(2))
        self.assertEqual([20, 3, 3], take([20, 3, 3], [5, 1, 1]))
        self.assertEqual([25, 4, 4], take([2, 2, 2], [1, 1, 1]))
        self.assertRaises(exceptions.InvalidInput, take, [1, 1, 1],
                          [1 << 20, 1, 1])

    def test_catalogues_follow_each_other(self):
        for base, new in ((None, position(2)), (position(3), position(3)),
                          (position(3), position(5))):
            self.assertRaises(exceptions.InvalidInput, self.move, base, new)

    def test_a_project_has_few_stores(self):
        for number in range(16):
            self.move(None, position(1), version_heads.ProjectStore(
                'p1', f'{number:016x}'))
        self.assertRaises(exceptions.PermanentError, self.move, None,
                          position(1))
        self.assertEqual(16, self.write(version_heads.forget, 'p1'))

    def test_a_task_is_its_hosts(self):
        def project(host='h1', kinds=(versions.SAVE,)):
            return self.read(version_heads.project_of, TASK, host, kinds)

        self.assertRaises(exceptions.Forbidden, project)
        self.write(version_tasks.create, objects.VersionTask(
            id=TASK, kind=versions.SAVE, project_id='p1'), database.at(0))
        # It is not sent yet.
        self.assertRaises(exceptions.Forbidden, project)
        self.write(version_tasks.sent, TASK, 'h1', database.at(0))
        self.assertEqual('p1', project())
        self.assertRaises(exceptions.Forbidden, project, 'h2')
        self.assertRaises(exceptions.Forbidden, project,
                          kinds=(versions.PRUNE,))
        self.write(version_tasks.report, objects.TaskReport(
            task_id=TASK, state=versions.CANCELLED), database.at(0))
        self.assertRaises(exceptions.Forbidden, project)
