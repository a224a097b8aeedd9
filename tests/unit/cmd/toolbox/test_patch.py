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
"""``diffcache patch``."""

import io
import json
import logging
import os
import random
import struct
from unittest import mock

from diffcache_openstack.blocks import manifest
from diffcache_openstack.cmd.toolbox import app as toolbox
from tests import base

_FIELDS = {'codec', 'base_hash', 'target_hash', 'target_size', 'patch_size',
           'blocks_copied', 'blocks_inserted'}


class PatchCommandTest(base.TestCase):

    def setUp(self):
        super().setUp()
        # Each run of the toolbox adds its handlers to the root logger.
        root = logging.getLogger()
        self.addCleanup(setattr, root, 'handlers', list(root.handlers))
        noise = random.Random(1)
        self.base = noise.randbytes(300_000)
        self.target = (self.base[:98_304] + noise.randbytes(49_152)
                       + self.base[98_304:])
        self.write_file('base', self.base)
        self.write_file('target', self.target)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def call(self, *argv: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with (mock.patch('sys.stdout', out), mock.patch('sys.stderr', err)):
            try:
                code = toolbox.main(['patch', *argv])
            except SystemExit as exc:
                code = exc.code or 0
        return code, out.getvalue(), err.getvalue()

    def call_json(self, *argv: str):
        code, out, err = self.call(*argv, '-f', 'json')
        self.assertEqual((0, ''), (code, err))
        return json.loads(out)

    def create(self, *options: str) -> dict:
        return self.call_json('create', self.path('base'),
                              self.path('target'), self.path('patch'),
                              *options)

    def make_manifest(self, name: str = 'base') -> str:
        manifest.create(self.path(name), self.path('manifest'))
        return self.path('manifest')

    def test_a_verified_base_gives_the_target(self):
        made = self.create('--codec', 'block')
        applied = self.call_json(
            'apply', self.path('base'), self.path('patch'),
            self.path('output'), '--base-manifest', self.make_manifest())
        self.assertEqual(made['target_hash'], applied['target_hash'])
        self.assertEqual(self.target,
                         (self.directory / 'output').read_bytes())

    def test_another_images_manifest_writes_nothing(self):
        self.create('--codec', 'block')
        for name in ('base', 'target'):
            code, out, err = self.call(
                'apply', self.path(name), self.path('patch'),
                self.path('output'), '--base-manifest',
                self.make_manifest('target'))
            self.assertEqual((1, ''), (code, out))
            self.assertIn(self.path('base') if name == 'base'
                          else 'made from', err)
            self.assertFalse(os.path.exists(self.path('output')))

    def test_a_base_changed_after_its_manifest_is_refused(self):
        self.create('--codec', 'block')
        described = self.make_manifest()
        os.utime(described, (0, 0))
        code, out, err = self.call(
            'apply', self.path('base'), self.path('patch'),
            self.path('output'), '--base-manifest', described)
        self.assertEqual((1, ''), (code, out))
        self.assertIn('changed after', err)
        self.assertFalse(os.path.exists(self.path('output')))

    def test_who_reads_all_of_the_base_takes_no_manifest(self):
        for codec, where in (('block', '--in-place'),
                             ('rdiff', self.path('output'))):
            self.create('--codec', codec)
            code, out, err = self.call(
                'apply', self.path('base'), self.path('patch'), where,
                '--base-manifest', self.make_manifest())
            self.assertEqual((1, ''), (code, out))
            self.assertIn('reads all of the base', err)
            self.assertEqual(self.base,
                             (self.directory / 'base').read_bytes())

    def test_each_codec_from_create_to_apply(self):
        for codec in ('block', 'rdiff', 'qcow2'):
            made = self.create('--codec', codec)
            self.assertEqual(codec, made['codec'])
            self.assertLessEqual(_FIELDS, set(made))
            shown = self.call_json('show', self.path('patch'))
            self.assertLessEqual(shown.items(), made.items())
            verified = self.call_json('verify', self.path('base'),
                                      self.path('patch'))
            self.assertIs(True, verified['verified'])
            applied = self.call_json('apply', self.path('base'),
                                     self.path('patch'), self.path('output'))
            self.assertEqual(made['target_hash'], applied['target_hash'])
            self.assertEqual(
                self.target, (self.directory / 'output').read_bytes())

    def test_auto_keeps_the_smallest_and_says_why(self):
        made = self.create()
        self.assertEqual(os.path.getsize(self.path('patch')),
                         made['patch_size'])
        self.assertEqual(
            {'block': made['patch_size'], 'qcow2': None, 'rdiff': None},
            {attempt['codec']: attempt['size'] for attempt in made['tried']})
        self.assertIn('given up', made['tried'][-1]['reason'])
        self.assertIn('not tried', made['tried'][1]['reason'])
        self.assertEqual({'base', 'target', 'patch'}
                         | ({'patch.json'} if made['codec'] == 'rdiff'
                            else set()), set(os.listdir(self.directory)))

    def test_auto_takes_rdiff_for_data_moved_by_odd_bytes(self):
        # A few bytes before every block: no block is where a block was.
        pieces = [self.base[at:at + 5000]
                  for at in range(0, len(self.base), 5000)]
        self.write_file('target', b'odd'.join(pieces))
        made = self.create()
        sizes = {codec: self.create('--codec', codec)['patch_size']
                 for codec in ('block', 'rdiff')}
        self.assertEqual(min(sizes.values()), made['patch_size'])
        self.assertEqual(min(sizes, key=sizes.get), made['codec'])

    def test_a_level_is_passed_on(self):
        made = self.create('--codec', 'block', '--level', '7')
        self.assertEqual(7, made['level'])
        code, _, err = self.call('create', self.path('base'),
                                 self.path('target'), self.path('patch'),
                                 '--level', '99')
        self.assertEqual(2, code)
        self.assertIn("'99' is not a whole number 1..19", err)

    def test_a_bare_rdiff_delta_is_applied_with_a_warning(self):
        self.create('--codec', 'rdiff')
        os.unlink(self.path('patch.json'))
        code, _, err = self.call('apply', self.path('base'),
                                 self.path('patch'), self.path('output'))
        self.assertEqual(0, code)
        self.assertIn('not verified', err)

    def test_errors_are_one_line_and_leave_no_output(self):
        self.create()
        self.write_file('junk', b'junk')
        for argv in (
                ('apply', 'target', 'patch', 'output'),
                ('apply', 'base', 'junk', 'output'),
                ('apply', 'base', 'missing', 'output'),
                ('apply', 'missing', 'patch', 'output'),
                ('create', 'missing', 'target', 'output'),
                ('create', 'base', 'missing', 'output'),
                ('create', 'base', 'target', 'no/output'),
                ('verify', 'target', 'patch'),
                ('show', 'junk'),
                ('matrix', 'base', 'missing'),
                ('matrix', 'base')):
            code, out, err = self.call(
                argv[0], *(self.path(name) for name in argv[1:]))
            self.assertEqual((1, ''), (code, out), argv)
            self.assertRegex(err, r'^diffcache: error: [^\n]+\n$')
            self.assertNotIn('output', os.listdir(self.directory))

    def test_auto_replaces_no_input(self):
        for name in ('base', 'target'):
            code, out, err = self.call('create', self.path('base'),
                                       self.path('target'), self.path(name))
            self.assertEqual((1, ''), (code, out))
            self.assertIn(f'is the {name} itself', err)
        # The hashes of an rdiff patch lie beside it.
        self.write_file('some.json', self.base)
        code, _, err = self.call('create', self.path('some.json'),
                                 self.path('target'), self.path('some'))
        self.assertEqual(1, code)
        self.assertIn('some.json is the base itself', err)
        self.assertEqual(self.base,
                         (self.directory / 'some.json').read_bytes())

    def test_another_manifest_than_the_bases_is_named(self):
        self.create('--codec', 'block')
        self.write_file('junk', b'junk' * 100)
        code, _, err = self.call(
            'apply', self.path('base'), self.path('patch'),
            self.path('output'), '--base-manifest', self.path('junk'))
        self.assertEqual(1, code)
        self.assertIn(self.path('junk'), err)

    def test_a_refused_image_is_named(self):
        self.write_file('refused', struct.pack(
            '>4sIQII', b'QFI\xfb', 3, 200, 11, 16) + bytes(1000))
        for argv in (('create', 'refused', 'target'),
                     ('create', 'base', 'refused')):
            code, _, err = self.call(
                *(argv[0], *(self.path(name) for name in argv[1:])),
                self.path('output'), '--codec', 'qcow2')
            self.assertEqual(1, code)
            self.assertIn(f'{self.path("refused")}: the qcow2 image is '
                          'refused', err)

    def test_a_matrix_refuses_what_is_no_disk(self):
        small = self.write_file('six', b'hello!')
        code, out, err = self.call('matrix', self.path('base'), str(small))
        self.assertEqual((1, ''), (code, out))
        self.assertIn('six has 6 bytes', err)

    def test_a_matrix_has_every_ordered_pair(self):
        self.write_file('third', random.Random(2).randbytes(100_000))
        names = [self.path(name) for name in ('base', 'target', 'third')]
        code, out, err = self.call('matrix', *names, '-f', 'json')
        self.assertEqual(0, code)
        self.assertIn('3 images', err)
        pairs = {(pair['base'], pair['target']): pair
                 for pair in json.loads(out)}
        self.assertEqual({(a, b) for a in names for b in names if a != b},
                         set(pairs))
        made = self.create('--codec', 'block')
        self.assertAlmostEqual(
            made['patch_size'], pairs[names[0], names[1]]['estimated_size'],
            delta=0.15 * made['patch_size'])
        self.assertLess(pairs[names[1], names[0]]['estimated_size'],
                        pairs[names[0], names[2]]['estimated_size'])

    def test_a_base_is_changed_in_place(self):
        self.create('--codec', 'block')
        applied = self.call_json('apply', '--in-place', self.path('base'),
                                 self.path('patch'))
        self.assertEqual(self.path('base'), applied['output'])
        self.assertEqual(
            self.target, (self.directory / 'base').read_bytes())

    def test_only_the_block_codec_works_in_place(self):
        self.create('--codec', 'rdiff')
        code, _, err = self.call('apply', '--in-place', self.path('base'),
                                 self.path('patch'))
        self.assertEqual(1, code)
        self.assertIn('cannot be applied in place', err)
        self.assertEqual(self.base, (self.directory / 'base').read_bytes())

    def test_an_output_and_in_place_exclude_each_other(self):
        self.create('--codec', 'block')
        for argv in ([self.path('base'), self.path('patch')],
                     ['--in-place', self.path('base'), self.path('patch'),
                      self.path('output')]):
            self.assertEqual(2, self.call('apply', *argv)[0])
