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
"""Container files and the role agree with the programs, options and units."""

import configparser
import os
import pathlib
import re
import subprocess

import yaml

from diffcache_openstack.conf import opts
from tests import base

TREE = pathlib.Path(__file__).parents[3]
KOLLA = TREE / 'kolla'
IMAGES = KOLLA / 'docker/diffcache'
ROLE = KOLLA / 'ansible/roles/diffcache'
# Units of systemd for services that the role has containers of.
UNITS = {'diffcache-agent': 'diffcache-agent',
         'diffcache-repository': 'diffcache-repository',
         'diffcache-lazy': 'diffcache-lazy',
         'diffcache-ssdcache': 'diffcache-ssdcache'}

# Keys of a service that say nothing of its container.
NOT_OF_CONTAINERS = {'container_name', 'group', 'enabled', 'haproxy'}
# Paths of hosts that are there before any container.
ON_ALL_HOSTS = {'/etc/localtime', '/etc/machine-id', '/dev', '/run'}

# Groups whose options libraries register when they use them.
OTHERS = {'database', 'keystone_authtoken', 'oslo_concurrency',
          'oslo_middleware'}


def read_yaml(path: pathlib.Path):
    return yaml.safe_load(path.read_text())


def read_config(path: pathlib.Path) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser()
    found.read(path)
    return found


class KollaTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.defaults = read_yaml(ROLE / 'defaults/main.yml')
        self.services = self.defaults['diffcache_services']
        self.images = {path.parent.name
                       for path in IMAGES.glob('*/Dockerfile.j2')}

    def command(self, service: str) -> str:
        """Return the command line of a service's container."""
        text = (ROLE / f'templates/{service}.json.j2').read_text()
        [command] = re.findall(r'"command": "(.*)"', text)
        return command


class ImagesTest(KollaTestCase):

    def test_each_is_named_and_built_on_the_base(self):
        self.assertIn('diffcache-base', self.images)
        for name in self.images - {'diffcache-base'}:
            text = (IMAGES / name / 'Dockerfile.j2').read_text()
            self.assertIn('/{{ image_prefix }}diffcache-base:{{ tag }}', text)
            block = name.replace('-', '_')
            for part in ('header', 'footer'):
                self.assertIn(f'{{% block {block}_{part} %}}', text)

    def test_bootstrap_runs_a_command_that_exists(self):
        text = (IMAGES / 'diffcache-conductor/extend_start.sh').read_text()
        setup = read_config(TREE / 'setup.cfg')
        self.assertIn('diffcache-manage db sync', text)
        self.assertIn('db_sync =', setup['options.entry_points'][
            'diffcache.manage'])

    def test_wheels_are_looked_for_where_they_are_added(self):
        build = read_config(KOLLA / 'kolla-build.conf')
        overrides = (KOLLA / 'template-override.j2').read_text()
        added = {name for name in build.sections() if 'additions' in name}
        self.assertEqual(
            {f'{block.replace("_", "-")}-additions-diffcache'
             for block, text in re.findall(
                 r'block (\w+)_footer %}(.*?){% endblock', overrides,
                 re.DOTALL) if 'ADD additions-archive /' in text}, added)
        for name in {*added, 'diffcache-base'}:
            self.assertEqual('local', build[name]['type'])

    def test_the_user_is_that_of_the_role(self):
        user = read_config(KOLLA / 'kolla-build.conf')['diffcache-user']
        self.assertEqual(
            (user['uid'], user['gid']),
            (self.defaults['diffcache_uid'], self.defaults['diffcache_gid']))


