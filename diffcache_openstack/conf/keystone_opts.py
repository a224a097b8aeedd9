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
"""Options of groups for the access to other services of OpenStack."""

import typing

from keystoneauth1 import loading
from oslo_config import cfg

# What an option is, unless the configuration says otherwise.
Defaults = dict[str, typing.Any]


def defaults(service_type: str, timeout: float) -> Defaults:
    """Return what differs from keystoneauth's own defaults.

    :param timeout: seconds; a service that hangs would otherwise keep a
        thread for ever
    """
    return {'service_type': service_type, 'timeout': timeout,
            'valid_interfaces': ['internal', 'public'],
            # Of GET and HEAD only; see keystone.Session. A timeout counts as
            # a lost connection, so that a call may last twice as long.
            'connect_retries': 1, 'status_code_retries': 2}


def register_opts(conf: cfg.ConfigOpts, group: str, values: Defaults) -> None:
    """Add the options to a group."""
    loading.register_auth_conf_options(conf, group)
    loading.register_session_conf_options(conf, group)
    loading.register_adapter_conf_options(conf, group)
    for name, value in values.items():
        conf.set_default(name, value, group)


def auth_opts() -> list[cfg.Opt]:
    """Return the options of authentication, for the sample file."""
    return [*loading.get_auth_common_conf_options(),
            *loading.get_auth_plugin_conf_options('password')]


def sample_opts(values: Defaults) -> list[cfg.Opt]:
    """Return all options, each once, for the sample file."""
    known: dict[str, cfg.Opt] = {}
    for option in (*auth_opts(), *loading.get_session_conf_options(),
                   *loading.get_adapter_conf_options()):
        option.default = values.get(option.dest, option.default)
        known.setdefault(option.name, option)
    return list(known.values())
