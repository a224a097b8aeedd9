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
"""Registration of groups, and the options of access to other services."""

import copy
import dataclasses
import types
import typing

from keystoneauth1 import loading
from oslo_config import cfg


@dataclasses.dataclass(frozen=True)
class Access:
    """The options with which a group's user reaches a service.

    :param service_type: None for a library that finds the service itself
    :param timeout: seconds; a service that hangs would otherwise keep a
        thread for ever
    """

    group: cfg.OptGroup
    service_type: str | None = None
    timeout: float = 60.0

    @property
    def _defaults(self) -> dict[str, typing.Any]:
        """What differs from keystoneauth's own defaults."""
        return {'service_type': self.service_type, 'timeout': self.timeout,
                'valid_interfaces': ['internal', 'public'],
                # Of GET and HEAD only; see keystone.Session. A timeout counts
                # as a lost connection, so that a call may last twice as long.
                'connect_retries': 1, 'status_code_retries': 2}

    def register(self, conf: cfg.ConfigOpts) -> None:
        """Add the options to a configuration."""
        conf.register_group(copy.deepcopy(self.group))
        name = self.group.name
        loading.register_auth_conf_options(conf, name)
        if self.service_type is None:
            return
        loading.register_session_conf_options(conf, name)
        loading.register_adapter_conf_options(conf, name)
        for option, value in self._defaults.items():
            conf.set_default(option, value, name)

    def options(self) -> list[cfg.Opt]:
        """Return all options, each once, for the sample file."""
        found = [*loading.get_auth_common_conf_options(),
                 *loading.get_auth_plugin_conf_options('password')]
        if self.service_type is None:
            return found
        known: dict[str, cfg.Opt] = {}
        for option in (*found, *loading.get_session_conf_options(),
                       *loading.get_adapter_conf_options()):
            option.default = self._defaults.get(option.dest, option.default)
            known.setdefault(option.name, option)
        return list(known.values())


def register(conf: cfg.ConfigOpts, module: types.ModuleType) -> None:
    """Register the group that a module of this package defines."""
    # A group stores the values of its options: one for each configuration.
    conf.register_group(copy.deepcopy(module.GROUP))
    conf.register_opts(module.OPTS, group=module.GROUP)
    if access := getattr(module, 'ACCESS', None):
        access.register(conf)
