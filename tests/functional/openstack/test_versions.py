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
"""Versions of servers on real compute hosts, with the openstack client.

The guest counts on its disk how often it came up, and says so: that is how
each state is told from the others. One has files, and says their checksum.
"""

import json
import re
import signal
import uuid

from tests.functional.openstack import file_guest
from tests.functional.openstack import nova_hosts


# A link that an image takes a minute to cross.
WAN_MBITS = 8


class VersionsTest(nova_hosts.NovaTest):

    def setUp(self):
        super().setUp()
        self.host, self.other = self.trial.hosts[:2]

    def save(self, server):
        """A version that was saved while the guest ran."""
        version = self.type(
            f'server version create {server} --wait -f json')
        self.addCleanup(self.forget, version['id'])
        self.assertEqual('available', version['state'])
        return version

    def forget(self, version):
        """Delete a version, and the image that it was made."""
        image = self.type(f'server version show {version} -f json')['image']
        if image:
            self.trial.admin.image.delete_image(image, ignore_missing=True)
        self.type(f'server version delete {version} --wait')

    def forget_all(self, server):
        """Save a server no more, and delete its versions."""
        self.type(f'server version policy delete --server {server}')
        for version in self.listed(server):
            self.type(f'server version delete {version["ID"]} --wait')

    def listed(self, server):
        """The versions of a server, the latest first."""
        return self.type(f'server version list --server {server} -f json')

    def restore(self, server, version, method='auto'):
        """Let a server go back; returns how often its guest came up then."""
        before = self.boots(server)
        task = self.type(f'server version restore {version} --restart'
                         f' --discard-current --method {method} -f json')
        if method != 'auto':
            self.assertEqual(method, task['result']['method'], task)
        self.wait_for_status(server, 'ACTIVE')
        return self.wait_until(
            lambda: (now := self.boots(server)) != before and now,
            'the guest came up again', nova_hosts.SECONDS)

    def start_from(self, version, *options):
        """A server that started from a version on the other host."""
        name = f'w-{uuid.uuid4().hex[:8]}'
        created = self.type(' '.join((
            'server create --flavor tiny --nic none --from-version', version,
            '--host', self.other, *options, name, '-f json')))
        self.addCleanup(self.trial.delete, created['id'])
        self.trial.wait_active(created['id'])
        return created['id']

    def start_elsewhere(self, version, boot):
        """A server that came up on the other host, from an exported image."""
        server = self.start_from(version)
        self.guest(server, self.other, name='guest-web', boot=boot)
        return server

    def rebuild(self, server, version, boot, *options):
        """Rebuild the server where it is."""
        before = self.boots(server)
        self.type(' '.join(('server rebuild', server, '--from-version',
                            version, *options)))
        self.wait_for_status(server, 'ACTIVE')
        self.wait_until(lambda: self.boots(server) != before,
                        'the guest came up again', nova_hosts.SECONDS)
        self.assertEqual(boot, self.boots(server))

    def reboot(self, server):
        with self.assert_boots_again(server):
            self.compute.reboot_server(server, 'HARD')
            self.wait_for_status(server, 'ACTIVE')


class TestFiles(VersionsTest):
    """A guest's own checksum of its files tells which state it has."""

    def setUp(self):
        super().setUp()
        disk = self.temporary('raw')
        file_guest.make(self.raw('web'), disk)
        self.image_id = self.upload(disk)

    def files(self, server, host=None):
        """What the guest found on its disk, and what it left there."""
        if host is None:
            host = self.compute.get_server(server).compute_host
        line = self.trial.wait_for_line(server, host, 'files found=',
                                        nova_hosts.SECONDS)
        return re.search('found=([0-9a-f]{64}) left=([0-9a-f]{64})',
                         line).groups()

    def test_each_state_is_proven_by_the_guest_itself(self):
        server = self.create(self.image_id, self.host)
        _, states = self.files(server), []
        for _ in range(2):
            states.append((self.save(server), self.files(server)[1]))
            self.reboot(server)
            # A state is what the next start finds.
            self.assertEqual(states[-1][1], self.files(server)[0])
        self.assertNotEqual(states[0][1], states[1][1])
        for number, method in ((0, 'rebuild'), (1, 'rollback'),
                               (0, 'auto'), (1, 'rebuild')):
            version, files = states[number]
            self.restore(server, version['id'], method)
            self.assertEqual(files, self.files(server)[0],
                             f'{number} by {method}')
        other = self.start_elsewhere(states[1][0]['id'], 3)
        self.assertEqual(states[1][1], self.files(other, self.other)[0])


