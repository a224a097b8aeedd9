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
"""What a trial types is read from the page that it follows."""

import contextlib
import io
import re

from tests import base
from tests.unit.tools import loading

blocks = loading.load('lib/page_blocks')

PAGE = '''\
=====
Title
=====

Text::

    first
      indented

    after a line

Part
====

.. include:: more.inc

Options::

    [group]
    name = value
'''


class TestPageBlocks(base.TestCase):

    def test_blocks_are_in_the_order_of_their_sections(self):
        self.write_file('more.inc', b'Before::\n\n    included\n\nText.\n')
        page = self.write_file('page.rst', PAGE.encode())
        made = self.directory / 'made'
        self.assertEqual(0, blocks.main([str(page), str(made)]))
        self.assertEqual(
            {'title/1.sh': 'first\n  indented\n\nafter a line\n',
             'part/1.sh': 'included\n',
             'part/2.conf': '[group]\nname = value\n'},
            {str(path.relative_to(made)): path.read_text()
             for path in made.rglob('*.*')})

    def test_the_wrong_number_of_words(self):
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(2, blocks.main(['page.rst']))

    def test_each_block_that_the_trial_follows_is_there(self):
        page = loading.TREE / 'doc/source/install/debian-13.rst'
        blocks.main([str(page), str(self.directory)])
        script = (loading.TREE / 'tools/lib/debian_follow.sh').read_text()
        named = set(re.findall(r'[a-z-]+/(?:[0-9]|\$number)\.(?:sh|conf)',
                               script))
        self.assertLess(5, len(named))
        for name in named:
            for number in ('1', '4') if '$' in name else ('',):
                path = self.directory / name.replace('$number', number)
                self.assertTrue(path.is_file(), path)
