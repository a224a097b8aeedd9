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
"""debian/ packages what the rest of the tree has."""

import pathlib
import re
import subprocess


from diffcache_openstack.conf import opts
from tests import base
from tests.unit import test_entry_points
from tests.unit.tools import loading

DEBIAN = loading.TREE / 'debian'
ETC = loading.TREE / 'etc'
# Units in the package of another one.
MORE_UNITS = {'diffcache-lazy-mount': 'diffcache-lazy'}
DAEMONS = {'diffcached', 'diffcache-ssdcached'}


def paragraphs() -> dict[str, str]:
    """Return the paragraph of each binary package, by the package's name."""
    text = (DEBIAN / 'control').read_text()
    return {found[1]: paragraph for paragraph in text.split('\n\n')
            if (found := re.match(r'Package: (.+)\n', paragraph))}


def commands() -> set[str]:
    """Return the names of the console scripts and of both daemons."""
    return DAEMONS | {point.name for point in test_entry_points.declared()
                      if point.group == 'console_scripts'}


class TestCommands(base.TestCase):

    def test_each_is_linked(self):
        lines = (DEBIAN / 'diffcache.links').read_text().splitlines()
        self.assertEqual(
            {f'usr/lib/diffcache/bin/{name} usr/bin/{name}'
             for name in commands()}, set(lines))


class TestConfiguration(base.TestCase):

    def assert_is(self, path: pathlib.Path, name: str) -> None:
        """Check that debhelper finds a file of etc/ by a name."""
        self.assertEqual(path.read_text(), (DEBIAN / name).read_text())
        # A source distribution has copies.
        if (DEBIAN / name).is_symlink():
            self.assertEqual(path, (DEBIAN / name).resolve())

    def test_each_unit_is_in_a_package_of_its_name(self):
        units = sorted((ETC / 'systemd').iterdir())
        self.assertNotEqual([], units)
        for unit in units:
            with self.subTest(unit=unit.name):
                owner = MORE_UNITS.get(unit.stem)
                name = f'{owner}.{unit.name}' if owner else unit.name
                self.assert_is(unit, name)
                self.assertIn(owner or unit.stem, paragraphs())

    def test_debhelper_is_called_for_each_other_unit_of_a_package(self):
        rules = (DEBIAN / 'rules').read_text().replace('\\\n', ' ')
        calls = [set(line.split()) for line in rules.splitlines()
                 if 'dh_installsystemd' in line]
        for name, owner in MORE_UNITS.items():
            self.assertIn({'dh_installsystemd', f'--package={owner}',
                           f'--name={name}', '--no-enable'}, calls)

    def test_user_and_directories_are_in_the_common_package(self):
        for kind in 'sysusers', 'tmpfiles':
            self.assert_is(ETC / f'{kind}.d' / 'diffcache.conf',
                           f'diffcache-common.{kind}')
        for name, paragraph in paragraphs().items():
            if (DEBIAN / f'{name}.service').exists():
                with self.subTest(package=name):
                    self.assertIn('diffcache-common (=', paragraph)

    def test_groups_of_units_exist_where_only_our_packages_are(self):
        """systemd does not start a unit whose group is unknown."""
        debians = {'disk'}
        for unit in sorted((ETC / 'systemd').iterdir()):
            groups = options(unit).get('SupplementaryGroups', '').split()
            path = ETC / 'sysusers.d' / f'{unit.stem}.conf'
            for group in set(groups) - debians:
                with self.subTest(unit=unit.name, group=group):
                    self.assertIn(f'g {group} -\n', path.read_text())
                    self.assert_is(path, f'{unit.stem}.sysusers')

    def test_services_are_neither_enabled_nor_started(self):
        # deb-systemd-invoke starts none that is not enabled.
        self.assertIn('dh_installsystemd --no-enable\n',
                      (DEBIAN / 'rules').read_text())

    def test_upgrades_restart_services_and_stop_none_before(self):
        # Others would have them down while packages are unpacked.
        self.assertNotIn('--no-restart-after-upgrade',
                         (DEBIAN / 'rules').read_text())
        self.assertIn('debhelper-compat (= 13)',
                      (DEBIAN / 'control').read_text())


