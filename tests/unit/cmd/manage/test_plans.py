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
from diffcache_openstack.conductor import service
from diffcache_openstack.db.planning import plans
from tests.unit.cmd.manage import base


class TestPlans(base.FilledTest):

    def test_plan(self):
        conductor = service.ConductorService(self.conf)
        conductor.start()
        self.addCleanup(conductor.stop)
        result = self.run_words('plan', 'create', 'edge', '-f', 'json')
        self.assertEqual(0, result.code)
        made = result.json
        plan = self.database.read(plans.current_plan, 'edge')
        self.assertEqual(made['objects'], len(plan.items))
        self.assertEqual({'h1'}, {item.host for item in plan.items})
        self.assert_fails(1, 'nowhere', 'plan', 'create', 'nowhere')
