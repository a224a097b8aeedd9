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
"""This suite's services, and their options in other services' configuration.

At the centre are the conductor, the API and the repository's agent; at the
site an agent on every compute host and one beside the site's Glance. Agents
reach the repository over the WAN and each other over the site's network. They
run as a user of their own.
"""

import dataclasses
import importlib.util
import pathlib
import shutil
import sys

from onemachine import errors
from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import common
from onemachine import shell

DIFFCACHE, GLANCE, NONE = KINDS = ('diffcache', 'glance', 'none')
SITE = 'site'
REPOSITORY = 'repository'
EDGE = 'edge'
# The agents' user, and its group: that of hosts' libvirt sockets, too.
USER = 'diffcache'
# What the agent of a compute host needs of root's rights.
_CAPABILITIES = ('chown', 'dac_override', 'dac_read_search')
# What diffcached needs of them, to mount.
_LAZY_CAPABILITIES = ('sys_admin',)
# The programs of this checkout are where its module was built.
_NATIVE_PROGRAMS = {'PATH': f'{layout.CHECKOUT}/.venv/bin:/usr/bin:/bin'}
# Less than the images of the tests need together.
CAPACITY = '250MB'

# Has oslo.config load what the suite adds to Glance and Nova.
_HOOK = {
    'DEFAULT': {'config_source': 'diffcache_hook'},
    'diffcache_hook': {'driver': 'diffcache'},
}

_NEW_KEY = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256',
            '-nodes')


@dataclasses.dataclass(frozen=True)
class Caching:
    """How the OpenStack caches images.

    :ivar kind: DIFFCACHE; NONE leaves Glance and Nova as they come; GLANCE
        likewise, with Glance's own cache at the site
    :ivar options: of the suite's services, over those given here
    """

    kind: str = DIFFCACHE
    options: common.Groups = dataclasses.field(default_factory=dict)

    @property
    def enabled(self) -> bool:
        """Whether Glance and Nova use the suite."""
        return self.kind == DIFFCACHE


