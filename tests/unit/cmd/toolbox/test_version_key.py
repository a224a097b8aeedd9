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
"""Commands that replace the key of a store."""

from tests.unit.cmd.toolbox import test_version


class TestKeyCommands(test_version.VersionCommandCase):

    def key(self, name):
        path = self.write_file(name, name.encode().ljust(32))
        path.chmod(0o600)
        return '--key-file', str(path)

    def test_life_of_keys(self):
        old, new = self.key('old'), self.key('new')
        saved = self.save(*old)
        self.change()
        self.save(*old)
        self.assertEqual(1, self.call_json('key', 'show', *old)['key_number'])
        rotated = self.call_json('key', 'rotate', *old, '--new-key-file',
                                 new[1])
        self.assertEqual((2, [1], 2), (
            rotated['key_number'], rotated['former_keys'],
            rotated['packs_left']))
        code, _out, err = self.call('list', *old, '--store', self.uri)
        self.assertEqual(1, code)
        self.assertIn('was replaced', err)
        code, _out, err = self.call('key', 'retire', *new, '--store',
                                    self.uri)
        self.assertEqual(1, code)
        self.assertIn('rewrite', err)
        done = self.call_json('key', 'rewrite', *new, '--rate', '100')
        self.assertEqual(0, done['packs_left'])
        self.assertEqual([], self.call_json('key', 'retire', *new)[
            'former_keys'])
        self.assertIs(True, self.call_json('verify', *new)['intact'])
        self.call_json('restore', saved['version'], self.path('out'), *new)
