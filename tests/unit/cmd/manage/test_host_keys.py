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
from diffcache_openstack.common.signing import host_keys
from tests.unit.cmd.manage import base


class TestHostKeys(base.FilledTest):

    def setUp(self):
        super().setUp()
        self.files = ['--authority-key', str(self.directory / 'a.key'),
                      '--authority', str(self.directory / 'a.pem')]
        self.path = str(self.directory / 'h1.key')
        self.assertEqual(0, self.run_words(
            'authority', 'create', *self.files).code)
        self.assertEqual(0, self.create('h1', self.path).code)

    def create(self, *words):
        return self.run_words('host-key', 'create', *self.files, *words)

    def test_key_is_usable(self):
        key = host_keys.HostKey(self.path)
        signer = host_keys.Authority(self.directory / 'a.pem').verify(
            key.certificate, key.sign(b'x'), b'x')
        self.assertEqual(('h1', 'compute'), (signer.name, signer.role))
        shown = self.run_words('host-key', 'show', self.path, '-f',
                               'json').json
        self.assertEqual(('h1', 'compute'), (shown['host'], shown['role']))

    def test_nothing_is_overwritten(self):
        self.assert_fails(1, 'exists', 'authority', 'create', *self.files)
        self.assert_fails(1, 'exists', 'host-key', 'create', *self.files,
                          'h1', self.path)

    def test_a_key_of_another_role(self):
        path = str(self.directory / 'c.key')
        self.create('--role', 'controller', 'c', path)
        self.assertEqual('controller',
                         host_keys.HostKey(path).signer.role)

    def test_revocation(self):
        words = ('host-key', 'revocation', 'list', '-f', 'json')
        self.assertEqual([], self.run_words(*words).json)
        self.assertEqual(0, self.run_words('host-key', 'revoke', 'h1').code)
        [row] = self.run_words(*words).json
        self.assertEqual('h1', row['Host'])

    def test_service_with_the_key_of_another_host(self):
        self.config.write_text(self.config.read_text() + (
            f'[messaging]\nkey_file = {self.path}\n'
            f'authority_file = {self.directory}/a.pem\n'))
        self.assert_fails(1, 'is that of the compute h1', 'plan', 'create',
                          'edge')
