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
"""Every route has a policy and schemas, and keeps to its policy."""

import dataclasses
import pathlib
import re

import jsonschema
import yaml

from diffcache_openstack.api import app
from diffcache_openstack.api import handlers
from diffcache_openstack.api import policies
from diffcache_openstack.api import policy
from diffcache_openstack.api import routing
from tests import base as tests_base
from tests.unit.api import base

OPERATORS = {'admin', 'service', 'service-member', *base.SYSTEM_ROLES}
READERS = {*OPERATORS, 'member', 'reader', 'other'}
MEMBERS = {'admin', 'member', 'service-member', 'other'}
EVERYBODY = {*base.ROLES, *base.SYSTEM_ROLES}
# Who may use what a policy guards, by default.
MAY = {
    'diffcache:discover': EVERYBODY,
    'diffcache:hosts:list': OPERATORS,
    'diffcache:hosts:show': OPERATORS,
    'diffcache:hosts:delete': {'admin'},
    'diffcache:hydrations:list': READERS,
    'diffcache:hydrations:show': READERS,
    'diffcache:hydrations:update': MEMBERS,
    'diffcache:limits:show': READERS,
    'diffcache:lookups:show': OPERATORS,
    'diffcache:patches:list': OPERATORS,
    'diffcache:patches:show': OPERATORS,
    'diffcache:patches:pairs': OPERATORS,
    'diffcache:plans:list': OPERATORS,
    'diffcache:plans:show': OPERATORS,
    'diffcache:plans:create': {'admin'},
    'diffcache:plans:what_if': {'admin'},
    'diffcache:plans:apply': {'admin'},
    'diffcache:plans:cancel': {'admin'},
    'diffcache:precache_jobs:list': READERS,
    'diffcache:precache_jobs:show': READERS,
    'diffcache:precache_jobs:create': {'admin', 'service', 'service-member'},
    'diffcache:precache_jobs:update': MEMBERS,
    'diffcache:precache_jobs:cancel': MEMBERS,
    'diffcache:precache_jobs:retry': MEMBERS,
    'diffcache:requests:list': OPERATORS,
    'diffcache:requests:forecast': OPERATORS,
    'diffcache:sites:list': OPERATORS,
    'diffcache:sites:report': OPERATORS,
    'diffcache:profiles:list': READERS,
    'diffcache:profiles:show': READERS,
    'diffcache:profiles:import': MEMBERS,
    'diffcache:profiles:delete': MEMBERS,
    'diffcache:images:list': READERS,
    'diffcache:ssd_caches:list': OPERATORS,
    'diffcache:ssd_caches:show': OPERATORS,
    'diffcache:version_policies:list': READERS,
    'diffcache:version_policies:set': MEMBERS,
    'diffcache:version_policies:show': READERS,
    'diffcache:version_policies:unset': MEMBERS,
    'diffcache:version_stores:show': READERS,
    'diffcache:version_tasks:cancel': MEMBERS,
    'diffcache:version_tasks:list': READERS,
    'diffcache:version_tasks:show': READERS,
    'diffcache:version_tasks:replicate': {'admin'},
    'diffcache:version_tasks:verify': {'admin'},
    'diffcache:versions:create': MEMBERS,
    'diffcache:versions:delete': MEMBERS,
    'diffcache:versions:diff': MEMBERS,
    'diffcache:versions:export': MEMBERS,
    'diffcache:versions:list': READERS,
    'diffcache:versions:restore': MEMBERS,
    'diffcache:versions:show': READERS,
    'diffcache:versions:update': MEMBERS,
    'diffcache:volume_caches:act': {'admin'},
    'diffcache:volume_caches:list': READERS,
    'diffcache:volume_caches:show': READERS,
    'diffcache:volume_caches:update': {'admin'},
    'diffcache:images:show': READERS,
    'diffcache:images:locations': OPERATORS,
}
PUBLIC = ('/', '/v1')
GABBITS = (pathlib.Path(__file__).parents[2] / 'functional' / 'api'
           / 'gabbits')
UNKNOWN = '11111111-1111-4111-8111-111111111111'
METHODS = ('GET', 'POST', 'PUT', 'PATCH', 'DELETE')


def example(route: routing.Route) -> str:
    """A path of a route, of something that does not exist."""
    return re.sub('<[^>]*>', base.unknown_id(), route.path)


