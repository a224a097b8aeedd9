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

import pathlib
import shutil

from tests.unit.cmd.toolbox import test_version


class TestCopyCommands(test_version.VersionCommandCase):

    def test_a_store_is_copied_repaired_lost_and_rebuilt(self):
        to_copy = ('--copy', f'file://{self.directory}/copy')
        saved = self.save()
        lag = self.call_json('replicate', *to_copy, '--dry-run')
        self.assertEqual(1, lag['versions'])
        self.assertLess(59 * test_version.BLOCK, lag['bytes'])
        done = self.call_json('replicate', *to_copy, '--rate', '9')
        self.assertEqual(1, done['versions_copied'])
        self.assertEqual(
            {'versions': 0, 'bytes': 0, 'oldest': None},
            self.call_json('replicate', *to_copy, '--dry-run'))
        [pack] = pathlib.Path(self.path('store')).glob('pack-*')
        pack.write_bytes(b'damage')
        code, out, err = self.call('repair', *to_copy, '--store', self.uri)
        self.assertEqual((0, True), (code, pack.name in out), err)
        self.assertIs(True, self.call_json('verify')['intact'])
        code, _out, err = self.call('rebuild', *to_copy, '--store', self.uri)
        self.assertEqual((1, True), (code, 'has versions' in err))
        shutil.rmtree(self.path('store'))
        self.call_json('rebuild', *to_copy)
        self.call_json('restore', saved['version'], self.path('out'))
        self.assertEqual(self.disk.read_bytes(),
                         pathlib.Path(self.path('out')).read_bytes())
        self.change()
        self.save()
        self.assertEqual(1, self.call_json('replicate', *to_copy)[
            'versions_copied'])
