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
import signal
import threading
from unittest import mock

from diffcache_openstack.cmd.toolbox import app as toolbox
from diffcache_openstack.cmd.toolbox import placement as commands
from diffcache_openstack.placement import solving
from tests import base
from tests.unit.placement import shapes
from tests import waiting


class TestPlacement(base.TestCase):
    def setUp(self):
        super().setUp()
        self.instance = str(shapes.DATA / 'testbed_s0.json')
        self.output = self.directory / 'placement.json'

    def run_command(self, *words):
        """(exit code, stdout, stderr) of ``diffcache placement ...``."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch('sys.stdout', out), mock.patch('sys.stderr', err):
            app = toolbox.Toolbox()
            app.stdout, app.stderr = out, err
            try:
                code = app.run(['placement', *map(str, words)])
            except SystemExit as ended:
                code = ended.code
        return code, out.getvalue(), err.getvalue()

    def answer(self, *words):
        code, out, err = self.run_command(*words, '-f', 'json')
        self.assertEqual(0, code, err)
        return json.loads(out)

    def solve(self, *words):
        return self.answer(
            'solve', self.instance, '--output', self.output, *words
        )

    def test_solve_and_evaluate(self):
        for solver in ('ilp', 'auto', 'greedy'):
            solved = self.solve('--solver', solver)
            judged = self.answer('evaluate', self.instance, self.output)
            self.assertAlmostEqual(
                solved['cost_s'], judged['total_cost_s'], places=3
            )
            self.assertTrue(judged['feasible'])
            self.assertEqual([], judged['errors'])
            placed = json.loads(self.output.read_text())
            self.assertEqual(solved['templates'], len(placed['templates']))
            self.assertEqual(solved['patches'], len(placed['patches']))
            self.assertLessEqual(0.0, solved['cpu_seconds'])

    def test_ilp_proves(self):
        solved = self.solve('--solver', 'ilp', '--threads', '1')
        self.assertTrue(solved['proved_optimal'])
        self.assertAlmostEqual(97354.540, solved['cost_s'], places=2)

    def test_hops(self):
        self.instance = str(shapes.DATA / 'rand_s3_N8_K2.json')
        solved = self.solve('--solver', 'ilp', '--hops', '2')
        self.assertAlmostEqual(300837.6, solved['cost_s'], delta=0.1)
        judged = self.answer(
            'evaluate', self.instance, self.output, '--hops', '2'
        )
        self.assertAlmostEqual(
            solved['cost_s'], judged['total_cost_s'], places=3
        )

    def test_explain(self):
        self.solve()
        rows = self.answer('explain', self.instance, self.output)
        self.assertTrue(all(row['why'] for row in rows))
        one = self.answer(
            'explain', self.instance, self.output, '--host', '2'
        )
        self.assertEqual({2}, {row['host'] for row in one})

    def test_explain_fits_a_terminal(self):
        self.solve()
        code, out, _err = self.run_command('explain', self.instance,
                                           self.output)
        self.assertEqual(0, code)
        self.assertLessEqual(max(map(len, out.splitlines())), 100)

    def test_numbers_have_no_noise_of_floats(self):
        solved = self.solve()
        for name in ('cost_s', 'lower_bound_s', 'gap'):
            self.assertEqual(round(solved[name], 6), solved[name])

    def test_plan(self):
        plan = self.answer('plan', self.instance, '--output', self.output)
        self.assertTrue(plan['changed'])
        self.assertGreater(plan['saving_per_hour_s'], 0)
        self.assertGreater(plan['wan_mb'], 0)
        self.assertTrue(self.output.exists())

    def test_what_if(self):
        told = self.answer('what-if', self.instance, '--add-hosts', '1')
        self.assertGreater(told['saving'], 0)
        self.assertEqual('seconds', told['objective'])

    def test_what_if_for_bytes(self):
        words = ('what-if', self.instance, '--add-capacity=-4000')
        fast = self.answer(*words)
        lean = self.answer(*words, '--objective', 'wan_bytes')
        self.assertEqual('wan_bytes', lean['objective'])
        self.assertGreater(fast['mean_wan_after_mb'], 0)
        self.assertLessEqual(lean['mean_wan_after_mb'],
                             1.0001 * fast['mean_wan_after_mb'])
        self.assertGreaterEqual(lean['mean_after_s'],
                                0.9999 * fast['mean_after_s'])

    def refused(self, *words):
        code, out, err = self.run_command(*words)
        self.assertEqual(1, code, out)
        self.assertEqual(1, err.strip().count('\n') + 1, err)
        self.assertEqual(
            ['instance.json'] if self.written else [],
            [p.name for p in self.directory.iterdir()],
        )
        return err

    written = False

    def test_bad_instance_names_its_field_and_leaves_nothing(self):
        document = shapes.document('testbed_s0')
        document['capacities'] = [1, 1, 1]
        path = self.write_file('instance.json', json.dumps(document).encode())
        self.written = True
        err = self.refused('solve', path, '--output', self.output)
        self.assertIn('capacities', err)

    def test_bad_names(self):
        self.assertIn('nope', self.refused(
            'solve', self.instance, '--solver', 'nope',
            '--output', self.output))
        self.assertIn('no.json', self.refused(
            'solve', 'no.json', '--output', self.output))
        self.assertIn('--output', self.refused(
            'solve', self.instance, '--output', self.directory / 'no' / 'p'))
        self.assertIn('.png', self.refused(
            'simulate', '--figure', '2', '--output', self.output))
        self.assertIn('--solver', self.refused(
            'plan', self.instance, '--solver', 'greedy'))

    def test_wrong_usage_exits_two(self):
        for words in (
            ('solve', self.instance),
            ('solve', self.instance, '--output', 'p', '--hops', '0'),
            ('solve', self.instance, '--output', 'p', '--time-limit', '-1'),
            ('simulate', '--figure', '5', '--output', 'x.png'),
        ):
            self.assertEqual(2, self.run_command(*words)[0], words)

    def test_simulate(self):
        with mock.patch.object(
            commands.figures, 'points', return_value=[(3.0, 1, 2, 1, 2)]
        ):
            told = self.answer(
                'simulate', '--figure', '4',
                '--output', self.directory / 'four.png')
        self.assertEqual(0.5, told['least_saving'])
        self.assertTrue((self.directory / 'four.csv').exists())

    def test_an_interrupt_ends_the_solve_with_an_answer(self):
        class Slow(solving.Solver):
            def solve(self, instance, *, stop, progress, **options):
                self.begun.set()
                # Looked at: the signal's handler, which interrupts this
                # thread, could not take the lock of one that waits.
                waiting.until(stop.is_set, 'the interrupt')
                return solving.load('greedy').solve(instance)

        slow = Slow()
        slow.begun = threading.Event()

        def interrupt():
            slow.begun.wait(waiting.SECONDS)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        real = solving.load
        with mock.patch.object(
            solving, 'load', lambda n: slow if n == 'auto' else real(n)
        ):
            # Signals reach the main thread, which is the one that waits.
            other = threading.Thread(target=interrupt)
            other.start()
            solved = self.solve()
            other.join()
        self.assertGreater(solved['cost_s'], 0)