class TestDescriptions(tests_base.TestCase):

    def test_each_has_a_policy_that_names_it(self):
        documented = {
            (rule.name, operation['method'], operation['path'])
            for rule in policies.list_rules()
            for operation in getattr(rule, 'operations', ())}
        for route in handlers.routes():
            with self.subTest(route=route.template, method=route.method):
                self.assertIn((route.policy, route.method, route.template),
                              documented)

    def test_each_policy_names_routes_that_exist(self):
        routes = {(route.method, route.template)
                  for route in handlers.routes()}
        for rule in policies.list_rules():
            for operation in getattr(rule, 'operations', ()):
                with self.subTest(rule=rule.name):
                    self.assertIn((operation['method'], operation['path']),
                                  routes)

    def test_each_has_schemas_that_leave_nothing_open(self):
        for route in handlers.routes():
            with self.subTest(route=route.template, method=route.method):
                schemas = [route.query, route.response]
                if route.method in ('POST', 'PATCH', 'PUT'):
                    schemas.append(route.body)
                for schema in schemas:
                    jsonschema.Draft202012Validator.check_schema(schema)
                    self.assertTrue(schema)
                    if schema['type'] == 'object':
                        self.assertIs(False, schema['additionalProperties'])

    def test_good_answers_have_bodies_unless_they_say_so(self):
        for route in handlers.routes():
            self.assertEqual(route.status == 204,
                             route.response is routing.NOTHING)

    def test_no_two_are_the_same(self):
        keys = [(route.method, route.path) for route in handlers.routes()]
        self.assertEqual(len(keys), len(set(keys)))

    def test_a_route_cannot_be_made_without_them(self):
        self.assertRaises(TypeError, routing.Route, 'GET', '/x', len)
        self.assertRaises(TypeError, routing.Route, 'GET', '/x', len,
                          policy='p')


class TestOverHttp(tests_base.TestCase):
    """Each route is asked over HTTP in each of the ways that are refused."""

    def requests(self, name):
        """Method, path without ids and parameters, status; of a file."""
        tests = yaml.safe_load((GABBITS / name).read_text())['tests']
        return {(method, test[method].replace(UNKNOWN, '*').split('?')[0],
                 test['status'])
                for test in tests for method in METHODS if method in test}

    def check(self, name, wanted):
        """Compare with the statuses wanted of each route."""
        requests = self.requests(name)
        for route in handlers.routes():
            path = re.sub('<[^>]*>', '*', route.path)
            for status in wanted(route):
                self.assertIn((route.method, path, status), requests)

    def test_without_token_and_without_rights(self):
        self.check('access.yaml', lambda route: (
            () if route.path in PUBLIC else (401, 403)))

    def test_of_what_does_not_exist(self):
        self.check('missing.yaml', lambda route: (
            (404,) if '<' in route.path else ()))

    def test_malformed(self):
        self.check('malformed.yaml', lambda route: (
            (400, 415) if route.body is not None else (400,)))


class TestAccess(base.ApiTest):

    def test_expectations_are_complete(self):
        self.assertEqual({route.policy for route in handlers.routes()},
                         set(MAY))

    def test_without_token(self):
        for route in handlers.routes():
            status, _body, _headers = self.call(
                route.method, example(route), user=None)
            with self.subTest(route=route.template, method=route.method):
                self.assertEqual(route.path in PUBLIC, status != 401)

    def test_each_user_may_do_what_the_policies_say(self):
        for route in handlers.routes():
            for user in EVERYBODY:
                status, body, _headers = self.call(
                    route.method, example(route), user=user,
                    body={} if route.body else None)
                with self.subTest(route=route.template, user=user,
                                  method=route.method):
                    self.assertEqual(user in MAY[route.policy],
                                     status != 403, body)

    def test_what_does_not_exist_is_not_found(self):
        for route in handlers.routes():
            if '<' not in route.path or route.body is not None:
                continue
            with self.subTest(route=route.template, method=route.method):
                error = self.refused(404, route.method, example(route))
                self.assertEqual('diffcache.not_found', error['code'])


class TestBodies(base.ApiTest):

    def test_text_that_is_no_json(self):
        for route in handlers.routes():
            if route.body is None:
                continue
            answer = self.client.open(
                example(route), method=route.method, data=b'{"a": ',
                content_type='application/json', headers={
                    'X-Auth-Token': 'admin',
                    'OpenStack-API-Version': 'diffcache latest'})
            with self.subTest(route=route.template, method=route.method):
                self.assertEqual(400, answer.status_code, answer.text)
                self.assertIn('not JSON', answer.text)


class TestPolicyFile(base.ApiTest):

    def test_changes_who_may(self):
        path = self.write_file(
            'policy.yaml', b'"diffcache:hosts:list": "role:dancer"\n')
        self.conf.set_override('policy_file', str(path), 'oslo_policy')
        self.client = base.werkzeug_test.Client(app.build(
            self.conf, dataclasses.replace(
                self.services, enforcer=policy.Enforcer(self.conf))))
        self.get('/v1/hosts', user='nobody')
        error = self.refused(403, 'GET', '/v1/hosts', user='admin')
        self.assertIn('diffcache:hosts:list', error['detail'])
