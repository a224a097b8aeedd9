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
import threading
import uuid

from diffcache_openstack.common import contexts
from tests import base

FIRST = f'req-{uuid.UUID(int=1)}'


class TestContext(base.TestCase):

    def test_requests_of_other_services(self):
        context = contexts.RequestContext.for_request(FIRST)
        self.assertEqual(FIRST, context.global_request_id)
        self.assertNotEqual(FIRST, context.request_id)

    def test_what_is_no_request_id_gets_into_no_log(self):
        for text in (None, '', 'req-1', f'{FIRST}\n', f'{FIRST} [admin]',
                     FIRST.upper(), 'x' * 10000):
            context = contexts.RequestContext.for_request(text)
            self.assertIsNone(context.global_request_id, text)

    def test_calls_carry_what_is_not_taken_for_granted(self):
        context = contexts.RequestContext.for_service('agent')
        self.assertEqual({'user', 'is_admin', 'request_id'},
                         set(context.to_rpc()))
        other = contexts.RequestContext(
            user_id='u', project_id='p', roles=['member'], auth_token='t',
            is_admin_project=False, overwrite=False)
        for sent in (context, other):
            self.assertEqual(
                {**sent.to_dict(), 'auth_token': None},
                contexts.RequestContext.from_rpc(sent.to_rpc()).to_dict())

    def test_current_request(self):
        found = []

        def work():
            found.append(contexts.current_request_id())
            own = contexts.RequestContext.for_request(None)
            own.update_store()
            found.append(contexts.current_request_id() == own.request_id)
            contexts.RequestContext.for_request(FIRST).update_store()
            found.append(contexts.current_request_id())

        # A thread of its own has no request yet.
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual([None, True, FIRST], found)
