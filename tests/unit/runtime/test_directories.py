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
"""Directories that others may change."""

import os
import pathlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import directories
from tests import base


class DirectoryTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.root = self.directory / 'root'
        (self.root / 'a').mkdir(parents=True)
        self.foreign = self.write_file('etc/shadow', b'secret')

    def open(self):
        return directories.Directory.open(self.root / 'a')

    def test_below_its_roots(self):
        roots = [str(self.directory / 'other'), str(self.root)]
        for path in (self.root / 'a', self.root):
            with directories.Directory.below(roots, path) as found:
                self.assertTrue(os.path.samestat(found.owner(), path.stat()))

    def test_not_elsewhere(self):
        for path in (self.directory, self.root / '..' / 'etc',
                     pathlib.Path('/'), pathlib.Path('a')):
            self.assertRaises(exceptions.InvalidInput,
                              directories.Directory.below, [self.root], path)

    def test_not_through_links(self):
        (self.root / 'link').symlink_to(self.foreign.parent)
        (self.root / 'a' / 'file').write_bytes(b'')
        self.patch(directories.os.path, 'realpath', str)
        for path in ('link', 'link/x', 'a/file'):
            error = self.assertRaises(
                directories.NotAFile, directories.Directory.below,
                [self.root], self.root / path)
            self.assertIn(str(self.root / path), str(error))

    def test_no_link_is_opened(self):
        (self.root / 'a' / 'link').symlink_to(self.foreign)
        os.mkfifo(self.root / 'a' / 'pipe')
        (self.root / 'a' / 'sub').mkdir()
        with self.open() as opened:
            for name in ('link', 'pipe', 'sub'):
                error = self.assertRaises(directories.NotAFile,
                                          opened.open_file, name)
                self.assertIn(str(self.root / 'a' / name), str(error))
            self.assertRaises(directories.NotAFile, opened.open_file, 'link',
                              os.O_RDWR | os.O_CREAT)

    def test_nothing_is_created_through_a_link(self):
        target = self.foreign.with_name('new')
        (self.root / 'a' / 'link').symlink_to(target)
        with self.open() as opened:
            self.assertRaises(directories.NotAFile, opened.open_file, 'link',
                              os.O_RDWR | os.O_CREAT)
        self.assertFalse(target.exists())

    def test_links_themselves_are_removed_and_described(self):
        (self.root / 'a' / 'link').symlink_to(self.foreign)
        with self.open() as opened:
            self.assertEqual(len(str(self.foreign)),
                             opened.status('link').st_size)
            opened.unlink('link')
            opened.unlink('link')
            self.assertEqual([], opened.names())
        self.assertTrue(self.foreign.exists())

    def test_names_are_no_paths(self):
        with self.open() as opened:
            for name in ('', '.', '..', '../etc/shadow', '/etc/passwd'):
                for call in (opened.open_file, opened.unlink, opened.status,
                             opened.create_temporary):
                    self.assertRaises(exceptions.InvalidInput, call, name)
                self.assertRaises(exceptions.InvalidInput, opened.rename,
                                  'x', name)
        self.assertTrue(self.foreign.exists())

    def test_it_stays_the_one_that_was_opened(self):
        with self.open() as opened:
            (self.root / 'a').rename(self.root / 'b')
            (self.root / 'a').symlink_to(self.foreign.parent)
            name, fd = opened.create_temporary('x')
            os.close(fd)
            opened.rename(name, 'shadow')
            opened.sync()
        self.assertEqual(b'secret', self.foreign.read_bytes())
        self.assertEqual(b'', (self.root / 'b' / 'shadow').read_bytes())

    def test_temporaries_are_told_from_other_files(self):
        with self.open() as opened:
            mine, fd = opened.create_temporary('disk')
            os.close(fd)
        self.assertTrue(directories.is_temporary(mine, 'disk'))
        for other in ('.disk2.0123456789ab.part', '.disk.part', 'disk'):
            self.assertFalse(directories.is_temporary(other, 'disk'))
