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
"""Options of asking Nova which hosts its aggregates and zones have."""

import copy

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = cfg.OptGroup(
    'nova',
    title='Asking Nova',
    help='How the conductor finds the hosts of aggregates and availability'
         ' zones that precache jobs name. Without it, jobs have to name'
         ' hosts.')


def _auth_opts() -> list[cfg.Opt]:
    return [*loading.get_auth_common_conf_options(),
            *loading.get_auth_plugin_conf_options('password')]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    # A group remembers its options' values: each configuration its own.
    conf.register_group(copy.deepcopy(GROUP))
    loading.register_auth_conf_options(conf, GROUP.name)
    loading.register_session_conf_options(conf, GROUP.name)
    loading.register_adapter_conf_options(conf, GROUP.name)
    conf.set_default('service_type', 'compute', GROUP.name)
    conf.set_default('valid_interfaces', ['internal', 'public'], GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """The group and its options, for the sample configuration."""
    known: dict[str, cfg.Opt] = {}
    for option in (*_auth_opts(), *loading.get_session_conf_options(),
                   *loading.get_adapter_conf_options()):
        known.setdefault(option.name, option)
    return {GROUP: list(known.values())}
