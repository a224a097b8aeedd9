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
from oslo_policy import policy as oslo_policy
from werkzeug import exceptions as http

from diffcache_openstack.api.policies import hosts
from diffcache_openstack.api.policies import versions
from diffcache_openstack.api import policy
from diffcache_openstack.common import contexts
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
        return self.enforcer.may(contexts.RequestContext(
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


class TestRefusals(database.DatabaseTest):
    """Who is refused learns of the policy, and of what it takes."""

    def setUp(self):
        super().setUp()
        self.enforcer = policy.Enforcer(self.conf)

    def needed(self, check):
        """What it takes if the policy file says so of listing hosts."""
        self.enforcer.rules.set_rules(oslo_policy.Rules.from_dict(
            {'one': 'role:one', 'loop': 'rule:loop', hosts.LIST: check}),
            overwrite=False)
        return self.enforcer.needed(hosts.LIST)

    def test_a_refusal_names_the_policy_and_the_roles(self):
        nobody = contexts.RequestContext(user_id='u', project_id='p',
                                         roles=['member'], overwrite=False)
        error = self.assertRaises(http.Forbidden, self.enforcer.require,
                                  nobody, hosts.LIST)
        self.assertIn(hosts.LIST, error.description)
        self.assertIn('role:admin or role:service or (role:reader and'
                      ' system_scope:all)', error.description)

    def test_defaults(self):
        self.assertEqual('role:admin', self.enforcer.needed(hosts.DELETE))
        self.assertEqual(
            '(role:member and project_id:%(project_id)s) or role:admin',
            self.enforcer.needed(versions.CREATE))

    def test_what_a_policy_file_may_say(self):
        for check, expected in (
                ('role:seer', 'role:seer'),
                ('rule:one or role:one', 'role:one'),
                ('rule:one and not role:two', 'role:one and not (role:two)'),
                ('not (role:two or rule:one)', 'not (role:two or role:one)'),
                ('!', 'a role that does not exist'),
                ('rule:none', 'a role that does not exist'),
                ('http://decider.example/%(x)s or role:one',
                 'the consent of another service or role:one')):
            self.assertEqual(expected, self.needed(check), check)

    def test_rules_that_go_round_in_a_circle(self):
        self.assertEqual('rule:loop', self.needed('rule:loop'))
