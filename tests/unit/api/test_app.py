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
"""What every request passes, whichever resource it is for."""

import dataclasses
import queue
import re
from unittest import mock

import fixtures
from oslo_context import context
from oslo_db import exception as db_exception

from diffcache_openstack.api import app
from diffcache_openstack.api import fields
from diffcache_openstack.api import handlers
from diffcache_openstack.api import microversions
from diffcache_openstack.common import contexts
from diffcache_openstack.common import messaging
from tests.unit.api import base


class TestDiscovery(base.ApiTest):

    def test_needs_no_token(self):
        [found] = self.get('/', user=None)['versions']
        self.assertEqual(('1.0', str(microversions.MAXIMUM)),
                         (found['min_version'], found['max_version']))
        self.assertEqual(found, self.get('/v1', user=None)['version'])

    def test_healthcheck_needs_no_token(self):
        response = self.client.get('/healthcheck')
        self.assertEqual(200, response.status_code)


class TestTokens(base.ApiTest):

    def test_without_token(self):
        self.assertEqual(401, self.client.get('/v1/hosts').status_code)

    def test_unknown_token(self):
        response = self.client.get('/v1/hosts',
                                   headers={'X-Auth-Token': 'forged'})
        self.assertEqual(401, response.status_code)

    def test_headers_do_not_replace_a_token(self):
        response = self.client.get('/v1/hosts', headers={
            'X-Roles': 'admin', 'X-Project-Id': base.PROJECT,
            'X-Identity-Status': 'Confirmed'})
        self.assertEqual(401, response.status_code)


class TestVersions(base.ApiTest):

    def test_oldest_without_a_wish(self):
        response = self.client.get('/v1/hosts',
                                   headers={'X-Auth-Token': 'admin'})
        self.assertEqual('diffcache 1.0',
                         response.headers['OpenStack-API-Version'])
        self.assertEqual('OpenStack-API-Version', response.headers['Vary'])

    def test_latest(self):
        _status, _body, headers = self.call('GET', '/v1/hosts')
        self.assertEqual(f'diffcache {microversions.MAXIMUM}',
                         headers['OpenStack-API-Version'])

    def test_unsupported(self):
        error = self.refused(406, 'GET', '/v1/hosts', version='9.9')
        self.assertEqual('diffcache.not_acceptable', error['code'])

    def test_malformed(self):
        for text in ('1', '1.x', 'one', '-1.0', '1.0.0'):
            self.refused(400, 'GET', '/v1/hosts', version=text)

    def test_of_another_service_is_no_wish(self):
        _status, _body, headers = self.call(
            'GET', '/v1/hosts',
            **{'OpenStack-API-Version': 'compute 2.90'})
        self.assertEqual('diffcache 1.0', headers['OpenStack-API-Version'])


class TestNeighbour(base.ApiTest):
    """A made later release: its version 1.1 has one more field and route."""

    NEW = microversions.Version(1, 1)

    def patch(self, owner, name, value):
        self.useFixture(fixtures.MockPatchObject(owner, name, value))

    def setUp(self):
        self.patch(microversions, 'VERSIONS', [microversions.MINIMUM,
                                               self.NEW])
        self.patch(microversions, 'MAXIMUM', self.NEW)
        self.enterContext(mock.patch.dict(fields.IMAGE.fields, {
            'members': fields.Field(since=self.NEW)}))
        routes = [
            dataclasses.replace(route, since=self.NEW)
            if route.path == '/v1/hosts' else route
            for route in handlers.routes()]
        self.patch(handlers, 'routes', lambda: routes)
        super().setUp()
        # The schema of the route has no optional field of a later version.
        self.conf.set_override('response_validation', 'ignore', 'api')

    def test_field_of_a_later_version(self):
        path = '/v1/images/t1'
        old = self.get(path, version='1.0')['image']
        new = self.get(path, version='1.1')['image']
        self.assertEqual({**old, 'members': 1}, new)
        self.assertNotIn('members', old)

    def test_route_of_a_later_version(self):
        error = self.refused(404, 'GET', '/v1/hosts', version='1.0')
        self.assertIn('requires version 1.1', error['detail'])
        self.get('/v1/hosts', version='1.1')


