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
"""Tests of ``diffcache-manage setup``."""

import dataclasses
import os
import pathlib
import re
import shutil
import stat
import subprocess

from cryptography import x509

from diffcache_openstack.cmd.manage import deployment_files
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.conf import opts
from tests.unit.agent.data_plane import planes
from tests.unit.cmd.manage import base

ANSWERS = ('--controller', 'ctl=10.0.0.2', '--repository', 'hub=127.0.0.1',
           '--site', 'edge', '--keystone', 'http://10.0.0.2:5000/v3')


class SetupTest(base.ManageTest):

    def setUp(self):
        super().setUp()
        self.made = self.directory / 'made'

    def setup(self, *words):
        result = self.run_words('setup', str(self.made), *words)
        self.assertEqual((0, ''), (result.code, result.err))
        return result.out

    def configured(self, folder: str, *names: str):
        """Return the configuration that a machine's services read."""
        return opts.new_config([], files=[
            str(self.made / folder / name)
            for name in names or ('diffcache.conf',)])

    def group(self, folder: str, name: str):
        """Return the lines of a group of options of a machine."""
        text = (self.made / folder / 'diffcache.conf').read_text()
        return text.partition(f'[{name}]\n')[2].partition('\n[')[0]


class TestSetup(SetupTest):

    def test_the_tables_are_created_in_the_database_of_the_files(self):
        # Also before they are copied to /etc/diffcache.
        self.setup(*ANSWERS, '--compute', 'h1')
        script = (self.made / 'services.sh').read_text()
        [line] = [each for each in script.splitlines() if 'db sync' in each]
        self.assertIn('--config-file "$here/ctl/diffcache.conf"', line)
        self.assertIn('here=$(dirname "$0")', script)

    def test_a_machine_of_both_roles_is_named_once(self):
        said = self.setup(*ANSWERS, '--repository', 'ctl', '--compute', 'h1')
        [line] = [each for each in said.splitlines()
                  if f'Copy {self.made}/ctl/' in each]
        self.assertIn('diffcache-conductor, diffcache-api and'
                      ' diffcache-repository', line)

    def run_services(self, **programs: str):
        """Run the script of services with programs that are there.

        :param programs: what those are to do that are no true
        """
        directory = self.directory / 'programs'
        directory.mkdir()
        for name in ('cat', 'dirname', 'sh', 'test'):
            (directory / name).symlink_to(shutil.which(name))
        for name, does in {'mariadb': ':', 'rabbitmqctl': ':',
                           'openstack': ':', 'manage': ':', **programs
                           }.items():
            path = directory / name.replace('manage', 'diffcache-manage')
            path.write_text(f'#!{directory}/sh\n{does}\n')
            path.chmod(0o755)
        subprocess.run([directory / 'sh', self.made / 'services.sh'],
                       check=True, env={'PATH': str(directory)})

    def test_the_client_of_the_database_has_either_name(self):
        # Debian 13 has no program "mysql" beside a MariaDB.
        self.setup(*ANSWERS, '--compute', 'h1')
        said = self.directory / 'said'
        self.run_services(mariadb=f'cat >{said}')
        text = said.read_text()
        self.assertIn('CREATE DATABASE IF NOT EXISTS diffcache', text)
        password = re.search(':([^:@]+)@', self.group('ctl', 'database'))[1]
        self.assertEqual(2, text.count(f"IDENTIFIED BY '{password}'"))

    def test_services_are_created_again_after_a_failure(self):
        # All is there: whatever would be created twice fails.
        self.setup(*ANSWERS, '--compute', 'h1')
        said = self.directory / 'said'
        self.run_services(
            rabbitmqctl=f'echo "$1 $2" >>{said}; test "$1" != add_user',
            openstack='case "$1 $2 $3" in "user create --or-show") ;;'
                      ' "endpoint list"*) echo 0a1b ;;'
                      ' *create*) exit 1 ;; esac',
            manage=f'echo "$3 $4" >>{said}')
        self.assertEqual(
            ['add_user diffcache', 'change_password diffcache',
             'set_permissions diffcache', 'db sync'],
            said.read_text().splitlines())

    def test_passwords_are_no_options(self):
        # One that began with "-" was taken as an option of the command.
        machine = deployment_files.Machine('c', 'c')
        for value in dataclasses.astuple(deployment_files.Deployment.new(
                machine, machine, 's', 'k'))[-3:]:
            self.assertRegex(value, '^[0-9a-f]{48}$')

    def test_the_rate_of_fills_is_proposed_to_compute_hosts(self):
        self.setup(*ANSWERS, '--compute', 'h1')
        self.assertIn('\n#max_rate = 2MB\n', self.group('h1', 'fill'))
        self.configured('h1')

    def test_a_host_whose_files_were_moved_away_gets_new_ones(self):
        self.setup(*ANSWERS, '--compute', 'h1')
        before = (self.made / 'h1' / 'agent-tls.pem').read_bytes()
        (self.made / 'h1').rename(self.directory / 'old')
        self.setup('--compute', 'h1')
        after = (self.made / 'h1' / 'agent-tls.pem').read_bytes()
        self.assertNotEqual(before, after)

    def test_certificates_are_valid_as_long_as_their_authority(self):
        self.setup(*ANSWERS, '--compute', 'h1')
        ends = [x509.load_pem_x509_certificate(
            (self.made / name).read_bytes()).not_valid_after_utc
            for name in ('authority/agents-ca.pem', 'h1/agent-tls.pem',
                         'hub/agent-tls.pem')]
        self.assertEqual(1, len(set(ends)))

    def test_nothing_is_written_of_a_host_that_is_the_controller(self):
        result = self.run_words('setup', str(self.made), *ANSWERS,
                                '--compute', 'ctl')
        self.assertEqual(1, result.code)
        self.assertIn('ctl is the controller', result.err)
        self.assertFalse(self.made.exists())

    def test_a_directory_that_cannot_be_created_is_named(self):
        result = self.run_words('setup', '/proc/no/made', *ANSWERS,
                                '--compute', 'h1')
        self.assertEqual(1, result.code)
        self.assertIn('/proc/no/made cannot be created', result.err)

    def test_every_machine_gets_what_its_services_read(self):
        said = self.setup(*ANSWERS, '--compute', 'h1=10.1.0.7')
        for name in ('ctl', 'hub', 'h1'):
            self.assertIn(f'{self.made}/{name}/*', said)
            conf = self.configured(name)
            named = [conf.messaging.key_file, conf.messaging.authority_file]
            if name != 'ctl':
                plane = conf.data_plane
                named += [plane.key_file, plane.tls_ca_file,
                          plane.tls_cert_file, plane.tls_key_file]
            for path in map(pathlib.Path, named):
                self.assertEqual('/etc/diffcache', str(path.parent))
                self.assertTrue((self.made / name / path.name).exists(), path)
        agent = self.configured('h1').agent
        self.assertEqual(('h1', 'edge', 'compute'),
                         (agent.host, agent.site, agent.role))
        self.assertEqual('repository', self.configured('hub').agent.role)
        controller = self.configured('ctl')
        # The middleware warns without it.
        self.assertIn('www_authenticate_uri = http://10.0.0.2:5000/v3',
                      self.group('ctl', 'keystone_authtoken'))
        self.assertIn('pymysql', controller.database.connection)
        for group in ('nova', 'cinder', 'keystone_authtoken'):
            self.assertIn('auth_type = password', self.group('ctl', group))

    def test_no_machine_has_a_password_that_it_does_not_need(self):
        self.setup(*ANSWERS, '--compute', 'h1')
        database, keystone = (
            re.search(pattern, self.group('ctl', name))[1]
            for name, pattern in (('database', ':([^:@]+)@'),
                                  ('keystone_authtoken', 'password = (.+)')))
        broker = re.search(':([^:@]+)@', self.group('h1', 'DEFAULT'))[1]
        self.assertEqual(3, len({broker, database, keystone}))
        self.assertEqual(
            {'ctl': {broker, database, keystone}, 'hub': {broker, keystone},
             'h1': {broker}},
            {name: {password for password in (broker, database, keystone)
                    for path in (self.made / name).iterdir()
                    if password in path.read_text()}
             for name in ('ctl', 'hub', 'h1')})
        script = (self.made / 'services.sh').read_text()
        for line in (f'database_password={database}\n',
                     f'broker_password={broker}\n',
                     f'keystone_password={keystone}\n'):
            self.assertIn(line, script)

    def test_keys_are_of_their_hosts_and_open_to_their_owner_alone(self):
        self.setup(*ANSWERS, '--compute', 'h1')
        authority = host_keys.Authority(self.made / 'h1' / 'authority.pem')
        for name, key, role, site in (
                ('ctl', 'controller', 'controller', None),
                ('hub', 'agent', 'repository', 'edge'),
                ('h1', 'agent', 'compute', 'edge')):
            key = host_keys.HostKey(self.made / name / f'{key}.key')
            signer = authority.verify(key.certificate, key.sign(b'x'), b'x')
            self.assertEqual((name, role, site),
                             (signer.name, signer.role, signer.site))
        for folder, _, files in os.walk(self.made):
            for path in [folder, *(f'{folder}/{name}' for name in files)]:
                mode = stat.S_IMODE(os.stat(path).st_mode)
                if not path.endswith('.pem'):
                    self.assertEqual(0, mode & 0o077, path)

    def test_one_machine_may_be_controller_and_repository(self):
        self.setup(*ANSWERS[:2], '--repository', 'ctl', *ANSWERS[4:],
                   '--compute', 'h1')
        conductor = self.configured('ctl')
        agent = self.configured('ctl', 'diffcache.conf',
                                'diffcache-agent.conf')
        self.assertIn('controller.key', conductor.messaging.key_file)
        self.assertIn('agent.key', agent.messaging.key_file)
        self.assertEqual(('repository', 'https://10.0.0.2:9192'),
                         (agent.agent.role, agent.data_plane.advertise_url))

    def test_hosts_are_added_later_with_the_same_authority(self):
        self.setup(*ANSWERS, '--compute', 'h1')
        before = (self.made / 'h1' / 'agent.key').read_bytes()
        said = self.setup('--compute', 'h1', '--compute', 'h2=10.1.0.8')
        self.assertIn('h1 has files already: unchanged', said)
        self.assertEqual(before, (self.made / 'h1' / 'agent.key').read_bytes())
        self.assertEqual((self.made / 'h1' / 'site.key').read_bytes(),
                         (self.made / 'h2' / 'site.key').read_bytes())
        key = host_keys.HostKey(self.made / 'h2' / 'agent.key')
        host_keys.Authority(self.made / 'ctl' / 'authority.pem').verify(
            key.certificate, key.sign(b'x'), b'x')

    def test_what_cannot_be_is_refused(self):
        made = str(self.made)
        self.assert_fails(1, '--controller is missing', 'setup', made)
        self.assert_fails(1, "no key for the repository", 'setup', made,
                          *ANSWERS[:4], '--site', 'a b', *ANSWERS[6:],
                          '--compute', 'h1')
        self.assertFalse(self.made.exists())
        self.assert_fails(2, 'is no host name', 'setup', made, '--compute',
                          '../h1')
        # Its files would need brackets, and another address to listen on.
        self.assert_fails(2, 'a name or an IPv4 address', 'setup', made,
                          '--compute', 'h1=2001:db8::7')
        self.setup(*ANSWERS, '--compute', 'h1')
        self.assert_fails(1, 'hub is the controller or the repository',
                          'setup', made, '--compute', 'hub')
        self.assert_fails(1, 'name hosts to add', 'setup', made)
        (self.made / 'answers.json').write_text('[')
        self.assert_fails(1, 'is damaged', 'setup', made, '--compute', 'h3')

    def test_a_directory_with_other_files_is_left_alone(self):
        self.made.mkdir()
        (self.made / 'x').write_text('mine')
        self.assert_fails(1, 'choose another directory', 'setup',
                          str(self.made), *ANSWERS, '--compute', 'h1')
        self.assertEqual(['x'], os.listdir(self.made))


class TestTransfers(SetupTest, planes.DataPlaneTestCase):

    def secure(self, name):
        folder = self.made / name
        return self.plane(name, tls_ca_file=str(folder / 'agents-ca.pem'),
                          tls_cert_file=str(folder / 'agent-tls.pem'),
                          tls_key_file=str(folder / 'agent-tls.key'))

    def test_agents_with_these_certificates_trust_each_other(self):
        self.setup(*ANSWERS, '--compute', 'h1=127.0.0.1')
        server, reader = self.secure('hub'), self.secure('h1')
        patch = self.hold('hub', 'patches', b'content')
        self.fetch(reader, server, 'patches', patch)
        self.assertEqual(0, server.stats()['handshakes_failed'])
