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
from tests import base
from tests.unit.tools import loading

check_figures = loading.load('check_figures')


class CheckFiguresTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.write_file('doc/source/reference/bench.rst',
                        b'``bench/run site``: 1.5 and 2,000 of 12\n\n'
                        b'.. include:: bench.inc\n')
        self.write_file('doc/source/reference/words.rst', b'Some 5.5.\n')
        self.write_file('doc/source/reference/bench.inc', b'and 376\n')

    def missing(self, text, name='overview.rst'):
        page = self.write_file(f'doc/source/{name}', text.encode())
        return check_figures.check_page(page, self.directory)

    def test_figures_of_a_linked_page(self):
        for link in (':doc:`reference/bench`', ':doc:`x </reference/bench>`',
                     '``doc/source/reference/bench.rst``'):
            self.assertEqual([], self.missing(f'1.5, 2,000, 376: {link}'))

    def test_figures_of_no_page(self):
        self.assertEqual(['1.6', '2,001', '377'], self.missing(
            '1.6, 377 and 2,001: :doc:`reference/bench`'))
        self.assertEqual(['1.5'], self.missing('1.5 without a link'))

    def test_figures_of_a_page_that_does_not_say_how_to_repeat_them(self):
        self.assertEqual(['5.5'], self.missing(
            '5.5: :doc:`reference/words`'))

    def test_what_was_not_measured(self):
        self.assertEqual([], self.missing('In 2026 with 2026.2, Debian 13'))

    def test_what_a_run_printed(self):
        text = 'It prints::\n\n    mean  4.948\n\nand ends.\n'
        self.assertEqual([], self.missing(text, 'README.rst'))
        self.assertEqual(['4.948'], self.missing(text))

    def test_figures_of_a_picture(self):
        self.write_file('doc/source/chart.svg',
                        b'<svg><rect width="400"/><text x="300">1.5 MB, 2.5'
                        b'</text></svg>')
        self.assertEqual(['2.5'], self.missing(
            ':doc:`reference/bench`\n\n.. image:: chart.svg\n'))

    def test_the_tree(self):
        self.assertEqual(0, check_figures.main([]))
