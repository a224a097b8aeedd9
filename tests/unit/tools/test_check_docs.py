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

check_docs = loading.load('check_docs')


class CheckDocsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        for package in ('', 'agent/', 'agent/images/'):
            self.write_file(f'{check_docs.PACKAGE}/{package}__init__.py', b'')
        self.write_file(f'{check_docs.PACKAGE}/agent/images/serving.py',
                        b'import os\n\n\nclass Server:\n    pass\n')

    def document(self, text):
        return self.write_file('architecture.rst', text.encode())

    def problems(self, text):
        return [problem for _, _, problem in check_docs.check_names(
            self.document(text), self.directory)]

    def test_modules_that_exist(self):
        for literal in ('agent.images', 'agent.images.serving', 'os.path',
                        'agent.images.serving.Server', 'agent/images',
                        'diffcache_openstack.agent.images.serving',
                        'agent/images/serving.py', 'agent.images.serving.os',
                        'agent.images.serving.Server.deliver'):
            self.assertEqual([], self.problems(f'a ``{literal}`` b'), literal)

    def test_modules_that_do_not_exist(self):
        for literal in ('agent.local', 'agent.images.serve',
                        'agent/images/serve.py',
                        'agent.images.serving.Client'):
            self.assertEqual([f'there is no {literal}'],
                             self.problems(f'a ``{literal}`` b'))

    def test_packages_left_out(self):
        self.assertEqual(
            ['the package agent.images is not named'],
            [problem for _, _, problem in check_docs.check_packages(
                self.document('``agent``'), self.directory)])

    def test_a_page_that_is_too_long(self):
        words = check_docs.MOST_WORDS
        for count, expected in ((words, []), (words + 1, [words + 1])):
            page = self.document('word ' * count)
            self.assertEqual(expected, [
                int(problem.split()[3])
                for _, _, problem in check_docs.check_length(page)])

    def test_this_tree(self):
        self.assertEqual(0, check_docs.main([]))
