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
"""Access control by oslo.policy."""

import time
import typing

from oslo_config import cfg
from oslo_policy import opts as policy_opts
from oslo_policy import policy
from werkzeug import exceptions as http

from diffcache_openstack.api import policies
from diffcache_openstack.api.policies import base
from diffcache_openstack.common import contexts
from diffcache_openstack.conf import opts

POLICY_FILE = 'policy.yaml'


# Seconds for which a decision is cached. The library checks its files and the
# signatures of its checks for each decision, which takes longer.
_LIFETIME = 1.0
# Kinds of checks that call another service.
_REMOTE = ('http', 'https', 'opa')
# Attributes of objects that rules may refer to.
_ATTRIBUTES = ('project_id', 'user_id')

Target = dict[str, str]


def target_of(found: typing.Any) -> Target:
    """Return what rules know of an object, a document or a server.

    An attribute that the object lacks, such as the project of a job of the
    system, is left out: no rule that refers to it then matches.
    """
    values = found if isinstance(found, dict) else vars(found)
    return {name: values[name] for name in _ATTRIBUTES
            if values.get(name) is not None}


class Enforcer:
    """The rules in force: defaults and changes of the policy file."""

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
        """Refuse a request that a rule does not allow.

        :raises Forbidden: it names the rule and what it requires
        """
        self.require_on(ctxt, rule, _own(ctxt))

    def require_change(self, ctxt: contexts.RequestContext, rule: str,
                       target: Target) -> None:
        """Refuse to change an object unless the rules allow it.

        What belongs to another project than the token's takes the right to
        change all projects too: to see an object is not to change it.

        :raises Forbidden: it names the rule and what it requires
        """
        self.require_on(ctxt, rule, target)
        if target.get('project_id', '') != ctxt.project_id:
            self.require_on(ctxt, base.ALL_PROJECTS_WRITE, target)

    def require_on(self, ctxt: contexts.RequestContext, rule: str,
                   target: Target) -> None:
        """Refuse what a rule does not allow with an object.

        :raises Forbidden: it names the rule and what it requires
        """
        if not self.allows(ctxt, rule, target):
            raise http.Forbidden(
                f'The policy {rule} does not allow this; it requires'
                f' {self.needed(rule)}. Ask your cloud administrator for'
                f' such a role, or to change the policy file.')

    def needed(self, rule: str) -> str:
        """Return what a rule requires, in the language of a policy file.

        Names of other rules are replaced by their definitions. Addresses of
        other services are internal, and left out.
        """
        return _spelled(self.rules.rules, self.rules.rules.get(rule), ())

    def may(self, ctxt: contexts.RequestContext, rule: str) -> bool:
        """Return whether a rule allows something in the caller's project."""
        return self.allows(ctxt, rule, _own(ctxt))

    def allows(self, ctxt: contexts.RequestContext, rule: str,
               target: Target) -> bool:
        """Return whether a rule allows the caller something with a target."""
        now = time.monotonic()
        if now >= self._forget_at:
            self._decisions, self._forget_at = {}, now + _LIFETIME
        # Everything that a rule can depend on.
        key = (rule, repr(target), repr(ctxt.to_policy_values()))
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = self._decide(ctxt, rule, target)
        return decision

    def _decide(self, ctxt, rule, target):
        try:
            return bool(self.rules.authorize(rule, target, ctxt))
        except policy.InvalidScope:
            # The rule does not apply to the token's scope.
            return False


def _own(ctxt):
    """Return the target of a request that is about no object."""
    return target_of({'project_id': ctxt.project_id,
                      'user_id': ctxt.user_id})


def _spelled(rules, check, within):
    """Return a check as text, without names of rules.

    :param within: names of the rules that contain it
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
        return 'a role that does not exist'
    if getattr(check, 'kind', '') in _REMOTE:
        return 'the consent of another service'
    return str(check)


def get_enforcer() -> policy.Enforcer:
    """Return the rules of this configuration, for oslo.policy's tools."""
    return Enforcer(opts.new_config(argv=[])).rules
