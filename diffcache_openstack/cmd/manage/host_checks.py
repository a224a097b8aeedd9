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
"""Checks of a host on which a service is to run.

Each check is a generator of results with one line each: what was found, and
what to do about it. An error of this project that a check raises is a failure.
"""

import collections.abc
import datetime
import os
import pathlib
import shutil
import tempfile
import typing
import urllib.parse

from cryptography import x509
from oslo_config import cfg

from diffcache_openstack.agent.data_plane import identity
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.cmd.manage import host_systems
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import mounts
from diffcache_openstack.common import option_names
from diffcache_openstack.common import reflinks
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common import units
from diffcache_openstack.conf import dangers
from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_api

OK, WARNING, FAILED = 'ok', 'warning', 'failed'

# Certificates that expire sooner are named.
_EXPIRES_SOON = datetime.timedelta(days=30)
_SECONDS = 5.0
# With this the functional tests run.
_OLDEST_QEMU = (7, 2)
# Of 2025.1, the oldest series that tests are run with.
_OLDEST_NOVA = (31,)
_OLDEST_GLANCE = (30,)

Result = tuple[str, str]
Results = collections.abc.Iterator[Result]


class Finding(typing.NamedTuple):
    """What a check found: one of OK, WARNING and FAILED, and a line."""

    check: str
    result: str
    finding: str


def findings(conf: cfg.ConfigOpts, role: str
             ) -> collections.abc.Iterator[Finding]:
    """Make the checks of a host.

    :param conf: the configuration of the service
    :param role: one of CHECKS
    """
    for name, check in CHECKS[role].items():
        try:
            for result in check(conf):
                yield Finding(name, *result)
        except exceptions.DiffCacheError as error:
            yield Finding(name, FAILED, str(error))
        except OSError as error:
            yield Finding(name, FAILED, f'{error.filename or ""}:'
                                        f' {error.strerror or error}')


def _configuration(conf) -> Results:
    files = [*conf.config_file, *conf.config_dir]
    if files:
        yield OK, f'read from {", ".join(files)}'
    else:
        yield WARNING, ('no file was found, only defaults are used; name one'
                        ' with --config-file')


def _dangers(conf) -> Results:
    found = dangers.of(conf)
    for text in found:
        yield WARNING, f'{text}; change it unless this host needs it'
    if not found:
        yield OK, 'none is set to a dangerous value'


def _state(conf) -> Results:
    state = pathlib.Path(conf.agent.state_dir)
    if not os.access(state, os.R_OK | os.W_OK | os.X_OK):
        yield FAILED, (f'{state} does not exist or is not writable for user'
                       f' {os.geteuid()}; create it, or run this as the'
                       f' user of the agent')
        return
    usage = shutil.disk_usage(state)
    held = sum(path.lstat().st_blocks * 512
               for path in (state / 'objects').rglob('*') if path.is_file())
    room, capacity = usage.free + held, conf.agent.cache_capacity or 0
    has = (f'{state} ({mounts.mount_of(state).kind}) has'
           f' {units.format_size(room)} for the cache')
    if capacity > room:
        yield WARNING, (f'{has}, less than [agent] cache_capacity ='
                        f' {units.format_size(capacity)}; lower it')
    else:
        yield OK, has


def _extents(conf) -> Results:
    state = conf.agent.state_dir
    if not os.access(state, os.W_OK | os.X_OK):
        return
    with tempfile.TemporaryFile(dir=state) as source, \
            tempfile.TemporaryFile(dir=state) as target:
        source.write(bytes(1 << 16))
        source.flush()
        try:
            reflinks.clone(source.fileno(), target.fileno())
        except OSError as error:
            if error.errno not in reflinks.UNSUPPORTED:
                raise
            yield WARNING, (f'files in {state} cannot share extents, so that'
                            f' each delivered image is a copy; use XFS or'
                            f' Btrfs')
            return
    yield OK, f'files in {state} can share extents'


