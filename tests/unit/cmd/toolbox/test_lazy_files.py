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
"""``diffcache image files``, ``lazy files`` and ``lazy carry``."""

import json

from tests.unit.blocks import test_file_map
from tests.unit.cmd.toolbox import test_lazy

CHUNK = 262144
# Files of half a chunk to some chunks.
CONTENTS = {f'usr/{name}': name.encode() * (size << 10) for name, size in (
    ('a', 700), ('b', 130), ('c', 1500), ('d', 300))}
# Another one in front, so that all others are elsewhere; c changed.
CHANGED = {'usr/0': bytes(range(250)) * 4000, **CONTENTS,
           'usr/c': b'C' * (1500 << 10)}


class ListFilesTest(test_lazy.LazyTestCase):

    GROUP = 'image'

    def call(self, *words):
        return self.run_command(*words)

    def test_files_are_listed_with_ranges_or_chunks(self):
        image = test_file_map.make_image(self.directory, CONTENTS)
        if image is None:
            self.skipTest('needs the program mke2fs (package e2fsprogs)')
        code, out, err = self.call('files', str(image), '-f', 'json')
        self.assertEqual((0, ''), (code, err))
        found = {row['File']: row for row in json.loads(out)}
        self.assertEqual(16 << 20, sum(row['Stored']
                                       for row in found.values()))
        data = image.read_bytes()
        self.assertEqual(1500 << 10, found['/usr/c']['Size'])
        content = b''.join(data[first:last + 1] for first, last
                           in found['/usr/c']['Ranges'])
        self.assertEqual(CONTENTS['usr/c'], content)
        code, out, _ = self.call('files', str(image), '--chunk', str(CHUNK),
                                 '-f', 'json')
        [row] = [row for row in json.loads(out) if row['File'] == '/usr/b']
        [[first, last]] = found['/usr/b']['Ranges']
        self.assertEqual([[first // CHUNK, last // CHUNK]], row['Chunks'])

    def test_what_cannot_be_read_is_a_warning(self):
        image = self.write_file('image', b'some' * 1000)
        code, out, err = self.call('files', str(image), '-f', 'json')
        self.assertEqual(0, code)
        self.assertEqual(['[unknown]'],
                         [row['File'] for row in json.loads(out)])
        self.assertIn('no filesystem of a known kind', err)


class LazyFilesTest(test_lazy.LazyTestCase):

    def setUp(self):
        super().setUp()
        self.image = test_file_map.make_image(self.directory, CONTENTS)
        if self.image is None:
            self.skipTest('needs the program mke2fs (package e2fsprogs)')
        data = self.image.read_bytes()
        self.places = {path: data.index(content[:4096])
                       for path, content in CONTENTS.items()}

    def call(self, *words):
        code, out, err = self.run_command(*words, '-f', 'json')
        self.assertEqual(0, code, err)
        return json.loads(out)

    def test_a_recorded_boot_is_shown_by_file(self):
        record = self.write_file('record', json.dumps(
            test_lazy.FIGURE_3 | {'image_bytes': 16 << 20, 'instances': [
                {'start_us': 0, 'reads': [
                    [5e5, self.places['usr/c'] + 4096, 8192],
                    [1e6, self.places['usr/a'], 4096]]}]}).encode())
        rows = self.call('files', record, self.image)
        self.assertEqual([['/usr/c', 1500 << 10, 8192, 0.5],
                          ['/usr/a', 700 << 10, 4096, 1.5]],
                         [[row['File'], row['Size'], row['Read'],
                           row['First (s)']] for row in rows])

    def test_a_profile_is_shown_by_file(self):
        chunk = self.places['usr/c'] // CHUNK + 2
        profile = self.write_file('profile', json.dumps(
            {'format': 1, 'chunk': CHUNK,
             'profile': [[chunk, 3, 2e6]]}).encode())
        [row] = self.call('files', profile, self.image)
        self.assertEqual(('/usr/c', None, CHUNK, 3, 2.0), (
            row['File'], row['Read'], row['In Chunks'], row['Instances'],
            row['First (s)']))

    def test_a_wrong_document_is_named(self):
        for content in (b'{}', b'[[1, 2, 3]]', b'nothing', b'{"format": 1}',
                        b'{"format": 2, "chunk": 1, "profile": []}'):
            code, _, err = self.run_command(
                'files', self.write_file('wrong', content), self.image)
            self.assertEqual(1, code)
            self.assertIn('profile' if content != b'nothing' else 'JSON', err)

    def test_a_profile_is_carried_to_where_its_content_is(self):
        other = test_file_map.make_image(self.directory, CHANGED, 'other')
        data = other.read_bytes()
        # A chunk within the file that changed, and one within another.
        chunks = [self.places[path] // CHUNK + 1
                  for path in ('usr/c', 'usr/a')]
        profile = self.write_file('profile', json.dumps(
            {'format': 1, 'chunk': CHUNK, 'profile': [
                [chunks[0], 2, 5.0], [chunks[1], 3, 6.0]]}).encode())
        output = self.directory / 'carried'
        outcome = {}
        for way in ('blocks', 'paths', 'both'):
            found = self.call('carry', profile, self.image, other, '-o',
                              output, '--by', way)
            document = json.loads(output.read_text())
            self.assertEqual(CHUNK, document['chunk'])
            self.assertEqual(len(document['profile']),
                             found['carried_chunks'])
            outcome[way] = document['profile']
        places = {path: data.index(CHANGED[path][:4096]) for path in CHANGED}

        def where(path):
            start = places[path]
            return range(start // CHUNK,
                         (start + len(CHANGED[path]) - 1) // CHUNK + 1)

        def rows(way, path):
            return [row[1:] for row in outcome[way] if row[0] in where(path)]

        self.assertNotIn([2, 5.0], rows('blocks', 'usr/c'))
        for way in ('paths', 'both'):
            self.assertIn([2, 5.0], rows(way, 'usr/c'))
            self.assertIn([3, 6.0], rows(way, 'usr/a'))

    def test_no_input_is_replaced(self):
        profile = self.write_file('profile', b'[[0, 1, 1]]')
        code, _, err = self.run_command(
            'carry', profile, self.image, self.image, '-o', profile)
        self.assertEqual(1, code)
        self.assertIn('is the profile itself', err)
