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

import fcntl
import os
import pathlib
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories
from tests import base


class CopyFileTest(base.TestCase):

    def test_copies_and_keeps_holes(self):
        source = self.directory / 'source'
        with open(source, 'wb') as stream:
            stream.write(b'a' * 5000)
            stream.seek(8 << 20)
            stream.write(b'b' * 5000)
            stream.truncate(16 << 20)
        target = self.directory / 'target'
        files.copy_file(source, target)
        self.assertEqual(source.read_bytes(), target.read_bytes())
        self.assertLess(target.stat().st_blocks * 512, 1 << 20)

    def test_copies_to_another_filesystem(self):
        other = pathlib.Path('/dev/shm')
        if other.stat().st_dev == self.directory.stat().st_dev:
            self.skipTest('needs /dev/shm to be a filesystem of its own')
        source = self.write_file('source', b'a' * 5000)
        target = other / f'diffcache-test-{uuid.uuid4().hex}'
        self.addCleanup(target.unlink, missing_ok=True)
        files.copy_file(source, target)
        self.assertEqual(source.read_bytes(), target.read_bytes())

    def test_failed_copy_leaves_the_old_target(self):
        target = self.write_file('target', b'old')
        self.assertRaises(FileNotFoundError, files.copy_file,
                          self.directory / 'gone', target)
        self.assertEqual(b'old', target.read_bytes())
        self.assertEqual(['target'], os.listdir(self.directory))

    def test_full_filesystem_is_no_space(self):
        error = self.assertRaises(
            exceptions.NoSpace, self._write_until_full)
        self.assertIn('/dev/full', str(error))

    def _write_until_full(self):
        with files.space_errors('/dev/full'):
            with open('/dev/full', 'wb', buffering=0) as full:
                full.write(b'x')


class JsonTest(base.TestCase):

    def test_round_trip(self):
        path = self.directory / 'state.json'
        files.write_json(path, {'a': [1]})
        files.write_json(path, {'a': [2]})
        self.assertEqual({'a': [2]}, files.read_json(path))
        self.assertEqual(['state.json'], os.listdir(self.directory))

    def test_missing_or_damaged_is_none(self):
        self.assertIsNone(files.read_json(self.directory / 'none.json'))
        self.assertIsNone(files.read_json(self.write_file('x', b'{"a')))


class ReadJsonTest(base.TestCase):

    def test_what_is_no_json_is_nothing(self):
        for content in (b'', b'{"a": ', b'\0' * 100, b'\xff\x93\x80'):
            path = self.write_file('state.json', content)
            self.assertIsNone(files.read_json(path), content)
        self.assertIsNone(files.read_json(self.directory / 'none'))


class ReplacingTest(base.TestCase):

    def test_the_output_appears_when_the_block_ends(self):
        path = str(self.directory / 'output')
        with files.replacing(path) as temporary:
            self.assertFalse(os.path.exists(path))
            with open(temporary, 'w') as stream:
                stream.write('whole')
        with open(path) as stream:
            self.assertEqual('whole', stream.read())
        self.assertEqual(['output'], os.listdir(self.directory))

    def test_an_error_keeps_what_was_there(self):
        path = str(self.write_file('output', b'old'))
        with self.assertRaisesRegex(ValueError, 'half'):
            with files.replacing(path) as temporary:
                with open(temporary, 'w') as stream:
                    stream.write('new')
                raise ValueError('half way')
        with open(path) as stream:
            self.assertEqual('old', stream.read())
        self.assertEqual(['output'], os.listdir(self.directory))

    def test_a_name_as_long_as_the_filesystem_takes(self):
        path = self.directory / ('ä' * 127)
        with files.replacing(path) as temporary:
            temporary.write_bytes(b'whole')
            self.assertTrue(directories.is_temporary(temporary.name,
                                                     path.name))
        self.assertEqual(b'whole', path.read_bytes())

    def test_permissions_are_those_of_a_new_file(self):
        path = self.write_file('output', b'')
        with files.replacing(self.directory / 'other'):
            pass
        self.assertEqual(path.stat().st_mode,
                         (self.directory / 'other').stat().st_mode)


class LockedTest(base.TestCase):

    def test_a_path_is_locked_once_at_a_time(self):
        path = self.directory / 'new' / 'record'
        with files.locked(path):
            fd = os.open(path.with_name('.record.lock'), os.O_RDWR)
            self.addCleanup(os.close, fd)
            self.assertRaises(BlockingIOError, fcntl.flock, fd,
                              fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.assertFalse(path.exists())


class IsThereTest(base.TestCase):

    def test_what_is_there_and_what_is_not(self):
        path = self.write_file('file', b'')
        self.assertTrue(files.is_there(path))
        self.assertTrue(files.is_there(self.directory))
        self.assertFalse(files.is_there(self.directory / 'absent'))
        self.assertFalse(files.is_there(path / 'below'))

    def test_what_cannot_be_seen_is_not_gone(self):
        loop = self.directory / 'loop'
        loop.symlink_to('loop')
        self.assertFalse(os.path.exists(loop))
        self.assertRaises(OSError, files.is_there, loop)
