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
"""Nova's API over HTTP: what is sent, repeated, and made of answers."""

from oslo_context import fixture as context_fixture

from diffcache_openstack.cloud import nova
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from tests import base
from tests import openstack_apis

AGGREGATES = '/compute/v2.1/os-aggregates'
RACKS = {'id': 7, 'name': 'racks', 'hosts': ['h1']}
UNAVAILABLE = openstack_apis.Answer(503, {})


class NovaTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(openstack_apis.Cloud())
        self.nova = self.client()

    def client(self, options=''):
        text = self.cloud.options('nova') + options
        return nova.Nova(opts.new_config(files=[
            str(self.write_file('conf', text.encode()))]))

    def answer(self, *answers):
        self.cloud.answer('GET', AGGREGATES, *answers)

    def assertFails(self, kind, *arguments):
        return str(self.assertRaises(
            kind, *arguments or (self.nova.aggregates,)))


class TestRequests(NovaTest):

    def test_microversion_and_token(self):
        self.answer(openstack_apis.Answer(document={'aggregates': [RACKS]}))
        self.assertEqual([RACKS], self.nova.aggregates())
        [request] = self.cloud.requests
        self.assertEqual(f'compute {nova.MICROVERSION}',
                         request.headers['OpenStack-API-Version'])
        self.assertEqual(openstack_apis.TOKEN,
                         request.headers['X-Auth-Token'])

    def test_connected_once(self):
        self.answer(openstack_apis.Answer(document={'aggregates': []}))
        for _again in range(3):
            self.nova.aggregates()
        self.assertEqual(1, self.cloud.logins)

    def test_what_is_a_path_of_nova_is_no_server(self):
        self.cloud.answer('GET', '/compute/v2.1/servers/detail',
                          openstack_apis.Answer(document={'servers': []}))
        for name in ('detail', '.', '..'):
            self.assertRaises(exceptions.NotFound, self.nova.server, name)
        self.assertEqual([], self.cloud.requests)

    def test_a_users_token_is_passed_on(self):
        self.cloud.answer('GET', '/compute/v2.1/servers/a%2Fb',
                          openstack_apis.Answer(document={'server': {
                              'id': 'a/b', 'status': 'ACTIVE'}}))
        self.assertEqual('ACTIVE',
                         self.nova.server('a/b', 'a-users')['status'])
        [request] = self.cloud.requests
        self.assertEqual('a-users', request.headers['X-Auth-Token'])
        self.assertEqual(f'compute {nova.MICROVERSION}',
                         request.headers['OpenStack-API-Version'])

    def test_a_users_token_that_is_refused_is_not_replaced(self):
        self.cloud.answer('GET', '/compute/v2.1/servers/s1',
                          openstack_apis.Answer(401, {}))
        self.assertFails(exceptions.ServiceUnavailable, self.nova.server,
                         's1', 'a-users')
        self.assertEqual(['a-users'], [request.headers['X-Auth-Token']
                                       for request in self.cloud.requests])

    def test_a_services_token_that_expired_is_replaced(self):
        self.answer(openstack_apis.Answer(401, {}),
                    openstack_apis.Answer(document={'aggregates': [RACKS]}))
        self.assertEqual([RACKS], self.nova.aggregates())
        self.assertEqual(2, self.cloud.logins)

    def test_compute_services(self):
        self.cloud.answer('GET', '/compute/v2.1/os-services',
                          openstack_apis.Answer(document={'services': [
                              {'id': 'x', 'host': 'h1', 'zone': 'z'}]}))
        [service] = self.nova.compute_services()
        self.assertEqual(('h1', 'z'), (service['host'], service['zone']))
        self.assertEqual({'binary': 'nova-compute'},
                         self.cloud.requests[0].query)

    def test_our_request_id_is_handed_on(self):
        # Other tests of the same worker leave contexts in the thread.
        self.useFixture(context_fixture.ClearRequestContext())
        self.answer(openstack_apis.Answer(document={'aggregates': []}))
        self.nova.aggregates()
        self.assertNotIn('X-OpenStack-Request-ID',
                         self.cloud.requests[0].headers)
        context = self.useFixture(openstack_apis.Context()).context
        self.nova.aggregates()
        context.global_request_id = 'req-of-the-caller'
        self.nova.aggregates()
        self.assertEqual(
            [context.request_id, 'req-of-the-caller'],
            [request.headers['X-OpenStack-Request-ID']
             for request in self.cloud.requests[1:]])


