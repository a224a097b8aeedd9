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

from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from tests import base


class SpoolTest(base.TestCase):

    def test_survives_a_restart_in_order(self):
        spool = request_spool.RequestSpool(self.directory / 'spool')
        for number in range(3):
            spool.put({'n': number})
        again = request_spool.RequestSpool(self.directory / 'spool')
        again.put({'n': 3})
        sent = []
        self.assertEqual(4, again.deliver(sent.extend))
        self.assertEqual([{'n': n} for n in range(4)], sent)
        self.assertEqual(0, again.deliver(sent.extend))

    def test_two_that_are_added_at_once_keep_their_order(self):
        # Regression: the one that was written first was delivered again and
        # again, without an end.
        spool = request_spool.RequestSpool(self.directory / 'spool')
        write, other = files.write_json, []

        def write_slowly(path, document, **options):
            if not other:
                other.append(threading.Thread(target=spool.put,
                                              args=[{'n': 1}]))
                other[0].start()
                # It ends before the first, if it can.
                other[0].join(0.1)
            write(path, document, **options)
        self.patch(files, 'write_json', write_slowly)
        spool.put({'n': 0})
        other[0].join()
        sent = []

        def send(documents):
            self.assertTrue(documents)
            sent.extend(documents)
        self.assertEqual(2, spool.deliver(send))
        self.assertEqual([{'n': 0}, {'n': 1}], sent)

    def test_what_could_not_be_sent_stays(self):
        spool = request_spool.RequestSpool(self.directory / 'spool')
        spool.put({'n': 0})

        def refuse(documents):
            raise ConnectionError('dead')

        self.assertRaises(ConnectionError, spool.deliver, refuse)
        self.assertEqual(1, len(spool))

    def test_one_that_is_refused_is_not_in_the_way_of_others(self):
        spool = request_spool.RequestSpool(self.directory / 'spool')
        for number in range(3):
            spool.put({'n': number})
        sent = []

        def refuse_one(documents):
            if {'n': 1} in documents:
                raise exceptions.InvalidInput('no such report')
            sent.extend(documents)

        spool.deliver(refuse_one)
        self.assertEqual([{'n': 0}, {'n': 2}], sent)
        self.assertEqual(0, len(spool))

    def test_the_oldest_go_first_when_there_are_too_many(self):
        self.patch(request_spool, 'MOST_KEPT', 2)
        spool = request_spool.RequestSpool(self.directory / 'spool')
        for number in range(5):
            spool.put({'n': number})
        sent = []
        spool.deliver(sent.extend)
        self.assertEqual([{'n': 3}, {'n': 4}], sent)