class TestLazy(VersionsTest):
    """Servers that start from a version while it arrives."""

    def linked(self):
        return self.tally(self.other).get('lazy', {}).get('linked', 0)

    def wait_until_served_no_longer(self, host, image):
        """Wait until the version that an image stands for can be deleted."""
        self.wait_until(
            lambda: not [each for each in self.agent(host).lazy()
                         if image in each['image_ids']],
            'it is served no longer', nova_hosts.SECONDS)

    def start_lazily(self, version):
        """Start a server from a version; return it and its image."""
        server = self.start_from(version, '--boot-mode lazy')
        image = self.compute.get_server(server).image.id
        self.addCleanup(self.trial.admin.image.delete_image, image,
                        ignore_missing=True)
        self.addCleanup(self.base(self.other, image).unlink, missing_ok=True)
        return server, image

    def test_the_disk_arrives_while_the_guest_boots(self):
        server = self.create(self.image_of('web'), self.host)
        version = self.save(server)['id']
        linked = self.linked()
        other, image = self.start_lazily(version)
        base = self.base(self.other, image)
        self.assertEqual(linked + 1, self.linked())
        self.guest(other, self.other, name='guest-web', boot=2)
        # Nothing was exported, and what Glance has is no disk.
        self.assertFalse(self.type(
            f'server version show {version} -f json')['image'])
        self.assertLess(self.trial.admin.image.get_image(image).size, 4096)
        self.wait_until(lambda: base.is_file() and not base.is_symlink(),
                        f'{base} is a file', nova_hosts.SECONDS)
        self.wait_until_served_no_longer(self.other, image)
        # It runs on, and again, from the file that arrived.
        with self.assert_boots_again(other):
            self.compute.reboot_server(other, 'HARD')
            self.wait_for_status(other, 'ACTIVE')
        self.assertEqual(3, self.boots(other))
        # A second server finds the base there.
        second, again = self.start_lazily(version)
        self.assertEqual(image, again)
        self.guest(second, self.other, name='guest-web', boot=2)

    def test_an_agent_that_restarts_and_a_version_that_stays(self):
        server = self.create(self.image_of('web'), self.host)
        version = self.save(server)['id']
        other, image = self.start_lazily(version)
        with self.trial.stopped(f'{self.other}-agent',
                                number=signal.SIGKILL):
            pass
        self.guest(other, self.other, name='guest-web', boot=2)
        self.assertEqual(0, self.fallbacks(self.other))
        self.rebuild(server, version, 2, '--boot-mode lazy')
        for host in (self.host, self.other):
            self.wait_until_served_no_longer(host, image)

    def test_the_base_image_arrives_too(self):
        base = self.upload(self.new_content('web', 64))
        server = self.create(base, self.host)
        version = self.save(server)['id']
        layout = json.loads(
            (self.trial.where.state / 'layout.json').read_text())
        self.addCleanup(self.trial.network.shape, layout['wan'])
        self.trial.network.shape(WAN_MBITS)
        with self.trial.stopped(f'{self.host}-agent'):
            # Only the repository has the base image now.
            other, image = self.start_lazily(version)
            arriving = {each for served in self.agent(self.other).lazy()
                        if not served['complete']
                        for each in served['image_ids']}
            self.assertEqual({base, image}, arriving)
            self.guest(other, self.other, name='guest-web', boot=2)
        self.trial.network.shape(layout['wan'])
        for each in (image, base):
            self.wait_until_served_no_longer(self.other, each)
        self.assertTrue(self.base(self.other, image).is_file())


class TestServers(VersionsTest):

    def test_saved_rolled_back_and_started_elsewhere(self):
        server = self.create(self.image_of('web'), self.host)
        first = self.save(server)
        self.assertGreater(first['pause_ms'], 0)
        self.reboot(server)
        second = self.save(server)
        self.assertEqual(first['id'], second['parent'])
        # The guest wrote one sector, and QEMU stores whole clusters.
        self.assertLess(second['changed'], 1 << 20)
        self.reboot(server)
        self.assertEqual(3, self.boots(server))
        # What it was comes up once more each time.
        self.assertEqual(2, self.restore(server, first['id']))
        self.reboot(server)
        self.reboot(server)
        self.assertEqual(3, self.restore(server, second['id']))
        self.start_elsewhere(first['id'], 2)
        self.reboot(server)
        self.rebuild(server, second['id'], 3)

    def test_disks_written_anew_are_what_they_were(self):
        server = self.create(self.image_of('web'), self.host)
        first = self.save(server)
        self.reboot(server)
        self.reboot(server)
        self.assertEqual(2, self.restore(server, first['id'], 'rebuild'))
        # The new disk keeps the state that the next save is told from.
        second = self.save(server)
        self.assertLess(second['changed'], 1 << 20)
        self.reboot(server)
        self.assertEqual(2, self.restore(server, first['id'], 'rollback'))
        self.assertEqual(3, self.restore(server, second['id'], 'rebuild'))

    def test_saved_before_it_is_deleted(self):
        server = self.create(self.image_of('web'), self.host)
        self.type(f'server version policy create --server {server} --on-delete'
                  f' --required -f json')
        self.addCleanup(self.type,
                        f'server version policy delete --server {server}')
        self.trial.delete(server)

        [version] = self.wait_until(lambda: self.listed(server),
                                    'there is a version', 120)
        self.assertEqual(('available', 'delete'),
                         (version['State'], version['Trigger']))
        self.addCleanup(self.forget, version['ID'])
        self.start_elsewhere(version['ID'], 2)

    def test_saved_by_the_clock_and_only_the_last_kept(self):
        server = self.create(self.image_of('web'), self.host)
        self.type(f'server version policy create --server {server} --every 1m'
                  f' --keep-last 2 -f json')
        self.finally_do(self.forget_all, server)
        seen = {}

        def third():
            seen.update({version['ID']: version
                         for version in self.listed(server)})
            return len(seen) >= 3

        self.wait_until(third, 'three versions were saved', 400)
        self.assertEqual({'schedule'}, {version['Trigger']
                                        for version in seen.values()})
        self.wait_until(lambda: len(self.listed(server)) == 2,
                        'the first one is dropped')
        self.assertNotIn(list(seen)[0], [version['ID'] for version
                                         in self.listed(server)])
