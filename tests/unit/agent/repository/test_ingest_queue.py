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
"""The order in which images are added to a repository."""

from diffcache_openstack.agent.repository import ingest_queue
from tests import base

LARGE = ingest_queue.LARGE + 1


class TestIngestQueue(base.TestCase):

    def test_small_images_come_first_after_the_listing(self):
        queue = ingest_queue.IngestQueue(1)
        for name, size in (('c', 30), ('a', 10), ('', None), ('b', 20)):
            queue.add(name, size)
        order = []
        for _ in range(4):
            entry = queue.take()
            order.append(entry.image_id)
            queue.finish(entry)
        self.assertEqual(['', 'a', 'b', 'c'], order)

    def test_large_images_leave_a_worker_to_others(self):
        queue = ingest_queue.IngestQueue(3)
        for name in 'abc':
            queue.add(name, LARGE)
        large = [queue.take(), queue.take()]
        queue.add('small', 5)
        self.assertEqual('small', queue.take().image_id)
        queue.finish(large[0])
        self.assertEqual('c', queue.take().image_id)

    def test_a_single_worker_takes_large_images_too(self):
        queue = ingest_queue.IngestQueue(1)
        queue.add('a', LARGE)
        self.assertEqual('a', queue.take().image_id)

    def test_no_image_is_given_to_two_workers(self):
        queue = ingest_queue.IngestQueue(2)
        queue.add('a', 1)
        first = queue.take()
        # It changes while it is handled, and is due again.
        queue.add('a', 1)
        queue.add('b', 2)
        self.assertEqual('b', queue.take().image_id)
        queue.finish(first)
        self.assertEqual('a', queue.take().image_id)

    def test_one_that_a_host_waits_for(self):
        queue = ingest_queue.IngestQueue(1)
        for _ in range(2):
            self.assertTrue(queue.hurry('a', 1))
        entry = queue.take()
        self.assertEqual(ingest_queue.Entry('a', 1), entry)
        # It is being added, and not due again.
        self.assertTrue(queue.hurry('a', 1))
        self.assertEqual(['active'],
                         [each['state'] for each in queue.report()])
        queue.postpone(entry, 'no space')
        self.assertFalse(queue.hurry('a', 1))

    def test_one_that_is_due_later(self):
        queue = ingest_queue.IngestQueue(1)
        queue.add_later('', 3600.0)
        [waiting] = queue.report()
        self.assertGreater(waiting['retry_in_s'], 0)
        queue.add('', None)
        queue.add_later('', 3600.0)
        self.assertEqual('', queue.take().image_id)

    def test_failed_images_wait_longer_each_time_and_say_why(self):
        queue = ingest_queue.IngestQueue(1)
        self.patch(ingest_queue, 'FIRST_RETRY', 0.0)
        queue.add('a', 1)
        self.assertEqual(0.0, queue.postpone(queue.take(), 'no space left'))
        self.patch(ingest_queue, 'FIRST_RETRY', 300.0)
        queue.add('b', 1)
        queue.add('a', 1)
        entry = queue.take()
        waits = []
        for _ in range(3):
            waits.append(queue.postpone(entry, 'no space left'))
        self.assertEqual([300.0, 600.0, 900.0], waits)
        [waiting] = [each for each in queue.report()
                     if each['image'] == entry.image_id]
        self.assertEqual(('waiting', 3, 'no space left'), (
            waiting['state'], waiting['attempts'], waiting['error']))
        self.assertGreater(waiting['retry_in_s'], 0)
        # A change makes it due at once, and forgets its failures.
        queue.add(entry.image_id, 1)
        [waiting] = [each for each in queue.report()
                     if each['image'] == entry.image_id]
        self.assertEqual((0, None), (waiting['retry_in_s'],
                                     waiting['error']))

    def test_a_closed_queue_gives_nothing(self):
        queue = ingest_queue.IngestQueue(1)
        queue.add('a', 1)
        queue.close()
        self.assertIsNone(queue.take())
