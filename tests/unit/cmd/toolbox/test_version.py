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
"""``diffcache version``."""

import io
import json
import logging
import random
import subprocess
import unittest
from unittest import mock

from diffcache_openstack.cmd.toolbox import app as toolbox
from tests import base
from tests.unit.versions import fixture

BLOCK = 4096


class VersionCommandCase(base.TestCase):

    def setUp(self):
        super().setUp()
        # Each run of the toolbox adds its handlers to the root logger.
        root = logging.getLogger()
        self.addCleanup(setattr, root, 'handlers', list(root.handlers))
        self.noise = random.Random(1)
        self.disk = self.write_file('disk', self.noise.randbytes(60 * BLOCK))
        self.uri = f'file://{self.directory}/store'

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def call(self, *argv: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with (mock.patch('sys.stdout', out), mock.patch('sys.stderr', err)):
            try:
                code = toolbox.main(['version', *argv])
            except SystemExit as exc:
                code = exc.code or 0
        return code, out.getvalue(), err.getvalue()

    def call_json(self, *argv: str):
        code, out, err = self.call(*argv, '--store', self.uri, '-f', 'json')
        self.assertEqual((0, ''), (code, err))
        return json.loads(out)

    def save(self, *options: str) -> dict:
        return self.call_json('save', str(self.disk), '--series', 'vm',
                              *options)

    def change(self) -> None:
        with open(self.disk, 'r+b') as stream:
            stream.seek(self.noise.randrange(60) * BLOCK)
            stream.write(self.noise.randbytes(BLOCK))


class TestVersionCommands(VersionCommandCase):

    def test_a_column_to_sort_by_that_does_not_exist(self):
        self.save()
        code, _, err = self.call('list', '--store', self.uri,
                                 '--sort-column', 'Nonsense')
        self.assertEqual(1, code)
        self.assertIn("There is no column 'Nonsense'; choose from version",
                      err)

    def test_what_has_no_value_is_empty_in_a_table(self):
        code, out, _ = self.call('save', str(self.disk), '--series', 'vm',
                                 '--store', self.uri)
        self.assertEqual(0, code)
        self.assertRegex(out, r'(?m)^\| parent +\| +\|$')
        self.assertIsNone(self.call_json(
            'save', str(self.disk), '--series', 'other')['parent'])

    def test_a_driver_that_glance_store_lacks(self):
        code, _, err = self.call('list', '--store', 'glance:nope')
        self.assertEqual(1, code)
        self.assertIn("glance_store has no driver 'nope'; choose from cinder,"
                      ' file, ', err)

    def test_a_store_whose_directory_is_missing_is_not_an_empty_one(self):
        code, _, err = self.call('list', '--store', 'file:///no/such/place')
        self.assertEqual(1, code)
        self.assertIn('There is no directory /no/such/place', err)

    def test_a_column_that_does_not_exist_is_refused_by_name(self):
        self.save()
        code, _, err = self.call('list', '--store', self.uri, '-c', 'Sise')
        self.assertEqual(1, code)
        self.assertIn("There is no column 'Sise'; choose from version,", err)
        for name in ('Created_at', 'created at'):
            self.assertEqual(0, self.call('list', '--store', self.uri, '-c',
                                          name)[0])

    def test_saving_tells_what_it_did(self):
        first = self.save()
        self.change()
        second = self.save()
        self.assertLessEqual(
            {'version', 'parent', 'blocks_changed', 'bytes_read',
             'bytes_stored', 'seconds', 'pause_ms'}, set(second))
        self.assertEqual((None, 60), (first['parent'],
                                      first['blocks_changed']))
        self.assertEqual((first['version'], 1), (second['parent'],
                                                 second['blocks_changed']))

    def test_restoring_gives_the_disk_back(self):
        first = self.save()
        wanted = self.disk.read_bytes()
        self.change()
        answer = self.call_json('restore', first['version'],
                                self.path('out'), '--format', 'raw')
        self.assertEqual(wanted, (self.directory / 'out').read_bytes())
        self.assertEqual(('raw', 60 * BLOCK), (answer['format'],
                                               answer['size']))

    def test_rolling_back_after_a_dry_run(self):
        first = self.save()
        wanted = self.disk.read_bytes()
        self.change()
        plan = self.call_json('rollback', first['version'], str(self.disk),
                              '--dry-run')
        self.assertEqual(BLOCK, plan['bytes_to_write'])
        self.assertNotEqual(wanted, self.disk.read_bytes())
        code, out, err = self.call(
            'rollback', first['version'], str(self.disk), '--store',
            self.uri, '-f', 'json')
        self.assertEqual(0, code)
        # People are told how it was done; programs are not.
        self.assertIn('4096 bytes differed', err)
        done = json.loads(out)
        self.assertEqual(BLOCK, done['bytes_written'])
        self.assertEqual(wanted, self.disk.read_bytes())
        listed = self.call_json('list', '--series', 'vm')
        self.assertEqual([first['version'], done['kept']],
                         [each['version'] for each in listed])

    def test_the_table_of_versions_is_narrow(self):
        saved = self.save()
        for words, shown in (([], False), (['--long'], True)):
            _code, out, _err = self.call('list', '--store', self.uri, *words)
            self.assertIn(saved['version'], out)
            self.assertEqual(shown, 'parent' in out)
        [listed] = self.call_json('list')
        self.assertIsNone(listed['parent'])
        self.assertEqual(saved['size'], listed['size'])

    def test_diff_names_the_ranges(self):
        first = self.save()
        with open(self.disk, 'r+b') as stream:
            stream.seek(5 * BLOCK)
            stream.write(bytes(2 * BLOCK))
        second = self.save()
        found = self.call_json('diff', first['version'], second['version'])
        self.assertEqual((2, [[5 * BLOCK, 2 * BLOCK]]),
                         (found['blocks'], found['ranges']))

    def test_delete_and_prune(self):
        first = self.save()
        self.change()
        self.save()
        self.call_json('delete', first['version'])
        self.change()
        third = self.save()
        done = self.call_json('prune', '--series', 'vm', '--keep-last', '1')
        self.assertEqual(1, len(done['versions_deleted']))
        listed = self.call_json('list')
        self.assertEqual([third['version']],
                         [each['version'] for each in listed])
        shown = self.call_json('show', third['version'][:8])
        self.assertEqual(third['version'], shown['version'])

    def test_a_series_that_does_not_exist_is_not_pruned(self):
        self.save()
        code, out, err = self.call('prune', '--store', self.uri, '--series',
                                   'typo', '--keep-last', '1')
        self.assertEqual((1, ''), (code, out))
        self.assertIn("'typo'", err)

    def test_a_version_that_is_named_twice_is_listed_once(self):
        version = self.save()['version']
        gone = self.call_json('delete', version, version[:3])
        self.assertEqual([version], [each['version'] for each in gone])

    def test_verify_names_what_is_damaged_and_exits_1(self):
        version = self.save()['version']
        self.assertTrue(self.call_json('verify')['intact'])
        pack = next((self.directory / 'store').glob('pack-*'))
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 1
        pack.write_bytes(data)
        code, out, err = self.call('verify', '--store', self.uri, '-f',
                                   'json')
        self.assertEqual(1, code)
        found = json.loads(out)
        self.assertEqual(([pack.name], [version]), (
            found['packs_damaged'], found['versions_damaged']))
        self.assertIn(pack.name, err)
        self.assertIn(version, err)

    def test_a_key_file_is_needed_for_a_sealed_store(self):
        key = self.write_file('key', b'ab' * 32 + b'\n')
        key.chmod(0o600)
        version = self.save('--key-file', str(key))['version']
        code, _out, err = self.call('list', '--store', self.uri)
        self.assertEqual(1, code)
        self.assertIn('key', err)
        self.call_json('restore', version, self.path('out'), '--key-file',
                       str(key))
        self.assertEqual(self.disk.read_bytes(),
                         (self.directory / 'out').read_bytes())

    def test_a_failed_restore_is_one_line_and_leaves_no_file(self):
        self.save()
        code, out, err = self.call('restore', 'nothing', self.path('out'),
                                   '--store', self.uri)
        self.assertEqual((1, '', 1), (code, out, err.count('\n')))
        self.assertFalse((self.directory / 'out').exists())

    def test_a_disk_or_base_that_is_not_there_is_named(self):
        for disk, more in (('none', ()),
                           (str(self.disk), ('--base', 'none'))):
            code, _out, err = self.call('save', disk, '--series', 'vm',
                                        '--store', self.uri, *more)
            self.assertEqual(1, code)
            self.assertIn(' none does not exist; check the path.', err)

    def test_wrong_usage_exits_2(self):
        disk = str(self.disk)
        for argv in (('save', disk, '--store', self.uri),
                     ('save', disk, '--series', 'x'),
                     ('save', disk, '--store', self.uri, '--series', 'x',
                      '--alpha', '2'),
                     ('save', disk, '--store', self.uri, '--series', ''),
                     ('save', disk, '--store', self.uri, '--series', 'x',
                      '--block-size', '9' * 20),
                     ('prune', '--store', self.uri, '--keep-daily', '-1'),
                     ('prune', '--store', self.uri, '--dead-share', 'nan')):
            with self.subTest(argv=argv):
                self.assertEqual(2, self.call(*argv)[0])

    def test_a_rate_that_is_no_finite_number_exits_2(self):
        # A rate of NaN waited for ever.
        for rate in ('0', 'nan', 'inf', '-1', 'x'):
            with self.subTest(rate=rate):
                code, _out, err = self.call(
                    'save', str(self.disk), '--store', self.uri, '--series',
                    'x', '--rate', rate)
                self.assertEqual(2, code)
                self.assertIn('is not a rate', err)

    def test_a_key_file_that_is_not_there_is_named(self):
        self.save()
        code, _out, err = self.call('list', '--store', self.uri,
                                    '--key-file', self.path('none'))
        self.assertEqual(1, code)
        self.assertIn(f'key file {self.path("none")}', err)
        self.assertNotIn('unexpected', err)

    def test_an_output_that_cannot_be_written_is_named(self):
        version = self.save()['version']
        for command in ('restore', 'manifest'):
            for output, reason in (('none/out', 'create it first'),
                                   ('.', 'is a directory; name a file')):
                with self.subTest(command=command, output=output):
                    code, _out, err = self.call(
                        command, version, self.path(output), '--store',
                        self.uri)
                    self.assertEqual(1, code)
                    self.assertIn(reason, err)
                    self.assertNotIn('unexpected', err)

    def test_commands_that_read_create_no_store(self):
        for argv in (('list',), ('show', 'v'), ('diff', 'v', 'w'),
                     ('verify',), ('key', 'show'),
                     ('restore', 'v', self.path('out')),
                     ('manifest', 'v', self.path('out'))):
            with self.subTest(argv=argv):
                self.assertEqual(1, self.call(*argv, '--store', self.uri)[0])
        self.assertFalse((self.directory / 'store').exists())

    def test_a_wrong_key_file_and_a_wrong_store_exit_1(self):
        bad = self.write_file('bad', b'short')
        bad.chmod(0o600)
        for argv in (('list', '--store', self.uri, '--key-file', str(bad)),
                     ('list', '--store', 'nowhere'),
                     ('list', '--store', self.uri)):
            with self.subTest(argv=argv):
                code, _out, err = self.call(*argv)
                self.assertEqual((1, 1), (code, err.count('\n')))

    @unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
    def test_qcow2_disks_are_saved_by_their_snapshots(self):
        self.disk = self.directory / 'disk.qcow2'
        fixture.make_qcow2(self.disk, 1 << 30)
        fixture.qemu_io(self.disk, 'write -P 1 0 8M')
        self.save('--alpha', '0.5')
        fixture.qemu_io(self.disk, 'write -P 2 500M 4k')
        second = self.save('--alpha', 'auto', '--rate', '500')
        self.assertEqual(1, second['blocks_changed'])
        self.assertLess(second['bytes_read'], 1 << 20)
        self.call_json('restore', second['version'], self.path('out'),
                       '--format', 'qcow2')

    @unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
    def test_a_disk_that_cannot_have_snapshots_is_saved_without(self):
        self.disk = self.directory / 'disk.qcow2'
        subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-o',
                        'refcount_bits=1', str(self.disk), '1M'], check=True)
        fixture.qemu_io(self.disk, 'write -P 1 0 64k')
        first = self.save()
        fixture.qemu_io(self.disk, 'write -P 2 64k 4k')
        self.assertEqual(1, self.save()['blocks_changed'])
        # Nothing leaks.
        subprocess.run(['qemu-img', 'check', '-q', str(self.disk)],
                       check=True)
        self.assertEqual(0, self.call(
            'rollback', first['version'], str(self.disk), '--store', self.uri,
            '--discard-current')[0])
        self.call_json('restore', first['version'], self.path('out'),
                       '--format', 'qcow2')
        subprocess.run(['qemu-img', 'compare', '-q', str(self.disk),
                        self.path('out')], check=True)


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestForgedHeaders(VersionCommandCase):
    """A guest writes a qcow2 header to the first bytes of its raw disk."""

    SECRET = b'private to the host'

    def setUp(self):
        super().setUp()
        self.secret = self.write_file('secret', self.SECRET * 9000)
        plain, self.forged = (self.directory / name for name
                              in ('plain', 'forged'))
        fixture.make_qcow2(plain, 1 << 20)
        fixture.qemu_io(plain, 'write -P 1 0 4k')
        fixture.make_qcow2(self.forged, 1 << 20, self.secret)
        self.disk.write_bytes(plain.read_bytes())
        # Without its header: the disk of a guest as it was saved first.
        self.plain = plain.read_bytes()

    def forge(self) -> None:
        with open(self.disk, 'r+b') as stream:
            stream.write(self.forged.read_bytes())
            stream.truncate(len(self.plain))

    def assertRefused(self, *argv: str) -> None:
        code, out, err = self.call(*argv, '--store', self.uri)
        self.assertEqual((1, ''), (code, out))
        self.assertIn('state the format of the disk', err)
        self.assertNotIn(self.SECRET, self.disk.read_bytes())

    def test_a_forged_header_is_not_detected_as_qcow2(self):
        self.forge()
        self.assertRefused('save', str(self.disk), '--series', 'vm')

    def test_a_rollback_copies_no_file_of_the_host_into_the_disk(self):
        version = self.save()['version']
        self.forge()
        for options in ((), ('--discard-current',), ('--dry-run',)):
            self.assertRefused('rollback', version, str(self.disk), *options)

    def test_the_named_format_is_used_whatever_the_disk_begins_with(self):
        self.forge()
        before = self.disk.read_bytes()
        version = self.save('--disk-format', 'raw')['version']
        self.change()
        # Recorded for the series: it needs not be named again.
        self.assertEqual(1, self.save()['blocks_changed'])
        self.call('rollback', version, str(self.disk), '--store', self.uri)
        self.assertEqual(before, self.disk.read_bytes())

    def test_a_backing_file_that_a_header_names_is_never_opened(self):
        version = self.save('--disk-format', 'qcow2')['version']
        self.forge()
        self.call('rollback', version, str(self.disk), '--store', self.uri,
                  '--disk-format', 'qcow2')
        self.assertNotIn(self.SECRET, self.disk.read_bytes())
