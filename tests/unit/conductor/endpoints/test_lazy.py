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
"""What agents exchange with a conductor about lazy boots."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.rpc import conductor_lazy_api
from tests.unit.conductor.endpoints import test_agents
from tests.unit.db import database


class TestExchange(test_agents.ConductorTest):

    def setUp(self):
        super().setUp()
        self.lazy = conductor_lazy_api.LazyAPI(self.bus, self.conf)
        self.register()
        self.api.register_host(self.ctxt, database.host('h2'))
        for number, visibility in ((1, 'public'), (2, 'private')):
            self.api.register_template(self.ctxt, database.template(
                number, size=10 ** 8, data_size=10 ** 8,
                visibility=visibility))

    def exchange(self, host, rows, known=None, image='t1', projects=('p1',),
                 number=1):
        return self.lazy.exchange_reads(
            self.ctxt, host, conductor_lazy_api.Reads(
                image, list(projects), 'small', 1, number, rows), known)

    def test_hosts_learn_from_each_other(self):
        self.assertIsNone(self.exchange('h2', {}))
        own = self.exchange('h1', {0: (1, 10), 7: (1, 20)})
        self.assertEqual(({0: (1, 10), 7: (1, 20)}, True),
                         (own.rows, own.shared))
        found = self.exchange('h2', {0: (1, 30)}, projects=['p2'])
        self.assertEqual({0: (2, 40), 7: (1, 20)}, found.rows)
        self.assertIsNone(self.exchange('h2', {}, found))
        # The same report once more.
        self.assertIsNone(self.exchange('h2', {0: (1, 30)}, found))
        newer = self.exchange('h1', {0: (2, 20), 7: (1, 20)}, found,
                              number=2)
        self.assertEqual((3, 50), newer.rows[0])

    def test_a_private_image_teaches_its_project(self):
        found = self.exchange('h1', {0: (1, 10)}, image='t2')
        self.assertFalse(found.shared)
        self.assertIsNone(self.exchange('h2', {}, image='t2',
                                        projects=['p2']))
        self.assertEqual(found, self.exchange('h2', {}, image='t2'))

    def test_reads_of_several_projects_are_nobodys(self):
        self.assertIsNone(self.exchange('h1', {0: (1, 10)}, image='t2',
                                        projects=['p1', 'p2']))
        self.assertIsNone(self.exchange('h1', {}, image='t2'))

    def test_what_a_host_cannot_have_seen_changes_nothing(self):
        self.assertRaises(exceptions.InvalidInput, self.exchange, 'h1',
                          {10 ** 6: (1, 10)})
        self.assertRaises(exceptions.NotFound, self.exchange, 'h9',
                          {0: (1, 10)})
        self.assertRaises(exceptions.NotFound, self.exchange, 'h1',
                          {0: (1, 10)}, image='t9')
        self.assertIsNone(self.exchange('h2', {}))


class TestProjects(test_agents.ConductorTest):

    def prepare(self):
        self.conf.set_override('share_profiles', 'project', 'lazy')

    def test_public_images_teach_one_project(self):
        self.register(1)
        lazy = conductor_lazy_api.LazyAPI(self.bus, self.conf)
        answers = [lazy.exchange_reads(
            self.ctxt, 'h1', conductor_lazy_api.Reads(
                't1', [project], '', 1, 1, rows), None)
            for project, rows in (('p1', {0: (1, 10)}), ('p2', {}))]
        self.assertEqual([{0: (1, 10)}, None],
                         [each and each.rows for each in answers])
