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
import datetime
import types
from unittest import mock

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.cmd.manage import app
from diffcache_openstack.cmd.manage import host_checks
from diffcache_openstack.cmd.manage import host_systems
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.common import reflinks
from diffcache_openstack.conf import dangers
from diffcache_openstack.conf import opts
from tests import host_key_files
from tests.unit.cmd.manage import base

OK, WARNING, FAILED = (host_checks.OK, host_checks.WARNING,
                       host_checks.FAILED)
REPOSITORY = {'name': 'hub', 'down_s': None, 'reason': None, 'mbps': 43.21}

SCRUB = {'days': 7, 'rate': 10 ** 7, 'needed_rate': 1e6, 'unread': 0,
         'overdue': 0, 'overdue_bytes': 0, 'read_bytes': 0, 'damaged': 0,
         'damages': []}


class DoctorTest(base.FilledTest):

    def setUp(self):
        super().setUp()
        self.state = self.directory / 'state'
        self.instances = self.directory / 'instances'
        for path in (self.state, self.instances):
            path.mkdir()
        # Of this machine, none are to be checked.
        self.patch(host_checks.cfg, 'find_config_files',
                   lambda _project, _program: [])
        self.status = {'conductor_reachable': True, 'map_generation': 7,
                       'repositories': [REPOSITORY]}
        self.patch(local_client.LocalClient, 'status',
                   lambda _client: self.status)
        self.patch(host_checks.conductor_api.ConductorAPI, 'get_revoked_keys',
                   lambda *_arguments: None)
        self.synchronised = True
        self.patch(host_systems, 'clock_is_synchronised',
                   lambda: self.synchronised)
        self.programs = {'qemu-img': (8, 2, 1), 'nova-compute': (34, 0, 0),
                         'glance-manage': (33, 0, 0)}
        self.patch(host_systems, 'version_of', self.programs.get)
        self.configure(agent={'state_dir': self.state, 'cache_capacity': 1000,
                              'output_directories': self.instances},
                       data_plane={'listen': '127.0.0.1:0'})

    def configure(self, **groups):
        """Add options to the configuration."""
        with open(self.config, 'a', encoding='utf-8') as stream:
            for group, options in groups.items():
                stream.write(f'[{group}]\n')
                stream.writelines(f'{name} = {value}\n'
                                  for name, value in options.items())

    def ask(self, *words):
        """Return the exit code, and what each check found."""
        done = self.run_words('doctor', '-f', 'json', *words)
        self.assertNotIn('Traceback', done.err)
        found = {}
        for row in done.json:
            found.setdefault(row['Check'], []).append(
                (row['Result'], row['Finding']))
        return done.code, found

    def assert_found(self, result, words, check, *more):
        """A check has one result with some words."""
        code, found = self.ask(*more)
        self.assertEqual(int(result == FAILED), code, found)
        self.assertIn(result, [each for each, _text in found[check]])
        self.assertIn(words, ' '.join(text for _each, text in found[check]))


