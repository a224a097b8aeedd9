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

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import batches
from tests import base
from tests import waiting


class TestBatches(base.TestCase):

    def setUp(self):
        super().setUp()
        self.runs = []
        self.entered = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def run_items(self, items):
        self.runs.append(items)
        self.entered.set()
        self.free.wait(waiting.SECONDS)
        if 'broken' in items:
            raise exceptions.ServiceUnavailable('all of them')
        return [exceptions.NotFound(item) if item == 'bad' else item * 2
                for item in items]

    def submitted(self, made, items):
        """Results and errors of items that wait while a first one runs."""
        self.free.clear()
        self.entered.clear()
        found, threads = {}, []

        def submit(item):
            try:
                found[item] = made.submit(item)
            except exceptions.DiffCacheError as error:
                found[item] = type(error)

        for item in ('first', *items):
            threads.append(threading.Thread(target=submit, args=(item,)))
            threads[-1].start()
            self.assertTrue(self.entered.wait(waiting.SECONDS))
        waiting.until(lambda: len(made._waiting) == len(items),
                      'items to wait')
        self.free.set()
        for thread in threads:
            thread.join(waiting.SECONDS)
        return found

    def test_what_waits_runs_together(self):
        made = batches.Batches(self.run_items, 0.0, 100)
        self.assertEqual('aa', made.submit('a'))
        self.assertEqual(
            {'first': 'firstfirst', 'b': 'bb', 'c': 'cc', 'd': 'dd'},
            self.submitted(made, 'bcd'))
        self.assertEqual([['a'], ['first'], ['b', 'c', 'd']],
                         [sorted(items) for items in self.runs])

    def test_no_run_has_more_than_it_may(self):
        made = batches.Batches(self.run_items, 0.0, 2)
        found = self.submitted(made, 'bcdef')
        self.assertEqual(6, len(found))
        self.assertEqual([1, 2, 2, 1], [len(items) for items in self.runs])

    def test_an_error_of_one_is_of_no_other(self):
        made = batches.Batches(self.run_items, 0.0, 100)
        self.assertEqual(
            {'first': 'firstfirst', 'bad': exceptions.NotFound, 'c': 'cc'},
            self.submitted(made, ('bad', 'c')))

    def test_an_error_of_the_run_is_of_all_and_the_next_one_runs(self):
        made = batches.Batches(self.run_items, 0.0, 100)
        found = self.submitted(made, ('broken', 'c'))
        self.assertEqual([exceptions.ServiceUnavailable] * 2,
                         [found['broken'], found['c']])
        self.assertEqual('dd', made.submit('d'))

    def test_runs_are_apart(self):
        slept = []
        self.patch(batches.time, 'sleep', slept.append)
        self.patch(batches.time, 'monotonic', lambda: 50.0)
        made = batches.Batches(self.run_items, 0.25, 100)
        made.submit('a')
        made.submit('b')
        self.assertEqual([0.0, 0.25], slept)