def options(unit: pathlib.Path) -> dict[str, str]:
    """Return the last value of each option of a unit."""
    return dict(line.split('=', 1) for line in unit.read_text().splitlines()
                if '=' in line and not line.startswith('#'))


class TestUnits(base.TestCase):

    def test_none_stays_down_after_failing_several_times(self):
        """Packages that are being unpacked end a service at each start.

        systemd gives up after five starts in ten seconds.
        """
        for unit in sorted((ETC / 'systemd').glob('*.service')):
            with self.subTest(unit=unit.name):
                found = options(unit)
                self.assertIn(found['Restart'], ('always', 'on-failure'))
                if found.get('StartLimitIntervalSec') != '0':
                    self.assertGreater(5 * int(found['RestartSec']), 10)

    def test_users_of_units_exist_where_only_our_packages_are(self):
        users = ' '.join(path.read_text() for path in
                         (ETC / 'sysusers.d').iterdir())
        for unit in sorted((ETC / 'systemd').glob('*.service')):
            with self.subTest(unit=unit.name):
                self.assertIn(f'u {options(unit)["User"]} -', users)
        path = ETC / 'sysusers.d' / 'diffcache-lazy.conf'
        self.assertEqual(path.read_text(),
                         (DEBIAN / 'diffcache-lazy.sysusers').read_text())

    def test_nobody_else_is_in_the_group_that_reads_the_configuration(self):
        """It has the broker's password, and those of service users."""
        for kind in 'sysusers.d', 'tmpfiles.d':
            for path in sorted((ETC / kind).iterdir()):
                self.assertNotRegex(path.read_text(), r'(?m)^m\b')
        self.assertIn('d /etc/diffcache 0750 root diffcache -',
                      (ETC / 'tmpfiles.d/diffcache.conf').read_text())

    def test_sockets_have_groups_of_their_own(self):
        """QEMU's opens the exports, and neither agent nor configuration."""
        found = {name: set(options(ETC / 'systemd' / f'{name}.service')
                           .get('SupplementaryGroups', '').split())
                 for name in ('diffcache-agent', 'diffcache-repository',
                              'diffcache-ssdcache', 'diffcache-lazy')}
        self.assertEqual({
            'diffcache-agent': {'libvirt', 'diffcache-nova',
                                'diffcache-glance'},
            'diffcache-repository': {'diffcache-glance'},
            'diffcache-ssdcache': {'disk', 'diffcache-nbd'},
            'diffcache-lazy': set()}, found)
        cache = options(ETC / 'systemd' / 'diffcache-ssdcache.service')
        self.assertEqual(('0077', '0711'), (
            cache['UMask'], cache['RuntimeDirectoryMode']))

    def test_one_unit_alone_may_mount(self):
        """What talks to the network, or parses what it sends, may not."""
        for unit in sorted((ETC / 'systemd').glob('*.service')):
            with self.subTest(unit=unit.name):
                found = options(unit)
                mounts = 'CAP_SYS_ADMIN' in found['CapabilityBoundingSet']
                self.assertEqual(unit.stem == 'diffcache-lazy-mount', mounts)
                self.assertEqual(not mounts, 'ProtectSystem' in found)

    def test_the_mounter_and_its_client_name_the_same(self):
        systemd = ETC / 'systemd'
        lazy = options(systemd / 'diffcache-lazy.service')
        socket = options(systemd / 'diffcache-lazy-mount.socket')
        mounter = options(systemd / 'diffcache-lazy-mount.service')
        self.assertEqual(
            f'OS_LAZY__MOUNTER={socket["ListenSequentialPacket"]}',
            lazy['Environment'])
        self.assertEqual((lazy['User'], '0600'),
                         (socket['SocketUser'], socket['SocketMode']))
        self.assertNotEqual(lazy['User'], mounter['User'])
        self.assertEqual(opts.new_config().lazy.mount,
                         mounter['ExecStart'].split()[-1])
        for option in 'Wants', 'After':
            self.assertIn('diffcache-lazy-mount.socket', lazy[option])

    def test_the_mounter_is_there_however_often_it_ends(self):
        """systemd gives up listening, too, after five starts in ten seconds.

        And after the service was started twenty times in two.
        """
        systemd = ETC / 'systemd'
        socket = options(systemd / 'diffcache-lazy-mount.socket')
        mounter = options(systemd / 'diffcache-lazy-mount.service')
        for found in socket, mounter:
            self.assertEqual('0', found['StartLimitIntervalSec'])
        self.assertEqual('0', socket['TriggerLimitIntervalSec'])

    def test_what_guests_read_through_outlives_the_service(self):
        found = options(ETC / 'systemd' / 'diffcache-lazy.service')
        self.assertEqual('process', found['KillMode'])


