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
"""Which file each byte of an image belongs to, of a real filesystem."""

import pathlib
import shutil
import subprocess

from diffcache_openstack.blocks import file_map
from diffcache_openstack.common import exceptions
from tests import base


def make_image(folder: pathlib.Path, contents: dict[str, bytes],
               name: str = 'image') -> pathlib.Path | None:
    """Make an ext4 image with files; None without the program."""
    mke2fs = shutil.which('mke2fs', path='/sbin:/usr/sbin:/bin')
    if mke2fs is None:
        return None
    image, tree = folder / name, folder / f'{name}-tree'
    for path, content in contents.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    subprocess.run([mke2fs, '-q', '-F', '-t', 'ext4', '-b', '4096', '-d',
                    str(tree), str(image), '16M'],
                   check=True, stdout=subprocess.DEVNULL)
    return image


class FileMapTest(base.TestCase):

    def make(self, contents: dict[str, bytes]) -> pathlib.Path:
        image = make_image(self.directory, contents)
        if image is None:
            self.skipTest('needs the program mke2fs (package e2fsprogs)')
        return image

    def test_extents_hold_the_content_of_files(self):
        contents = {'usr/bin/program': b'program' * 100_000,
                    'etc/name': b'some name', 'etc/empty': b''}
        image = self.make(contents)
        found = file_map.read(str(image))
        data = image.read_bytes()
        self.assertEqual(len(data), found.size)
        read = {entry.path: bytearray(entry.size) for entry in found.entries
                if entry.kind == file_map.FILE}
        at = 0
        for start, end, number, position in found.extents:
            self.assertEqual(at, start)
            at = end
            entry = found.entries[number]
            if entry.kind == file_map.FILE:
                content = read[entry.path]
                length = min(end - start, len(content) - position)
                content[position:position + length] = (
                    data[start:start + length])
        self.assertEqual({f'/{path}': content
                          for path, content in contents.items()}, read)
        names = {entry.name for entry in found.entries}
        self.assertLessEqual({'/', '/usr/', '/etc/', '[inodes]', '[free]',
                              '[journal]', '[metadata]'}, names)

    def test_a_qcow2_image_has_the_files_of_its_guest(self):
        raw = self.make({'etc/name': b'some name'})
        if shutil.which('qemu-img') is None:
            self.skipTest('needs the program qemu-img (package qemu-utils)')
        packed = self.directory / 'packed'
        subprocess.run(['qemu-img', 'convert', '-c', '-O', 'qcow2', '-f',
                        'raw', str(raw), str(packed)], check=True)
        self.assertEqual(file_map.read(str(raw)),
                         file_map.read(str(packed)))

    def test_content_is_raw_whatever_it_begins_with(self):
        content = self.write_file('content', b'QFI\xfb' + b'some' * 1000)
        self.assertRaises(exceptions.DiffCacheError, file_map.read,
                          str(content))
        found = file_map.read_content(str(content))
        self.assertEqual((4004, ['']), (found.size, found.known_names()))

    def test_what_is_no_filesystem_is_unknown(self):
        image = self.write_file('image', b'some' * 1000)
        found = file_map.read(str(image))
        [entry] = found.entries
        self.assertEqual(('unknown', '[unknown]'), (entry.kind, entry.name))
        self.assertIn('no filesystem of a known kind', entry.reason)
        self.assertEqual([(0, 4000, 0, 0)], found.extents)

    def test_an_image_that_is_missing_or_refused(self):
        self.assertRaises(exceptions.NotFound, file_map.read,
                          str(self.directory / 'nothing'))
        image = self.write_file('image', b'QFI\xfb' + bytes(100))
        self.assertRaises(exceptions.DiffCacheError, file_map.read,
                          str(image))