class TestCompute(DoctorTest):

    def test_a_host_that_works(self):
        code, found = self.ask()
        self.assertEqual(0, code)
        self.assertEqual(
            [check for check in host_checks.CHECKS['compute']
             if not check.startswith('options of')], list(found))
        self.assertEqual([(OK, 'runs by site map 7'),
                          (OK, 'repository hub: 43.2 Mbit/s measured')],
                         found['agent'])

    def test_a_table_for_people(self):
        done = self.run_words('doctor')
        self.assertEqual(0, done.code)
        self.assertIn('| state directory', done.out)
        self.assertGreater(100, max(map(len, done.out.splitlines())))

    def test_dangerous_options(self):
        self.assert_found(OK, 'none', 'options')
        self.configure(
            agent={'sync_outputs': 'false'},
            data_plane={'allow_plain': 'true', 'tls_plain_peers': 'true'},
            messaging={'require_signatures': 'false',
                       'authority_file': '/none'},
            versions={'store': 'file:///versions'})
        for name in ('sync_outputs', 'allow_plain', 'tls_plain_peers',
                     'require_signatures', 'key_manager'):
            self.assertIn(name, str(dangers.of(opts.new_config(
                ['--config-file', str(self.config)]))))
        self.configure(messaging={'authority_file': ''})
        self.assert_found(WARNING, 'without encryption', 'options')

    def test_a_misspelt_option(self):
        self.configure(planner={'inteval': 1})
        done = self.run_words('doctor')
        self.assertNotEqual(0, done.code)
        self.assertIn("did you mean 'interval'?", done.err)

    def test_a_misspelt_option_of_ours_in_files_of_others(self):
        path = self.directory / 'other.conf'
        for project, right in (('nova', 'fallback = error'),
                               ('glance', 'socket = /x')):
            self.patch(host_checks.cfg, 'find_config_files',
                       lambda name, _program, found=project:
                       [str(path)] * (name == found))
            check = f'options of {project.capitalize()}'
            path.write_text(f'[diffcache]\n{right}\n[x]\nconect_timeout = 1')
            self.assert_found(OK, str(path), check)
            path.write_text('[diffcache]\nconect_timeout = 1\n')
            self.assert_found(
                FAILED, f"{path}: group [diffcache] has no option"
                        f" 'conect_timeout'; did you mean 'connect_timeout'",
                check)
            path.write_text('nothing')
            self.assert_found(FAILED, str(path), check)
            path.unlink()
            self.assert_found(WARNING, 'No such file', check)

    def test_a_state_directory_that_is_missing(self):
        self.state.rmdir()
        self.assert_found(FAILED, 'does not exist', 'state directory')
        self.assertNotIn('shared extents', self.ask()[1])

    def test_a_cache_that_the_disk_has_no_room_for(self):
        self.configure(agent={'cache_capacity': '1000TB'})
        self.assert_found(WARNING, 'lower it', 'state directory')

    def test_a_filesystem_that_does_not_share_extents(self):
        def clone(_source, _target):
            raise OSError(reflinks.UNSUPPORTED[0], 'not supported')

        self.patch(reflinks, 'clone', clone)
        self.assert_found(WARNING, 'use XFS or Btrfs', 'shared extents')

    def test_outputs(self):
        self.instances.rmdir()
        self.assert_found(FAILED, 'is no directory', 'output directories')
        self.configure(agent={'output_directories': ''})
        self.assert_found(WARNING, 'instances_path', 'output directories')
        self.configure(agent={'output_directories': '/proc'})
        self.assert_found(WARNING, 'another file system',
                          'output directories')

    def test_a_key_that_others_may_read(self):
        key = self.directory / 'site.key'
        keys.create_key(key)
        self.configure(data_plane={'key_file': key})
        self.assert_found(OK, 'signed with', 'transfers')
        key.chmod(0o644)
        self.assert_found(FAILED, 'chmod 600', 'transfers')

    def test_transfers_in_the_clear(self):
        self.configure(data_plane={'listen': '0.0.0.0:1'})
        self.assert_found(FAILED, 'not be encrypted', 'transfers')

    def test_messages(self):
        self.assert_found(WARNING, 'not signed', 'messages')
        files = host_key_files.Keys(self.directory / 'keys')
        self.configure(agent={'host': 'h1'}, messaging={
            'key_file': files.path('compute', 'h1'),
            'authority_file': files.pair[1]})
        self.assert_found(OK, 'signed as compute h1', 'messages')
        self.configure(agent={'host': 'h2'})
        self.assert_found(FAILED, 'compute h1', 'conductor')

    def test_a_conductor_that_does_not_answer(self):
        self.patch(host_checks.conductor_api.ConductorAPI, 'get_revoked_keys',
                   mock.Mock(side_effect=exceptions.ServiceUnavailable(
                       'no answer in time')))
        self.assert_found(FAILED, 'no answer in time', 'conductor')

    def test_a_program_that_is_missing(self):
        del self.programs['qemu-img']
        self.assert_found(FAILED, 'qemu-utils', 'programs')

    def test_versions(self):
        _code, found = self.ask()
        self.assertEqual([(OK, 'QEMU 8.2.1')], found['programs'])
        self.assertEqual([(OK, 'Nova 34.0.0')], found['Nova'])
        self.assertEqual([(OK, 'Glance 33.0.0')], found['Glance'])

    def test_versions_that_are_not_tested(self):
        self.programs.update({'qemu-img': (6, 2), 'nova-compute': (30, 1, 0),
                              'glance-manage': (29, 0, 0)})
        self.assert_found(WARNING, 'QEMU 6.2 is older than 7.2', 'programs')
        self.assert_found(WARNING, 'Nova 30.1.0 is older than 31,', 'Nova')
        self.assert_found(WARNING, 'upgrade it', 'Glance')

    def test_the_oldest_series_that_is_tested_is_not_too_old(self):
        # As Debian 13 has it.
        self.programs.update({'nova-compute': (31, 0, 0),
                              'glance-manage': (30, 0, 0)})
        self.assert_found(OK, 'Nova 31.0.0', 'Nova')
        self.assert_found(OK, 'Glance 30.0.0', 'Glance')

    def test_programs_that_are_elsewhere(self):
        self.programs.clear()
        self.programs['qemu-img'] = (7, 2)
        self.assert_found(WARNING, 'to PATH', 'Nova')
        self.assert_found(OK, 'not on the path', 'Glance')

    def test_a_clock_that_nothing_synchronises(self):
        self.synchronised = False
        self.assert_found(WARNING, 'signature_lifetime = 120 s off', 'clock')

    def test_an_agent_that_does_not_run(self):
        self.patch(local_client.LocalClient, 'status', mock.Mock(
            side_effect=exceptions.ServiceUnavailable('refused')))
        self.assert_found(WARNING, 'no agent answers', 'agent')

    def test_an_agent_without_a_conductor(self):
        self.status['conductor_reachable'] = False
        self.assert_found(WARNING, 'without a conductor', 'agent')

    def test_a_repository_that_does_not_answer(self):
        self.status['repositories'] = [
            {**REPOSITORY, 'down_s': 12.3, 'reason': 'refused'}]
        self.assert_found(FAILED, 'does not answer for 12 s: refused',
                          'agent')

    def test_a_scrub_in_time(self):
        self.status['scrub'] = dict(SCRUB)
        self.assert_found(OK, 'within 7 days', 'agent')

    def test_a_scrub_that_is_too_slow(self):
        self.status['scrub'] = {**SCRUB, 'needed_rate': 20e6}
        self.assert_found(WARNING, 'raise [agent] scrub_rate', 'agent')
        self.status['scrub'] = {**SCRUB, 'overdue': 3}
        self.assert_found(WARNING, '3 stored objects', 'agent')

    def test_servers_on_a_damaged_object(self):
        self.status['scrub'] = {**SCRUB, 'damages': [{
            'object': 'image ab', 'outputs': ['/nova/_base/x (inode 7)'],
            'record': '/state/damaged/ab.json'}]}
        self.assert_found(FAILED, '/nova/_base/x (inode 7)', 'agent')