class TestBuild(base.TestCase):

    def test_modules_that_are_tried_are_those_of_the_package(self):
        # The build's directory has a package of the same name.
        self.assertIn("python -I -B -c 'import diffcache_openstack._native'",
                      (DEBIAN / 'rules').read_text())

    def test_packages_of_others_stay_as_they_were_published(self):
        # dh_strip_nondeterminism took minutes for them, and stripping breaks
        # some.
        rules = (DEBIAN / 'rules').read_text()
        self.assertIn('override_dh_dwz:\n\n', rules)
        for name in 'strip', 'strip_nondeterminism':
            self.assertRegex(
                rules, rf'\tdh_{name} .*--exclude=/site-packages/\n')

    def test_rust_is_the_one_that_the_tree_needs(self):
        wanted = re.search(
            r'^rust-version = "(.+)"$',
            (loading.TREE / 'native' / 'Cargo.toml').read_text(), re.M)[1]
        control = (DEBIAN / 'control').read_text()
        for name in 'cargo', 'rustc':
            self.assertIn(f'{name} (>= {wanted}) | {name}-web (>= {wanted})',
                          control)


class TestPlugins(base.TestCase):
    """plugins/debian packages what Debian's own OpenStack loads."""

    SOURCE = loading.TREE / 'plugins'

    def dependencies(self, name: str) -> dict[str, str]:
        """Return lower bounds by package, without Debian's epochs."""
        control = (self.SOURCE / 'debian/control').read_text()
        paragraph = control.split(f'Package: {name}\n')[1].split('\n\n')[0]
        found = re.search(r'^Depends:((?:.*\n(?= )|.*$)+)', paragraph, re.M)[1]
        return dict(re.findall(r'(\S+) \(>= (?:\d+:)?([\d.]+)\)', found))

    def requirements(self, name: str) -> dict[str, str]:
        """Return the lower bounds of a list of requirements."""
        return dict(re.findall(r'^([\w.-]+)>=([\d.]+)', (
            self.SOURCE / name).read_text(), re.M))

    def test_bounds_are_those_of_the_requirements(self):
        self.assertEqual(
            {f'python3-{name}': bound for name, bound in
             self.requirements('requirements.txt').items()},
            self.dependencies('python3-diffcache-plugins'))
        self.assertEqual(
            {'openstack-dashboard': bound for bound in
             self.requirements('dashboard-requirements.txt').values()},
            self.dependencies('python3-diffcache-dashboard'))

    def test_build_needs_what_the_project_does(self):
        wanted = re.search(r'"setuptools>=(\d+)"', (
            self.SOURCE / 'pyproject.toml').read_text())[1]
        self.assertIn(f'python3-setuptools (>= {wanted})', (
            self.SOURCE / 'debian/control').read_text())
        self.assertIn(f'python3-setuptools)" {wanted} ', (
            loading.TREE / 'tools/debian-package').read_text())


class TestProgram(base.TestCase):

    def run_program(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run tools/debian-package, and return what it printed."""
        return subprocess.run(
            [loading.TREE / 'tools' / 'debian-package', *words],
            capture_output=True, text=True, check=False)

    def test_help_says_what_each_word_means(self):
        done = self.run_program('--help')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertIn('build [OPTION...] DIR', done.stdout)
        self.assertIn('MIRROR  the archive', done.stdout)

    def test_wrong_words_build_nothing(self):
        for words in ((), ('build',), ('build', '--wheel'),
                      ('build', '--wheel', 'from'), ('try', 'directory'),
                      ('plugins', 'directory')):
            with self.subTest(words=words):
                done = self.run_program(*words)
                self.assertEqual((2, ''), (done.returncode, done.stdout))
                self.assertIn('usage: tools/debian-package', done.stderr)
