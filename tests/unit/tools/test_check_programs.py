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
"""The check of bindep.txt against the programs that the code calls."""

import ast

from tests import base
from tests.unit.tools import loading

check_programs = loading.load('check_programs')


def python(text: str) -> list[str]:
    return list(check_programs.python_programs(ast.parse(text)))


class TestPrograms(base.TestCase):

    def test_calls_of_python(self):
        for text in ("subprocess.run(['new-tool', '-x'])",
                     "subprocess.Popen(('/usr/bin/new-tool', x))",
                     "shutil.which('new-tool')",
                     "shell.run(log, 'new-tool', path)",
                     "os.execvp('new-tool', words)"):
            with self.subTest(text=text):
                self.assertEqual(['new-tool'], python(text))

    def test_what_starts_nothing(self):
        for text in ("connection.run(['select'])", "subprocess.run(words)",
                     "shell.run(*prefix, 'word')",
                     "subprocess.TimeoutExpired('it', 1)"):
            with self.subTest(text=text):
                self.assertEqual([], python(text))

    def test_a_known_name_is_enough(self):
        self.assertEqual(['qemu-nbd'], python("PROGRAM = 'qemu-nbd'"))

    def test_rust(self):
        self.assertEqual(
            ['new-tool', 'qemu-img'], sorted(check_programs.rust_programs(
                'Command::new("new-tool"); const P: &str = "qemu-img";')))

    def test_shell(self):
        self.assertEqual(
            ['mkfs.xfs'], list(check_programs.shell_programs(
                '# no qemu-img here\nmkfs.xfs -q "$DISK"\n')))


class TestFindings(base.TestCase):

    def findings(self, bindep: str, *programs: str) -> list[str]:
        found = {program: {'file.py'} for program in programs}
        return list(check_programs.findings('quickstart', found, bindep))

    def test_what_is_listed_is_fine(self):
        self.assertEqual([], self.findings(
            'qemu-utils [platform:dpkg quickstart]\ngcc [cc]\ngit\n',
            'qemu-img', 'cc', 'git', 'mount'))

    def test_what_is_missing(self):
        self.assertEqual(
            ['file.py: qemu-img is in qemu-utils, which bindep.txt does not'
             ' list with the profile quickstart'],
            self.findings('qemu-utils [platform:dpkg test]\n', 'qemu-img'))

    def test_what_is_not_known(self):
        [finding] = self.findings('', 'new-tool')
        self.assertIn('new-tool is not known', finding)


class TestTree(base.TestCase):

    def setUp(self):
        super().setUp()
        self.bindep = (loading.TREE / 'bindep.txt').read_text()

    def test_quickstart_with_a_package_left_out(self):
        found = check_programs.uses('quickstart')
        self.assertEqual([], list(check_programs.findings(
            'quickstart', found, self.bindep)))
        for package in ('qemu-utils', 'qemu-system-x86', 'xfsprogs',
                        'e2fsprogs', 'mmdebstrap', 'grub-common'):
            with self.subTest(package=package):
                without = self.bindep.replace(f'\n{package} [', '\nother [')
                self.assertIn(f' is in {package},', '\n'.join(
                    check_programs.findings('quickstart', found, without)))
