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
"""All options of the suite, and configuration objects with them.

There is no global configuration: each service gets its own object, so that
several roles and several sites can run in one process.
"""

import collections
import collections.abc
import copy
import functools
import importlib.metadata
import re
import typing

from oslo_concurrency import opts as concurrency_options
from oslo_config import cfg
from oslo_db import options as db_options
from oslo_log import log
import oslo_messaging
from oslo_messaging import opts as messaging_options
from oslo_reports import opts as report_options
from oslo_utils import importutils

from diffcache_openstack.common import option_names
from diffcache_openstack.conf import groups
from diffcache_openstack.conf import quota

PROJECT = 'diffcache'
# Queues of this suite are in a separate exchange, so that topics cannot clash
# with those of other services on the same broker.
EXCHANGE = 'diffcache'
DEFAULT_CONNECTION = 'sqlite:////var/lib/diffcache/diffcache.sqlite'


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return every group and its options for oslo-config-generator."""
    found = _listed_without_access()
    for access in groups.accesses().values():
        found.setdefault(access.group, []).extend(access.options())
    return list(found.items())


def _listed_without_access() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    found = {module.GROUP: list(module.OPTS) for module in groups.modules()}
    found[quota.LIMIT_GROUP] = list(quota.LIMIT_OPTS)
    return found


def set_defaults() -> None:
    """Change defaults of oslo's options; called by the generator."""
    cfg.set_defaults(db_options.database_opts, connection=DEFAULT_CONNECTION)
    oslo_messaging.set_transport_defaults(EXCHANGE)


def _unlisted_messaging_opts() -> dict[str, list[cfg.Opt]]:
    """Return groups that oslo.messaging registers only globally.

    It reads them from every configuration passed to it, so ours need them
    too. Some of its versions lack one or both.
    """
    found = {}
    for module, group in (('_metrics', 'oslo_messaging_metrics'),
                          ('_tracing', 'oslo_messaging_tracing')):
        client = importutils.try_import(f'oslo_messaging.{module}.client')
        found[group] = getattr(client, group, [])
    return found


def register_all(conf: cfg.ConfigOpts) -> None:
    """Register the suite's and oslo's options on a configuration.

    Those of access to other services follow in :func:`parse`.
    """
    for module in groups.modules():
        groups.register(conf, module)
    conf.register_group(copy.deepcopy(quota.LIMIT_GROUP))
    conf.register_opts(quota.LIMIT_OPTS, group=quota.LIMIT_GROUP)
    for group, options in messaging_options.list_opts():
        conf.register_opts(options, group=group)
    for group, options in _unlisted_messaging_opts().items():
        conf.register_opts(options, group=group)
    for group, options in concurrency_options.list_opts():
        conf.register_opts(options, group=group)
    conf.set_default('control_exchange', EXCHANGE)
    db_options.set_defaults(conf, connection=DEFAULT_CONNECTION)
    log.register_options(conf)
    report_options.set_defaults(conf)


class HelpText(typing.NamedTuple):
    """Text of ``--help`` in addition to the options."""

    program: str
    description: str


def new_config(argv: collections.abc.Sequence[str] | None = None,
               files: collections.abc.Sequence[str] | None = None,
               help_text: HelpText | None = None) -> cfg.ConfigOpts:
    """Create a configuration with every option registered and parsed.

    :param argv: command line without the program's name; None is an empty one
    :param files: configuration files to read; None looks for the usual ones
        unless ``argv`` is None too, in which case none is read
    :param help_text: name and description of the program for ``--help``
    :raises oslo_config.cfg.Error: an unknown argument, a file that cannot be
        read, an option that none of our groups has, or a value that does not
        fit its option
    """
    conf = cfg.ConfigOpts()
    register_all(conf)
    parse(conf, argv, files, help_text)
    return conf


def version() -> str:
    """Return the version of the suite that is installed."""
    return importlib.metadata.version('diffcache-openstack')


