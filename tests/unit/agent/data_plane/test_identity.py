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
"""An agent's certificate: used, replaced, wrong."""

import os
import shutil
import socket

from diffcache_openstack.agent.data_plane import identity
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent import service
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.conf import opts
from tests import base
from tests import certificates
from tests import waiting


class FakePlane:
    """Counts reloads and has something to complain of."""

    def __init__(self):
        self.reloads = 0
        self.complaints = []
        self.error = None
        self.keys = None

    def set_keys(self, found):
        self.keys = found

    def reload_tls(self):
        self.reloads += 1
        if self.error:
            raise self.error

    def take_complaints(self):
        taken, self.complaints = self.complaints, []
        return taken


class IdentityTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.directory / 'tls')
        self.files = self.authority.issue('h1')

    def conf(self, **options):
        conf = opts.new_config()
        conf.set_override('transport_url', 'fake:/')
        conf.set_override('host', 'h1', 'agent')
        # There is no conductor to wait for when an agent stops.
        conf.set_override('rpc_timeout', 1, 'conductor')
        conf.set_override('state_dir', str(self.directory / 'state'), 'agent')
        values = {'listen': '127.0.0.1:0', **self.files, **options}
        for name, value in values.items():
            conf.set_override(name, value, 'data_plane')
        return conf


class TestIdentity(IdentityTestCase):

    def test_files_are_read_again_when_one_changes(self):
        plane, shown = FakePlane(), identity.Identity(self.conf())
        shown.look(plane)
        self.assertEqual(0, plane.reloads)
        for path in self.files.values():
            shutil.copy(path, f'{path}.new')
            os.replace(f'{path}.new', path)
            before = plane.reloads
            shown.look(plane)
            shown.look(plane)
            self.assertEqual(before + 1, plane.reloads)

    def test_keys_are_replaced_without_a_restart(self):
        plane, paths = FakePlane(), {}
        for name in ('old', 'new'):
            paths[name] = str(self.directory / name)
            keys.create_key(paths[name])
        secrets = {name: keys.read_key(path) for name, path in paths.items()}
        self.files = {}
        conf = self.conf(key_file=paths['old'], key_name='old',
                         accepted_keys={'new': paths['new']})
        shown = identity.Identity(conf)
        self.assertEqual(orders.Keys(
            ('old', secrets['old']), (('new', secrets['new']),)),
            identity.read_keys(conf))
        os.replace(paths['new'], paths['old'])
        conf.set_override('accepted_keys', {}, 'data_plane')
        shown.look(plane)
        self.assertEqual(orders.Keys(('old', secrets['new'])), plane.keys)

    def test_what_cannot_be_used_is_tried_again_after_a_change(self):
        plane, shown = FakePlane(), identity.Identity(self.conf())
        os.unlink(self.files['tls_cert_file'])
        plane.error = exceptions.InvalidInput('no such file')
        shown.look(plane)
        shown.look(plane)
        self.assertEqual(1, plane.reloads)
        self.authority.issue('h1')
        plane.error = None
        shown.look(plane)
        self.assertEqual(2, plane.reloads)

    def test_a_signal_has_the_files_read(self):
        conf = self.conf()
        plane, shown = FakePlane(), identity.Identity(conf)
        shown.start(plane)
        self.addCleanup(shown.stop)
        conf([], default_config_files=[])
        conf.mutate_config_files()
        waiting.until(lambda: plane.reloads, 'the files to be read')
        self.assertEqual(1, plane.reloads)

    def test_failed_connections_are_logged(self):
        plane, shown = FakePlane(), identity.Identity(self.conf())
        plane.complaints = [('192.0.2.7', 'it shows no certificate', 3)]
        with self.assertLogs(identity.LOG.logger, 'WARNING') as logged:
            shown.look(plane)
        self.assertIn('Peer 192.0.2.7, 3 times', logged.output[0])
        self.assertIn('it shows no certificate', logged.output[0])

    def test_addresses_that_only_this_machine_reaches(self):
        for listen in ('127.0.0.1:1', '127.9.9.9:1', '[::1]:1', 'localhost:1'):
            self.assertTrue(identity.is_loopback(listen), listen)
        for listen in ('0.0.0.0:1', '[::]:1', '10.0.0.1:1', 'host:1'):
            self.assertFalse(identity.is_loopback(listen), listen)

    def test_tls_that_is_introduced_host_by_host_is_no_refusal(self):
        for options in ({}, {'tls_plain_peers': True}):
            identity.check_encryption(self.conf(listen='192.0.2.1:1',
                                                **options))

    def test_scheme_of_what_peers_are_told(self):
        self.assertEqual('https', identity.scheme(self.conf()))
        self.assertEqual('http', identity.scheme(
            self.conf(tls_plain_peers=True)))
        self.files = {}
        self.assertEqual('http', identity.scheme(self.conf()))


class TestAgent(IdentityTestCase):

    def started(self, **options):
        agent = service.Agent(self.conf(**options))
        agent.start()
        self.addCleanup(agent.stop)
        return agent

    def test_announces_tls_and_refuses_requests_in_the_clear(self):
        agent = self.started()
        self.assertStartsWith('https://127.0.0.1:', agent.plane.url)
        host, port = agent.plane.url[len('https://'):].split(':')
        with socket.create_connection((host, int(port))) as stream:
            stream.sendall(b'GET /v1/health HTTP/1.1\r\n\r\n')
            answer = stream.makefile('rb').read()
        self.assertStartsWith('HTTP/1.1 426 ', answer.decode())
        self.assertIn(b'tls_cert_file', answer)
        self.assertEqual(
            1, agent.status.report()['data_plane']['plain_refused'])

    def test_files_that_cannot_be_used_are_named(self):
        for options, told in (
                ({'tls_ca_file': None}, 'tls_ca_file'),
                ({'tls_cert_file': self.files['tls_key_file']},
                 'tls_cert_file'),
                ({'tls_key_file': '/nowhere'}, 'tls_key_file'),
                ({'advertise_url': 'http://127.0.0.1:1'}, 'advertise_url')):
            agent = service.Agent(self.conf(**options))
            error = self.assertRaises(exceptions.InvalidInput, agent.start)
            self.assertIn(told, str(error))

    def assertStartsWith(self, start, text):
        self.assertTrue(text.startswith(start), text)
