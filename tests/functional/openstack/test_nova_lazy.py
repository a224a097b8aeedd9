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
"""Servers that start while their image arrives."""

import hashlib
import json
import os
import pathlib
import signal
import time

from diffcache_openstack.agent.lazy import daemon
from tests.functional.openstack import nova_hosts

# A thin link, which an image takes minutes to cross: no boot is as slow.
WAN_MBITS = 8
NEW = 64


class LazyTest(nova_hosts.NovaTest):

    def setUp(self):
        super().setUp()
        self.host, self.other = self.trial.hosts[:2]
        document = json.loads(
            (self.trial.where.state / 'layout.json').read_text())
        self.wan = document['wan']
        self.addCleanup(self.trial.network.shape, self.wan)
        self.trial.network.shape(WAN_MBITS)

    def cold(self, **properties):
        """An image that no host has, and its file."""
        path = self.new_content('base', NEW)
        image = self.upload(path, **properties)
        for host in (self.host, self.other):
            self.addCleanup(self.base(host, image).unlink, missing_ok=True)
        return image, path

    def cold_lazy(self):
        return self.cold(diffcache_boot_mode='lazy')

    def lazy(self, host=None):
        """What a host's diffcached serves, by the agent."""
        return self.agent(host or self.host).lazy()

    def daemon(self, host):
        where = self.trial.where
        return daemon.Daemon(str(self.trial.inside(
            host, where.host / 'diffcache/lazy/diffcached.sock')))

    def served(self, image, host=None):
        """The status of an image that is served; None if it is not."""
        return next((each for each in self.lazy(host)
                     if image in each['image_ids']), None)

    def assert_linked(self, image, host=None):
        """The base is a link, and its image is not whole."""
        self.assertTrue(self.base(host or self.host, image).is_symlink(),
                        self.tally(host or self.host).get('lazy'))
        self.assertFalse(self.served(image, host)['complete'])

    def wait_until_whole(self, image, path, host=None):
        """Wait until the base is a file with the image's bytes.

        Over the link as it was: how long it takes is not the question here.
        """
        self.trial.network.shape(self.wan)
        base = self.base(host or self.host, image)
        self.wait_until(lambda: base.is_file() and not base.is_symlink(),
                        f'{base} is a file', nova_hosts.SECONDS)
        self.assertEqual(_sha256(path), _sha256(base))

    def assert_no_errors(self, server, image, host=None):
        """Neither diffcached nor the guest saw a read fail."""
        self.assertEqual(0, self.served(image, host)['errors'])
        console = (self.trial.instances(host or self.host) / server
                   / 'console.log').read_text(errors='replace')
        self.assertNotIn('I/O error', console)
        self.assertNotIn('EXT4-fs error', console)

    def kill_keeper_worker(self, image):
        os.kill(self.served(image)['worker_pid'], signal.SIGKILL)


class TestLazyBoot(LazyTest):

    def test_a_cold_image_boots_while_it_arrives(self):
        image, path = self.cold_lazy()
        linked = self.tally(self.host).get('lazy', {}).get('linked', 0)
        started = time.monotonic()
        server = self.create(image, self.host)
        seconds = time.monotonic() - started
        self.assert_linked(image)
        # All of it dies once, and the guest goes on.
        self.kill_keeper_worker(image)
        with self.trial.stopped(f'{self.host}-lazy', f'{self.host}-agent',
                                number=signal.SIGKILL):
            pass
        with self.assert_boots_again(server):
            self.compute.reboot_server(server, 'HARD')
            self.wait_for_status(server, 'ACTIVE')
        self.assert_no_errors(server, image)
        self.wait_until_whole(image, path)
        self.assertEqual(linked + 1, self.tally(self.host)['lazy']['linked'])
        # What runs has the file open that has arrived by now; after a
        # start it has Nova's own, and diffcached has none to serve.
        with self.assert_boots_again(server):
            self.compute.reboot_server(server, 'HARD')
            self.wait_for_status(server, 'ACTIVE')
        self.wait_until(lambda: self.served(image) is None,
                        'diffcached has removed the image')
        self.assertIn(self.known(self.host, image)['content_id'],
                      self.templates_at_hand())
        print(f'marker of a cold image of {path.stat().st_size} bytes over'
              f' {WAN_MBITS} Mbit/s after {seconds:.1f} s')

    def templates_at_hand(self):
        """Contents that the host holds, or borrows from Nova.

        Those for which the cache has no room are only borrowed in the end.
        """
        status = self.agent(self.host).status()
        return {content for kind, content, *_more in
                (*status['holdings'], *status['borrowed'])
                if kind == 'templates'}


class TestLazyOperations(LazyTest):

    def setUp(self):
        super().setUp()
        self.image_id, self.path = self.cold_lazy()
        self.server = self.create(self.image_id, self.host)
        self.assert_linked(self.image_id)

    def test_a_server_is_deleted_before_its_image_is_whole(self):
        self.trial.delete(self.server)
        # As aging does with a base that no server uses.
        self.base(self.host, self.image_id).unlink()
        self.wait_until(lambda: self.served(self.image_id) is None,
                        'diffcached has removed the image')
        where = self.trial.where
        left = self.trial.inside(
            self.host, where.host / 'diffcache/lazy/images')
        self.assertEqual([], os.listdir(left))

    def test_a_server_is_migrated_before_its_image_is_whole(self):
        with self.assert_boots_again(self.server):
            self.compute.migrate_server(self.server, host=self.other)
            self.wait_for_status(self.server, 'VERIFY_RESIZE')
            self.compute.confirm_server_resize(self.server)
            self.wait_for_status(self.server, 'ACTIVE')
        self.assertEqual(
            self.other, self.compute.get_server(self.server).compute_host)
        self.wait_until_whole(self.image_id, self.path, self.other)

    def test_a_guest_survives_an_outage_of_the_wan(self):
        self.trial.processes.stop('repository-agent', signal.SIGKILL)
        self.addCleanup(self.trial.up)
        self.wait_until(
            lambda: self.served(self.image_id)['sources'][0]['failures'],
            'the repository is missed')
        # What has been read once is here.
        with self.assert_boots_again(self.server):
            self.compute.reboot_server(self.server, 'HARD')
            self.wait_for_status(self.server, 'ACTIVE')
        self.assert_no_errors(self.server, self.image_id)
        self.assert_linked(self.image_id)
        self.trial.up()
        self.wait_until_whole(self.image_id, self.path)


def _sha256(path: pathlib.Path) -> str:
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