class Suite:
    """The suite's services of one OpenStack."""

    def __init__(self, given: place.Place, caching: Caching) -> None:
        self._given = given
        self._where = given.where
        self._caching = caching

    @property
    def kind(self) -> str:
        """How the OpenStack caches images, as :class:`Caching` says it."""
        return self._caching.kind

    @property
    def options(self) -> common.Groups:
        """Options of the suite's services over those given here."""
        return self._caching.options

    def configure(self) -> None:
        """Write the configurations, and the key of the data plane."""
        self._ensure_keys()
        where = self._where
        self._write('conductor', common.database(where, 'diffcache'),
                    self._messaging('controller', 'centre'), {
            'conductor': {'check_interval': 2, 'host_timeout': 45},
            'nova': common.service_user(where, 'nova'),
            # It sees volumes of all projects.
            'cinder': common.service_user(where, 'cinder'),
        })
        self._write('api', common.database(where, 'diffcache'),
                    self._messaging('controller', 'centre'),
                    common.authtoken(where, 'diffcache'),
                    {'nova': common.service_user(where, 'nova'),
                     'cinder': common.service_user(where, 'diffcache')})
        self._write(
            REPOSITORY, self._agent(REPOSITORY, 'centre', where.wan_centre,
                                    self._state(REPOSITORY)),
            self._messaging('repository', REPOSITORY),
            {'agent': {'role': 'repository',
                       'cinder_socket': cinder_socket(where)},
             'repository': {'image_source': 'glance'},
             'glance': {**common.service_user(where, 'glance'),
                        'endpoint_override': where.url('glance')}})
        self._write(
            EDGE, self._agent(EDGE, SITE, where.lan_site, self._state(EDGE)),
            self._messaging('compute', EDGE),
            {'agent': {'glance_socket': glance_socket(where)}})
        for host in where.hosts:
            self._write(host, self._agent(
                host, SITE, where.lan(host), self._state(host)),
                self._messaging('compute', host),
                {'agent': {'output_directories': where.host / 'instances'},
                 'lazy': self._lazy(host)},
                self._ssd_cache())

    def _write(self, name: str, *groups: common.Groups) -> None:
        common.write(
            self._where, f'diffcache/{name}.conf',
            common.logging(self._where), common.messaging(self._where),
            *groups, self._caching.options)

    def _agent(self, name: str, site: str, address: str,
               state: pathlib.Path) -> common.Groups:
        where = self._where
        port = layout.PORTS['data-plane']
        tls = self._ensure_certificate(name, address)
        return {
            'agent': {
                'host': name, 'site': site, 'state_dir': state,
                'socket': socket(self._where, name),
                'cache_capacity': CAPACITY, 'heartbeat_interval': 10,
            },
            'data_plane': {
                'listen': f'{address}:{port}',
                'advertise_url': f'https://{address}:{port}',
                'key_file': where.etc / 'diffcache/key', **tls,
            },
            # All hosts share one folder of this machine as their store.
            'versions': {'store': f'file://{where.data}/versions',
                         'directories': where.host / 'instances',
                         'manifests': 'true'},
        }

    def _lazy(self, host: str) -> dict[str, object]:
        """Return how images are served on a host while they arrive."""
        folder = self._state(host) / 'lazy'
        return {'socket': folder / 'diffcached.sock', 'state_dir': folder,
                'mount': self._where.host / 'lazy',
                # However fast the link is that agents have measured.
                'worth_seconds': 0}

    def _ssd_cache(self) -> common.Groups:
        """Return the SSD cache of a compute host: a file, and small."""
        if not self._where.volumes:
            return {}
        folder = self._where.host / 'ssd-cache'
        return {'ssd_cache': {
            'device': folder / 'device', 'capacity': '64MiB',
            'socket': folder / 'nbd.sock', 'control': folder / 'control.sock',
            'state_dir': folder / 'state', 'reconnect_delay': 300,
            'epoch': 30,
            # Of servers whose flavor shares their memory.
            'guest_path': 'vhost-user',
            # Trials see what Nova and Cinder have written back, and when.
            'dirty_age': 3600,
        }}

    def _messaging(self, role: str, host: str) -> common.Groups:
        """Return options of the key that signs messages, and the authority."""
        return {'messaging': {
            'key_file': self._host_key(role, host),
            'authority_file': self._where.etc / 'diffcache/authority.pem'}}

    def _host_key(self, role: str, host: str) -> pathlib.Path:
        return self._where.etc / f'diffcache/{role}-{host}.key'

    def _ensure_keys(self) -> None:
        folder = self._where.folder('etc', 'diffcache')
        authority = ('--authority-key', folder / 'authority.key',
                     '--authority', folder / 'authority.pem')
        self._ensure_file(folder / 'key', 'key', 'create', folder / 'key')
        self._ensure_file(authority[3], 'authority', 'create', *authority)
        for role, site, host in (
                ('controller', SITE, 'centre'),
                ('cinder', SITE, 'centre'),
                ('repository', 'centre', REPOSITORY),
                ('compute', SITE, EDGE),
                *(('compute', SITE, host) for host in self._where.hosts)):
            path = self._host_key(role, host)
            self._ensure_file(path, 'host-key', 'create', *authority,
                              '--role', role, '--site', site, host, path)

    def _ensure_file(self, path: pathlib.Path, *command: object) -> None:
        """Have diffcache-manage write a file, unless it exists."""
        if not path.exists():
            shell.run(self._where.suite_program('diffcache-manage'), *command)

    def _ensure_certificate(self, name: str, address: str
                            ) -> dict[str, pathlib.Path]:
        """Create a certificate for an address, and its authority, once.

        :returns: the files, by option of the data plane
        """
        folder = self._where.folder('etc', 'diffcache')
        ca, own = folder / 'ca', folder / f'{name}-{address}'
        if not ca.with_name('ca.pem').exists():
            shell.run('openssl', 'req', '-x509', *_NEW_KEY, '-days', 3650,
                      '-subj', '/CN=DiffCache agents', '-keyout',
                      f'{ca}.key', '-out', f'{ca}.pem')
        if not pathlib.Path(f'{own}.pem').exists():
            shell.run('openssl', 'req', '-new', *_NEW_KEY,
                      '-subj', f'/CN={name}', '-addext',
                      f'subjectAltName=IP:{address}', '-keyout',
                      f'{own}.key', '-out', f'{own}.csr')
            shell.run('openssl', 'x509', '-req', '-in', f'{own}.csr',
                      '-CA', f'{ca}.pem', '-CAkey', f'{ca}.key', '-days',
                      3650, '-copy_extensions', 'copy', '-out', f'{own}.pem')
        return {'tls_ca_file': pathlib.Path(f'{ca}.pem'),
                'tls_cert_file': pathlib.Path(f'{own}.pem'),
                'tls_key_file': pathlib.Path(f'{own}.key')}

    def glance_groups(self) -> common.Groups:
        """Return the options of the site's Glance."""
        if self._caching.kind == NONE:
            return {'paste_deploy': {'flavor': 'keystone'}}
        if self._caching.kind == GLANCE:
            return {}
        return shell.merge(_HOOK, {
            'DEFAULT': {'image_cache_driver': 'diffcache'},
            'diffcache': {'socket': glance_socket(self._where)},
        })

    def glance_paste(self, text: str) -> str:
        """Return the site's pipeline, from the one that Glance comes with."""
        if not self._caching.enabled:
            return text
        return text.replace('cache cachemanage rootapp',
                            'cache cachemanage diffcache rootapp') + (
            '\n[filter:diffcache]\npaste.filter_factory ='
            ' diffcache_openstack.glance.range_filter:factory\n')

    def nova_groups(self, host: str) -> common.Groups:
        """Return the options of a host's Nova."""
        if not self._caching.enabled:
            return {}
        return shell.merge(_HOOK, {
            'DEFAULT': {'compute_driver': 'diffcache.LibvirtDriver'},
            'diffcache': {'socket': socket(self._where, host),
                          'snapshot_images': 'store'},
        })

    def cinder_groups(self, drivers: dict[str, str]) -> common.Groups:
        """Return the options of Cinder, with the drivers of backends."""
        if not self._caching.enabled:
            return {backend: {'volume_driver': driver}
                    for backend, driver in drivers.items()}
        return shell.merge(_HOOK, {
            'DEFAULT': {'backup_driver':
                        'diffcache_openstack.cinder.backup'
                        '.VersionStoreDriver'},
            **{backend: {
                'volume_driver': 'diffcache_openstack.cinder.driver.load',
                'diffcache_backend_driver': driver}
                for backend, driver in drivers.items()},
            'diffcache': {
                **self._messaging('cinder', 'centre')['messaging'],
                'socket': cinder_socket(self._where)},
        })

    def scheduler_groups(self) -> common.Groups:
        """Return the options of Nova's scheduler."""
        if not self._caching.enabled:
            return {}
        return {'filter_scheduler': {'weight_classes': (
            'nova.scheduler.weights.all_weighers,'
            'diffcache_openstack.nova.weights.BuildCostWeigher,'
            'diffcache_openstack.nova.weights.SsdRoomWeigher')},
            # Under TCG everything takes its time.
            'diffcache': {'cost_timeout': 2}}

    def sync(self) -> None:
        """Bring the schema up to date."""
        shell.run(
            *self._given.processes.enter('centre'),
            self._where.suite_program('diffcache-manage'), '--config-file',
            self.config('conductor'), 'db', 'sync',
            log=self._where.folder('log') / 'diffcache-manage.log')

    def config(self, name: str) -> pathlib.Path:
        """Return the configuration of a service or an agent."""
        return self._where.etc / 'diffcache' / f'{name}.conf'

    def ensure_conductor(self) -> bool:
        """Start the conductor."""
        return self._ensure(processes.Daemon(
            name='diffcache-conductor', place='centre',
            inputs=(self.config('conductor'),),
            command=(self._where.suite_program('diffcache-conductor'),
                     '--config-file', self.config('conductor'))), 'is ready')

    def ensure_agent(self, name: str) -> bool:
        """Start an agent: ``repository``, ``edge`` or a compute host's."""
        place = {REPOSITORY: 'centre', EDGE: 'site'}.get(name, name)
        is_host = name in self._where.hosts
        self._give_files(name, place)
        return self._ensure(processes.Daemon(
            name=f'{name}-agent', place=place, user=USER,
            capabilities=_CAPABILITIES if is_host else (),
            inputs=(self.config(name),),
            command=(self._where.suite_program('diffcache-agent'),
                     '--config-file', self.config(name))),
            f'Agent {name} serves')

    def ensure_lazy(self, host: str) -> bool:
        """Start what serves images on a host while they arrive."""
        self._give_files(host, host)
        shell.run(*self._given.processes.enter(host), 'sh', '-c',
                  'mkdir -p "$0" && chown "$1:$1" "$0"',
                  self._where.host / 'lazy', USER)
        return self._ensure(processes.Daemon(
            name=f'{host}-lazy', place=host, user=USER,
            capabilities=_LAZY_CAPABILITIES, inputs=(self.config(host),),
            environment=_NATIVE_PROGRAMS,
            command=(self._where.suite_program('diffcache-lazy'),
                     '--config-file', self.config(host))),
            'Serving images below')

    def ensure_ssd_cache(self, host: str) -> bool:
        """Start a host's SSD cache; the first time with an empty device."""
        folder = self._where.host / 'ssd-cache'
        ensure_user()
        shell.run(*self._given.processes.enter(host), 'sh', '-c',
                  'mkdir -p "$0" && chown "$1:$1" "$0"', folder, USER)
        return self._ensure(processes.Daemon(
            name=f'{host}-ssd-cache', place=host, user=USER,
            # Volumes are loop devices, which are root's.
            capabilities=('dac_override',),
            inputs=(self.config(host),),
            environment=_NATIVE_PROGRAMS,
            command=('sh', '-c', '[ -e "$0" ] || set -- "$@" --format;'
                     ' exec "$@"', folder / 'device',
                     self._where.suite_program('diffcache-ssdcache'),
                     '--config-file', self.config(host))), '"ready":true')

    def _give_files(self, name: str, place: str) -> None:
        """Give an agent's user what it reads, and where it writes.

        :raises OpenStackError: that user cannot run the program
        """
        ensure_user()
        if not shell.succeeds('setpriv', f'--reuid={USER}', '--clear-groups',
                              sys.executable, '-c', 'pass'):
            raise errors.OpenStackError(
                f'user {USER} cannot execute {sys.executable}: keep the state'
                f' in a folder that all users may enter, with --state, or'
                f' remove {self._where.suite_venv} and run tools/openstack up'
                f' again, to install with another Python')
        etc = self._where.etc / 'diffcache'
        shutil.chown(self.config(name), group=USER)
        for path in (etc / 'key', *etc.glob(f'{name}-*.key'),
                     *etc.glob(f'*-{name}.key')):
            shutil.chown(path, USER)
        state = self._state(name)
        versions = self._where.folder('data', 'versions')
        shell.run(*self._given.processes.enter(place), 'sh', '-c',
                  'mkdir -p "$0" && chown -R "$2:$2" "$0" "$1"', state,
                  versions, USER)

    def _state(self, name: str) -> pathlib.Path:
        """Return the folder of an agent's state."""
        if name in self._where.hosts:
            return self._where.host / 'diffcache'
        return self._where.data / name

    def ensure_api(self) -> bool:
        """Start the API."""
        return self._given.processes.ensure(self._given.wsgi(
            'diffcache-api', 'diffcache_openstack.api.wsgi',
            (self._where.centre, layout.PORTS['diffcache']),
            (self.config('api'),),
            venv=self._where.suite_venv,
            OS_DIFFCACHE_CONFIG_FILES=str(self.config('api'))))

    def has_api(self) -> bool:
        """Return whether this version of the suite has an API."""
        return importlib.util.find_spec(
            'diffcache_openstack.api.wsgi') is not None

    def _ensure(self, daemon: processes.Daemon, words: str) -> bool:
        """Start a service and wait until its log says that it serves."""
        if self._given.processes.is_current(daemon):
            return False
        log = self._given.processes.log(daemon.name)
        begin = log.stat().st_size if log.exists() else 0

        def is_ready() -> bool:
            with open(log, errors='replace') as file:
                file.seek(begin)
                return words in file.read()

        return self._given.processes.ensure(
            dataclasses.replace(daemon, ready=is_ready))


def ensure_user() -> None:
    """Create the agents' user."""
    if not shell.succeeds('id', USER):
        shell.run('useradd', '--system', '--user-group', '--no-create-home',
                  '--home-dir', '/nonexistent', '--shell',
                  '/usr/sbin/nologin', USER)


def socket(where: layout.Layout, name: str) -> pathlib.Path:
    """Return the socket of an agent, as those beside it see it."""
    if name in where.hosts:
        return where.host / 'diffcache/agent.sock'
    return where.data / name / 'agent.sock'


def cinder_socket(where: layout.Layout) -> pathlib.Path:
    """Return the socket of the centre's agent for Cinder."""
    return socket(where, REPOSITORY).with_name('cinder.sock')


def glance_socket(where: layout.Layout) -> pathlib.Path:
    """Return the socket of the site's agent for Glance."""
    return socket(where, EDGE).with_name('glance.sock')
