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

from unittest import mock

from diffcache_openstack.cloud import servers
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.rpc import conductor_lazy_api
from tests.unit.conductor.endpoints import test_agents
from tests.unit.db import database

SERVERS = [servers.Server(f's{number}', f'p{number}', 'ACTIVE')
           for number in (1, 2)]
PROFILE = '322bde76-949e-4c77-a812-310ab1466fc5'


class ExchangeTest(test_agents.ConductorTest):
    """Nova names servers of two projects on each host."""

    def prepare(self):
        self.on = self.enterContext(mock.patch.object(
            servers.Servers, 'on', return_value=SERVERS))


class TestExchange(ExchangeTest):

    def setUp(self):
        super().setUp()
        self.lazy = conductor_lazy_api.LazyAPI(self.bus, self.conf)
        self.register()
        self.api.register_host(self.ctxt, database.host('h2'))
        for number, visibility in ((1, 'public'), (2, 'private')):
            self.api.register_image(self.ctxt, database.image(
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

    def test_without_a_server_of_the_project_nothing_is_exchanged(self):
        self.exchange('h1', {0: (1, 10)}, image='t2')
        self.on.return_value = SERVERS[1:]
        for rows in ({}, {chunk: (16, 0) for chunk in range(100)}):
            self.assertRaises(exceptions.Forbidden, self.exchange, 'h2', rows,
                              image='t2')
        self.on.side_effect = exceptions.ServiceUnavailable('Nova is down.')
        self.assertRaises(exceptions.ServiceUnavailable, self.exchange, 'h3',
                          {}, image='t2')
        # What Nova said of the first host is known for a while.
        found = self.exchange('h1', {}, image='t2')
        self.assertEqual({0: (1, 10)}, found.rows)
        # Profiles of public images are for all.
        self.exchange('h2', {0: (1, 10)})

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


class CarryTest(test_agents.ConductorTest):
    """An image that a server has read, and the next build of it."""

    def setUp(self):
        super().setUp()
        self.lazy = conductor_lazy_api.LazyAPI(self.bus, self.conf)
        self.api.register_host(self.ctxt, database.host(
            'hub', role=objects.REPOSITORY))
        for number in (1, 2):
            self.api.register_image(self.ctxt, database.image(
                number, size=10 ** 8, data_size=10 ** 8,
                visibility='public', content_id=database.content(1)))
        self.api.report_holdings(self.ctxt, 'hub', [database.holding(1)])
        self.exchange('t1', {0: (1, 10), 7: (1, 20)})

    def exchange(self, image, rows=None):
        return self.lazy.exchange_reads(
            self.ctxt, 'hub', conductor_lazy_api.Reads(
                image, ['p1'], 'small', 1, 1, rows or {}), None)

    def carry(self, rows):
        work = self.lazy.carry_work(self.ctxt, 'hub', None)
        [source] = work.sources
        return self.lazy.report_carried(
            self.ctxt, 'hub', work.image_id, source.profile_id, rows)


class TestCarrying(CarryTest):

    def test_hosts_boot_the_next_build_with_what_was_carried(self):
        self.assertIsNone(self.exchange('t2'))
        work = self.lazy.carry_work(self.ctxt, 'hub', None)
        self.assertEqual(('t2', database.content(1)),
                         (work.image_id, work.content_id))
        self.assertEqual({0: (1, 10), 7: (1, 20)}, work.sources[0].rows)
        self.assertIsNone(self.lazy.carry_work(self.ctxt, 'hub', 't2'))
        self.assertTrue(self.carry({3: (1, 10)}))
        found = self.exchange('t2')
        self.assertEqual(({3: (1, 10)}, True), (found.rows, found.shared))
        self.assertIsNone(self.lazy.carry_work(self.ctxt, 'hub', None))

    def test_forged_rows_are_refused(self):
        for rows in ({10 ** 6: (1, 10)}, {0: (2, 10)}):
            self.assertRaises(exceptions.InvalidInput, self.carry, rows)
        self.assertIsNone(self.exchange('t2'))

    def test_a_repository_that_is_not_registered(self):
        self.assertRaises(exceptions.NotFound, self.lazy.carry_work,
                          self.ctxt, 'h9', None)


class TestProjects(ExchangeTest):

    def prepare(self):
        super().prepare()
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