class TestRepeating(NovaTest):

    def test_a_busy_service_is_asked_again(self):
        self.answer(UNAVAILABLE, UNAVAILABLE,
                    openstack_apis.Answer(document={'aggregates': [RACKS]}))
        self.assertEqual([RACKS], self.nova.aggregates())
        self.assertEqual(3, len(self.cloud.requests))

    def test_not_for_ever(self):
        self.answer(UNAVAILABLE)
        self.assertFails(exceptions.ServiceUnavailable)
        self.assertEqual(3, len(self.cloud.requests))

    def test_the_options_say_how_often(self):
        self.answer(UNAVAILABLE)
        self.nova = self.client('status_code_retries = 0\n')
        self.assertFails(exceptions.ServiceUnavailable)
        self.assertEqual(1, len(self.cloud.requests))

    def test_a_lost_connection_is_made_again(self):
        self.answer(openstack_apis.DROP, openstack_apis.Answer(
            document={'aggregates': [RACKS]}))
        self.assertEqual([RACKS], self.nova.aggregates())

    def test_other_failures_are_not_repeated(self):
        self.answer(openstack_apis.Answer(500, {}))
        self.assertFails(exceptions.ServiceUnavailable)
        self.assertEqual(1, len(self.cloud.requests))


class TestErrors(NovaTest):

    def test_a_service_that_hangs(self):
        self.answer(openstack_apis.HANG)
        self.nova = self.client('timeout = 0.1\n')
        text = self.assertFails(exceptions.ServiceUnavailable)
        self.assertIn('Nova could not list aggregates', text)
        self.assertIn('timed out', text)

    def test_statuses(self):
        for status, kind in (
                (400, exceptions.InvalidInput), (403, exceptions.Forbidden),
                (404, exceptions.NotFound), (406, exceptions.PermanentError),
                (409, exceptions.Conflict),
                (413, exceptions.ServiceUnavailable),
                (500, exceptions.ServiceUnavailable)):
            self.answer(openstack_apis.Answer(status, {}))
            self.assertFails(kind)

    def test_text_and_request_id_of_the_answer(self):
        for header in ('X-OpenStack-Request-ID', 'X-Compute-Request-ID'):
            self.answer(openstack_apis.Answer(
                403, {'forbidden': {'code': 403, 'message': 'Not you.'}},
                {header: 'req-of-nova'}))
            text = self.assertFails(exceptions.Forbidden)
            self.assertIn('Not you.', text)
            self.assertEqual(1, text.count('req-of-nova'))

    def test_the_id_of_an_earlier_answer_is_not_reported(self):
        self.answer(
            openstack_apis.Answer(500, {}, {
                'X-OpenStack-Request-ID': 'req-earlier'}),
            openstack_apis.DROP)
        self.assertIn('req-earlier',
                      self.assertFails(exceptions.ServiceUnavailable))
        self.assertNotIn('req-earlier',
                         self.assertFails(exceptions.ServiceUnavailable))

    def test_keystone_that_refuses_is_not_a_missing_server(self):
        self.nova = self.client('auth_url = '
                                f'{self.cloud.url}/nothing/v3\n')
        self.assertFails(exceptions.ServiceUnavailable, self.nova.server,
                         's1')

    def test_an_answer_of_something_else(self):
        for document in (b'<html>Welcome</html>', ['a'], {'aggregate': []}):
            self.answer(openstack_apis.Answer(document=document))
            self.assertFails(exceptions.ServiceUnavailable)

    def test_not_configured(self):
        error = self.assertRaises(
            exceptions.NotConfigured, nova.Nova(opts.new_config()).load)
        self.assertIn('[nova]', str(error))