class TestErrors(base.ApiTest):

    def test_unknown_path(self):
        error = self.refused(404, 'GET', '/v1/cows')
        self.assertEqual('diffcache.not_found', error['code'])

    def test_two_slashes_are_no_redirection(self):
        self.refused(404, 'GET', '/v1//hosts')

    def test_wrong_method(self):
        status, _body, headers = self.call('PUT', '/v1/hosts')
        self.assertEqual(405, status)
        self.assertIn('GET', headers['Allow'])

    def test_unknown_parameter_is_named(self):
        error = self.refused(400, 'GET', '/v1/hosts?colour=red')
        self.assertIn('colour', error['detail'])

    def test_parameter_given_twice(self):
        error = self.refused(400, 'GET', '/v1/hosts?site=a&site=b')
        self.assertIn('site', error['detail'])

    def test_parameters_of_the_wrong_kind(self):
        for query in ('limit=0', 'limit=x', 'limit=-1', 'alive=perhaps',
                      'holds=123', 'site='):
            self.refused(400, 'GET', f'/v1/hosts?{query}')

    def test_body_that_is_no_json(self):
        response = self.client.post(
            '/v1/plans', data='{', content_type='application/json',
            headers={'X-Auth-Token': 'admin'})
        self.assertEqual(400, response.status_code)
        response = self.client.post(
            '/v1/plans', data='{}', content_type='text/plain',
            headers={'X-Auth-Token': 'admin'})
        self.assertEqual(415, response.status_code)

    def test_body_that_is_too_long(self):
        response = self.client.post(
            '/v1/plans', data=b'"' + b'x' * 2 ** 20 + b'"',
            content_type='application/json',
            headers={'X-Auth-Token': 'admin'})
        self.assertEqual(413, response.status_code)

    def test_body_that_does_not_fit(self):
        error = self.refused(400, 'POST', '/v1/plans',
                             {'plan': {'site': 7}})
        self.assertIn('plan/site', error['detail'])

    def test_failure_tells_nothing_of_the_inside(self):
        self.database.look = lambda *args: 1 / 0
        error = self.refused(500, 'GET', '/v1/hosts')
        self.assertNotIn('division', error['detail'])

    def test_a_database_that_is_away_is_worth_another_try(self):
        def look(*args):
            raise db_exception.DBConnectionError(
                OSError("Can't connect to MySQL server on '10.0.0.1'"))

        self.database.look = look
        error = self.refused(503, 'GET', '/v1/hosts')
        self.assertIn('database', error['detail'])
        self.assertNotIn('10.0.0.1', error['detail'])


class TestRequestIds(base.ApiTest):

    def test_answers_and_errors_have_one(self):
        error = self.refused(404, 'GET', '/v1/hosts/none')
        self.assertRegex(error['request_id'], '^req-')
        _status, _body, headers = self.call('GET', '/v1/hosts')
        self.assertRegex(headers['X-OpenStack-Request-ID'], '^req-')

    def test_callers_id_reaches_the_agent(self):
        sent = f'req-{base.unknown_id()}'
        found = queue.Queue()
        self.listen('h1').hold = lambda *_plan: found.put(
            context.get_current())
        self.api.plan_now(self.ctxt, 'edge')
        found.get(timeout=base.test_agents.ANSWER_SECONDS)
        _status, body, headers = self.call(
            'POST', '/v1/plans', {'plan': {'site': 'edge'}})
        self.conductor._proposals._pool.submit(int).result()
        status, _body, headers = self.call(
            'POST', f'/v1/plans/{body["plan"]["id"]}/apply', {},
            **{'X-OpenStack-Request-ID': sent})
        self.assertEqual(200, status)
        seen = found.get(timeout=base.test_agents.ANSWER_SECONDS)
        self.assertEqual(
            (sent, headers['X-OpenStack-Request-ID']),
            (seen.global_request_id, seen.request_id))

    def test_token_does_not_travel_on(self):
        serializer = messaging.ContextSerializer(None)
        sent = serializer.serialize_context(
            contexts.RequestContext(auth_token='secret'))
        self.assertNotIn('secret', sent.values())


class TestCors(base.ApiTest):

    def test_foreign_origin_gets_no_leave(self):
        response = self.client.options('/v1/hosts', headers={
            'Origin': 'https://elsewhere.example',
            'Access-Control-Request-Method': 'GET'})
        self.assertNotIn('Access-Control-Allow-Origin', response.headers)


class TestConfigured(base.ApiTest):

    def setUp(self):
        super().setUp()
        self.conf.set_override('allowed_origin',
                               ['https://dashboard.example'], 'cors')
        self.client = base.werkzeug_test.Client(
            app.build(self.conf, self.services))

    def test_known_origin_may_use_all_methods(self):
        for method in {route.method for route in handlers.routes()}:
            response = self.client.options('/v1/hosts', headers={
                'Origin': 'https://dashboard.example',
                'Access-Control-Request-Method': method})
            self.assertIn(method, response.headers.get(
                'Access-Control-Allow-Methods', ''))

    def test_known_origin_may_send_our_headers(self):
        response = self.client.options('/v1/hosts', headers={
            'Origin': 'https://dashboard.example',
            'Access-Control-Request-Method': 'GET',
            'Access-Control-Request-Headers': 'OpenStack-API-Version'})
        self.assertEqual('https://dashboard.example',
                         response.headers['Access-Control-Allow-Origin'])
        self.assertTrue(re.search(
            'openstack-api-version',
            response.headers['Access-Control-Allow-Headers'], re.I))
