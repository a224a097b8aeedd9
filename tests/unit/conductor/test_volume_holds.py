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

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.remote_calls import conductor_backups_api
from diffcache_openstack.remote_calls import conductor_holds_api
from diffcache_openstack.rpc import agent_volumes_api
from diffcache_openstack.rpc import methods
from tests import base
from tests.unit.conductor.endpoints import test_agents
from tests.unit.db import database

VOLUME, HOLD = str(uuid.uuid4()), str(uuid.uuid4())


class TestVolumeHolds(test_agents.ConductorTest):

    def setUp(self):
        super().setUp()
        self.api.register_host(self.ctxt, database.host('h1'))
        self.called = []
        for name in agent_volumes_api.AgentVolumesAPI.METHODS:
            self.patch(agent_volumes_api.AgentVolumesAPI, name,
                       lambda _self, _ctxt, *arguments, name=name:
                       self.called.append((name, *arguments)))
        self.holds = conductor_holds_api.HoldsAPI(self.bus, 30.0)

    def calls(self, host):
        yield 'begin_hold', (host, VOLUME, HOLD, 30.0)
        yield 'renew_hold', (host, VOLUME, HOLD, 30.0)
        yield 'end_hold', (host, VOLUME, HOLD)
        yield 'begin_queue', (host, VOLUME, 2.0)
        yield 'end_queue', (host, VOLUME)
        yield 'follow_type', (host, VOLUME, volume_specs.settings(None))

    def test_the_host_of_the_volume_does_it(self):
        for name, arguments in self.calls('h1'):
            getattr(self.holds, name)(self.ctxt, *arguments)
            self.assertEqual((name, *arguments), self.called[-1])

    def test_a_host_without_an_agent_has_nothing(self):
        for name, arguments in self.calls('elsewhere'):
            self.assertRaises(exceptions.NotFound,
                              getattr(self.holds, name), self.ctxt,
                              *arguments)
        self.assertEqual([], self.called)


class TestRights(base.TestCase):

    def test_keys_of_cinder_hold_retype_and_back_up_and_nothing_else(self):
        self.assertEqual({*conductor_holds_api.HoldsAPI.METHODS,
                          *conductor_backups_api.BackupsAPI.METHODS}, {
            name for (_namespace, name), method in methods.CONDUCTOR.items()
            if host_keys.CINDER in method.callers})
        self.assertEqual([], [
            name for name, method in methods.AGENT.items()
            if host_keys.CINDER in method.callers])