class RoleTest(KollaTestCase):

    def test_every_image_has_a_container(self):
        used = set(re.findall(
            r'\{\{ (diffcache_\w+)_image_full \}\}',
            '\n'.join(each['image'] for each in self.services.values())))
        self.assertEqual({name.replace('-', '_') for name in
                          self.images - {'diffcache-base'}}, used)

    def test_commands_are_console_scripts(self):
        setup = read_config(TREE / 'setup.cfg')
        scripts = {line.partition(' =')[0] for line in setup[
            'options.entry_points']['console_scripts'].split('\n') if line}
        for service in self.services:
            program = re.findall(r'(\S+) --config-file', self.command(service))
            self.assertLessEqual(set(program), scripts)
            self.assertEqual(1, len(program))

    def test_each_service_has_a_health_check(self):
        for name, service in self.services.items():
            [variable] = re.findall(r'\w+', service['healthcheck'])
            [test] = re.findall(r'\{\{ (\w+_test) \}\}',
                                self.defaults[variable]['test'])
            kind, command = self.defaults[test]
            self.assertEqual('CMD-SHELL', kind, name)
            self.assertRegex(command, r'^(healthcheck_\w+|diffcache) ', name)

    def test_the_health_of_the_ssd_cache_is_asked_of_it(self):
        _kind, command = self.defaults['diffcache_ssdcache_healthcheck_test']
        program, *words, control = command.split(' ', 4)
        self.assertEqual(['ssdcache', 'status', '--control'], words)
        text = (ROLE / 'templates/diffcache.conf.j2').read_text()
        self.assertIn(f'\ncontrol = {control}\n', text)

    def test_each_service_has_a_handler_a_configuration_and_a_group(self):
        names = {each['name']
                 for each in read_yaml(ROLE / 'handlers/main.yml')}
        self.assertEqual({f'Restart {name} container'
                          for name in self.services}, names)
        self.assertEqual({f'{name}.json.j2' for name in self.services},
                         {path.name for path in
                          (ROLE / 'templates').glob('*.json.j2')})
        inventory = (KOLLA / 'ansible/inventory/diffcache').read_text()
        [_gather, _balance, play] = read_yaml(KOLLA / 'ansible/diffcache.yml')
        for service in self.services.values():
            self.assertIn(f'[{service["group"]}:children]', inventory)
            self.assertIn(service['group'], play['hosts'])

    def test_capabilities_are_those_of_the_units(self):
        for service, unit in UNITS.items():
            # A container has no mounter: what serves images mounts, too.
            units = sorted((TREE / 'etc/systemd').glob(f'{unit}*.service'))
            wanted = ' '.join(
                re.search(r'CapabilityBoundingSet=(.*)', each.read_text())[1]
                for each in units)
            names = [name.removeprefix('CAP_').lower()
                     for name in wanted.split()]
            given = ','.join(['-all', *(f'+{name}' for name in names)])
            for kind in ('bounding-set', 'inh-caps', 'ambient-caps'):
                self.assertIn(f'--{kind}={given} ', self.command(service))

    def test_options_exist(self):
        conf, group = opts.new_config(), 'DEFAULT'
        text = (ROLE / 'templates/diffcache.conf.j2').read_text()
        found = 0
        for line in text.partition('{% endmacro %}')[2].splitlines():
            if section := re.match(r"\[(\w+)\]|\{\{ account\('(\w+)'\)", line):
                group = section[1] or section[2]
            elif (option := re.match(r'(\w+) =', line)) \
                    and group not in OTHERS:
                known = conf if group == 'DEFAULT' else conf[group]
                self.assertIn(option[1], known, f'[{group}]')
                found += 1
        self.assertGreater(found, 30)

    def services_with(self, pattern: str) -> dict[str, set[str]]:
        """Return the services whose configuration has what matches."""
        text = (ROLE / 'templates/diffcache.conf.j2').read_text()
        services, users = [], {}
        for line in text.partition('{% endmacro %}')[2].splitlines():
            if line.startswith('{% if'):
                services.append(set(re.findall("'(diffcache-[a-z]+)'", line)))
            elif line.startswith('{% endif'):
                services.pop()
            elif found := re.search(pattern, line):
                users[found[1]] = services[-1]
        return users

    def test_no_service_of_a_compute_host_has_an_account(self):
        # The conductor asks Cinder for the volumes of policies.
        controllers = {'diffcache-conductor', 'diffcache-api'}
        self.assertEqual({
            'nova': controllers, 'cinder': controllers,
            'keystone_authtoken': {'diffcache-api'},
            'glance': {'diffcache-repository'}},
            self.services_with(r"account\('(\w+)'\)"))

    def test_who_listens_to_notifications_has_their_broker(self):
        # Kolla may send them to another one than messages of RPC.
        self.assertEqual(
            {'notifications': {'diffcache-conductor',
                               'diffcache-repository'}},
            self.services_with(r'^\[(notifications)\]'))

    def test_the_queue_manager_has_a_directory_for_its_lock(self):
        # oslo.messaging ends every service at its first message otherwise.
        text = (ROLE / 'templates/diffcache.conf.j2').read_text()
        self.assertIn('use_queue_manager = true', text)
        self.assertRegex(text, r'\[oslo_concurrency\]\nlock_path = /\S+\n')

    def test_handlers_create_containers_as_they_are_compared(self):
        handlers = {each['name']: each['kolla_container']
                    for each in read_yaml(ROLE / 'handlers/main.yml')}
        for name, service in self.services.items():
            given = handlers[f'Restart {name} container']
            self.assertLessEqual(
                service.keys() - NOT_OF_CONTAINERS, given.keys(), name)

    def test_binds_of_podman_exist_before_the_container(self):
        # Podman creates no directory to bind, and /run is empty after a
        # restart of the host.
        config = (ROLE / 'tasks/config.yml').read_text()
        for name in self.services:
            key = name.replace('-', '_')
            for bind in self.defaults[f'{key}_default_volumes']:
                source = re.split(r':(?=/)', bind)[0].rstrip('/')
                if source.startswith('/'):
                    self.assertIn(source, ON_ALL_HOSTS, name)
                elif re.fullmatch(r'\{\{ diffcache_\w+ \}\}', source):
                    self.assertIn(f'path: "{source}"', config, name)


