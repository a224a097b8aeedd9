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
"""What every patch codec has to pass.

A codec's test case inherits :class:`CodecConformance` beside the test base
class and names its codec; a codec from elsewhere can be held to the same
contract.
"""

import contextlib
import os
import pathlib
import random
import resource
import stat
import subprocess
import tempfile

import hypothesis
from hypothesis import strategies

from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks.codecs import registry
from diffcache_openstack.blocks import manifest
from diffcache_openstack.common import exceptions

_KIB = 1024
_BLOCK = 4 * _KIB

#: A piece of content: (kind, seed, length in bytes).
_pieces = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(('noise', 'text', 'zero')),
        strategies.integers(0, 5),
        strategies.one_of(strategies.integers(0, 3 * _BLOCK),
                          strategies.sampled_from((_BLOCK, 64 * _KIB)))),
    max_size=8)

#: An edit: (kind, where as a share of the content, length in bytes, seed).
_edits = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ('overwrite', 'insert', 'delete', 'move', 'truncate', 'grow')),
        strategies.floats(0, 1),
        strategies.one_of(strategies.integers(0, 2 * _BLOCK),
                          strategies.sampled_from((_BLOCK, 64 * _KIB))),
        strategies.integers(6, 9)),
    max_size=5)


def _piece(kind: str, seed: int, length: int) -> bytes:
    if kind == 'zero':
        return bytes(length)
    generator = random.Random(seed)
    if kind == 'noise':
        return generator.randbytes(length)
    line = b'%d bottles of beer on the wall\n' % seed
    return (line * (length // len(line) + 1))[:length]


def _edit(content: bytes, kind: str, where: float, length: int,
          seed: int) -> bytes:
    at = int(where * len(content))
    fresh = _piece('noise', seed, length)
    if kind == 'overwrite':
        return content[:at] + fresh + content[at + length:]
    if kind == 'insert':
        return content[:at] + fresh + content[at:]
    if kind == 'delete':
        return content[:at] + content[at + length:]
    if kind == 'move':
        return content[at + length:] + content[:at] + content[at:at + length]
    if kind == 'truncate':
        return content[:at]
    return content + fresh


@contextlib.contextmanager
def file_size_limit(size: int):
    """No file of this process grows beyond ``size`` bytes meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class CodecConformance:
    """The contract of :class:`PatchCodec`, as tests."""

    #: The codec's name in its namespace.
    codec_name: str

    def setUp(self):
        super().setUp()
        self.codec = registry.get(self.codec_name)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def make_pair(self) -> tuple[bytes, bytes]:
        """A base and a target with something equal, new, moved and zero."""
        noise = random.Random(1).randbytes(100 * _KIB)
        moved = random.Random(2).randbytes(40 * _KIB)
        fresh = random.Random(3).randbytes(30 * _KIB)
        base = noise + bytes(64 * _KIB) + moved
        target = moved + noise[:90 * _KIB] + bytes(64 * _KIB) + fresh
        self.write_file('base', base)
        self.write_file('target', target)
        return base, target

    def make_patch(self) -> bytes:
        """Make the pair and its patch; return the target."""
        _, target = self.make_pair()
        self.codec.create(self.path('base'), self.path('target'),
                          self.path('patch'))
        return target

    def names(self) -> set[str]:
        return set(os.listdir(self.directory))

    def assert_apply_fails(self, *errors: type[Exception]) -> None:
        """Applying raises one of ``errors`` and leaves no output."""
        before = self.names()
        self.assertRaises(errors, self.codec.apply, self.path('base'),
                          self.path('patch'), self.path('output'))
        self.assertEqual(before, self.names())

    @hypothesis.settings(
        max_examples=25,
        suppress_health_check=[
            hypothesis.HealthCheck.too_slow,
            # One property for several codecs: the examples are the same.
            hypothesis.HealthCheck.differing_executors])
    @hypothesis.given(pieces=_pieces, edits=_edits)
    def test_apply_of_create_is_the_target(self, pieces, edits):
        base = b''.join(_piece(*piece) for piece in pieces)
        target = base
        for edit in edits:
            target = _edit(target, *edit)
        with tempfile.TemporaryDirectory() as directory:
            paths = [os.path.join(directory, name) for name in
                     ('base', 'target', 'patch', 'output')]
            pathlib.Path(paths[0]).write_bytes(base)
            pathlib.Path(paths[1]).write_bytes(target)
            made = self.codec.create(*paths[:3])
            self.assertEqual(made, self.codec.info(paths[2]))
            self.codec.verify(paths[0], paths[2])
            applied = self.codec.apply(paths[0], paths[2], paths[3])
            self.assertEqual(target, pathlib.Path(paths[3]).read_bytes())
        self.assertEqual(len(target), applied.target_size)

    def test_info_describes_the_patch(self):
        base, target = self.make_pair()
        info = self.codec.create(self.path('base'), self.path('target'),
                                 self.path('patch'))
        self.assertIsInstance(info, codec_base.PatchInfo)
        self.assertEqual(self.codec_name, info.codec)
        self.assertEqual(len(base), info.base_size)
        self.assertEqual(len(target), info.target_size)
        self.assertEqual(os.path.getsize(self.path('patch')),
                         info.patch_size)
        self.assertEqual(64, len(info.base_hash))
        self.assertEqual(64, len(info.target_hash))
        self.assertNotEqual(info.base_hash, info.target_hash)
        self.assertGreater(info.blocks_copied, 0)
        self.assertGreater(info.blocks_inserted, 0)

    def test_a_patch_stays_below_its_limit_or_is_not_left(self):
        self.make_patch()
        size = os.path.getsize(self.path('patch'))
        os.unlink(self.path('patch'))
        before = self.names()
        ends = self.path('base'), self.path('target'), self.path('other')
        self.assertIsNone(self.codec.create_below(*ends, size))
        self.assertEqual(before, self.names())
        made = self.codec.create_below(*ends, size + 1)
        self.assertEqual(size, made.patch_size)
        self.assertEqual(made, self.codec.info(self.path('other')))

    def test_targets_are_read_through_patches_with_random_access_only(self):
        target = self.make_patch()
        manifest.create(self.path('target'), self.path('manifest'))
        ends = (self.path('base'), self.path('patch'), self.path('manifest'))
        if not self.codec.random_access:
            self.assertRaises(exceptions.InvalidInput, self.codec.open_view,
                              *ends)
            return
        view = self.codec.open_view(*ends)
        self.assertEqual(len(target), view.size)
        for start, length in ((0, 10), (70_001, 9000), (len(target) - 5, 5)):
            self.assertEqual(target[start:start + length],
                             view.read(start, length))

    def test_a_patch_is_recognised(self):
        self.make_patch()
        self.assertIs(self.codec, registry.detect(self.path('patch')))

    def test_equal_images_need_next_to_nothing(self):
        self.make_pair()
        info = self.codec.create(self.path('base'), self.path('base'),
                                 self.path('patch'))
        self.assertLess(info.patch_size, 2 * _KIB)
        self.codec.apply(self.path('base'), self.path('patch'),
                         self.path('output'))
        self.assertEqual(pathlib.Path(self.path('base')).read_bytes(),
                         pathlib.Path(self.path('output')).read_bytes())

    def test_empty_images(self):
        self.make_pair()
        self.write_file('empty', b'')
        for base, target in (('empty', 'target'), ('base', 'empty'),
                             ('empty', 'empty')):
            self.codec.create(self.path(base), self.path(target),
                              self.path('patch'))
            self.codec.apply(self.path(base), self.path('patch'),
                             self.path('output'))
            self.assertEqual(
                pathlib.Path(self.path(target)).read_bytes(),
                pathlib.Path(self.path('output')).read_bytes())

    def test_outputs_replace_what_was_there(self):
        self.write_file('patch', b'old')
        self.write_file('output', b'old')
        target = self.make_patch()
        self.codec.apply(self.path('base'), self.path('patch'),
                         self.path('output'))
        self.assertEqual(target,
                         pathlib.Path(self.path('output')).read_bytes())

    def test_a_base_of_another_content_is_refused(self):
        self.make_patch()
        base = bytearray(pathlib.Path(self.path('base')).read_bytes())
        base[5000] ^= 1
        self.write_file('base', base)
        self.assert_apply_fails(exceptions.BaseMismatch)
        self.assertRaises(exceptions.BaseMismatch, self.codec.verify,
                          self.path('base'), self.path('patch'))

    def test_a_base_of_another_size_is_refused(self):
        self.make_patch()
        base = pathlib.Path(self.path('base')).read_bytes()
        for other in (base[:-_BLOCK], base + bytes(_BLOCK), b''):
            self.write_file('base', other)
            self.assert_apply_fails(exceptions.BaseMismatch)
            self.assertRaises(exceptions.BaseMismatch, self.codec.verify,
                              self.path('base'), self.path('patch'))

    def test_a_truncated_patch_is_refused(self):
        self.make_patch()
        patch = pathlib.Path(self.path('patch')).read_bytes()
        for length in (0, 1, 7, 50, len(patch) // 2, len(patch) - 1):
            self.write_file('patch', patch[:length])
            self.assert_apply_fails(exceptions.FormatError,
                                    exceptions.IntegrityError)

    def test_a_flipped_patch_never_gives_a_wrong_output(self):
        target = self.make_patch()
        patch = pathlib.Path(self.path('patch')).read_bytes()
        generator = random.Random(4)
        places = [*range(0, 64, 5), *(
            generator.randrange(len(patch)) for _ in range(20))]
        refused = 0
        for place in places:
            flipped = bytearray(patch)
            flipped[place] ^= 1 << generator.randrange(8)
            self.write_file('patch', flipped)
            try:
                self.codec.apply(self.path('base'), self.path('patch'),
                                 self.path('output'))
            except (exceptions.FormatError, exceptions.IntegrityError,
                    exceptions.BaseMismatch):
                refused += 1
                self.assertNotIn('output', self.names())
            else:
                self.assertEqual(
                    target, pathlib.Path(self.path('output')).read_bytes())
                os.unlink(self.path('output'))
        self.assertGreater(refused, len(places) // 2)

    def test_missing_files_are_named(self):
        self.make_patch()
        missing = self.path('missing')
        there = self.path('base')
        patch = self.path('patch')
        output = self.path('output')
        for call, arguments in (
                (self.codec.create, (missing, there, output)),
                (self.codec.create, (there, missing, output)),
                (self.codec.apply, (missing, patch, output)),
                (self.codec.apply, (there, missing, output)),
                (self.codec.info, (missing,)),
                (self.codec.verify, (missing, patch)),
                (self.codec.verify, (there, missing))):
            error = self.assertRaises(exceptions.NotFound, call, *arguments)
            self.assertIn(missing, str(error))
        self.assertNotIn('output', self.names())

    def test_a_missing_directory_is_named(self):
        self.make_patch()
        output = self.path('no/output')
        for call, arguments in (
                (self.codec.create, (self.path('base'), self.path('target'))),
                (self.codec.apply, (self.path('base'), self.path('patch')))):
            error = self.assertRaises(exceptions.NotFound, call, *arguments,
                                      output)
            self.assertIn(output, str(error))

    def test_a_directory_is_no_input(self):
        self.make_pair()
        self.assertRaises(
            exceptions.InvalidInput, self.codec.create, str(self.directory),
            self.path('target'), self.path('patch'))

    def test_another_base_is_told_by_its_content(self):
        self.make_patch()
        self.write_file('other', random.Random(5).randbytes(
            os.path.getsize(self.path('base'))))
        self.write_file('longer', random.Random(6).randbytes(300 * _KIB))
        wanted = manifest.content_id(self.path('base'))
        for name in ('other', 'longer'):
            found = manifest.content_id(self.path(name))
            for call, arguments in (
                    (self.codec.apply, [self.path('output')]),
                    (self.codec.verify, [])):
                error = self.assertRaises(
                    exceptions.BaseMismatch, call, self.path(name),
                    self.path('patch'), *arguments)
                for part in (self.path(name), found, self.path('patch'),
                             wanted, 'give that one'):
                    self.assertIn(part, str(error))

    def test_a_damaged_patch_is_named(self):
        self.make_patch()
        patch = pathlib.Path(self.path('patch')).read_bytes()
        self.write_file('patch', patch[:-1])
        error = self.assertRaises(
            (exceptions.FormatError, exceptions.IntegrityError),
            self.codec.info, self.path('patch'))
        self.assertIn(self.path('patch'), str(error))

    def test_no_input_is_replaced(self):
        target = self.make_patch()
        base, patch = self.path('base'), self.path('patch')
        for call, arguments in (
                (self.codec.create, (base, self.path('target'), base)),
                (self.codec.create, (base, self.path('target'),
                                     self.path('target'))),
                (self.codec.apply, (base, patch, patch))):
            error = self.assertRaises(exceptions.InvalidInput, call,
                                      *arguments)
            self.assertIn(arguments[2], str(error))
        # Only a base may be replaced by what is made of it.
        self.codec.apply(base, patch, base)
        self.assertEqual(target, pathlib.Path(base).read_bytes())

    def test_what_is_no_file_is_no_output(self):
        self.make_patch()
        os.mkfifo(self.path('pipe'))
        for output in ('pipe', '.'):
            for call, arguments in (
                    (self.codec.create, ('base', 'target', output)),
                    (self.codec.apply, ('base', 'patch', output))):
                error = self.assertRaises(
                    exceptions.InvalidInput, call,
                    *(self.path(name) for name in arguments))
                self.assertIn(self.path(output), str(error))
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path('pipe')).st_mode))

    def test_an_image_that_changes_meanwhile_gives_no_patch(self):
        self.make_pair()
        before = self.names()
        for name in ('base', 'target'):
            def change(_done, _total, path=self.path(name)):
                os.utime(path, (1, 1))

            os.utime(self.path(name))
            error = self.assertRaises(
                exceptions.RetryableError, self.codec.create,
                self.path('base'), self.path('target'), self.path('patch'),
                progress=change)
            self.assertIn(self.path(name), str(error))
            self.assertEqual(before, self.names())

    def test_no_space_leaves_nothing_behind(self):
        self.make_patch()
        before = self.names()
        with file_size_limit(16 * _KIB):
            self.assertRaises(
                exceptions.NoSpace, self.codec.create, self.path('base'),
                self.path('target'), self.path('other'))
            self.assertRaises(
                exceptions.NoSpace, self.codec.apply, self.path('base'),
                self.path('patch'), self.path('output'))
        self.assertEqual(before, self.names())

    def test_a_full_filesystem_leaves_nothing_behind(self):
        if os.geteuid():
            self.skipTest('needs root, to mount a small filesystem')
        self.make_patch()
        small = self.directory / 'small'
        small.mkdir()
        mounted = subprocess.run(
            ['mount', '-t', 'tmpfs', '-o', 'size=16k', 'tmpfs', small],
            capture_output=True, text=True)
        if mounted.returncode:
            self.skipTest(f'cannot mount here: {mounted.stderr.strip()}')
        self.addCleanup(subprocess.run, ['umount', small], check=True)
        self.assertRaises(
            exceptions.NoSpace, self.codec.create, self.path('base'),
            self.path('target'), self.path('small/patch'))
        self.assertRaises(
            exceptions.NoSpace, self.codec.apply, self.path('base'),
            self.path('patch'), self.path('small/output'))
        self.assertEqual([], os.listdir(small))

    def test_progress_that_raises_cancels(self):
        self.make_patch()

        def cancel(_done, _total):
            raise exceptions.Cancelled('enough')

        before = self.names()
        self.assertRaises(exceptions.Cancelled, self.codec.create,
                          self.path('base'), self.path('target'),
                          self.path('other'), progress=cancel)
        self.assertRaises(exceptions.Cancelled, self.codec.apply,
                          self.path('base'), self.path('patch'),
                          self.path('output'), cancel)
        self.assertEqual(before, self.names())
