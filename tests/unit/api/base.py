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
"""The API over a database in a file and a conductor in this process."""

import contextlib
import datetime
import functools
import json
import uuid

import fixtures
from keystonemiddleware import opts as middleware_opts
from werkzeug import test as werkzeug_test

from diffcache_openstack.api import app
from diffcache_openstack.api import policy
from diffcache_openstack.api import requests
from diffcache_openstack.cloud import quotas
from diffcache_openstack.cloud import servers
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import conductor_control_api
from diffcache_openstack.rpc import conductor_lazy_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.rpc import conductor_volumes_api
from diffcache_openstack.sites import maps
from testing import tokens
from tests.unit.conductor.endpoints import test_agents
from tests.unit.conductor import fakes
from tests.unit.db import database

PROJECT = tokens.PROJECT
OTHER_PROJECT = tokens.OTHER_PROJECT
ROLES = tokens.ROLES
SYSTEM_ROLES = tokens.SYSTEM_ROLES
# Once: tests that run when an hour ends have the same one in all they do.
_ASKED = (versioned.now() - datetime.timedelta(hours=1)).replace(
    minute=0, second=0, microsecond=0)


def asked(number):
    """When a request was made: a while ago, at that second of a minute."""
    return _ASKED.replace(second=number)


def fill(db):
    """Two images with patches, one private, three hosts, some requests."""
    when = versioned.now()
    for name, values in (('h1', {}), ('h2', {}),
                         ('hub', {'role': objects.REPOSITORY,
                                  'site': 'centre'})):
        db.write(host_rows.put_host, database.host(
            name, capacity=150 * test_agents.MB, **values), when)
    for number, values in ((1, {'owner': PROJECT}), (2, {'family': 't1'}),
                           (3, {'owner': OTHER_PROJECT,
                                'visibility': 'private'})):
        db.write(catalogue.put_image, database.image(
            number, data_size=100 * test_agents.MB, **values), when)
    db.write(catalogue.put_patch, database.patch(1, 2), when)
    db.write(held_rows.put_holdings, 'h1',
             [database.holding(1), objects.Holding(
                 kind=objects.PATCHES, id=database.patch(1, 2).id, bytes=5)],
             when)
    db.write(history.put_requests, [
        database.request(number, way='build', wan_bytes=5, seconds=1.5,
                         image_id='t2', started_at=asked(number))
        for number in range(3)])


@functools.cache
def filled() -> bytes:
    """A file with that, which hundreds of tests would write."""
    def write(conf):
        with contextlib.closing(engine.Database(conf)) as db:
            fill(db)

    return database.made(write, database.migrated())


class ApiTest(test_agents.ConductorTest):
    """Talks to the API as one of several users."""

    contents = staticmethod(filled)

    def setUp(self):
        self.nova = fakes.Nova(PROJECT, OTHER_PROJECT)
        self.useFixture(fixtures.MockPatchObject(
            servers, 'Servers', lambda conf: self.nova))
        super().setUp()
        self.conf.set_override('response_validation', 'error', 'api')
        self.useFixture(tokens.Tokens())
        self.services = requests.Services(
            self.conf, self.database, self.api,
            conductor_control_api.ControlAPI(self.bus, self.conf),
            policy.Enforcer(self.conf),
            maps.Maps(self.conf, self.database),
            conductor_versions_api.VersionsAPI(self.bus, self.conf), self.nova,
            quotas.Quotas(self.conf, self.database),
            conductor_volumes_api.VolumesAPI(self.bus, self.conf),
            conductor_lazy_api.LazyAPI(self.bus, self.conf), fakes.Cinder())
        app.set_defaults()
        for group, options in middleware_opts.list_auth_token_opts():
            self.conf.register_opts(options, group=group)
        self.conf.set_override('www_authenticate_uri',
                               'http://keystone.example',
                               'keystone_authtoken')
        self.client = werkzeug_test.Client(
            app.build(self.conf, self.services))

    def call(self, method, path, body=None, user='admin', version='latest',
             **headers):
        """The status, the parsed body and the headers of an answer."""
        sent = {'OpenStack-API-Version': f'diffcache {version}', **headers}
        if user is not None:
            sent['X-Auth-Token'] = user
        response = self.client.open(
            path, method=method, headers=sent,
            json=body if body is not None else None)
        text = response.get_data()
        return (response.status_code, json.loads(text) if text else None,
                response.headers)

    def get(self, path, **arguments):
        """The body of a good answer."""
        status, body, _headers = self.call('GET', path, **arguments)
        self.assertEqual(200, status, body)
        return body

    def refused(self, status, method, path, body=None, **arguments):
        """The error that an answer tells."""
        found, answer, _headers = self.call(method, path, body, **arguments)
        self.assertEqual(status, found, answer)
        [error] = answer['errors']
        self.assertEqual(status, error['status'])
        return error


def unknown_id():
    """An id that nothing has."""
    return str(uuid.uuid4())
