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
"""Registration of groups, and the options of access to other services.

keystoneauth, which defines the latter, is loaded when they are asked for: a
compute host's agent needs none.
"""

import collections.abc
import copy
import dataclasses
import importlib
import pkgutil
import types
import typing

from oslo_config import cfg

from diffcache_openstack import conf as package


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
        """Add the options to a configuration; those it has stay."""
        from keystoneauth1 import loading
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
        from keystoneauth1 import loading
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
    """Register the group that a module of this package defines.

    Its options of access are registered by their :class:`Access`.
    """
    # A group stores the values of its options: one for each configuration.
    conf.register_group(copy.deepcopy(module.GROUP))
    conf.register_opts(module.OPTS, group=module.GROUP)


def modules() -> list[types.ModuleType]:
    """Return the modules that define a group of options each, by name."""
    names = sorted(module.name for module in
                   pkgutil.iter_modules(package.__path__))
    found = [importlib.import_module(f'{package.__name__}.{name}')
             for name in names]
    return [module for module in found if hasattr(module, 'GROUP')]


def accesses() -> dict[str, Access]:
    """Return the access to other services, by the name of its group."""
    return {access.group.name: access for module in modules()
            if (access := getattr(module, 'ACCESS', None))}


def register_access(conf: cfg.ConfigOpts,
                    names: collections.abc.Container[str] | None = None
                    ) -> None:
    """Register the options with which groups reach other services.

    :param names: of the groups; None for all
    """
    for name, access in accesses().items():
        if names is None or name in names:
            access.register(conf)
