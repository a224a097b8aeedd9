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
import contextlib
import io
import json
import uuid

from diffcache_openstack.agent import manager as agent_manager
from diffcache_openstack.cmd import manage
from diffcache_openstack.common import keys
from diffcache_openstack.common import messaging
from diffcache_openstack.conductor import service
from diffcache_openstack.conf import opts
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import history
from diffcache_openstack.db import migration
from diffcache_openstack.db import sites
from diffcache_openstack import objects
from diffcache_openstack.objects import base as objects_base
from tests import base
from tests.unit.agent import test_manager
from tests.unit.db import database


class Result:

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


class ManageTest(base.TestCase):
    """Runs commands as the console script does, in this process."""

    def setUp(self):
        super().setUp()
        self.exchange = uuid.uuid4().hex
        self.config = self.write_file('x.conf', (
            f'[DEFAULT]\ntransport_url = fake:/\n'
            f'control_exchange = {self.exchange}\n'
            f'[database]\nmax_retries = 0\n'
            f'connection = sqlite:///{self.directory}/db.sqlite\n'
            f'[conductor]\nrpc_timeout = 1\n'
            f'[planner]\ninterval = 0\n').encode())
        self.conf = opts.new_config(['--config-file', str(self.config)])

    def run_words(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(err):
            manager = manage.Manage()
            manager.stdout = out
            try:
                code = manager.run(['--config-file', str(self.config),
                                    *words])
            except SystemExit as leaving:
                code = leaving.code
        return Result(code, out.getvalue(), err.getvalue())

    def assert_fails(self, code, text, *words):
        result = self.run_words(*words)
        self.assertEqual(code, result.code)
        self.assertIn(text, result.err)
        self.assertNotIn('Traceback', result.err)
        return result


class TestDatabase(ManageTest):

    def test_sync_and_version(self):
        self.assert_fails(1, 'db sync', 'db', 'version')
        result = self.run_words('db', 'sync')
        self.assertEqual(0, result.code)
        self.assertIn(migration.head(), result.out)
        result = self.run_words('db', 'version')
        self.assertEqual((0, migration.head() + '\n'),
                         (result.code, result.out))

    def test_sync_twice(self):
        self.run_words('db', 'sync')
        self.assertEqual(0, self.run_words('db', 'sync').code)

    def test_without_schema(self):
        for words in (('host', 'list'), ('status',), ('template', 'list')):
            self.assert_fails(1, 'run "diffcache-manage db sync"', *words)

    def test_unreachable(self):
        self.config.write_text('[database]\nmax_retries = 0\nconnection ='
                               f' sqlite:///{self.directory}/no/x.sqlite\n')
        self.assert_fails(1, '[database] connection', 'host', 'list')

    def test_wrong_usage(self):
        self.assertEqual(2, self.run_words('host', 'show').code)
        self.assertEqual(2, self.run_words('cow', 'milk').code)

    def test_missing_configuration(self):
        self.config.unlink()
        self.assert_fails(1, 'x.conf', 'db', 'sync')


class TestKeyCreate(ManageTest):

    def test_key_is_usable(self):
        path = self.directory / 'site.key'
        self.assertEqual(0, self.run_words('key', 'create', str(path)).code)
        self.assertEqual(32, len(keys.read_key(path)))
        self.assert_fails(1, 'exists', 'key', 'create', str(path))


class FilledTest(ManageTest):

    def setUp(self):
        super().setUp()
        migration.upgrade(self.conf)
        self.database = database.engine.Database(self.conf)
        self.addCleanup(self.database.close)
        now = objects_base.now()
        write = self.database.write
        write(sites.put_host, database.host('h1', capacity=5_000_000), now)
        write(sites.put_host, database.host(
            'hub', site='centre', role=objects.REPOSITORY), now)
        for number in (1, 2):
            write(catalogue.put_template,
                  database.template(number, data_size=1_500_000), now)
        write(catalogue.put_patch, database.patch(1, 2), now)
        write(sites.put_holdings, 'h1',
              [database.holding(1, bytes=1_500_000)], now)
        write(history.put_requests, [database.request(1, way='build')])


class TestLists(FilledTest):

    def test_hosts(self):
        rows = self.run_words('host', 'list', '-f', 'json').json
        self.assertEqual([('h1', 'up', 1, 1_500_000), ('hub', 'up', 0, 0)],
                         [(r['Host'], r['State'], r['Objects'], r['Held'])
                          for r in rows])
        rows = self.run_words('host', 'list', '--site', 'centre', '-f',
                              'json').json
        self.assertEqual(['hub'], [r['Host'] for r in rows])

    def test_sizes_are_for_people_in_tables_only(self):
        self.assertIn('1.5 MB', self.run_words('host', 'list').out)
        self.assertIn('1500000',
                      self.run_words('host', 'list', '-f', 'csv').out)

    def test_holdings_of_a_host(self):
        rows = self.run_words('host', 'show', 'h1', '-f', 'json').json
        self.assertEqual([{'Kind': 'templates', 'ID': database.content(1),
                           'Size': 1_500_000}], rows)
        self.assert_fails(1, 'h9', 'host', 'show', 'h9')

    def test_templates_and_patches(self):
        rows = self.run_words('template', 'list', '-f', 'json').json
        self.assertEqual(['t1', 't2'], [r['ID'] for r in rows])
        rows = self.run_words('patch', 'list', '-f', 'json').json
        self.assertEqual([database.patch(1, 2).id], [r['ID'] for r in rows])

    def test_requests(self):
        rows = self.run_words('request', 'list', '-f', 'json').json
        self.assertEqual([('h1', 't1', 'build')],
                         [(r['Host'], r['Image'], r['Way']) for r in rows])

    def test_status(self):
        rows = self.run_words('status', '-f', 'json').json
        self.assertEqual(
            [('centre', 1, 0, None, 2, 1), ('edge', 1, 0, None, 2, 1)],
            [(r['Site'], r['Hosts up'], r['Hosts down'], r['Plan'],
              r['Templates'], r['Patches']) for r in rows])


class TestRemovals(FilledTest):

    def test_host(self):
        self.assertEqual(0, self.run_words('host', 'remove', 'h1').code)
        self.assert_fails(1, 'h1', 'host', 'remove', 'h1')

    def test_template(self):
        self.assertEqual(0, self.run_words('template', 'remove', 't1').code)
        self.assertEqual([], self.database.read(catalogue.list_patches))
        self.assert_fails(1, 't1', 'template', 'remove', 't1')


class TestServices(FilledTest):
    """Commands that ask running services."""

    def test_plan(self):
        self.assert_fails(1, 'plan create edge', 'plan', 'show', 'edge')
        conductor = service.ConductorService(self.conf)
        conductor.start()
        self.addCleanup(conductor.stop)
        result = self.run_words('plan', 'create', 'edge', '-f', 'json')
        self.assertEqual(0, result.code)
        made = result.json
        rows = self.run_words('plan', 'show', 'edge', '-f', 'json').json
        self.assertEqual(made['objects'], len(rows))
        self.assertEqual({'h1'}, {row['Host'] for row in rows})
        self.assert_fails(1, 'nowhere', 'plan', 'create', 'nowhere')

    def serve_agent(self, host):
        worker = test_manager.Worker()
        bus = messaging.Bus(self.conf, objects_base.Serializer())
        self.addCleanup(bus.close)
        server = agent_manager.serve(bus, host, worker)
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        return worker

    def test_image_goes_to_the_repository(self):
        worker = self.serve_agent('hub')
        result = self.run_words('image', 'register', '/img', '--name', 'N',
                                '--id', 't', '-f', 'json')
        self.assertEqual('0' * 64, result.json['content_id'])
        self.assertEqual([('register_image', '/img', 't', 'N')],
                         worker.calls)

    def test_repository_has_to_be_told_among_several(self):
        self.database.write(sites.put_host, database.host(
            'hub2', site='centre', role=objects.REPOSITORY),
            objects_base.now())
        self.assert_fails(1, 'hub, hub2', 'image', 'register', '/img',
                          '--name', 'N')

    def test_image_is_fetched_by_a_host(self):
        worker = self.serve_agent('h1')
        result = self.run_words('image', 'fetch', 't', '/out', '--host',
                                'h1', '-f', 'json')
        self.assertEqual('local', result.json['way'])
        self.assertEqual([('get_image', 't', '/out', None)], worker.calls)

    def test_status_of_an_agent(self):
        self.serve_agent('h1')
        result = self.run_words('agent', 'status', 'h1', '-f', 'json')
        self.assertEqual({'holdings': [['templates', '0' * 64, 5]]},
                         result.json)

    def test_silent_agent(self):
        self.assert_fails(1, 'diffcache-agent.h7', 'agent', 'status', 'h7')