def _outputs(conf) -> Results:
    state = pathlib.Path(conf.agent.state_dir)
    for name in conf.agent.output_directories:
        path = pathlib.Path(name)
        if not path.is_dir():
            yield FAILED, f'{path} is no directory; create it'
        elif path.stat().st_dev != state.stat().st_dev:
            yield WARNING, (f'{path} is on another file system than {state},'
                            f' so that each delivered image is a copy')
        else:
            yield OK, f'{path} is on the file system of {state}'
    if not conf.agent.output_directories:
        yield WARNING, ('none, so that no image is delivered to Nova; set'
                        ' [agent] output_directories to its instances_path')


def _transfers(conf) -> Results:
    identity.check_encryption(conf)
    keys = identity.read_keys(conf)
    yield ((OK, f'requests are signed with {conf.data_plane.key_file}')
           if keys is not None else
           (WARNING, 'requests are not signed; set [data_plane] key_file'))
    path = conf.data_plane.tls_cert_file
    if path:
        yield _certificate(path, urllib.parse.urlsplit(
            conf.data_plane.advertise_url or '').hostname)


def _certificate(path: str, host: str | None) -> Result:
    try:
        found = x509.load_pem_x509_certificate(pathlib.Path(path).read_bytes())
    except ValueError as error:
        return FAILED, f'{path} is no certificate in PEM: {error}'
    left = found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    expires = f'{path} expires on {found.not_valid_after_utc:%Y-%m-%d}'
    if left < datetime.timedelta():
        return FAILED, f'{expires}; replace it'
    if host is not None and host not in _names(found):
        return FAILED, (f'{path} is not for {host}, the host of [data_plane]'
                        f' advertise_url; issue one with that name')
    return (WARNING if left < _EXPIRES_SOON else OK), expires


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {*names.get_values_for_type(x509.DNSName),
            *map(str, names.get_values_for_type(x509.IPAddress))}


def _messages(conf) -> Results:
    security = buses.load_security(conf)
    if security.key is None or security.authority is None:
        yield WARNING, ('messages are not signed, so that any client of the'
                        ' broker can act as any host; set [messaging] key_file'
                        ' and authority_file')
        return
    signer = security.authority.verify(
        security.key.certificate, security.key.sign(b'doctor'), b'doctor')
    yield OK, f'signed as {signer} with {conf.messaging.key_file}'


def _agent_conductor(conf) -> Results:
    return _conductor(conf, conf.agent.role, conf.agent.host)


def _controller_conductor(conf) -> Results:
    return _conductor(conf, host_keys.CONTROLLER, None)


def _conductor(conf, role, host) -> Results:
    bus = buses.open_bus(conf, role, host)
    try:
        conductor_api.ConductorAPI(bus, conf).get_revoked_keys(
            contexts.RequestContext.for_service('diffcache-manage'), 0)
    finally:
        bus.close()
    yield OK, 'answers over the broker'


def _database(conf) -> Results:
    with engine.errors_explained(conf):
        revision = migration.current(conf)
    if not migration.accepts(revision):
        yield FAILED, (f'at revision {revision or "none"}, not'
                       f' {migration.head()}; run "diffcache-manage db sync"')
    else:
        yield OK, f'at revision {revision}'


def _clock(conf) -> Results:
    if host_systems.clock_is_synchronised():
        yield OK, 'the kernel counts it as synchronised'
        return
    lifetime = conf.messaging.signature_lifetime
    yield WARNING, (
        'nothing synchronises it, and messages whose time is more than'
        f' [messaging] signature_lifetime = {lifetime} s off are refused; run'
        ' chrony or systemd-timesyncd')


def _programs(conf) -> Results:
    version = host_systems.version_of('qemu-img')
    if version is None:
        yield FAILED, 'qemu-img is missing; install the package qemu-utils'
        return
    yield _compared('QEMU', version, _OLDEST_QEMU)


def _nova(conf) -> Results:
    version = host_systems.version_of('nova-compute')
    if version is None:
        yield WARNING, ('nova-compute is not on the path, so that its version'
                        ' is not checked; add its directory to PATH')
        return
    yield _compared('Nova', version, _OLDEST_NOVA)


def _nova_options(conf) -> Results:
    return _options_of('nova', 'nova-compute')


def _glance_options(conf) -> Results:
    return _options_of('glance', 'glance-api')


