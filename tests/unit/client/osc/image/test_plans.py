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
"""Plans, by commands over the API itself."""

import pathlib

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.client.osc.image import plans
from tests.unit.client import cloud
from tests.unit.client.osc import pages
from tests.unit.db import database


PNG = b'\x89PNG\r\n\x1a\n'


class TestPlans(cloud.CommandTest):

    def create(self):
        return self.shown(plans.CreatePlan, 'edge', '--wait')

    def test_create_apply_explain(self):
        plan = self.create()
        self.assertEqual(('proposed', 'seconds'),
                         (plan['state'], plan['objective']))
        self.assertIsNotNone(plan['moves_over_wan'])
        self.assertEqual('current',
                         self.shown(plans.ApplyPlan, plan['id'])['state'])
        # By the name of its site from now on.
        reasons = self.listed(plans.ExplainPlan, 'edge', '--host', 'h1')
        self.assertEqual({'h1'}, {row['Host'] for row in reasons})
        items = self.listed(plans.ListItems, 'edge')
        self.assertLessEqual({row['Host'] for row in items}, {'h1', 'h2'})
        [row] = self.listed(plans.ListPlans, '--state', 'current')
        self.assertEqual(plan['id'], row['ID'])

    def test_cancel(self):
        plan = self.create()
        self.take(plans.CancelPlan, plan['id'])
        self.assertEqual('cancelled',
                         self.shown(plans.ShowPlan, plan['id'])['state'])

    def test_failure_is_an_error(self):
        database.silence(self.database, 'h1', 'h2')
        error = self.assertRaises(exceptions.CommandError, self.create)
        self.assertIn('no living compute host', str(error))

    def test_graph(self):
        plan, path = self.create(), self.directory / 'plan.png'
        self.take(plans.ShowPlan, plan['id'], '--graph', str(path))
        self.assertEqual(PNG, path.read_bytes()[:len(PNG)])
        self.assertEqual([path], list(self.directory.glob('plan*')))

    def test_graph_that_cannot_be_written(self):
        plan = self.create()
        error = self.assertRaises(
            exceptions.CommandError, self.take, plans.ShowPlan, plan['id'],
            '--graph', str(self.directory / 'none' / 'plan.png'))
        self.assertIn('/none/plan.png: ', str(error))
        self.assertRaises(
            SystemExit, self.take, plans.ShowPlan, plan['id'], '--graph',
            str(self.directory / 'plan.cow'))
        self.assertFalse(list(pathlib.Path(self.directory).glob('plan*')))

    def test_what_if_nothing_changes(self):
        error = self.assertRaises(exceptions.CommandError, self.take,
                                  plans.WhatIf, 'edge')
        self.assertIn('--add-hosts 1', str(error))

    def test_what_if(self):
        shown = self.shown(plans.WhatIf, 'edge', '--repository-rate', '1000')
        self.assertGreater(shown['saving'], 0)
        self.assertEqual('seconds', shown['objective'])
        lean = self.shown(plans.WhatIf, 'edge', '--repository-rate', '1000',
                          '--objective', 'wan_bytes')
        self.assertEqual('wan_bytes', lean['objective'])
        self.assertLessEqual(lean['wan_per_request_after'],
                             1.0001 * shown['wan_per_request_after'])

    def test_what_if_with_units(self):
        shown = self.shown(plans.WhatIf, 'edge', '--add-capacity=-1TB')
        self.assertLess(shown['saving'], 0)
        self.assertRaises(SystemExit, self.take, plans.WhatIf, 'edge',
                          '--add-capacity', '1XB')

    def test_the_guide_shows_the_fields(self):
        names, _ = self.take(plans.CreatePlan, 'edge')
        pages.assert_are_fields(self, pages.CLIENT, 'plan create site', names)
        names, _ = self.take(plans.WhatIf, 'edge', '--repository-rate', '9')
        pages.assert_are_fields(self, pages.CLIENT, 'plan what-if', names)

    def test_solver_that_is_none(self):
        error = self.assertRaises(
            sdk_exceptions.BadRequestException, self.take, plans.CreatePlan,
            'edge', '--solver', 'oracle')
        self.assertIn("'oracle' is not installed; choose from", str(error))
        self.assertNotIn('Traceback', str(error))
