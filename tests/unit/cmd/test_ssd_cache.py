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
import grp
import io
from unittest import mock

from diffcache_openstack.cmd import ssd_cache
from diffcache_openstack.ssdcache import server
from tests import base


class TestMain(base.TestCase):

    def run_main(self, *lines, words=()):
        """(what is served, exit code, errors) with options of a file."""
        path = self.write_file(
            'd.conf', '\n'.join(('[ssd_cache]', *lines)).encode())
        err = io.StringIO()
        with (mock.patch('sys.argv', ['x', '--config-file', str(path),
                                      *words]),
              mock.patch('sys.stderr', err),
              mock.patch.object(server, 'become') as become):
            code = ssd_cache.main()
        return [call.args[0] for call in become.call_args_list], code, \
            err.getvalue()

    def test_what_is_served(self):
        lines = ('device = /d', 'capacity = 1MiB', 'socket = /s',
                 'control = /c', 'state_dir = /n', 'admission = 2')
        wanted = {'device': '/d', 'socket': '/s', 'control': '/c',
                  'state': '/n', 'capacity': 256, 'volumes': (),
                  'admission': 2, 'holds': True}
        found, _, errors = self.run_main(*lines)
        self.assertEqual(([server.Server(**wanted)], ''), (found, errors))
        found, _, _ = self.run_main(*lines, words=('--format',))
        self.assertEqual([server.Server(**wanted, is_new=True)], found)

    def test_dirty_blocks(self):
        lines = ('device = /d', 'capacity = 1MiB', 'socket = /s',
                 'control = /c')
        [found], _, _ = self.run_main(*lines)
        self.assertEqual(('50%', 30), (found.dirty_max, found.dirty_age))
        [found], _, _ = self.run_main(*lines, 'dirty_max = 1000',
                                      'dirty_age = 5')
        self.assertEqual(('1000', 5), (found.dirty_max, found.dirty_age))
        for text in ('101%', '-1', 'half', ''):
            found, code, errors = self.run_main(*lines, f'dirty_max = {text}')
            self.assertEqual(([], 1), (found, code))
            self.assertIn(f'[ssd_cache] dirty_max: {text!r} is neither',
                          errors)

    def test_a_group_that_may_connect_to_the_exports(self):
        lines = ('device = /d', 'capacity = 1MiB', 'socket = /s',
                 'control = /c')
        self.assertIsNone(self.run_main(*lines)[0][0].socket_group)
        group = grp.getgrgid(0)
        [found], _, _ = self.run_main(*lines,
                                      f'socket_group = {group.gr_name}')
        self.assertEqual(0, found.socket_group)
        found, code, errors = self.run_main(*lines,
                                            'socket_group = nosuchgroup')
        self.assertEqual(([], 1), (found, code))
        self.assertIn('[ssd_cache] socket_group: there is no group', errors)

    def test_options_that_are_missing(self):
        lines = ['device = /d', 'capacity = 1MiB', 'control = /c']
        for at, name in enumerate(('device', 'capacity', 'control')):
            found, code, errors = self.run_main(
                *lines[:at], *lines[at + 1:])
            self.assertEqual(([], 1), (found, code))
            self.assertEqual(
                f'diffcache-ssdcache: error: [ssd_cache] {name} is not set.\n',
                errors)

    def test_options_that_cannot_be_used(self):
        for line in ('capacity = much', 'capacity = 4095', 'admission = 0',
                     'reconnect_delay = 0', 'dirty_age = -1'):
            found, code, errors = self.run_main('device = /d', line)
            self.assertEqual(([], 1), (found, code), line)
            self.assertIn('error:', errors)
