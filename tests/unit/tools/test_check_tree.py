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
"""tools/check_tree.py finds what it is there for, and nothing else."""

import contextlib
import io

from tests import base
from tests.unit.tools import loading

check_tree = loading.load('check_tree')


def lines(name: str, text: str) -> list[str]:
    return [problem for _, problem in check_tree.check_lines(name, text)]


class TestLines(base.TestCase):

    def test_plain_file_is_fine(self):
        self.assertEqual([], lines('a.txt', 'one\ntwo\n'))

    def test_machine_path(self):
        path = '/home' + '/someone/x'
        self.assertEqual(
            [f'path of one machine: {path[:13]}'],
            lines('a.txt', f'see {path}\n'))

    def test_path_below_another_is_no_machine_path(self):
        self.assertEqual([], lines('a.txt', '/srv/home/x and $DIR/home/y\n'))

    def test_checkout_path(self):
        text = f'{check_tree.TREE}/setup.cfg\n'
        self.assertIn('path of this checkout', lines('a.txt', text))

    def test_length(self):
        longest = 'x\n' * check_tree.MAX_LINES
        self.assertEqual([], lines('a.py', longest))
        self.assertEqual(1, len(lines('a.py', longest + 'x\n')))
        self.assertEqual([], lines('native/Cargo.lock', longest + 'x\n'))

    def test_endings(self):
        self.assertEqual(['the last line has no end'], lines('a', 'x'))
        self.assertEqual(['trailing blanks'], lines('a', 'x \n'))

    def test_conflict(self):
        self.assertEqual(
            ['unresolved merge conflict'], lines('a', '<' * 7 + ' HEAD\n'))


class TestPython(base.TestCase):

    def found(self, text: str) -> list[tuple[int, str]]:
        return list(check_tree.check_python('a.py', text))

    def test_licence(self):
        header = '\n'.join(check_tree.licence()) + '\n'
        self.assertEqual([], self.found(header))
        self.assertEqual([], self.found('#!/usr/bin/python3\n' + header))
        self.assertEqual(1, len(self.found('"""No header."""\n')))

    def test_modules_may_be_imported(self):
        self.assertEqual([], list(check_tree.check_imports(
            'from diffcache_openstack.common import exceptions\n'
            'from diffcache_openstack import _native\n'
            'from typing import Any\n')))

    def test_names_may_not(self):
        self.assertEqual(
            [1], [line for line, _ in check_tree.check_imports(
                'from diffcache_openstack.common.exceptions import NoSpace')])

    def test_a_package_may_gather_names(self):
        text = '\n'.join(check_tree.licence()) + (
            '\nfrom diffcache_openstack.common.exceptions import NoSpace\n')
        self.assertEqual(
            1, len(list(check_tree.check_python('objects/x.py', text))))
        self.assertEqual(
            0, len(list(check_tree.check_python('objects/__init__.py', text))))

    def test_relative_imports_may_not(self):
        self.assertEqual(
            [1], [line for line, _ in check_tree.check_imports(
                'from . import sibling')])


class TestDirection(base.TestCase):

    def found(self, name: str, text: str) -> list[tuple[int, str]]:
        return list(check_tree.check_direction(name, text))

    def test_benchmarks_import_no_tests(self):
        for text in ('from tests.unit.api import base\n',
                     'import tests.base\n', 'from tests import base\n',
                     'def late():\n    from tests import base\n'):
            self.assertEqual(1, len(self.found('bench/run', text)), text)
            self.assertEqual([], self.found('tests/unit/x.py', text), text)

    def test_what_is_shared_may_be_imported(self):
        self.assertEqual([], self.found(
            'bench/run', 'from testing import tokens\nimport testtools\n'))

    def test_scripts_are_checked_too(self):
        self.assertTrue(check_tree.is_python(
            'bench/x', '#!/usr/bin/env python3\n'))
        self.assertTrue(check_tree.is_python('x.py', ''))
        self.assertFalse(check_tree.is_python('tools/test',
                                              '#!/usr/bin/env bash\n# python'))


class TestRust(base.TestCase):

    def test_opening_documentation(self):
        self.assertEqual([], list(check_tree.check_rust('//! What it is.\n')))
        self.assertEqual(
            1, len(list(check_tree.check_rust('use std::fs;\n'))))


class TestMain(base.TestCase):

    def test_exit_code_tells(self):
        self.assertEqual(0, check_tree.main(['setup.cfg']))
        path = self.write_file('bad.txt', b'no end')
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(1, check_tree.main([str(path)]))
        self.assertEqual(f'{path}:1: the last line has no end\n',
                         output.getvalue())


class ForeignFilesTest(base.TestCase):
    """Files in directories of others are not handled by their path."""

    NAME = 'diffcache_openstack/versions/disks/any.py'

    def findings(self, text, name=NAME):
        return [line for line, _ in check_tree.check_foreign_files(name,
                                                                   text)]

    def test_paths(self):
        for text in ('open(path)', 'os.open(path, 0)', 'os.rename(a, b)',
                     'path.unlink()', 'path.parent.mkdir()', 'path.touch()',
                     'shutil.rmtree(path)', 'files.write_json(path, {})',
                     'path.read_text()'):
            self.assertEqual([1], self.findings(text), text)
            self.assertEqual([], self.findings(
                text, 'diffcache_openstack/agent/state/any.py'))

    def test_descriptors(self):
        for text in ('os.open(name, 0, dir_fd=fd)', 'directory.unlink(name)',
                     'os.rename(a, b, src_dir_fd=c, dst_dir_fd=d)',
                     'os.fdopen(fd)', 'access.rename(a, b)', 'os.fchown(fd)',
                     'access.open(path)', 'text.replace(a, b)'):
            self.assertEqual([], self.findings(text), text)
