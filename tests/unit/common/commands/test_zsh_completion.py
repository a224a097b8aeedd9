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
import shutil
import subprocess

from diffcache_openstack.cmd.toolbox import app as toolbox
from tests import base

# What zsh has for its own completion, printing instead of completing.
STUBS = r'''
compadd() { shift; print -r -- "offered $*" }
_files() { print files }
compdef() { print "registered $*" }
source $1
complete_words() { words=("$@"); CURRENT=$#; _diffcache }
'''


class TestZsh(base.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Once: it imports the modules of all commands.
        app = toolbox.Toolbox()
        app.stdout = io.StringIO()
        app.options = app.parser.parse_args([])
        app.run_subcommand(['complete', '--shell', 'zsh'])
        cls.text = app.stdout.getvalue()

    def setUp(self):
        super().setUp()
        if shutil.which('zsh') is None:
            self.skipTest('zsh is not installed')
        self.script = self.write_file('_diffcache', self.text.encode())

    def zsh(self, command):
        done = subprocess.run(
            ['zsh', '-f', '-c', STUBS + command, 'zsh', str(self.script)],
            capture_output=True, text=True)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        registered, _, rest = done.stdout.partition('\n')
        self.assertEqual('registered _diffcache diffcache', registered)
        return rest.strip()

    def test_first_words(self):
        self.assertEqual(
            'offered complete help image lazy patch placement ssdcache testbed'
            ' trace version',
            self.zsh('complete_words diffcache ""'))

    def test_commands_of_a_group(self):
        for words in ('patch ""', '-q patch ""', 'patch cr'):
            self.assertEqual('offered apply create matrix show verify',
                             self.zsh(f'complete_words diffcache {words}'))

    def test_options(self):
        for words in ('patch create --', 'patch create base --'):
            self.assertIn(' --codec', self.zsh(
                f'complete_words diffcache {words}'))
        self.assertIn(' --add-hosts', self.zsh(
            'complete_words diffcache placement what-if --'))

    def test_arguments_are_files(self):
        self.assertEqual('files', self.zsh(
            'complete_words diffcache patch create ""'))
