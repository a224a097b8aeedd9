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

import fcntl
import os
import pathlib
import shutil
import subprocess

from tests import base

CHECKOUT = pathlib.Path(__file__).parents[3]


class TestShellLibrary(base.TestCase):
    """tools/lib/install.sh, function by function, nothing installed."""

    def shell(self, script, **variables):
        """Run lines after the library; the result with text output."""
        library = self.checkout / 'tools/lib/install.sh'
        return subprocess.run(
            ['bash', '-euo', 'pipefail', '-c', f'. {library}\n{script}'],
            capture_output=True, text=True,
            # Not the profile that the caller, tools/test, compiles with.
            env=os.environ | {'DIFFCACHE_NATIVE_PROFILE': ''} | variables)

    def setUp(self):
        super().setUp()
        # A checkout with nothing in it, so that nothing real is touched.
        self.checkout = self.directory / 'checkout'
        (self.checkout / 'tools/lib').mkdir(parents=True)
        shutil.copy(CHECKOUT / 'tools/lib/install.sh',
                    self.checkout / 'tools/lib')

    def commands(self, **scripts):
        """A PATH on which commands of a test's own come first."""
        folder = self.directory / 'commands'
        folder.mkdir(exist_ok=True)
        for name, script in scripts.items():
            path = folder / name.replace('_', '-')
            path.write_text(f'#!/bin/sh\n{script}\n')
            path.chmod(0o755)
        return f'{folder}:{os.environ["PATH"]}'

    def test_versions_are_compared_as_versions(self):
        for have, wanted, expected in (
                ('1.85.0', '1.85', 0), ('1.100', '1.85', 0),
                ('1.63.0', '1.85', 1), ('0.66.0+ds1-1', '1.85', 1),
                ('1.96.0+dfsg1-1~deb12u2', '1.85', 0)):
            result = self.shell(f'version_at_least {have} {wanted}')
            self.assertEqual(expected, result.returncode, (have, wanted))

    def test_only_missing_packages_are_installed(self):
        path = self.commands(
            dpkg_query='[ "$4" = there ] && echo -n installed || exit 1',
            apt_get=f'echo "$@" >>{self.directory}/apt.log')
        result = self.shell(
            'as_root() { "$@"; }; apt_install there; apt_install there gone',
            PATH=path)
        self.assertEqual(0, result.returncode, result.stderr)
        log = (self.directory / 'apt.log').read_text().splitlines()
        self.assertEqual('update -qq', log[0])
        self.assertTrue(log[1].endswith(' gone'), log)
        self.assertNotIn('there', log[1])
        self.assertEqual(2, len(log))
        self.assertIn('apt-get install gone', result.stdout)

    def test_a_failed_installation_says_what_it_was(self):
        path = self.commands(
            dpkg_query='exit 1',
            apt_get='[ "$1" = update ] || exit 100')
        result = self.shell('as_root() { "$@"; }; apt_install gone; echo on',
                            PATH=path)
        self.assertEqual(1, result.returncode)
        self.assertIn('could not install gone', result.stderr)
        self.assertNotIn('on', result.stdout.splitlines())

    def test_an_old_toolchain_is_not_ready(self):
        for version, expected in (('1.63.0', 1), ('1.85.1', 0)):
            path = self.commands(
                cargo=f'echo "cargo {version} (abc 2025-01-01)"',
                rustc=f'echo "rustc {version} (abc 2025-01-01)"')
            result = self.shell('rust_is_ready', PATH=path)
            self.assertEqual(expected, result.returncode, version)

    def test_stamps_tell_whether_the_input_has_changed(self):
        (self.checkout / '.venv').mkdir()
        result = self.shell(
            'cd "$CHECKOUT"; echo 1 >one; echo 2 >two\n'
            'digest one two >.venv/.stamp-step\n'
            'is_stamped step "$(digest one two)" && echo same\n'
            'echo 3 >two; is_stamped step "$(digest one two)" || echo new')
        self.assertEqual('same\nnew\n', result.stdout, result.stderr)

    def test_the_environment_is_not_made_anew_when_it_is_complete(self):
        for name in ('constraints.txt', 'requirements.txt', 'setup.cfg',
                     'plugins/requirements.txt', 'plugins/setup.cfg',
                     'plugins/pyproject.toml',
                     'pyproject.toml', 'native/lib.rs'):
            path = self.checkout / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(name)
        (self.checkout / '.venv/bin').mkdir(parents=True)
        for name in ('python', 'uv'):
            tool = self.checkout / '.venv/bin' / name
            tool.write_text(
                f'#!/bin/sh\necho "{name} $*" >>{self.directory}/log\n')
            tool.chmod(0o755)
        # What Cargo would have left.
        built = self.checkout / 'native/target/release'
        built.mkdir(parents=True)
        for name in ('lib_native.so', 'diffcached', 'diffcache-ssdcached'):
            (built / name).touch()
        (self.checkout / 'diffcache_openstack').mkdir()
        script = 'ensure_rust() { :; }; apt_install() { :; }\n' \
                 'build_native() { echo "uv built $1"' \
                 f' >>{self.directory}/log; }}; ensure_environment'
        calls = []
        for change in (None, None, 'native/lib.rs'):
            if change:
                (self.checkout / change).write_text('changed')
            result = self.shell(script)
            self.assertEqual(0, result.returncode, result.stderr)
            log = self.directory / 'log'
            calls.append([line.split()[-1].rpartition('/')[2]
                          for line in log.read_text().splitlines()
                          if line.startswith('uv ')])
            log.unlink()
        self.assertEqual(
            [['setuptools-rust', 'release', '*.whl'], [],
             ['release', '*.whl']], calls)


class TestUsage(base.TestCase):
    def run_quickstart(self, *arguments):
        return subprocess.run(
            [CHECKOUT / 'tools/quickstart', *arguments],
            capture_output=True, text=True)

    def test_help(self):
        result = self.run_quickstart('--help')
        self.assertEqual(0, result.returncode)
        self.assertIn('--state DIR', result.stdout)

    def test_wrong_usage(self):
        (self.directory / 'no-wheel').mkdir()
        for arguments in (('--speed',), ('--state',), ('images',),
                          ('--wheels', self.directory / 'no-wheel')):
            result = self.run_quickstart(*arguments)
            self.assertEqual(2, result.returncode, arguments)
            self.assertIn('usage: tools/quickstart', result.stderr)
            self.assertEqual('', result.stdout)

    def test_two_runs_do_not_share_a_state(self):
        state = self.directory / 'state'
        state.mkdir()
        lock = os.open(state / 'lock', os.O_RDWR | os.O_CREAT)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = self.run_quickstart('--state', state)
        self.assertEqual(1, result.returncode)
        self.assertIn(f'another run works in {state}', result.stderr)
        self.assertEqual('', result.stdout)
