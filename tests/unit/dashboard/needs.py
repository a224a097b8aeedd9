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
"""What tests of the pages need, which are shown by Horizon.

Horizon is no requirement of this project; these tests run in an environment
where it is installed, with its settings, and are skipped in others.
"""

import os
import unittest

if os.environ.get('DJANGO_SETTINGS_MODULE') != 'tests.unit.dashboard.settings':
    raise unittest.SkipTest(
        'no settings of Horizon; the stage "dashboard" of tools/test runs'
        ' this with them')

import io
import json
import urllib.parse

from django import test
from openstack import exceptions
from openstack_auth import policy
from openstack_dashboard import api
from openstack_dashboard import policy as dashboard_policy
from openstack_dashboard.test import helpers
import requests
from requests import adapters

# Horizon's test data replaces them for good.
_STUBBED = {each: each.__init__ for each in (
    exceptions.SDKException, exceptions.HttpException,
    exceptions.ForbiddenException, exceptions.NotFoundException)}
_SERVICE = 'http://public.example.com:8796'
ENDPOINT = f'{_SERVICE}/v1'
_ROOT = {'versions': [{
    'id': 'v1', 'status': 'CURRENT', 'min_version': '1.0', 'version': '1.0',
    'links': [{'rel': 'self', 'href': f'{ENDPOINT}/'}]}]}


class Wire(adapters.BaseAdapter):
    """Answers requests with documents, without a network.

    :ivar documents: status and document by method and path; a document may
        be a function of the query
    :ivar sent: methods, paths and queries of the requests; a parameter that
        is repeated has a list of values
    :ivar bodies: documents of the requests that had one
    :ivar timeouts: seconds that the requests wait for an answer
    """

    def __init__(self):
        super().__init__()
        self.documents = {}
        self.sent = []
        self.bodies = []
        self.tokens = set()
        self.timeouts = set()

    def send(self, request, **kwargs):
        """Answer one request."""
        parts = urllib.parse.urlsplit(request.url)
        path = parts.path.rstrip('/')
        if path.startswith('/v1'):
            path = path.removeprefix('/v1')
        elif path:
            path = f'{path} without a version'
        self.tokens.add(request.headers.get('X-Auth-Token'))
        self.timeouts.add(kwargs['timeout'])
        if request.body:
            self.bodies.append(json.loads(request.body))
        status, document = 200, _ROOT
        if path:
            self.sent.append((request.method, path, _query(parts.query)))
            status, document = self.documents.get(
                (request.method, path), (404, problem(404, f'no {path}')))
        if isinstance(document, Exception):
            raise document
        if callable(document):
            document = document(self.sent[-1][2])
        response = requests.Response()
        response.status_code, response.reason = status, f'Status {status}'
        response.headers['Content-Type'] = 'application/json'
        response.raw = io.BytesIO(json.dumps(document).encode())
        response.url, response.request = request.url, request
        return response

    def close(self):
        """Nothing to close."""


def _query(text):
    return {name: values if len(values) > 1 else values[0]
            for name, values in urllib.parse.parse_qs(text).items()}


def problem(status, detail):
    """Return the document of an error of the service."""
    return {'errors': [{'status': status, 'title': 'Error',
                        'detail': detail}]}


def listing(name, *entries):
    """Return a function that answers with one page of a listing."""
    return lambda query: {name: [] if 'marker' in query else entries}


class PageTest(helpers.BaseAdminViewTests):
    """Has a service that answers pages as a test says.

    :cvar url: of the service in the catalogue
    """

    url = _SERVICE

    def setUp(self):
        super().setUp()
        for each, method in _STUBBED.items():
            each.__init__ = method
        self.wire = Wire()
        patcher = helpers.mock.patch.object(
            requests.Session, 'get_adapter', lambda *_, **__: self.wire)
        patcher.start()
        self.addCleanup(patcher.stop)
        # Pages look up what IDs are called.
        self.answer('/images', listing('images'))
        self.answer('/patches', listing('patches'))

    def _setup_test_data(self):
        super()._setup_test_data()
        self.service_catalog.append({
            'type': 'diffcache', 'name': 'diffcache', 'endpoints_links': [],
            'endpoints': [{'region': 'RegionOne', 'interface': 'public',
                           'url': self.url, 'id': 'diffcache'}]})

    def answer(self, path, document, status=200, method='GET'):
        """Have the service answer requests of a path."""
        self.wire.documents[method, path] = status, document

    def refuse(self, path, status, detail, method='GET'):
        """Have the service refuse requests of a path."""
        self.answer(path, problem(status, detail), status, method)

    def with_rules(self):
        """Decide by the rules of the service; Horizon's tests allow all."""
        policy.reset()
        self.addCleanup(policy.reset)
        settings = test.override_settings(
            POLICY_CHECK_FUNCTION='openstack_auth.policy.check')
        settings.enable()
        self.addCleanup(settings.disable)

    def without(self, rule):
        """Return a context in which the user lacks one right."""
        return helpers.mock.patch.object(
            dashboard_policy, 'check', lambda rules, request, target=None:
            rule not in (name for _service, name in rules))

    def act_as(self, role, catalog=None):
        """Have a user of the project log in; members are readers too."""
        helpers.TestCase.setActiveUser(
            self, id=self.user.id, token=self.token,
            username=self.user.name, domain_id=self.domain.id,
            tenant_id=self.tenant.id,
            service_catalog=catalog or self.service_catalog,
            authorized_tenants=self.tenants.list(),
            roles=[{'id': '9', 'name': name} for name in
                   ({role, 'reader'} if role == 'member' else {role})])

    def messages(self, response):
        """Return the texts of the messages that a response shows."""
        return [message.message for message in
                response.context['messages']]


class ServerPageTest(PageTest):
    """Has Horizon's own page of a server.

    :cvar server: its ID
    :cvar project: that of its project
    """

    server = project = '1'

    def setUp(self):
        super().setUp()
        self.assertEqual(self.server, self.servers.first().id)
        self.assertEqual(self.project, self.tenant.id)
        for module, name, value in (
                (api.nova, 'server_get', self.servers.first()),
                (api.nova, 'instance_volumes_list', []),
                (api.nova, 'flavor_get', self.flavors.first()),
                (api.nova, 'is_feature_available', True),
                (api.neutron, 'server_security_groups', []),
                (api.neutron, 'is_extension_supported', False),
                (api.neutron, 'floating_ip_supported', True),
                (api.neutron, 'floating_ip_simple_associate_supported', True),
                (api.network, 'servers_update_addresses', None)):
            patcher = helpers.mock.patch.object(module, name,
                                                return_value=value)
            patcher.start()
            self.addCleanup(patcher.stop)
