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
"""Tokens, versions and rights, for all resources."""

import urllib.request

from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.services import diffcache_client
from diffcache_openstack.tempest_plugin.tests.api import base

LISTINGS = ('hosts', 'holdings', 'patches', 'plans', 'requests', 'sites',
            'ssd-caches')
OPEN_LISTINGS = ('images', 'precache-jobs', 'hydrations', 'profiles',
                 'volume-caches')
CHANGES = (
    ('plans', {'plan': {'site': 'none'}}),
    ('what-if', {'what_if': {'site': 'none', 'changes': {}}}),
    (f'plans/{base.UNKNOWN}/apply', {}),
    (f'plans/{base.UNKNOWN}/cancel', {}),
    ('precache-jobs', {'precache_job': {'images': ['x'], 'hosts': ['x']}}))


class TestAccess(base.ApiTest):

    @decorators.idempotent_id('2c9d4f60-5a3b-4a2e-9d0e-0b7f4c2a1e01')
    def test_without_token(self):
        for path in (*LISTINGS, *OPEN_LISTINGS, 'lookups'):
            request = urllib.request.Request(
                f'{self.admin.base_url}/{path}')
            error = self.assertRaises(urllib.error.HTTPError,
                                      urllib.request.urlopen, request)
            self.assertEqual(401, error.code, path)

    @decorators.idempotent_id('2c9d4f60-5a3b-4a2e-9d0e-0b7f4c2a1e02')
    def test_members_may_not_look_at_the_operators_things(self):
        for client in (self.member, self.reader, self.other):
            for path in LISTINGS:
                self.assertRaises(exceptions.Forbidden, client.fetch, path)

    @decorators.idempotent_id('2c9d4f60-5a3b-4a2e-9d0e-0b7f4c2a1e03')
    def test_everybody_may_look_at_their_own(self):
        for client in (self.admin, self.member, self.reader, self.other):
            for path in OPEN_LISTINGS:
                self.assertIsInstance(
                    client.fetch(path)[path.replace('-', '_')], list, path)

    @decorators.idempotent_id('2c9d4f60-5a3b-4a2e-9d0e-0b7f4c2a1e04')
    def test_members_may_not_change_what_hosts_hold(self):
        for client in (self.member, self.reader):
            for path, document in CHANGES:
                self.assertRaises(exceptions.Forbidden, client.send, path,
                                  document)
            self.assertRaises(exceptions.Forbidden, client.remove,
                              'hosts/none')

    @decorators.idempotent_id('2c9d4f60-5a3b-4a2e-9d0e-0b7f4c2a1e05')
    def test_what_does_not_exist(self):
        for path in ('cows', 'hosts/none', 'hosts/none/objects',
                     'images/none', 'images/none/locations',
                     'patches/none', f'plans/{base.UNKNOWN}',
                     f'precache-jobs/{base.UNKNOWN}', 'sites/none/report',
                     'sites/none/forecast'):
            self.assertRaises(exceptions.NotFound, self.admin.fetch, path)
        self.assertRaises(exceptions.NotFound, self.admin.remove,
                          'hosts/none')

    @decorators.idempotent_id('2c9d4f60-5a3b-4a2e-9d0e-0b7f4c2a1e06')
    def test_malformed_queries(self):
        for path in (*LISTINGS, *OPEN_LISTINGS):
            for query in ({'colour': 'red'}, {'limit': 0}, {'limit': 'x'}):
                self.assertRaises(exceptions.BadRequest, self.admin.fetch,
                                  path, **query)

    @decorators.idempotent_id('2c9d4f60-5a3b-4a2e-9d0e-0b7f4c2a1e07')
    def test_versions(self):
        client = self.client_of(self.os_admin)
        client.microversion = '1.0'
        answer = client.fetch('images', limit=1)
        self.assertEqual(
            'diffcache 1.0',
            answer.response[diffcache_client.VERSION_HEADER.lower()])
        client.microversion = '9.9'
        self.assertRaises(exceptions.NotAcceptable, client.fetch,
                          'images')
