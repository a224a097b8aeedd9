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

from diffcache_openstack.cmd.manage import app
from diffcache_openstack.common import messaging
from diffcache_openstack.conf import opts
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import migration
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests import base
from tests.unit.agent import endpoint
from tests.unit.db import database


class Result:

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


class Agent:
    """Answers the calls of an agent, and notes them."""

    def __init__(self):
        self.calls = []

    def register_image(self, path, image_id, name):
        self.calls.append(('register_image', path, image_id, name))
        return database.image(1, id=image_id, name=name,
                              content_id='0' * 64)

    def get_image(self, image_id, output, mode):
        self.calls.append(('get_image', image_id, output, mode))
        return database.request(1, image_id=image_id, way='local')

    def status(self):
        return {'holdings': [['images', '0' * 64, 5]]}


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
        self.options = ['--config-file', str(self.config)]
        self.conf = opts.new_config(self.options)

    def run_words(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stderr(err),
              contextlib.redirect_stdout(out)):
            manager = app.Manage()
            manager.stdout = out
            try:
                code = manager.run([*self.options, *words])
            except SystemExit as leaving:
                code = leaving.code
        return Result(code, out.getvalue(), err.getvalue())

    def assert_fails(self, code, text, *words):
        result = self.run_words(*words)
        self.assertEqual(code, result.code)
        self.assertIn(text, result.err)
        self.assertNotIn('Traceback', result.err)
        return result


class FilledTest(ManageTest):
    """Has a database with hosts, images and a patch."""

    def setUp(self):
        super().setUp()
        migration.upgrade(self.conf)
        self.database = database.engine.Database(self.conf)
        self.addCleanup(self.database.close)
        now = versioned.now()
        write = self.database.write
        write(host_rows.put_host, database.host('h1', capacity=5_000_000), now)
        write(host_rows.put_host, database.host(
            'hub', site='centre', role=objects.REPOSITORY), now)
        for number in (1, 2):
            write(catalogue.put_image,
                  database.image(number, data_size=1_500_000), now)
        write(catalogue.put_patch, database.patch(1, 2), now)
        write(held_rows.put_holdings, 'h1',
              [database.holding(1, bytes=1_500_000)], now)
        write(history.put_requests, [database.request(1, way='build')])

    def serve_agent(self, host):
        """Serve the calls of an agent with a fake one."""
        worker = Agent()
        bus = messaging.Bus(self.conf, versioned.Serializer())
        self.addCleanup(bus.close)
        server = endpoint.server(bus, host, worker)
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        return worker