def _options_of(project: str, program: str) -> Results:
    """Check the names of our options in the files of another project."""
    group = opts.PROJECT
    known = opts.listed_opts(f'{group}.{project}').get(group, ())
    # Where they are not installed, nothing of ours reads the files.
    for path in cfg.find_config_files(project, program) if known else ():
        try:
            option_names.check_group([path], group, known)
        except cfg.Error as error:
            yield FAILED, str(error)
        except OSError as error:
            yield WARNING, (f'{path} is not checked: {error.strerror}; run'
                            f' this as root, too')
        else:
            yield OK, f'{path}: all options of [{group}] are known'


def _glance(conf) -> Results:
    # Glance is a WSGI application without a program of its own.
    version = host_systems.version_of('glance-manage')
    if version is None:
        yield OK, 'glance-manage is not on the path of this host'
        return
    yield _compared('Glance', version, _OLDEST_GLANCE)


def _compared(name: str, version: tuple[int, ...], oldest: tuple[int, ...]
              ) -> Result:
    found = f'{name} {".".join(map(str, version))}'
    if version < oldest:
        return WARNING, (f'{found} is older than'
                         f' {".".join(map(str, oldest))}, the oldest that is'
                         f' tested; upgrade it')
    return OK, found


def _running(conf) -> Results:
    try:
        status = local_client.LocalClient(
            str(conf.agent.socket), _SECONDS).status()
    except exceptions.ServiceUnavailable as error:
        yield WARNING, f'no agent answers at {conf.agent.socket}: {error}'
        return
    if not status.get('conductor_reachable'):
        yield WARNING, ('runs without a conductor, by the site map of'
                        f' generation {status.get("map_generation")}')
    else:
        yield OK, f'runs by site map {status.get("map_generation")}'
    for found in status.get('repositories') or ():
        yield _repository(found)
    if status.get('scrub'):
        yield from _scrub(status['scrub'])


def _scrub(found: dict[str, typing.Any]) -> Results:
    for each in found['damages']:
        yield FAILED, (f'{each["object"]} was damaged; delivered from it since'
                       f' it was last found right:'
                       f' {", ".join(each["outputs"])}; remove these files,'
                       f' rebuild the servers on them, and delete'
                       f' {each["record"]}')
    options = (f'[agent] scrub_rate ='
               f' {units.format_size(found["rate"])}/s')
    if found['needed_rate'] > found['rate'] or found['overdue']:
        yield WARNING, (f'{found["overdue"]} stored objects were not read for'
                        f' more than [agent] scrub_days = {found["days"]};'
                        f' that takes'
                        f' {units.format_size(round(found["needed_rate"]))}/s:'
                        f' raise {options}')
    else:
        yield OK, (f'stored objects are read within {found["days"]} days at'
                   f' {options}')


def _repository(found: dict[str, typing.Any]) -> Result:
    name = f'repository {found["name"]}'
    if found['down_s'] is not None:
        return FAILED, (f'{name} does not answer for {found["down_s"]:.0f} s:'
                        f' {found["reason"]}')
    if found['mbps'] is None:
        return OK, f'{name}: its link was not measured yet'
    return OK, f'{name}: {found["mbps"]:.1f} Mbit/s measured'


_OF_AGENTS = {
    'configuration': _configuration, 'options': _dangers, 'clock': _clock,
    'state directory': _state,
    'shared extents': _extents, 'output directories': _outputs,
    'transfers': _transfers, 'messages': _messages,
    'conductor': _agent_conductor, 'programs': _programs,
    'Nova': _nova, 'options of Nova': _nova_options,
    'Glance': _glance, 'options of Glance': _glance_options,
    'agent': _running}
# What only hosts have that run servers.
_OF_COMPUTE = 'output directories', 'Nova', 'options of Nova'

#: By role, the checks of a host, by name.
CHECKS: dict[str, dict[str, collections.abc.Callable[..., Results]]] = {
    host_keys.COMPUTE: _OF_AGENTS,
    host_keys.REPOSITORY: {
        name: check for name, check in _OF_AGENTS.items()
        if name not in _OF_COMPUTE},
    host_keys.CONTROLLER: {
        'configuration': _configuration, 'options': _dangers, 'clock': _clock,
        'messages': _messages,
        'database': _database, 'conductor': _controller_conductor}}
