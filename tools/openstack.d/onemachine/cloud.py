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
"""The whole: which steps bring it up, in which order, and the way down."""

import datetime
import hashlib
import json
import pathlib
import shutil
import time

from onemachine import errors
from onemachine import layout
from onemachine import network
from onemachine import place
from onemachine.services import broker
from onemachine.services import catalogue
from onemachine.services import cinder
from onemachine.services import computes
from onemachine.services import database
from onemachine.services import glance
from onemachine.services import horizon
from onemachine.services import keystone
from onemachine.services import memcache
from onemachine.services import neutron
from onemachine.services import nova
from onemachine.services import placement
from onemachine.services import ssh
from onemachine.services import suite
from onemachine.services import swift
from onemachine import shell
from onemachine import steps

_READY_SECONDS = 120
_POLL = 1.0
_FOUNDATIONS = ('mariadb', 'rabbitmq', 'epmd', 'memcached')
# Schemas that need more than the database: cell0's is made where the mapping
# says, and Keystone's administrator gets credentials.
_AFTER = {'nova': ('schema of nova_api',),
          'keystone': ('database dump', 'keys of Keystone')}


class Cloud:
    """An OpenStack with all its services, on one machine."""

    def __init__(self, given: place.Place,
                 caching: suite.Caching = suite.Caching(),
                 wan: float = 0.0) -> None:
        """Describe the cloud; :meth:`up` starts it.

        :param caching: how it caches images
        :param wan: what the link to the site carries, in Mbit/s; 0 is no
            limit
        """
        self._given = given
        self._where = given.where
        self._wan = wan
        self.suite = suite.Suite(given, caching)
        self.network = network.Network(given)
        self.database = database.Database(given)
        self.broker = broker.Broker(given)
        self.keystone = keystone.Keystone(given)
        self.swift = swift.Swift(given)
        self.glance = glance.Glance(given)
        self.placement = placement.Placement(given)
        self.neutron = neutron.Neutron(given)
        self.nova = nova.Nova(given)
        self.cinder = cinder.Cinder(given)
        self.horizon = horizon.Horizon(given)
        self.ssh = ssh.Ssh(given)
        self.computes = computes.Computes(given)

    def configure(self) -> None:
        """Write every configuration file."""
        self.keystone.configure()
        self.swift.configure()
        self.suite.configure()
        self.glance.configure(self.suite.glance_groups(),
                              self.suite.glance_paste)
        self.placement.configure()
        self.neutron.configure()
        self.nova.configure(self.suite.scheduler_groups())
        if self._where.volumes:
            self.cinder.configure(self.suite.cinder_groups(
                cinder.DRIVERS))
        if self._where.dashboard:
            self.horizon.configure()
        self.ssh.configure()
        for host in self._where.hosts:
            self.computes.configure(host, self.glance.url('site'),
                                    self.suite.nova_groups(host))

    def up(self) -> None:
        """Bring up what is not up.

        :raises OpenStackError: something cannot be started
        """
        self.configure()
        steps.run([
            *self._base_steps(), *self._schema_steps(),
            *self._control_steps(), *self._suite_steps(),
            *self._volume_steps(), *self._dashboard_steps(),
            *self._host_steps()],
            self._given.progress)

    def _base_steps(self) -> list[steps.Step]:
        return [
            steps.Step('network', self._ensure_network),
            steps.Step('keys of Keystone', self.keystone.ensure_keys),
            steps.Step('MariaDB', self.database.ensure, ('network',)),
            steps.Step('RabbitMQ', self.broker.ensure, ('network',)),
            steps.Step('memcached', lambda: memcache.ensure(self._given),
                       ('network',)),
            steps.Step('Swift', self.swift.ensure, ('memcached',)),
        ]

    def _ensure_network(self) -> bool:
        made = self.network.ensure()
        self.network.shape(self._wan)
        return made

    def _schema_steps(self) -> list[steps.Step]:
        syncs = {
            'keystone': self.keystone.sync,
            'glance': self.glance.sync,
            'placement': self.placement.sync,
            'neutron': self.neutron.sync,
            'nova_api': self.nova.sync_api,
            'nova': self.nova.sync_cells,
            'diffcache': self.suite.sync,
        }
        made = [
            steps.Step('database dump', self._load, ('MariaDB',)),
            *(steps.Step(
                f'schema of {name}',
                lambda name=name, sync=sync: self._sync(name, sync),
                _AFTER.get(name, ('database dump',)))
              for name, sync in syncs.items()),
        ]
        return [*made, steps.Step(
            'dump of the databases', self._dump,
            (*(step.name for step in made), 'catalogue'))]

    def _marks(self) -> pathlib.Path:
        return self._where.folder('data', 'schemas')

    def _sync(self, name: str, sync) -> bool:
        """Bring a schema up to date unless that was done."""
        mark, version = self._marks() / name, self._migrations(name)
        if mark.exists() and mark.read_text() == version \
                and self.database.has_tables(name):
            return False
        sync()
        mark.write_text(version)
        return True

    def _migrations(self, name: str) -> str:
        """Return what changes when a schema does."""
        if name != 'diffcache':
            return self._where.series.name
        return '\n'.join(sorted(path.name for path in layout.CHECKOUT.glob(
            'diffcache_openstack/db/migrations/versions/*.py')))

    def _load(self) -> bool:
        """Fill empty databases with what an earlier run filled them with."""
        if (not self.database.has_dump(self._key)
                or self.database.has_tables('keystone')):
            return False
        self.database.load(self._key)
        for name in (*database.NAMES, 'catalogue'):
            (self._marks() / name).write_text(self._migrations(name))
        return True

    def _dump(self) -> bool:
        """Keep the databases as they are before their first use."""
        if (self.database.has_dump(self._key)
                or (self._marks() / 'used').exists()):
            return False
        self.database.dump(self._key)
        return True

    @property
    def _key(self) -> str:
        """Changes when a dump would have other contents."""
        code = pathlib.Path(__file__).parent
        parts = [
            self._where.series.constraints.read_bytes(),
            *((code / name).read_bytes() for name in (
                'services/catalogue.py', 'services/keystone.py',
                'services/nova.py', 'layout.py')),
            # The first migration creates what the models have.
            *(path.read_bytes() for folder in ('models', 'migrations/versions')
              for path in sorted(layout.CHECKOUT.glob(
                  f'diffcache_openstack/db/{folder}/*.py'))),
            (self._where.cache / 'passwords.json').read_bytes(),
        ]
        return hashlib.sha256(b'\0'.join(parts)).hexdigest()[:16]

    def _control_steps(self) -> list[steps.Step]:
        def service(title, action, *after):
            return steps.Step(title, action, after)

        return [
            service('Keystone', self.keystone.ensure, 'schema of keystone',
                    'memcached'),
            service('catalogue', self._catalogue, 'Keystone'),
            service('Glance at the centre',
                    lambda: self.glance.ensure('centre'), 'catalogue',
                    'schema of glance', 'RabbitMQ', 'Swift',
                    'dump of the databases'),
            service('Glance at the site',
                    lambda: self.glance.ensure('site'), 'catalogue',
                    'schema of glance', 'RabbitMQ', 'Swift',
                    f'agent {suite.EDGE}', 'dump of the databases'),
            service('Placement', self.placement.ensure, 'catalogue',
                    'schema of placement', 'dump of the databases'),
            service('Neutron', self.neutron.ensure, 'catalogue',
                    'schema of neutron', 'RabbitMQ',
                    'dump of the databases'),
            service('Nova\'s API', self.nova.ensure_api, 'catalogue',
                    'schema of nova', 'RabbitMQ', 'dump of the databases'),
            service('Nova\'s conductor',
                    lambda: self.nova.ensure_service('conductor'),
                    'schema of nova', 'RabbitMQ', 'dump of the databases'),
            service('Nova\'s scheduler',
                    lambda: self.nova.ensure_service('scheduler'),
                    'schema of nova', 'RabbitMQ', 'Placement'),
            service('flavors', self._flavors, 'Nova\'s API'),
        ]

    def _suite_steps(self) -> list[steps.Step]:
        def agent(name, *after):
            return steps.Step(
                f'agent {name}', lambda: self.suite.ensure_agent(name),
                (*after, 'conductor of the suite'))

        made = [
            steps.Step('conductor of the suite', self.suite.ensure_conductor,
                       ('schema of diffcache', 'RabbitMQ', 'catalogue',
                        'dump of the databases')),
            agent(suite.REPOSITORY, 'Glance at the centre'),
            agent(suite.EDGE, 'network'),
            *(agent(host, f'{host}: network and disk',
                    f'{host}: images that arrive')
              for host in self._where.hosts),
            *(steps.Step(
                f'{host}: images that arrive',
                lambda host=host: self.suite.ensure_lazy(host),
                (f'{host}: network and disk',))
              for host in self._where.hosts),
        ]
        if self.suite.has_api():
            made.append(steps.Step(
                'API of the suite', self.suite.ensure_api,
                ('schema of diffcache', 'RabbitMQ', 'catalogue')))
        return made

    def _volume_steps(self) -> list[steps.Step]:
        if not self._where.volumes:
            return []

        def service(title, action, *after):
            return steps.Step(title, action, (
                *after, 'schema of cinder', 'RabbitMQ'))

        return [
            steps.Step('schema of cinder', self._sync_volumes,
                       ('dump of the databases',)),
            steps.Step('Cinder in the catalogue', self._volume_catalogue,
                       ('catalogue',)),
            service('Cinder\'s API', self.cinder.ensure_api,
                    'Cinder in the catalogue'),
            service('Cinder\'s scheduler',
                    lambda: self.cinder.ensure_service('scheduler')),
            service('Cinder\'s volumes',
                    lambda: self.cinder.ensure_service('volume')),
            service('Cinder\'s backups',
                    lambda: self.cinder.ensure_service('backup'),
                    f'agent {suite.REPOSITORY}'),
            *(steps.Step(f'{host}: SSD cache',
                         lambda host=host: self.suite.ensure_ssd_cache(host),
                         (f'agent {host}',))
              for host in self._where.hosts),
        ]

    def _dashboard_steps(self) -> list[steps.Step]:
        if not self._where.dashboard:
            return []
        return [
            steps.Step('static files of Horizon', self.horizon.ensure_static),
            steps.Step('Horizon', self.horizon.ensure,
                       ('static files of Horizon', 'catalogue',
                        'memcached')),
        ]

    def _sync_volumes(self) -> bool:
        # Databases may be older than the wish for volumes.
        self.database.grant()
        return self._sync('cinder', self.cinder.sync)

    def _volume_catalogue(self) -> bool:
        mark = self._marks() / 'catalogue of volumes'
        if mark.exists():
            return False
        catalogue.ensure_volumes(self._where)
        mark.touch()
        return True

    def _catalogue(self) -> bool:
        mark = self._marks() / 'catalogue'
        if mark.exists():
            return False
        catalogue.ensure(self._where)
        mark.touch()
        return True

    def _flavors(self) -> None:
        (self._marks() / 'used').touch()
        catalogue.ensure_flavors(self._where)

    def _host_steps(self) -> list[steps.Step]:
        made = []
        for host in self._where.hosts:
            made += [
                steps.Step(
                    f'{host}: network and disk',
                    lambda host=host: self._ensure_host(host), ('network',)),
                steps.Step(
                    f'{host}: SSH', lambda host=host: self.ssh.ensure(host),
                    (f'{host}: network and disk',)),
                steps.Step(
                    f'{host}: libvirt',
                    lambda host=host: self.computes.ensure_libvirt(host),
                    (f'{host}: network and disk',)),
                steps.Step(
                    f'{host}: nova-compute',
                    lambda host=host: self.computes.ensure_nova(host),
                    (f'{host}: libvirt', f'agent {host}',
                     'Nova\'s conductor', 'Placement')),
            ]
        return [*made, steps.Step(
            'all hosts are known', self._wait_for_hosts,
            (*(step.name for step in made), 'flavors', 'Neutron',
             'Glance at the centre', 'Glance at the site'))]

    def _ensure_host(self, host: str) -> bool:
        made = self.network.ensure_host(host)
        return self.computes.ensure_holder(host) or made

    def _wait_for_hosts(self) -> None:
        wanted = set(self._where.hosts)
        deadline = time.monotonic() + _READY_SECONDS
        while not wanted <= self._hosts_up():
            if time.monotonic() > deadline:
                missing = sorted(wanted - self._hosts_up())
                raise errors.OpenStackError(
                    f'nova-compute of {", ".join(missing)} has not'
                    f' registered: see {self._where.log}')
            time.sleep(_POLL)
        mapped = {row[0] for row in self.database.execute(
            'SELECT host FROM nova_api.host_mappings')}
        if not wanted <= mapped:
            self.nova.discover_hosts()

    def _hosts_up(self) -> set[str]:
        """Hosts whose nova-compute has reported since it was started.

        While it starts it gives up servers that it finds being built, so
        that none may be asked for by then.
        """
        rows = self.database.execute(
            'SELECT host, updated_at FROM nova.services'
            " WHERE `binary` = 'nova-compute' AND updated_at IS NOT NULL")
        return {
            host for host, reported in rows if host in self._where.hosts
            and reported.replace(tzinfo=datetime.UTC).timestamp()
            > self._given.processes.started(f'{host}-nova')}

    def down(self) -> None:
        """End what was started, and remove the networks."""
        processed = self._given.processes
        holders = [name for name in processed.names()
                   if name.endswith('-host')]
        # What others need to end in peace goes after them.
        processed.stop_all(set(processed.names()).difference(
            holders, _FOUNDATIONS))
        for name in holders:
            self.computes.end(name.removesuffix('-host'))
        processed.stop_all(processed.names())
        self.network.remove()

    def forget_suite(self) -> None:
        """Remove what the suite's services keep, while they are stopped."""
        self.database.execute('DROP DATABASE diffcache',
                              'CREATE DATABASE diffcache')
        (self._marks() / 'diffcache').unlink(missing_ok=True)
        shutil.rmtree(self._where.data / suite.REPOSITORY,
                      ignore_errors=True)
        self.forget_site()

    def forget_site(self) -> None:
        """Remove what the site's agents keep, while they are stopped."""
        shutil.rmtree(self._where.data / suite.EDGE, ignore_errors=True)
        for host in self._where.hosts:
            shell.run(*self._given.processes.enter(host), 'sh', '-c',
                      'rm -rf "$0"/*', self._where.host / 'diffcache')

    def purge(self) -> None:
        """Remove what services keep; what was installed stays."""
        for mounted in self._where.data.glob('cinder/mnt/*'):
            shell.succeeds('umount', mounted)
        for path in (self._where.data, self._where.etc, self._where.log,
                     self._where.run, self._where.host):
            shutil.rmtree(path, ignore_errors=True)

    def write_environment(self) -> None:
        """Leave what clients need to find it."""
        where = self._where
        variables = {
            'OS_AUTH_URL': f'{where.url("keystone")}/v3',
            'OS_USERNAME': 'admin',
            'OS_PASSWORD': where.password('admin'),
            'OS_PROJECT_NAME': 'admin',
            'OS_USER_DOMAIN_ID': 'default',
            'OS_PROJECT_DOMAIN_ID': 'default',
            'OS_REGION_NAME': 'RegionOne',
            'OS_IDENTITY_API_VERSION': '3',
            'OS_COMPUTE_API_VERSION': '2.latest',
        }
        shell.write(where.state / 'openrc', ''.join(
            f'export {name}={value}\n'
            for name, value in variables.items()) +
            f'export PATH={where.suite_venv}/bin:{where.venv}/bin:$PATH\n',
            0o600)
        shell.write(where.state / 'layout.json', json.dumps({
            'computes': where.computes,
            'volumes': where.volumes,
            'dashboard': where.dashboard,
            'series': where.series.name,
            'wan': self._wan,
            'caching': self.suite.kind,
            'hosts': where.hosts,
            'options': self.suite.options,
            'centre': where.centre,
            'site': where.site,
            'glance': {'centre': where.url('glance'),
                       'site': f'http://{where.site}'
                               f':{layout.PORTS["glance"]}'},
            'namespaces': {name: where.namespace(name) for name in (
                'centre', 'site', *where.hosts)},
        }, indent=2))
