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
"""The API behind real HTTP, with a real database, broker and conductor.

Only Keystone is none: its answers about tokens are given by the fixture that
keystonemiddleware has for that.
"""

import fixtures
from gabbi import fixture as gabbi_fixture

from diffcache_openstack.api import server
from diffcache_openstack.db import engine
from diffcache_openstack.db.views import plan_views
from testing import tokens
from tests.functional.fixtures import deployment
from tests.unit.api import base as unit_base
from tests.unit.db import database

HOST = '127.0.0.1'


class Api(fixtures.Fixture):
    """A server with two images, three hosts and a plan."""

    def __init__(self, port: int):
        self._port = port

    def _setUp(self):
        site = self.useFixture(deployment.Deployment(options={
            'api': {'bind_host': HOST, 'bind_port': self._port,
                    'response_validation': 'error', 'threads': 4},
            'conductor': {'check_interval': 1, 'host_timeout': 3600},
            'keystone_authtoken': {
                'www_authenticate_uri': 'http://keystone.example'}}))
        db = engine.Database(site.conf)
        self.addCleanup(db.close)
        unit_base.fill(db)
        site.start_conductor()
        site.conductor.plan_now(site.context, database.SITE)
        self.useFixture(tokens.Tokens())
        api = server.ApiService(site.conf)
        api.start()
        self.addCleanup(api.stop)
        # The configuration of this process reads and listens too.
        self.plan = db.read(plan_views.current_fill, database.SITE)['id']


class ApiFixture(gabbi_fixture.GabbiFixture):
    """The same, for one file of gabbi's tests."""

    port = 0

    def start_fixture(self):
        """Start everything."""
        self._api = Api(self.port)
        self._api.setUp()

    def stop_fixture(self):
        """End everything."""
        self._api.cleanUp()