class TestRoles(DoctorTest):

    def test_a_repository_delivers_to_nobody(self):
        self.configure(agent={'role': 'repository'})
        code, found = self.ask()
        self.assertEqual(0, code)
        self.assertNotIn('output directories', found)
        self.assertNotIn('Nova', found)

    def test_a_controller_has_a_database(self):
        code, found = self.ask('--role', 'controller')
        self.assertEqual(0, code)
        self.assertEqual(OK, found['database'][0][0])
        self.assertNotIn('state directory', found)

    def test_a_database_of_another_revision(self):
        self.patch(host_checks.migration, 'head', lambda: '9999')
        self.assert_found(FAILED, 'db sync', 'database', '--role',
                          'controller')

    def test_only_defaults(self):
        conf = types.SimpleNamespace(config_file=[], config_dir=[])
        [(result, _text)] = host_checks.CHECKS['controller'][
            'configuration'](conf)
        self.assertEqual(WARNING, result)


class TestCertificates(DoctorTest):

    def certificate(self, days, *names):
        """Have a certificate that expires after some days."""
        key, now = ec.generate_private_key(ec.SECP256R1()), (
            datetime.datetime.now(datetime.UTC))
        name = x509.Name([])
        builder = (
            x509.CertificateBuilder().subject_name(name).issuer_name(name)
            .public_key(key.public_key()).serial_number(1)
            .not_valid_before(now - datetime.timedelta(days=90))
            .not_valid_after(now + datetime.timedelta(days=days)))
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(
                [x509.DNSName(each) for each in names]), False)
        path = self.directory / 'node.pem'
        path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(
            serialization.Encoding.PEM))
        self.configure(data_plane={'tls_cert_file': path})
        return path

    def test_how_long_they_are_valid(self):
        for days, result, words in ((100, OK, 'expires on'),
                                    (3, WARNING, 'expires on'),
                                    (-1, FAILED, 'replace it')):
            self.certificate(days)
            self.assert_found(result, words, 'transfers')

    def test_names(self):
        self.configure(data_plane={'advertise_url': 'https://c1.example:9'})
        self.certificate(100, 'c1.example')
        self.assert_found(OK, 'expires on', 'transfers')
        self.certificate(100, 'c2.example')
        self.assert_found(FAILED, 'is not for c1.example', 'transfers')
        self.certificate(100)
        self.assert_found(FAILED, 'is not for c1.example', 'transfers')

    def test_what_is_no_certificate(self):
        self.certificate(100).write_text('nothing')
        self.assert_found(FAILED, 'no certificate', 'transfers')


class TestFilesOfTheAgent(DoctorTest):
    """A machine that is controller and repository has two files."""

    def setUp(self):
        super().setUp()
        agent = self.write_file('diffcache-agent.conf', (
            f'[agent]\nhost = hub\nrole = repository\n'
            f'state_dir = {self.state}\n').encode())
        self.files = {'diffcache-agent': [str(self.config), str(agent)]}
        self.patch(app.cfg, 'find_config_files',
                   lambda _project, program: self.files.get(program, []))
        # As the files are found, and not named.
        self.options = []

    def test_a_repository_is_checked_by_them(self):
        _code, found = self.ask()
        [(result, text)] = found['configuration']
        self.assertEqual(OK, result)
        self.assertIn('diffcache-agent.conf', text)
        self.assertNotIn('output directories', found)
