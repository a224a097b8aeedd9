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
from unittest import mock

from diffcache_openstack.cmd.toolbox import app as toolbox
from diffcache_openstack.cmd.toolbox import lazy
from tests import base

# Figure 3 of the paper: four instances, four chunks, a threshold of 2.
FIGURE_3 = {
    'image_bytes': 4 * 262144, 'chunk': 262144, 'threshold': 2,
    'striped': False,
    'links': {'wan_mbps': 100, 'wan_rtt_ms': 20, 'lan_mbps': 1000,
              'lan_rtt_ms': 0.1},
    'instances': [
        {'start_us': 0, 'reads': [[0, 0, 1], [1e6, 1 * 262144, 1]]},
        {'start_us': 0, 'reads': [[0, 0, 1], [2e6, 2 * 262144, 1]]},
        {'start_us': 0, 'reads': [[0, 0, 1], [3e6, 2 * 262144, 1]]},
        {'start_us': 0, 'reads': [[0, 0, 1], [4e6, 3 * 262144, 1]]}],
    'profile': None}


class LazyTestCase(base.TestCase):

    GROUP = 'lazy'

    def run_command(self, *words):
        """(exit code, stdout, stderr) of a command of the group."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch('sys.stdout', out), mock.patch('sys.stderr', err):
            app = toolbox.Toolbox()
            app.stdout, app.stderr = out, err
            try:
                code = app.run([self.GROUP, *map(str, words)])
            except SystemExit as ended:
                code = ended.code
        return code, out.getvalue(), err.getvalue()


class TestReplay(LazyTestCase):

    def setUp(self):
        super().setUp()
        self.scenario = self.write_file('figure-3.json',
                                        json.dumps(FIGURE_3).encode())

    def replay(self, mode, *words):
        code, out, err = self.run_command(
            'replay', self.scenario, '--mode', mode, '-f', 'json', *words)
        self.assertEqual(0, code, err)
        return json.loads(out)

    def test_figure_3(self):
        events = self.replay('first', '--events')['events']
        seen = [(event['instance'], event['chunk'], event['hints'],
                 event['remote'], event['cached'], event['skipped'])
                for event in events if event['miss']]
        self.assertEqual(
            [(0, 0, [], 3, 0, 4), (1, 0, [], 3, 0, 4), (2, 0, [], 3, 0, 4),
             (3, 0, [], 3, 0, 4),
             # Figure 3(b): B is fetched, the right half skipped.
             (0, 1, [], 1, 3, 3),
             (1, 2, [], 2, 3, 2),
             # Figure 3(c): B is skipped, C and D are fetched with the node
             # above them, and C is a hint.
             (3, 3, [2], 3, 3, 1)], seen)

    def test_fields(self):
        found = self.replay('on-demand')
        self.assertEqual(
            ['mode', 'format', 'chunk', 'boot_s', 'stall_s', 'misses',
             'prefetched', 'prefetched_used', 'wasted_bytes', 'wan_bytes',
             'lan_bytes', 'unique_bytes', 'bound_s', 'tree', 'instances',
             'profile'],
            list(found))
        self.assertEqual(4, found['bound_s'])
        self.assertEqual(FIGURE_3['image_bytes'], found['unique_bytes'])
        self.assertEqual(['boot_s', 'stall_s', 'misses', 'prefetched', 'used'],
                         list(found['instances'][0]))

    def test_table(self):
        code, out, err = self.run_command(
            'replay', self.scenario, '--mode', 'later', '--in-flight', 1,
            '--read-ahead', 0)
        self.assertEqual(0, code, err)
        self.assertIn('last: 4.', out)
        # Nothing is printed as Python prints it.
        for sign in ('{', '['):
            self.assertNotIn(sign, out)

    def test_errors_name_the_field(self):
        bad = dict(FIGURE_3, threshold=-1)
        self.scenario.write_text(json.dumps(bad))
        code, out, err = self.run_command(
            'replay', self.scenario, '--mode', 'first', '-f', 'json')
        self.assertEqual((1, ''), (code, out))
        self.assertIn('threshold: expected', err)

    def test_wrong_usage(self):
        for words in ((), ('--mode', 'fast'),
                      ('--mode', 'first', '--in-flight', '0'),
                      ('--mode', 'first', '--read-ahead', '-1'),
                      ('--mode', 'first', '--read-ahead', 'x')):
            with self.subTest(words=words):
                code, out, err = self.run_command('replay', self.scenario,
                                                  *words)
                self.assertEqual((2, ''), (code, out))
                self.assertIn('--', err)


class TestWords(base.TestCase):

    def test_hydration(self):
        known = {'mode': 'deadline', 'remaining_bytes': 7, 'rate': None,
                 'deadline_s': None, 'earliest_s': None, 'kept': None}
        for fields, expected in (
                ({}, 'deadline, 7 bytes left'),
                ({'rate': 5}, 'deadline, 7 bytes left, at 5 bytes/s at most'),
                ({'deadline_s': 9, 'kept': False, 'earliest_s': 20},
                 'deadline, 7 bytes left, by 9 s: not kept, whole after 20 s'
                 ' at the earliest')):
            found = lazy.Hydration({**known, **fields})
            self.assertEqual(expected, found.human_readable())
            self.assertEqual({**known, **fields}, found.machine_readable())

    def test_sources(self):
        found = lazy.Sources([
            {'url': name, 'bytes': 5, 'requests': 2, 'failures': 0}
            for name in 'ab'])
        self.assertEqual('a: 5 bytes in 2 requests, 0 failures\n'
                         'b: 5 bytes in 2 requests, 0 failures',
                         found.human_readable())


class TestServe(LazyTestCase):

    def serve(self, *words):
        code, _, err = self.run_command(
            'serve', 'image', '--mount', self.directory, '--state',
            self.directory / 'state', *words)
        return code, err

    def test_an_image_needs_its_manifest(self):
        code, err = self.serve()
        self.assertEqual(1, code)
        self.assertIn('diffcache image manifest', err)

    def test_options_for_versions_need_a_store(self):
        manifest = self.directory / 'manifest'
        manifest.touch()
        for words in (('--base', 'x'), ('--key-file', 'x')):
            code, err = self.serve('--manifest', manifest, *words)
            self.assertEqual(1, code)
            self.assertIn('name their store with --store', err)


class TestTuning(LazyTestCase):
    """What serve starts diffcached with."""

    def setUp(self):
        super().setUp()
        self.started = mock.Mock()
        self.patch(lazy.programs, 'find', lambda name: name)
        self.patch(lazy.os, 'execv', self.started)

    def serve(self, *words):
        manifest = self.directory / 'manifest'
        manifest.touch()
        # With a state directory, no image is needed.
        return self.run_command('serve', 'image', '--manifest', manifest,
                                '--mount', self.directory, '--state',
                                self.directory, *words)

    def tuning(self, *words):
        self.assertEqual((0, '', ''), self.serve(*words))
        _path, (_name, _command, config) = self.started.call_args.args
        return json.loads(config)['tuning']

    def test_what_is_not_given_is_left_to_the_daemon(self):
        self.assertEqual({}, self.tuning())

    def test_what_is_given(self):
        self.assertEqual(
            {'threshold': 0.5, 'workers': 8, 'restart_backoff': 0.25},
            self.tuning('--threshold', 0.5, '--workers', 8,
                        '--restart-backoff', 0.25))

    def test_values_out_of_range_are_refused_by_name(self):
        for option, values in (
                ('--threshold', ('0', '-1', 'nan', '1e7', '')),
                ('--workers', ('0', '65', '1.5', '')),
                ('--restart-backoff', ('0', 'inf', '301', 'x'))):
            for value in values:
                with self.subTest(option=option, value=value):
                    code, out, err = self.serve(f'{option}={value}')
                    self.assertEqual((2, ''), (code, out))
                    self.assertIn(f'argument {option}: ', err)
        self.started.assert_not_called()


class TestServeInputs(LazyTestCase):

    def test_what_is_missing_is_named_before_anything_starts(self):
        code, out, error = self.run_command(
            'serve', 'image', '--manifest', '/m', '--mount', '/no/such',
            '--state', self.directory)
        self.assertEqual((1, ''), (code, out))
        self.assertIn('no directory /no/such', error)

    def test_a_manifest_that_is_missing_is_named_before_anything_starts(self):
        code, out, error = self.run_command(
            'serve', 'image', '--manifest', '/no/manifest',
            '--mount', self.directory, '--state', self.directory)
        self.assertEqual((1, ''), (code, out))
        self.assertIn('The manifest /no/manifest does not exist', error)

    def test_an_image_that_is_missing_is_named_before_anything_starts(self):
        manifest = self.directory / 'manifest'
        manifest.touch()
        code, out, error = self.run_command(
            'serve', '/no/image', '--manifest', manifest,
            '--mount', self.directory, '--state', self.directory / 'state')
        self.assertEqual((1, ''), (code, out))
        self.assertIn('The image /no/image does not exist', error)


class TestStatus(LazyTestCase):

    def test_a_state_folder_without_a_daemon(self):
        for folder, wanted in (('none', 'name the --state of a running'),
                               ('.', 'start it with diffcache lazy serve')):
            with self.subTest(folder=folder):
                code, out, error = self.run_command(
                    'status', '--state', self.directory / folder)
                self.assertEqual((1, ''), (code, out))
                self.assertIn(wanted, error)
                self.assertIn(str(self.directory), error)


class TestList(LazyTestCase):

    def test_images_that_are_served(self):
        served = {'content_id': 'c', 'path': '/mount/c', 'complete': False,
                  'present': 2, 'data_chunks': 5, 'instances': 1}
        with mock.patch.object(lazy.control_socket, 'ask',
                               return_value={'images': [served]}) as ask:
            code, out, err = self.run_command('list', '/s', '-f', 'json')
        self.assertEqual(0, code, err)
        self.assertEqual([{**served, 'error': None}], json.loads(out))
        self.assertEqual(('/s', {'command': 'list'}), ask.call_args.args[:2])

    def test_a_socket_without_a_daemon(self):
        path = self.directory / 'none'
        code, _out, err = self.run_command('list', path)
        self.assertEqual(1, code)
        self.assertIn(
            f'No diffcached answers at {path} (No such file or directory)',
            err)
