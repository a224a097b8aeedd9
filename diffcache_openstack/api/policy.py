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
"""Who may do what, by oslo.policy."""

import time
import typing

from oslo_config import cfg
from oslo_policy import opts as policy_opts
from oslo_policy import policy
from werkzeug import exceptions as http

from diffcache_openstack.api import policies
from diffcache_openstack.common import context as contexts
from diffcache_openstack.conf import opts

POLICY_FILE = 'policy.yaml'


# How long a decision holds, seconds. The library looks at its files and at
# the signatures of its checks each time it decides, which takes longer.
_LIFETIME = 1.0
# Kinds of checks that name a service which decides.
_REMOTE = ('http', 'https', 'opa')


class Enforcer:
    """The rules in force: the defaults, and what the policy file changes."""

    def __init__(self, conf: cfg.ConfigOpts):
        """Read the policy file, if there is one.

        :raises oslo_policy.policy.InvalidDefinitionError: it has a rule that
            cannot be used
        """
        policy_opts.set_defaults(conf, POLICY_FILE)
        self.rules = policy.Enforcer(conf, use_conf=True)
        self.rules.register_defaults(policies.list_rules())
        self.rules.load_rules()
        self._decisions: dict[tuple[str, str, str], bool] = {}
        self._forget_at = 0.0

    def require(self, ctxt: contexts.RequestContext, rule: str) -> None:
        """Refuse what a rule does not allow.

        :raises Forbidden: naming the rule, and what it takes
        """
        if not self.may(ctxt, rule):
            raise http.Forbidden(
                f'The policy {rule} does not allow this; it takes'
                f' {self.needed(rule)}. Ask who runs the cloud for such a'
                f' role, or to change the policy file.')

    def needed(self, rule: str) -> str:
        """What a rule takes, in the words of a policy file.

        Names of other rules are replaced with what those say. Addresses of
        services that decide are nobody's business, and left out.
        """
        return _spelled(self.rules.rules, self.rules.rules.get(rule), ())

    def may(self, ctxt: contexts.RequestContext, rule: str) -> bool:
        """Whether a rule allows the caller something of its own project."""
        target = {'project_id': ctxt.project_id}
        return self.allows(ctxt, rule, target)

    def allows(self, ctxt: contexts.RequestContext, rule: str,
               target: dict[str, typing.Any]) -> bool:
        """Whether a rule allows the caller something with a target."""
        now = time.monotonic()
        if now >= self._forget_at:
            self._decisions, self._forget_at = {}, now + _LIFETIME
        # All that a rule can look at.
        key = (rule, repr(target), repr(ctxt.to_policy_values()))
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = self._decide(ctxt, rule, target)
        return decision

    def _decide(self, ctxt, rule, target):
        try:
            return bool(self.rules.authorize(rule, target, ctxt))
        except policy.InvalidScope:
            # The token is of a scope that the rule is not for.
            return False


def _spelled(rules, check, within):
    """A check as text, without names of rules.

    :param within: names of the rules that it is a part of
    """
    for kind, word, other in ((policy.AndCheck, ' and ', ' or '),
                              (policy.OrCheck, ' or ', ' and ')):
        if isinstance(check, kind):
            parts = [_spelled(rules, part, within) for part in check.rules]
            return word.join(f'({part})' if other in part else part
                             for part in dict.fromkeys(parts))
    if isinstance(check, policy.NotCheck):
        return f'not ({_spelled(rules, check.rule, within)})'
    if isinstance(check, policy.RuleCheck) and check.match not in within:
        return _spelled(rules, rules.get(check.match),
                        (*within, check.match))
    if check is None or str(check) == '!':
        return 'what nobody has'
    if getattr(check, 'kind', '') in _REMOTE:
        return 'the consent of another service'
    return str(check)


def get_enforcer() -> policy.Enforcer:
    """The rules of this host's configuration, for oslo.policy's tools."""
    return Enforcer(opts.new_config(argv=[])).rules