class LazyTest(KollaTestCase):

    def test_processes_of_images_outlive_the_container(self):
        # With a PID namespace or the cgroup of the container they would end
        # with it, and guests with them.
        service = self.services['diffcache-lazy']
        self.assertEqual(('host', 'host', True), (
            service['pid_mode'], service['cgroupns_mode'],
            service['privileged']))
        folder = IMAGES / 'diffcache-lazy'
        self.assertIn('echo $$ > /sys/fs/cgroup/diffcache-lazy/cgroup.procs',
                      (folder / 'extend_start.sh').read_text())
        self.assertIn('COPY extend_start.sh /usr/local/bin/'
                      'kolla_diffcache_extend_start',
                      (folder / 'Dockerfile.j2').read_text())

    def test_processes_of_images_do_not_write_to_the_container(self):
        # Its output ends with it: a keeper that could not write ended when
        # its worker did, and guests could not read.
        text = (IMAGES / 'diffcache-lazy/extend_start.sh').read_text()
        self.assertIn('\nexec >> /var/log/kolla/diffcache/diffcache-lazy.log'
                      ' 2>&1\n', text)


class SsdCacheTest(KollaTestCase):

    def setUp(self):
        super().setUp()
        self.image = IMAGES / 'diffcache-ssdcache'
        self.unit = (TREE / 'etc/systemd/diffcache-ssdcache.service'
                     ).read_text()

    def test_its_user_may_open_block_devices(self):
        [groups] = re.findall('SupplementaryGroups=(.*)', self.unit)
        text = (self.image / 'Dockerfile.j2').read_text()
        self.assertIn(f'usermod --append --groups {groups.replace(" ", ",")}'
                      ' diffcache', text)
        self.assertIs(True, self.services['diffcache-ssdcache']['privileged'])

    def test_it_knows_its_host(self):
        # The cache ends without; images of containers have none.
        self.assertIn('/etc/machine-id:/etc/machine-id:ro',
                      self.defaults['diffcache_ssdcache_default_volumes'])

    def test_files_are_its_own(self):
        [mask] = re.findall('UMask=(.*)', self.unit)
        self.assertIn(f'\numask {mask}\n',
                      (self.image / 'extend_start.sh').read_text())

    def test_qemu_connects_to_exports_and_to_nothing_else(self):
        # Nova's container of libvirt is not built on that of Nova.
        text = (KOLLA / 'template-override.j2').read_text()
        [block] = re.findall(r'block nova_libvirt_footer %}(.*?){% endblock',
                             text, re.DOTALL)
        self.assertEqual(['diffcache-nbd'], re.findall(
            'usermod --append --groups (.*) nova', block))
        self.assertNotIn('groups diffcache ', text)
        conf = (ROLE / 'templates/diffcache.conf.j2').read_text()
        self.assertEqual(
            {'diffcache-nova', 'diffcache-glance', 'diffcache-nbd'},
            set(re.findall('(?m)^(?:glance_)?socket_group = (.*)', conf)))

    def test_groups_of_sockets_have_one_number_in_all_images(self):
        numbers = {}
        for path in KOLLA.rglob('*.j2'):
            for number, name in re.findall(r'groupadd --gid (\d+) (\S+)',
                                           path.read_text()):
                numbers.setdefault(name, []).append(number)
        self.assertEqual(
            {'diffcache-nova': ['42901'] * 2, 'diffcache-glance':
             ['42902'] * 2, 'diffcache-nbd': ['42903'] * 2}, numbers)

    def test_each_option_that_it_needs_is_set(self):
        text = (ROLE / 'templates/diffcache.conf.j2').read_text()
        [group] = re.findall(r'\[ssd_cache\]\n(.*?){% endif', text, re.DOTALL)
        self.assertLessEqual(
            {'device', 'capacity', 'socket', 'control', 'state_dir'},
            set(re.findall(r'^(\w+) =', group, re.MULTILINE)))

    def test_volumes_of_ceph_have_their_program(self):
        text = (self.image / 'Dockerfile.j2').read_text()
        self.assertIn("'qemu-utils'", text)
        self.assertIn("'qemu-img'", text)

    def test_a_device_is_formatted_on_request(self):
        def arguments(environment):
            # kolla_start sources the file, too.
            shown = subprocess.run(
                ['bash', '-c', '. "$1"; echo "$ARGS"', 'bash',
                 self.image / 'extend_start.sh'], check=True, text=True,
                capture_output=True, env={'PATH': os.environ['PATH'],
                                          **environment})
            return shown.stdout.strip()

        self.assertEqual('--format',
                         arguments({'DIFFCACHE_SSDCACHE_FORMAT': ''}))
        self.assertEqual('', arguments({}))


class KeysTest(KollaTestCase):

    def test_keys_are_named_as_the_configuration_names_them(self):
        text = (ROLE / 'templates/diffcache.conf.j2').read_text()
        named = set(re.findall(r'= /etc/diffcache/(\S+)', text))
        self.assertEqual(named, {
            each['name'] for each in self.defaults['diffcache_key_files']})
