#!/usr/bin/env python3
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
"""Write the default rules of the API as Horizon reads them.

Usage: policies.py FILE

Horizon decides by this file what it offers to a user; the API decides by the
rules in ``diffcache_openstack.api.policies`` what it does.
"""

import copy
import pathlib
import sys
import typing

import yaml

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE))

from diffcache_openstack.api import policies  # noqa: E402


def described(rule: typing.Any) -> dict[str, typing.Any]:
    """Return a rule with the keys that Horizon reads."""
    return {'name': rule.name, 'check_str': rule.check_str,
            'description': rule.description,
            # Copies, which YAML writes without references between rules.
            'operations': copy.deepcopy(getattr(rule, 'operations', [])),
            'scope_types': copy.copy(rule.scope_types)}


def main(names: list[str]) -> int:
    """Write the file; return the exit code."""
    if len(names) != 1:
        print('usage: policies.py FILE', file=sys.stderr)
        return 2
    text = yaml.safe_dump([described(rule) for rule in policies.list_rules()],
                          sort_keys=False)
    pathlib.Path(names[0]).write_text(
        '# Written by "tox -e genconfig" from the rules of the API.\n'
        f'{text}')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
