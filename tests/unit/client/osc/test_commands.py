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
"""What all commands share."""


from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
import requests

from diffcache_openstack.client.osc import commands
from tests import base as test_base


class TestErrors(test_base.TestCase):

    def words(self, **more):
        response = requests.Response()
        response.status_code = 409

        def fail():
            with commands.errors_in_words():
                raise sdk_exceptions.ConflictException(response=response,
                                                       **more)

        return str(self.assertRaises(exceptions.CommandError, fail))

    def test_words_of_other_services(self):
        # The library says nothing but the code of Cinder's and Nova's.
        self.assertEqual('Specs x exist.', self.words(
            message=None, details='Specs x exist.'))
        self.assertEqual('Wait.', self.words(message='Wait.', details='x'))
