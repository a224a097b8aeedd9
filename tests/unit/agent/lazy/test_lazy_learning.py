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
"""What is exchanged with the conductor, and what diffcached is handed."""

import json
import os
import pathlib

from diffcache_openstack.agent.lazy import lazy_learning
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.common import exceptions
from diffcache_openstack.rpc import conductor_lazy_api
from tests import base

ONE, TWO = 'c' * 64, 'd' * 64


class FakeDaemon:

    def __init__(self):
        self.served = {}
        self.read = {}
        self.handed = []

    def images(self):
        return list(self.served.values())

    def profile(self, content_id):
        return {'chunk': 256 << 10, 'instances': 1,
                'profile': self.read.get(content_id, [])}

    def change(self, content_id, changed):
        document = json.loads(pathlib.Path(changed['profile']).read_text())
        self.handed.append((content_id, document))


class FakeConductor:

    def __init__(self):
        self.calls = []
        self.answer = None
        self.refused = None

    def exchange_reads(self, context, host, reads, known):
        if self.refused == reads.image_id:
            raise exceptions.InvalidInput('no chunk of the image')
        self.calls.append((host, reads.image_id, reads.rows, known))
        return self.answer


class LearningTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.daemon, self.conductor = FakeDaemon(), FakeConductor()
        self.servers = lazy_servers.Servers(self.directory / 'servers.json')
        self.learning = lazy_learning.LazyLearning(
            'h1', self.daemon, self.servers, self.conductor,
            self.directory / 'profiles', 5.0)
        self.serve(ONE, 't1')

    def serve(self, content_id, image_id, complete=False):
        self.daemon.served[content_id] = {'content_id': content_id,
                                          'complete': complete}
        self.servers.follow(content_id)
        self.servers.add(content_id, lazy_servers.LazyServer(
            f'server of {image_id}', 'p', image_id))

    def have(self, generation=1, shared=True):
        self.conductor.answer = conductor_lazy_api.Profile(
            'an-id', generation, shared, {3: (2, 30)})
        return self.conductor.answer

    def test_what_others_read_is_handed_to_the_daemon(self):
        self.daemon.read[ONE] = [[0, 1, 12.0]]
        answer = self.have()
        self.learning.exchange()
        self.assertEqual(('h1', 't1', {0: (1, 12)}, None),
                         self.conductor.calls[0])
        self.assertEqual([(ONE, {'format': 1, 'chunk': 256 << 10,
                                 'profile': [[3, 2, 15.0]]})],
                         self.daemon.handed)
        self.conductor.answer = None
        self.learning.exchange()
        self.assertEqual(answer, self.conductor.calls[1][3])
        self.assertEqual(1, len(self.daemon.handed))

    def test_a_profile_of_all_projects_is_kept_for_later(self):
        self.have()
        self.assertIsNone(self.learning.profile(ONE))
        self.learning.exchange()
        self.assertTrue(self.learning.profile(ONE).exists())
        self.learning.forget({ONE})
        self.assertIsNotNone(self.learning.profile(ONE))
        self.learning.forget(set())
        self.assertIsNone(self.learning.profile(ONE))

    def test_one_of_a_project_is_not(self):
        self.have(shared=False)
        self.learning.exchange()
        self.assertEqual(1, len(self.daemon.handed))
        self.assertIsNone(self.learning.profile(ONE))

    def test_one_of_a_project_leaves_that_of_all_projects_alone(self):
        # Regression: it was written over the other one, and removed.
        self.have()
        self.learning.exchange()
        kept = self.learning.profile(ONE).read_bytes()
        self.conductor.answer = conductor_lazy_api.Profile(
            'another-id', 1, False, {7: (1, 5)})
        self.learning.exchange()
        self.assertEqual([[7, 1, 5.0]], self.daemon.handed[1][1]['profile'])
        self.assertEqual(kept, self.learning.profile(ONE).read_bytes())
        self.assertEqual([f'{ONE}.json'],
                         os.listdir(self.directory / 'profiles'))

    def test_a_whole_image_is_reported_while_it_is_read(self):
        self.daemon.served[ONE]['complete'] = True
        self.daemon.read[ONE] = [[0, 1, 12.0]]
        self.have()
        for _ in range(3):
            self.learning.exchange()
        self.assertEqual((1, []), (len(self.conductor.calls),
                                   self.daemon.handed))
        self.daemon.read[ONE].append([5, 1, 13.0])
        self.learning.exchange()
        self.assertEqual(2, len(self.conductor.calls))

    def test_one_image_keeps_no_other_from_being_learned(self):
        self.serve(TWO, 't2')
        self.have()
        for self.conductor.refused, other in (('t1', TWO), ('t2', ONE)):
            self.daemon.handed.clear()
            with self.assertLogs(lazy_learning.LOG, 'WARNING') as logs:
                self.learning.exchange()
                self.learning.exchange()
            self.assertEqual(1, len(logs.output))
            self.assertEqual({other},
                             {each[0] for each in self.daemon.handed})

    def test_without_servers_nothing_is_asked(self):
        for content_id in self.servers.all_contents():
            self.servers.forget(content_id)
        self.servers.follow(ONE)
        self.learning.exchange()
        self.assertEqual([], self.conductor.calls)

    def test_it_starts_and_stops(self):
        self.have()
        self.learning.start()
        self.learning.wake()
        self.learning.stop()
        self.assertEqual(1, len({each[0] for each in self.daemon.handed}))
