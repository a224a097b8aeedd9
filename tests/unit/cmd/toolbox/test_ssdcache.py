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

import io
import json
import os
from unittest import mock

from diffcache_openstack.cmd.toolbox import app as toolbox
from diffcache_openstack.ssdcache import server
from tests import base

STATUS = {
    'device': {'state': 'ok', 'blocks': 10, 'free': 7, 'dirty': 0},
    'volumes': {'v': {'mode': 'write-through', 'state': 'ok', 'blocks': 3,
                      'limit': 10, 'dirty': 2, 'hits': 1, 'misses': 2,
                      'export': '0' * 32, 'losses': [],
                      'reason': None}}}


class SsdcacheTest(base.TestCase):

    def run_command(self, *words):
        """(exit code, stdout, stderr) of ``diffcache ssdcache``."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch('sys.stdout', out), mock.patch('sys.stderr', err):
            app = toolbox.Toolbox()
            app.stdout, app.stderr = out, err
            try:
                code = app.run(['ssdcache', *map(str, words)])
            except SystemExit as ended:
                code = ended.code
        return code, out.getvalue(), err.getvalue()


class TestServe(SsdcacheTest):

    ARGUMENTS = ('serve', '--device', 'd', '--socket', 's', '--control', 'c',
                 '--state', 'notes', '--capacity', '10')

    def test_an_origin_that_does_not_exist_is_named_with_its_volume(self):
        with mock.patch.object(server, 'become') as become:
            code, _, err = self.run_command(
                *self.ARGUMENTS, '--volume', 'a=/missing/x,colour=red')
        self.assertEqual(1, code)
        self.assertIn('--volume a: there is no file or device'
                      ' /missing/x,colour=red; check the path', err)
        become.assert_not_called()

    def test_what_is_served(self):
        with mock.patch.object(server, 'become') as become:
            self.assertEqual((0, '', ''), self.run_command(
                *self.ARGUMENTS, '--volume', 'a=/dev/null,limit=3', '--volume',
                'b=/dev/zero,mode=write-around', '--format',
                '--evict', 'sieve',
                '--admission', '2', '--dirty-max', '20%', '--dirty-age', '5',
                '--discard-dirty', '--sequential-cutoff', '1000'))
        become.assert_called_once_with(server.Server(
            'd', 's', 'c', 'notes', 10, (
                server.Volume('a', '/dev/null', 'write-through', 3),
                server.Volume('b', '/dev/zero', 'write-around')),
            is_new=True, evict='sieve', admission=2, dirty_max='20%',
            dirty_age=5, discard_dirty=True, sequential=1000))

    def test_volumes_are_not_needed(self):
        with mock.patch.object(server, 'become') as become:
            self.assertEqual((0, '', ''), self.run_command(*self.ARGUMENTS))
        become.assert_called_once_with(server.Server(
            'd', 's', 'c', 'notes', 10, ()))

    def test_options_that_cannot_be_understood(self):
        for words in (('--volume', 'a'), ('--volume', 'a=/dev/null,mode=fast'),
                      ('--volume', 'a=/dev/null', '--admission', '0'),
                      ('--volume', 'a=/dev/null', '--dirty-max', '101%'),
                      ('--volume', 'a=/dev/null', '--dirty-age', '-1'),
                      ('--volume', 'a=/dev/null', '--capacity', '-1')):
            with mock.patch.object(server, 'become') as become:
                code, _, _ = self.run_command(*self.ARGUMENTS, *words)
            self.assertEqual(2, code, words)
            become.assert_not_called()


class TestControl(SsdcacheTest):

    def send(self, *words):
        with mock.patch('diffcache_openstack.ssdcache.control.send',
                        return_value=STATUS) as send:
            code, out, err = self.run_command(*words, '--control', 'c', '-f',
                                              'json')
        self.assertEqual((0, ''), (code, err))
        self.assertEqual(STATUS, json.loads(out))
        return send.call_args

    def test_a_loss_and_a_reason_are_shown_with_their_volume(self):
        volume = STATUS['volumes']['v'] | {
            'losses': [[4096, 512], [8192, 4096]],
            'reason': 'its origin is away'}
        status = STATUS | {'volumes': {'v': volume}}
        with mock.patch('diffcache_openstack.ssdcache.control.send',
                        return_value=status):
            _, out, _ = self.run_command('status', '--control', 'c',
                                         '--fit-width', '--max-width', '900')
        self.assertIn('4608 bytes lost by the origin from 4096 on: its origin'
                      ' is away', out)

    def test_commands(self):
        self.assertEqual(mock.call('c', 'status'), self.send('status'))
        for name in ('flush', 'accept-loss', 'guest-ended', 'invalidate',
                     'detach'):
            self.assertEqual(mock.call('c', name, volume='v'),
                             self.send(name, 'v'))
        for name in ('invalidate', 'detach'):
            self.assertEqual(
                mock.call('c', name, volume='v', discard_dirty=True),
                self.send(name, 'v', '--discard-dirty'))
        self.assertEqual(mock.call('c', 'set', volume='v', limit=3),
                         self.send('set', 'v', '--limit', 3))
        self.assertEqual(
            mock.call('c', 'recover', volume='v', origin='/dev/v'),
            self.send('recover', 'v', '/dev/v'))
        for name in ('resize', 'disconnect', 'vhost-open', 'vhost-close'):
            self.assertEqual(mock.call('c', name, volume='v'),
                             self.send(name, 'v'))
        self.assertEqual(
            mock.call('c', 'attach', volume='v', origin='/dev/v',
                      mode='write-through', limit=9, sequential=0),
            self.send('attach', 'v', '/dev/v', '--limit', 9))
        self.assertEqual(
            mock.call('c', 'attach', volume='v', origin=os.path.abspath('f'),
                      mode='write-around', limit=9, sequential=7),
            self.send('attach', 'v', 'f', '--limit', 9, '--mode',
                      'write-around', '--sequential-cutoff', 7))
        self.assertEqual(
            mock.call('c', 'attach', volume='v', origin='/dev/v',
                      mode='write-through', limit=9, sequential=0,
                      admission=2),
            self.send('attach', 'v', '/dev/v', '--limit', 9, '--admission',
                      2))
        for text, found in (
                ('none', {}),
                ('total_iops_sec=5,total_iops_sec_max=9',
                 {'total_iops_sec': 5, 'total_iops_sec_max': 9})):
            self.assertEqual(mock.call('c', 'set', volume='v', rates=found),
                             self.send('set', 'v', '--rates', text))
        self.assertEqual(
            mock.call('c', 'set', volume='v', mode='pass-through'),
            self.send('set', 'v', '--mode', 'pass-through'))
        self.assertEqual(
            mock.call('c', 'set', volume='v', sequential=0, admission=0),
            self.send('set', 'v', '--sequential-cutoff', 0, '--admission',
                      0))

    def test_limits_that_cannot_be_enforced(self):
        for text in ('', 'iops=5', 'total_iops_sec', 'read_iops_sec_max=5',
                     'total_iops_sec=x'):
            code, _out, err = self.run_command(
                'set', 'v', '--control', 'c', '--rates', text)
            self.assertEqual(2, code, err)
            self.assertNotIn('invalid literal', err)

    def test_table(self):
        with mock.patch('diffcache_openstack.ssdcache.control.send',
                        return_value=STATUS):
            code, out, _ = self.run_command('status', '--control', 'c')
        self.assertEqual(0, code)
        self.assertIn('v: write-through, ok, 3 of 10 blocks, 2 dirty', out)

    def test_no_cache(self):
        code, out, err = self.run_command('status', '--control', '/none')
        self.assertEqual((1, '', 1), (code, out, err.count('\n')))
