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
"""Disks in directories of others, and the files beside them."""

import os
import pathlib
import stat

from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.disks import disk_views
from tests import base


class DiskFilesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.roots = self.directory / 'instances'
        self.disk = self.roots / 'server' / 'disk'
        self.disk.parent.mkdir(parents=True)
        self.disk.write_bytes(b'old')
        self.disk.chmod(0o640)
        self.foreign = self.write_file('etc/shadow', b'secret')
        self.files = disk_files.DiskFiles((str(self.roots),))

    def beside(self, suffix='.rollback'):
        return self.disk.with_name(self.disk.name + suffix)

    def test_only_below_the_roots(self):
        for path in (self.foreign, self.roots / '..' / 'etc' / 'shadow'):
            for call in (self.files.open, self.files.open_writable,
                         self.files.replace, self.files.create_room):
                self.assertRaises(exceptions.InvalidInput, call, path)

    def test_links_are_not_followed(self):
        links = self.roots / 'link', self.disk.with_name('link')
        links[0].symlink_to(self.foreign.parent)
        links[1].symlink_to(self.foreign)
        for call in (self.files.open, self.files.open_writable):
            for path in (links[0] / 'shadow', links[1]):
                self.assertRaises(directories.NotAFile, call, path)

    def test_a_disk_may_be_named_by_a_link_without_roots(self):
        link = self.directory / 'link'
        link.symlink_to(self.disk)
        fd = disk_files.DiskFiles().open(link)
        self.addCleanup(os.close, fd)
        self.assertEqual(b'old', os.read(fd, 9))

    def test_files_beside_a_disk(self):
        path = self.beside('.rollback')
        fd = self.files.create(path)
        os.write(fd, b'journal')
        os.close(fd)
        self.assertEqual(0o600, stat.S_IMODE(path.stat().st_mode))
        self.assertEqual([path.name], self.files.companions(path.parent))
        self.files.rename(path, 'disk.snapshots')
        self.files.remove(self.beside('.snapshots'))
        self.files.remove(self.beside('.snapshots'))
        self.assertEqual([], self.files.companions(path.parent))

    def test_planted_links_are_neither_followed_nor_written(self):
        """A view's link had another user's file written, or created."""
        for files in (self.files, disk_files.DiskFiles()):
            for target in (self.foreign, self.foreign.with_name('new')):
                for name in ('disk.rollback', '.disk.ab.view.part',
                             'disk.snapshots'):
                    path = self.disk.with_name(name)
                    path.symlink_to(target)
                    self.assertRaises(directories.NotAFile, files.create,
                                      path)
                    self.assertRaises(directories.NotAFile, files.open, path)
                    files.remove(path)
        self.assertEqual(b'secret', self.foreign.read_bytes())
        self.assertEqual(['shadow'], os.listdir(self.foreign.parent))

    def test_views_do_not_follow_a_planted_link(self):
        target = self.foreign.with_name('new')
        view = disk_views.Reflink(self.disk, 'ab')
        pathlib.Path(f'{view.path}.part').symlink_to(target)
        for call in (view.check, view.create):
            self.assertRaises(directories.NotAFile, call)
        self.assertFalse(target.exists())

    def test_only_files_of_ours_are_changed(self):
        for call in (self.files.create, self.files.remove):
            self.assertRaises(exceptions.InvalidInput, call, self.disk)
        path = self.beside()
        os.close(self.files.create(path))
        for name in ('disk', '../disk', 'disk.config'):
            self.assertRaises(exceptions.InvalidInput, self.files.rename,
                              path, name)
        self.assertEqual(b'old', self.disk.read_bytes())

    def build(self, content=b'new'):
        room = self.files.create_room(self.disk)
        self.addCleanup(os.close, room)
        path = directories.descriptor_path(room) / 'disk'
        path.write_bytes(content)

    def test_a_new_disk_replaces_the_old(self):
        self.build()
        self.files.adopt(self.disk)
        self.files.replace(self.disk)
        self.files.remove_room(self.disk)
        self.assertEqual(b'new', self.disk.read_bytes())
        self.assertEqual(0o640, stat.S_IMODE(self.disk.stat().st_mode))
        self.assertEqual(['disk'], os.listdir(self.disk.parent))

    def test_only_a_file_of_ours_becomes_a_disk(self):
        room = self.files.create_room(self.disk)
        self.addCleanup(os.close, room)
        for link in (os.symlink, os.link):
            link(self.foreign, directories.descriptor_path(room) / 'disk')
            self.assertRaises(directories.NotAFile, self.files.adopt,
                              self.disk)
        self.files.remove_room(self.disk)
        self.assertEqual(b'old', self.disk.read_bytes())
        self.assertEqual(b'secret', self.foreign.read_bytes())

    def test_a_link_in_place_of_the_room(self):
        room = self.disk.with_name('.disk.rebuilt')
        room.symlink_to(self.foreign.parent)
        self.assertRaises(FileExistsError, self.files.create_room, self.disk)
        self.files.remove_room(self.disk)
        self.assertEqual(['disk'], os.listdir(self.disk.parent))
        self.assertEqual(b'secret', self.foreign.read_bytes())

    def test_snapshots_are_no_options(self):
        lock = os.open(self.disk, os.O_RDWR)
        self.addCleanup(os.close, lock)
        for action, name in (('create', '-f'), ('create', ''),
                             ('delete', 'a\nb'), ('convert', 'name')):
            self.assertRaises(exceptions.InvalidInput, self.files.qemu_img,
                              self.disk, lock, action, name)

    def test_no_program_opens_a_file_that_a_header_names(self):
        # Regression: a disk could name any file of the host, which was then
        # opened with the rights of the privileged process.
        self.disk.write_bytes(b'QFI\xfb' + (3).to_bytes(4) + bytes(64)
                              + (1 << 2).to_bytes(8))
        lock = os.open(self.disk, os.O_RDWR)
        self.addCleanup(os.close, lock)
        for call, arguments in (
                (self.files.serve, ('qcow2', None)),
                (self.files.qemu_img, (disk_files.CHECK_LEAKS,))):
            error = self.assertRaises(exceptions.InvalidInput, call,
                                      self.disk, lock, *arguments)
            self.assertIn(str(self.disk), str(error))
