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
import uuid

from diffcache_openstack.agent import manager
from diffcache_openstack.common import context
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.objects import base as objects_base
from diffcache_openstack.rpc import agent_api
from tests import base

REQUEST = objects.Request(id=str(uuid.uuid4()), template_id='t', host='h1',
                          way='local',
                          started_at=objects_base.now().replace(
                              microsecond=0))
TEMPLATE = objects.Template(id='t', content_id='0' * 64, size=2, data_size=1)


class Worker:
    """Keeps what it is asked for, and has an answer to everything."""

    def __init__(self):
        self.calls = []

    def get_image(self, *args):
        self.calls.append(('get_image', *args))
        if args[0] != 't':
            raise exceptions.NotFound(f'No template {args[0]}.')
        return REQUEST

    def register_image(self, *args):
        self.calls.append(('register_image', *args))
        return TEMPLATE

    def status(self):
        return {'holdings': [['templates', '0' * 64, 5]]}


class TestInterface(base.TestCase):

    def setUp(self):
        super().setUp()
        conf = opts.new_config()
        conf.set_override('transport_url', 'fake:/')
        conf.set_override('control_exchange', uuid.uuid4().hex)
        self.bus = messaging.Bus(conf, objects_base.Serializer())
        self.addCleanup(self.bus.close)
        self.worker = Worker()
        server = manager.serve(self.bus, 'h1', self.worker)
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.api = agent_api.AgentAPI(self.bus, conf)
        self.ctxt = context.RequestContext.for_service('test')

    def test_get_image(self):
        self.assertEqual(REQUEST, self.api.get_image(
            self.ctxt, 'h1', 't', '/x', mode='on_the_fly'))
        self.assertEqual([('get_image', 't', '/x', 'on_the_fly')],
                         self.worker.calls)

    def test_error(self):
        error = self.assertRaises(exceptions.NotFound, self.api.get_image,
                                  self.ctxt, 'h1', 'u', '/x')
        self.assertEqual('No template u.', str(error))

    def test_register_image(self):
        self.assertEqual(TEMPLATE, self.api.register_image(
            self.ctxt, 'h1', '/img', 't', 'Name'))
        self.assertEqual([('register_image', '/img', 't', 'Name')],
                         self.worker.calls)

    def test_status(self):
        self.assertEqual(self.worker.status(),
                         self.api.status(self.ctxt, 'h1'))
