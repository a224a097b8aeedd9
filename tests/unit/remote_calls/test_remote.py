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
"""Declarations of remote methods."""

from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire
from tests import base


class API(remote.API):

    NAMESPACE = 'test'

    @remote.call(remote.HOSTS, {'site': wire.SITE}, since='1.1')
    def ask(self, ctxt, site):
        """Ask."""


class Overriding(API):

    def ask(self, ctxt, site):
        """Ask in another way."""
        return super().ask(ctxt, site)


class TestDeclarations(base.TestCase):

    def test_the_version_is_that_of_the_newest_method(self):
        self.assertEqual(('test', '1.1'), (API.target().namespace,
                                           API.target().version))

    def test_a_method_that_is_overridden_keeps_its_declaration(self):
        self.assertEqual(API.table(), Overriding.table())
        self.assertEqual('1.1', Overriding.HISTORY.needed('ask', ['site']))
