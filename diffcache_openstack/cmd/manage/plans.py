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
"""``diffcache-manage plan``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common.commands import cli


class PlanCreate(base.ShowOne):
    """Compute a new plan for a site now."""

    examples = ('edge-1',)
    arguments = (cli.Argument('site', metavar='SITE',
                              help='Name of the site.'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        with self.conductor() as conductor:
            plan = conductor.plan_now(base.service_context(),
                                      parsed_args.site)
        return ('site', 'generation', 'created_at', 'solver',
                'cost_s_per_day', 'lower_bound_s_per_day', 'proved_optimal',
                'solver_seconds', 'objects'), (
            plan.site, plan.generation, plan.created_at.isoformat(),
            plan.solver, plan.cost_s, plan.lower_bound_s,
            plan.proved_optimal, plan.solver_seconds, len(plan.items))
