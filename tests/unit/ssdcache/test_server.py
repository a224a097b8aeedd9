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

import dataclasses
import fcntl
import json
import os
import socket
import sys
from unittest import mock

from diffcache_openstack.common import programs
from diffcache_openstack.ssdcache import server
from tests import base


class TestParseVolume(base.TestCase):

    def test_forms(self):
        for text, expected in (
                ('a=/x', server.Volume('a', '/x')),
                ('a=/x,mode=write-around',
                 server.Volume('a', '/x', 'write-around')),
                ('a=/x,limit=7,mode=pass-through',
                 server.Volume('a', '/x', 'pass-through', 7)),
                ('a=/x,y=z,limit=7',
                 server.Volume('a', '/x,y=z', 'write-through', 7)),
                ('a=/x,sequential=0',
                 server.Volume('a', '/x', sequential=0)),
                ('a=/x,sequential=9,limit=7',
                 server.Volume('a', '/x', limit=7, sequential=9)),
                ('a=/x,admission=2', server.Volume('a', '/x', admission=2)),
                ('a=/x,mode=write-back',
                 server.Volume('a', '/x', 'write-back')),
                ('a=/x=y', server.Volume('a', '/x=y'))):
            self.assertEqual(expected, server.parse_volume(text))

    def test_refused(self):
        for text in ('', 'a', 'a=', '=/x', 'a=/x,mode=fast', 'a=/x,limit=-1',
                     'a=/x,limit=', 'a=/x,limit=4294967296',
                     'a=/x,sequential=', 'a=/x,sequential=-1',
                     'a=/x,admission=16',
                     'a=/x,mode=writeback',
                     'a=/x,limit=\N{SUPERSCRIPT TWO}'):
            self.assertRaises(server.ServerError, server.parse_volume, text)


class TestParseDirtyMax(base.TestCase):

    def test_forms(self):
        for text in ('0', '7', '4294967295', '0%', '100%'):
            self.assertEqual(text, server.parse_dirty_max(text))

    def test_refused(self):
        for text in ('', '%', '-1', '101%', '1.5', '4294967296', '5%%', '5%0',
                     '\N{SUPERSCRIPT TWO}'):
            self.assertRaises(server.ServerError, server.parse_dirty_max,
                              text)


class TestLimits(base.TestCase):

    def limits(self, *given, capacity=100):
        volumes = [server.Volume(str(n), '/x', limit=limit)
                   for n, limit in enumerate(given)]
        return server.limits(volumes, capacity)

    def test_what_is_left_is_shared(self):
        self.assertEqual([40, 30, 30], self.limits(40, None, None))
        self.assertEqual([33, 33, 33], self.limits(None, None, None))
        self.assertEqual([100, 0], self.limits(100, None))
        self.assertEqual([0, 100], self.limits(0, None))

    def test_too_much(self):
        self.assertRaises(server.ServerError, self.limits, 60, 41)


class TestCommand(base.TestCase):

    def setUp(self):
        super().setUp()
        self.device = self.write_file('device', b'')
        self.server = server.Server(
            str(self.device), 's', 'c', str(self.directory / 'state'), 10,
            (server.Volume('a', 'origin'),))

    def config(self, **changes):
        """Return the configuration of a server that differs in something."""
        return json.loads(server.command(
            dataclasses.replace(self.server, **changes), 7)[2])

    def test_command(self):
        program, command, _config = server.command(self.server, 7)
        self.assertEqual(('diffcache-ssdcached', 'serve'),
                         (os.path.basename(program), command))
        found = self.config()
        self.assertEqual({
            'evict': 'lru', 'admission': 1, 'dirty_max': '50%',
            'dirty_age': 30, 'samples': server.SAMPLES,
            'discard_dirty': False,
        }, found['cache'])
        for name, value in (
                ('device', str(self.device)), ('capacity', 10),
                ('format', False), ('state', str(self.directory / 'state')),
                ('hold', False), ('socket_group', None), ('ready_fd', 7)):
            self.assertEqual(value, found[name])
        [volume] = found['volumes']
        self.assertEqual((10, 0), (volume['limit'], volume['sequential']))

    def test_a_group_that_may_connect(self):
        self.assertEqual(5, self.config(socket_group=5)['socket_group'])

    def test_volumes_that_are_held(self):
        self.assertIs(True, self.config(holds=True)['hold'])

    def test_sequences(self):
        volumes = (server.Volume('a', 'x'),
                   server.Volume('b', 'y', sequential=0))
        found = self.config(volumes=volumes, sequential=7)
        self.assertEqual([7, 0], [volume['sequential'] for volume
                                  in found['volumes']])

    def test_admission(self):
        volumes = (server.Volume('a', 'x'),
                   server.Volume('b', 'y', admission=2))
        self.assertEqual([0, 2], [
            volume['admission'] for volume
            in self.config(volumes=volumes)['volumes']])

    def test_without_the_program(self):
        with mock.patch('shutil.which', return_value=None):
            error = self.assertRaises(programs.ProgramNotFound,
                                      server.command, self.server, 7)
        self.assertIn('with its native parts', str(error))

    def test_long_path_of_a_socket(self):
        long = server.Server(str(self.device), 'x' * 108, 'c', 'd', 10, ())
        self.assertRaises(server.ServerError, server.command, long, 7)

    def test_a_device_is_locked_once(self):
        descriptor = server.lock(self.server)
        self.addCleanup(os.close, descriptor)
        self.assertTrue(os.get_inheritable(descriptor))
        self.assertRaises(server.DeviceBusy, server.lock, self.server)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(server.lock(self.server))

    def test_a_missing_device_is_created_by_format_only(self):
        path = str(self.device) + '-new'
        missing = server.Server(path, 's', 'c', 'd', 10, ())
        self.assertRaises(server.ServerError, server.lock, missing)
        new = server.Server(path, 's', 'c', 'd', 10, (), is_new=True)
        os.close(server.lock(new))
        self.assertEqual(0o600, os.stat(path).st_mode & 0o777)

    def test_only_sockets_are_removed(self):
        server.remove_stale(str(self.device))
        self.assertTrue(self.device.exists())
        path = str(self.device) + '.s'
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
        server.remove_stale(path)
        self.assertFalse(os.path.exists(path))
        server.remove_stale(path)

    def test_become(self):
        with (mock.patch('shutil.which', return_value=sys.executable),
              mock.patch('os.execv') as execv):
            server.become(self.server)
        [(program, line)] = [call.args for call in execv.call_args_list]
        self.assertEqual((sys.executable, line[0]), (program, program))
        os.close(json.loads(line[2])['ready_fd'])
        self.assertEqual(0o700,
                         (self.directory / 'state').stat().st_mode & 0o777)

    def test_a_directory_for_notes_that_cannot_be_made(self):
        error = self.assertRaises(server.ServerError, server.make_state,
                                  str(self.device / 'state'))
        self.assertIn('name another directory with --state', str(error))

    def test_notes_of_users_are_in_their_home(self):
        with (mock.patch('os.geteuid', return_value=1000),
              mock.patch.dict(os.environ, {'XDG_STATE_HOME': '/h/state'})):
            self.assertEqual('/h/state/diffcache/ssdcache',
                             server.default_state())
        with mock.patch('os.geteuid', return_value=0):
            self.assertEqual('/var/lib/diffcache/ssdcache',
                             server.default_state())
