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
"""Pages of the documentation, and the cases that their figures are of."""

import pathlib
import re

from bench.harness import cases
from tests import base

DOCUMENTS = pathlib.Path(__file__).parents[3] / 'doc' / 'source'
# A command up to its first option; a literal may end a line.
COMMAND = re.compile(r'bench/run((?:\s+[a-z][\w-]*)*)')
FIGURE = re.compile(
    r'^\.\. (?:include|image|figure):: ([a-z]+)-([\w-]+)\.\w+$', re.MULTILINE)


def named(page: str) -> set[tuple[str, str]]:
    """Return the suites and cases that a page names in literals."""
    text = (DOCUMENTS / f'{page}.rst').read_text()
    literals = re.findall(r'``(bench/run.*?)``', text, re.DOTALL)
    literals += [line.strip().partition('#')[0] for line in text.splitlines()
                 if line.startswith('    bench/run')]
    found = set()
    for literal in literals:
        suite, *names = COMMAND.match(literal)[1].split() or ['']
        found |= {(suite, name) for name in names}
        if not names:
            # A suite names all of its cases.
            found |= {(suite, case) for case in cases.of_suite(suite)}
    return found


class TestPages(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cases = cases.everything()

    def test_those_of_cases_exist_and_name_them(self):
        for case in self.cases:
            self.assertTrue(case.pages, case.name)
            for page in case.pages:
                with self.subTest(case=f'{case.suite} {case.name}', page=page):
                    self.assertIn((case.suite, case.name), named(page))

    def test_cases_that_pages_name_exist(self):
        known = {(case.suite, case.name) for case in self.cases}
        for path in DOCUMENTS.rglob('*.rst'):
            page = str(path.relative_to(DOCUMENTS).with_suffix(''))
            with self.subTest(page=page):
                self.assertEqual(set(), named(page) - known)

    def test_figures_are_of_cases_that_name_the_page(self):
        shown = {(case.suite, case.name): case.pages for case in self.cases}
        for path in DOCUMENTS.rglob('*.rst'):
            page = str(path.relative_to(DOCUMENTS).with_suffix(''))
            for suite, name in FIGURE.findall(path.read_text()):
                if suite not in cases.SUITES:
                    continue
                with self.subTest(page=page, figure=f'{suite}-{name}'):
                    case = next(
                        (known for owner, known in shown if owner == suite
                         and f'{name}-'.startswith(f'{known}-')), None)
                    self.assertIsNotNone(case)
                    self.assertIn(page, shown[suite, case])

    def test_functions_exist(self):
        for case in self.cases:
            module, _, function = case.run.partition(':')
            path = (DOCUMENTS.parents[1] / 'bench' / case.suite
                    / f'{module}.py')
            with self.subTest(case=f'{case.suite} {case.name}'):
                self.assertIn(f'\ndef {function}(run: runs.Run)',
                              path.read_text())