def parse(conf: cfg.ConfigOpts,
          argv: collections.abc.Sequence[str] | None = None,
          files: collections.abc.Sequence[str] | None = None,
          help_text: HelpText | None = None) -> None:
    """Parse a command line and files into a configuration.

    Files that say nothing of a service have nothing to reach it with: the
    options for that are registered for the groups that files have, or for all
    if there are no files.

    The parameters are those of :func:`new_config`.
    """
    if argv is None and files is None:
        files = []
    program, description = help_text or (None, None)
    try:
        conf(list(argv or ()), project=PROJECT, prog=program,
             version=version(), description=description,
             default_config_files=None if files is None else list(files))
    except cfg.ConfigFilesNotFoundError as error:
        raise UnreadableFileError(
            f'There is no configuration file {", ".join(error.config_files)};'
            ' check --config-file.') from error
    except cfg.ConfigFilesPermissionDeniedError as error:
        raise UnreadableFileError(
            f'This user may not read {", ".join(error.config_files)}; run the'
            ' command as the user of the services, or as root.') from error
    found = {path: option_names.read(path)
             for path in option_names.files_of(conf)}
    given = {name for sections in found.values() for name in sections}
    groups.register_access(conf, given if found else None)
    for path, sections in found.items():
        _check_names(path, sections, conf)
    _check_values(conf, given)


# Groups to which libraries add options, and the namespaces where they list
# them for samples.
_SHARED = {'DEFAULT': ('oslo.log', 'oslo.messaging', 'oslo.service.service'),
           'barbican': ('castellan.config',), 'oslo_limit': ('oslo.limit',),
           'profiler': ('osprofiler',)}


def _check_names(path: str, sections: option_names.Sections,
                 conf: cfg.ConfigOpts) -> None:
    """Check that a file has no option in our groups that these do not have.

    Groups that only libraries read are not checked.

    :raises UnknownOptionError: it has
    """
    for section, given in sections.items():
        names = _names_of(section, (given.get('auth_type') or [''])[0])
        if names is None:
            continue
        if section == 'DEFAULT':
            names |= set(conf)
        option_names.check(path, section, given, names)


# Between what oslo.config says of an option's place and of its value.
_NOT_VALID = ' is not valid: '


class UnreadableFileError(cfg.Error):
    """A configuration file does not exist, or may not be read."""


class BadValueError(cfg.Error):
    """A file gives an option of ours a value that does not fit it."""


def _check_values(conf: cfg.ConfigOpts, given: set[str]) -> None:
    """Check the values of the options in our groups, which are read lazily.

    :param given: groups that files have
    :raises BadValueError: one does not fit its option
    """
    for group, options in _own_opts().items():
        access = _access_opts(group) if group in given else []
        for option in (*options, *access):
            try:
                getattr(conf[group], option.dest)
            except cfg.NoSuchOptError:
                # Of a plug-in, which registers it when it is loaded.
                continue
            except cfg.ConfigFileValueError as error:
                place, _, reason = str(error).partition(_NOT_VALID)
                path = re.search("detail='([^']*)'", place)
                raise BadValueError(
                    (f'{path[1]}: ' if path else '')
                    + f'group [{group}], option {option.name!r}:'
                    f' {_plain(reason or place)}') from error


def _plain(reason: str) -> str:
    """Return why a value is refused, without Python's words for it."""
    return re.sub(r'^(?:invalid literal for int\(\) with base \d+|could not'
                  r' convert string to float): (.*)$', r'\1 is not a number',
                  reason)


def _names_of(section: str, auth_type: str) -> set[str] | None:
    """Return the names of all options of a group; None if not all are known.

    :param auth_type: Keystone's plug-in that the group chooses, whose options
        it then has
    """
    options = [*_own_opts().get(section, ()), *_access_opts(section)]
    if not options and section not in _SHARED:
        return None
    for namespace in _SHARED.get(section, ()):
        listed = listed_opts(namespace)
        if section not in listed:
            return None
        options += listed[section]
    if auth_type:
        from keystoneauth1 import exceptions as ksa_exceptions
        from keystoneauth1 import loading
        try:
            options += loading.get_auth_plugin_conf_options(auth_type)
        except ksa_exceptions.NoMatchingPlugin:
            return None
    return option_names.known(options)


@functools.cache
def _own_opts() -> dict[str, list[cfg.Opt]]:
    """Return the options of our groups, without those of access."""
    return {str(group.name): options
            for group, options in _listed_without_access().items()}


def _access_opts(name: str) -> list[cfg.Opt]:
    access = groups.accesses().get(name)
    return access.options() if access else []


@functools.cache
def listed_opts(namespace: str) -> dict[str, list[cfg.Opt]]:
    """Return the options of a library; none if it is not installed."""
    found = collections.defaultdict(list)
    for entry in importlib.metadata.entry_points(
            group='oslo.config.opts', name=namespace):
        for group, options in entry.load()():
            found[str(group or 'DEFAULT')] += options
    return found
