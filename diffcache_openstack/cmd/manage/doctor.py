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
"""``diffcache-manage doctor``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.cmd.manage import host_checks
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common.signing import host_keys


class Doctor(base.Lister):
    """Check the host of a service, and say what to do about each problem.

    Configuration, clock, keys, certificates, disk, versions of QEMU, Nova and
    Glance, conductor and links.

    Run it as the service's user, with the service's configuration. Nothing is
    changed. The exit code is 1 if a check failed; warnings name what works,
    but could work better.
    """

    examples = ('--role compute',)
    _failed = False

    arguments = (
        cli.Argument('--role', choices=sorted(host_checks.CHECKS),
                     help='What runs on this host (default: [agent] role).'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        conf = self.app.agent_conf
        role = parsed_args.role or conf.agent.role
        if role == host_keys.CONTROLLER:
            conf = self.conf
        found = list(host_checks.findings(conf, role))
        self._failed = any(each.result == host_checks.FAILED
                           for each in found)
        return ('Check', 'Result', 'Finding'), [
            (name, result, self.text(line)) for name, result, line in found]

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the findings; return the exit code."""
        return super().run(parsed_args) or int(self._failed)
