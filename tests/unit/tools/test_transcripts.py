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
"""Comparing what documents show with what commands print."""

from tests import base
from tests.functional.openstack import transcripts

DOCUMENT = '''
Do this:

.. code-block:: console

   $ list things
   | Name | Size |
   ...
   $ forget
   $ show one

More words.

   $ last
   | a |
Not any more
'''
PRINTED = '''\
+------+---------+
| Name | Size    |
+------+---------+
| a-1  | 12.5 MB |
| b-2  | 3 B     |
+------+---------+
'''


class TestSteps(base.TestCase):

    def test_commands_with_what_is_shown(self):
        self.assertEqual(
            [('list things', ['| Name | Size |', '...']), ('forget', []),
             ('show one', []), ('last', ['| a |'])],
            transcripts.steps(DOCUMENT))


class TestSections(base.TestCase):

    def test_commands_below_headings(self):
        document = ('====\nPage\n====\n\nBegin\n=====\n\n.. block::\n\n'
                    '   $ first\n   1\n\nEnd\n===\n\n   $ second\n')
        self.assertEqual(
            {'Page': [], 'Begin': [('first', ['1'])], 'End': [('second', [])]},
            transcripts.sections(document))


class TestAgree(base.TestCase):

    def agree(self, *shown):
        return transcripts.agree(list(shown), PRINTED)

    def test_all_of_it_with_other_numbers(self):
        self.assertTrue(self.agree(
            '+----+----+', '| Name | Size |', '+---+---+', '| a-1 | 9 kB |',
            '| b-2 | 77 MB |', '+---+--+'))

    def test_parts(self):
        self.assertTrue(self.agree('...', '| b-2 | 3 B |', '...'))
        self.assertTrue(self.agree('...', '| b-2 | ...', '...'))
        self.assertTrue(self.agree('...'))

    def test_what_is_not_there(self):
        for shown in (('...', '| c-3 | 3 B |', '...'),
                      ('...', '| b-2 | none |', '...'),
                      ('...', '| b-2 | 3 B |'), ('| Name | Size |', '...'),
                      ('...', '| b-2 | 3 B |', '...', '| a-1 | 3 B |', '...'),
                      ('...', '| a-7 | 3 B |', '...')):
            self.assertFalse(self.agree(*shown), shown)

    def test_what_changes_from_run_to_run(self):
        self.assertTrue(transcripts.agree(
            ['61d1c0b3-a825-4a95-9b2f-4395366d335b 683e1804fd5b 1.5%'
             ' 2026-11-22T04:38:38.108492Z'],
            'f34eedb2-b884-443c-b5c1-72dacff2e48f 3aa8206e5a43 -20.0%'
            ' 2027-01-02T03:04:05Z\n'))
