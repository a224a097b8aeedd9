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
"""Options of the Nova client of the conductor and the API."""

import copy

from oslo_config import cfg

from diffcache_openstack.conf import keystone_opts

GROUP = cfg.OptGroup(
    'nova',
    title='The compute service',
    help='How the conductor and the API look up servers to save as versions,'
         ' and the hosts of aggregates and availability zones for precache'
         ' jobs. Without it no server can be saved, and jobs have to name'
         ' hosts.')

_DEFAULTS = keystone_opts.defaults('compute', 60.0)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group on a configuration."""
    # A group stores the values of its options: one for each configuration.
    conf.register_group(copy.deepcopy(GROUP))
    keystone_opts.register_opts(conf, GROUP.name, _DEFAULTS)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the group and its options for the sample configuration."""
    return {GROUP: keystone_opts.sample_opts(_DEFAULTS)}
