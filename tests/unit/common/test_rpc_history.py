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

from diffcache_openstack.common import rpc_history
from tests import base


class TestHistory(base.TestCase):

    history = rpc_history.History({
        '1.0': ('fetch', 'send'), '1.2': ('send.rate',),
        '1.9': ('send.window',), '1.10': ('stop',)})

    def test_latest_is_the_greatest_number(self):
        self.assertEqual('1.10', self.history.latest)

    def test_methods_without_arguments(self):
        self.assertEqual({'fetch', 'send', 'stop'}, self.history.methods)

    def test_a_method_needs_the_version_that_it_came_with(self):
        self.assertEqual('1.0', self.history.needed('fetch', ['rate']))
        self.assertEqual('1.10', self.history.needed('stop', []))

    def test_an_argument_needs_its_version_if_it_is_sent(self):
        for arguments, version in (
                ([], '1.0'), (['size'], '1.0'), (['size', 'rate'], '1.2'),
                (['window', 'rate'], '1.9')):
            self.assertEqual(version, self.history.needed('send', arguments))

    def test_a_method_without_entry_cannot_be_called(self):
        self.assertRaises(KeyError, self.history.needed, 'delete', [])
