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
"""Options of asking Nova for servers, and for hosts of aggregates."""

import copy

from oslo_config import cfg

from diffcache_openstack.common import keystone_opts

GROUP = cfg.OptGroup(
    'nova',
    title='Asking Nova',
    help='How the conductor and the API find servers that are saved as'
         ' versions, and the hosts of aggregates and availability zones that'
         ' precache jobs name. Without it, no server is saved, and jobs have'
         ' to name hosts.')

_DEFAULTS = keystone_opts.defaults('compute', 60.0)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    # A group remembers its options' values: each configuration its own.
    conf.register_group(copy.deepcopy(GROUP))
    keystone_opts.register_opts(conf, GROUP.name, _DEFAULTS)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """The group and its options, for the sample configuration."""
    return {GROUP: keystone_opts.sample_opts(_DEFAULTS)}
