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
"""Hooks that extend Nova, Glance and Cinder, by their configuration alone.

Nova and Glance load their drivers by name from a package of their own. A
service that has ``config_source = diffcache`` and, in the group
``[diffcache]``, ``driver = diffcache`` calls this module while it reads its
configuration, before it loads any driver. The suite's folders are then added
to the packages in question. In Cinder, volume types are checked from then on.

It runs inside services of every kind, in nova-compute even before that has
decided how to run threads. So it imports nothing but what oslo.config needs,
and does nothing in services that it does not know.
"""

import importlib
import importlib.util
import logging
import os
import pathlib
import typing

from oslo_config import cfg
from oslo_config import sources

LOG = logging.getLogger(__name__)

NAME = 'diffcache'
_PACKAGE = pathlib.Path(__file__).parent.parent


class HookError(cfg.Error):
    """The service must not start: it would ignore its configuration."""

    def __init__(self, msg: str) -> None:
        super().__init__(f'DiffCache: {msg}')
        self._said = f'DiffCache: {msg}'

    def __str__(self) -> str:
        return self._said


class Nothing(sources.ConfigurationSource):
    """A source of no option."""

    def get(self, group_name: str | None, option_name: str, opt: cfg.Opt
            ) -> tuple[typing.Any, typing.Any]:
        """Return no value: this source has none."""
        return (sources._NoValue, None)


class Driver(sources.ConfigurationSourceDriver):
    """The entry point; see the module."""

    def list_options_for_discovery(self) -> list[cfg.Opt]:
        """Return no options: the driver has none."""
        return []

    def open_source_from_opt_group(self, conf: cfg.ConfigOpts,
                                   group_name: str) -> Nothing:
        """Extend the service that reads its configuration.

        :raises HookError: it cannot be, or its options make no sense
        """
        extend = _EXTENSIONS.get(conf.project or '')
        if extend is not None:
            extend()
        return Nothing()


def extend_nova() -> None:
    """Make ``compute_driver = diffcache.LibvirtDriver`` importable.

    :raises HookError: this Nova has no such package
    """
    _extend('nova.virt', _PACKAGE / 'nova' / 'virt')


def extend_glance() -> None:
    """Make ``image_cache_driver = diffcache`` valid and importable.

    :raises HookError: this Glance has no such package or option
    """
    _extend('glance.image_cache.drivers', _PACKAGE / 'glance' / 'image_cache')
    image_cache = importlib.import_module('glance.image_cache')
    option = next((opt for opt in image_cache.image_cache_opts
                   if opt.name == 'image_cache_driver'), None)
    if option is None or not hasattr(option.type, 'choices'):
        raise HookError('this version of Glance has no option'
                        ' image_cache_driver that could be extended; use a'
                        ' version that this suite supports.')
    _widen(option.type)


def extend_cinder() -> None:
    """Have Cinder check what volume types say about the SSD cache.

    :raises HookError: this Cinder stores types in another way
    """
    try:
        checks = importlib.import_module(
            'diffcache_openstack.cinder.type_checks')
        checks.install()
    except (ImportError, AttributeError) as error:
        raise HookError(
            f'this version of Cinder stores volume types in another way'
            f' ({error}); use a version that this suite supports.') from error


def _widen(kind: typing.Any) -> None:
    """Add the driver's name to what an option's type accepts."""
    for attribute in ('choices', 'lower_case_choices'):
        known = getattr(kind, attribute, None)
        if known is None or NAME in known:
            continue
        if isinstance(known, dict):
            setattr(kind, attribute, {**known, NAME: None})
        else:
            setattr(kind, attribute, type(known)([*known, NAME]))


def _extend(package: str, folder: pathlib.Path) -> None:
    """Extend the path of a package by a folder.

    :raises HookError: there is no such package, or no such folder
    """
    if not folder.is_dir():
        raise HookError(f'{folder} is missing; install this package again.')
    try:
        path = importlib.import_module(package).__path__
    except ImportError as error:
        raise HookError(
            f'{package} cannot be imported ({error}); this version of the'
            f' service is not supported.') from error
    if os.fspath(folder) not in path:
        path.append(os.fspath(folder))
        LOG.info('DiffCache: extended package %s by %s', package, folder)


_EXTENSIONS: dict[str, typing.Callable[[], None]] = {
    'nova': extend_nova,
    'glance': extend_glance,
    'cinder': extend_cinder,
}
