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
from diffcache_openstack.api.policies import hosts
from diffcache_openstack.api import policy
from diffcache_openstack.common import context
from tests.unit.db import database


class TestDecisions(database.DatabaseTest):
    """Decisions hold for a moment, for those who asked."""

    def setUp(self):
        super().setUp()
        self.enforcer = policy.Enforcer(self.conf)
        self.asked = []
        authorize = self.enforcer.rules.authorize

        def note(rule, target, ctxt):
            self.asked.append(ctxt.roles)
            return authorize(rule, target, ctxt)

        self.patch(self.enforcer.rules, 'authorize', note)
        self.now = 100.0
        self.patch(policy.time, 'monotonic', lambda: self.now)

    def may(self, *roles, rule=hosts.LIST):
        return self.enforcer.may(context.RequestContext(
            user_id='u', project_id='p', roles=list(roles),
            overwrite=False), rule)

    def test_same_question_is_decided_once(self):
        self.assertEqual([True] * 3, [self.may('admin') for _ in range(3)])
        self.assertEqual(1, len(self.asked))

    def test_other_roles_and_rules_are_other_questions(self):
        self.assertTrue(self.may('admin'))
        self.assertFalse(self.may('member'))
        self.assertTrue(self.may('admin', rule=hosts.DELETE))
        self.assertEqual(3, len(self.asked))

    def test_a_change_of_the_rules_holds_soon(self):
        self.assertFalse(self.may('dancer'))
        self.patch(self.enforcer.rules, 'authorize', lambda *_question: True)
        self.assertFalse(self.may('dancer'))
        self.now += policy._LIFETIME
        self.assertTrue(self.may('dancer'))
