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

import concurrent.futures
import hashlib
import json
import os
import pathlib
import signal
import time

from openstack import exceptions

from diffcache_openstack.agent.lazy import diffcached
from tests.functional.openstack import file_guest
from tests.functional.openstack import nova_hosts

# A thin link, which an image takes minutes to cross: no boot is as slow.
WAN_MBITS = 8
# The rest of one crosses this link where guests boot slower than that.
REST_MBITS = 0.5
NEW = 64
# Of the end of an image, which a guest hashes.
TAIL = 4
# A guest that reads the whole of its image again and again.
READING = '''
b=/bin/busybox
(round=0
while :; do
    echo 3 >/proc/sys/vm/drop_caches
    block=0 wrong=0
    while [ $block -lt {blocks} ]; do
        $b dd if=/dev/vda of=/dev/null bs=1048576 skip=$block count=1 \
            2>/dev/null || wrong=$((wrong + 1))
        block=$((block + 1))
        echo "reading boot=$count round=$round block=$block" >/dev/ttyS0
    done
    sum=$($b dd if=/dev/vda bs=1048576 skip=$(({blocks} - {tail})) \
        count={tail} 2>/dev/null | $b sha256sum | $b cut -c1-64)
    echo "read boot=$count round=$round wrong=$wrong sum=$sum" >/dev/ttyS0
    round=$((round + 1))
    $b sleep 1
done) &
'''


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

    def reading(self):
        """A cold image whose guests read all of it, and its file."""
        path = self.reading_disk()
        image = self.upload(path, diffcache_boot_mode='lazy')
        for host in (self.host, self.other):
            self.addCleanup(self.base(host, image).unlink, missing_ok=True)
        return image, path

    def reading_disk(self):
        """The disk of a guest that reads all of it."""
        plain = self.new_content('base', NEW)
        path = self.temporary('raw')
        file_guest.make_working(plain, path, READING.format(
            blocks=plain.stat().st_size >> 20, tail=TAIL))
        return path

    def create(self, image, host=None):
        """A server whose guest has spoken before its image is whole.

        On a busy machine a guest may take longer to boot than its image to
        cross the link: the second half has a thinner one meanwhile.
        """
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            created = pool.submit(super().create, image, host)
            self.wait_until(
                lambda: created.done() or self.has_half(image, host),
                f'half of image {image} has arrived', 2 * nova_hosts.SECONDS)
            if not created.done():
                self.trial.network.shape(REST_MBITS)
                created.exception()
                self.trial.network.shape(WAN_MBITS)
            return created.result()

    def has_half(self, image, host):
        served = self.served(image, host)
        return (served is not None
                and 2 * served['present'] > served['data_chunks'])

    def lazy(self, host=None):
        """What a host's diffcached serves, by the agent."""
        return self.agent(host or self.host).lazy()

    def daemon(self, host):
        where = self.trial.where
        return diffcached.Diffcached(str(self.trial.inside(
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
        status = self.served(image, host)
        if status is None:
            # All of it arrived meanwhile, on a slow machine.
            self.assertFalse(self.base(host or self.host, image).is_symlink())
        else:
            self.assertEqual(0, status['errors'])
        console = (self.trial.instances(host or self.host) / server
                   / 'console.log').read_text(errors='replace')
        self.assertNotIn('I/O error', console)
        self.assertNotIn('EXT4-fs error', console)

    def snapshot(self, server):
        """A snapshot of a server, as an image."""
        made = self.compute.create_server_image(
            server, f'snapshot-of-{server}', wait=True,
            timeout=nova_hosts.SECONDS)
        self.addCleanup(self.trial.admin.image.delete_image, made.id,
                        ignore_missing=True)
        return made.id

    def migrate_live(self, server, status='ACTIVE'):
        """Migrate a running server to the other host.

        :param status: that it has, and keeps
        """
        self.compute.live_migrate_server(server, host=self.other,
                                         block_migration='auto')
        self.wait_for_status(server, status)
        self.assertEqual(
            self.other, self.compute.get_server(server).compute_host)

    def migrate_paused(self, server):
        """Migrate a server that is not stopped, but does nothing meanwhile.

        QEMU without KVM may leave behind what a guest writes to its memory
        while that is sent. A guest that never rests may hang then: with QEMU
        7.2 a process of one waited in its kernel for a lock without an end.
        """
        self.compute.pause_server(server)
        self.wait_for_status(server, 'PAUSED')
        self.migrate_live(server, 'PAUSED')
        self.compute.unpause_server(server)
        self.wait_for_status(server, 'ACTIVE')

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
                      self.images_at_hand())
        print(f'marker of a cold image of {path.stat().st_size} bytes over'
              f' {WAN_MBITS} Mbit/s after {seconds:.1f} s')

    def images_at_hand(self):
        """Contents that the host holds, or borrows from Nova.

        Those for which the cache has no room are only borrowed in the end.
        """
        status = self.agent(self.host).status()
        return {content for kind, content, *_more in
                (*status['holdings'], *status['borrowed'])
                if kind == 'images'}


class ReadingTest(LazyTest):
    """Has a server whose guest reads all of an image that is not whole."""

    def setUp(self):
        super().setUp()
        self.image_id, self.path = self.reading()
        self.content_id = self.known(self.host, self.image_id)['content_id']
        with open(self.path, 'rb') as file:
            file.seek(-(TAIL << 20), os.SEEK_END)
            self.tail = hashlib.sha256(file.read()).hexdigest()
        self.counts = self.tally(self.host).get('lazy', {})
        self.server = self.create(self.image_id, self.host)
        self.assert_linked(self.image_id)

    def counted(self, event):
        """How often something was counted since the server is there."""
        now = self.tally(self.host).get('lazy', {})
        return now.get(event, 0) - self.counts.get(event, 0)

    def virsh(self, *words, host=None):
        return self.trial.run(
            *self.trial.processes.enter(host or self.host), 'virsh', *words)

    def state(self):
        return self.virsh('domstate', '--reason', self.server).strip()

    def wait_until_stopped(self):
        self.wait_until(lambda: self.state() == 'paused (I/O error)',
                        'the guest is stopped', nova_hosts.SECONDS)

    def assert_reads(self, host=None):
        """The guest reads its image once more, right and without errors."""
        log = (self.trial.instances(host or self.host) / self.server
               / 'console.log')

        def said():
            # The last line may not be complete.
            return log.read_text(errors='replace').splitlines()[:-1]

        def read():
            return [line for line in said() if line.startswith('read boot=')]

        before = len(read())
        self.wait_until(lambda: len(read()) > before,
                        'the guest has read its image', nova_hosts.SECONDS)
        for line in read():
            self.assertIn(f' wrong=0 sum={self.tail}', line)
        for line in said():
            self.assertNotIn('I/O error', line)
            self.assertNotIn('EXT4-fs error', line)


class TestStoppedGuests(ReadingTest):
    """Guests whose reads fail are stopped, and go on."""

    def test_the_wan_is_away_for_longer_than_reads_wait(self):
        self.daemon(self.host).change(self.content_id, {'wait': 2})
        self.trial.processes.stop('repository-agent', signal.SIGKILL)
        self.addCleanup(self.trial.up)
        self.wait_until_stopped()
        self.wait_until(lambda: self.counted('stopped') == 1, 'it is counted')
        self.trial.up()
        self.trial.network.shape(self.wan)
        self.assert_reads()
        self.assertEqual('running (unpaused)', self.state())
        self.assertGreaterEqual(self.counted('resumed'), 1)

    def test_all_that_serves_the_image_is_killed(self):
        served = self.served(self.image_id)
        with self.trial.stopped(f'{self.host}-lazy', f'{self.host}-agent',
                                number=signal.SIGKILL):
            os.kill(served['pid'], signal.SIGKILL)
            os.kill(served['worker_pid'], signal.SIGKILL)
            self.wait_until_stopped()
        self.trial.network.shape(self.wan)
        self.assert_reads()
        self.assertEqual('running (unpaused)', self.state())


class TestLeaving(ReadingTest):
    """Running guests read Nova's own file when the image is whole."""

    def test_a_running_guest_leaves_the_mount(self):
        described = self.virsh('dumpxml', self.server)
        self.wait_until_whole(self.image_id, self.path)
        self.wait_until(lambda: self.served(self.image_id) is None,
                        'diffcached serves the image no more')
        self.assertEqual(1, self.counted('left'))
        self.assertEqual(described, self.virsh('dumpxml', self.server))
        self.assert_reads()
        # What Nova does with a guest's disks still works.
        self.snapshot(self.server)
        self.migrate_paused(self.server)
        self.assert_reads(host=self.other)


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

    def test_a_server_is_migrated_live_before_its_image_is_whole(self):
        whole = self.tally(self.other).get('lazy', {}).get(
            'full_live_migration', 0)
        boots = self.boots(self.server)
        self.trial.network.shape(self.wan)
        with self.assert_delivers(self.other):
            self.migrate_live(self.server)
        self.assertEqual(whole + 1, self.tally(self.other)['lazy'][
            'full_live_migration'])
        # Whole there, and the guest has not been started again.
        self.assertFalse(self.base(self.other, self.image_id).is_symlink())
        self.compute.reboot_server(self.server, 'HARD')
        self.wait_for_status(self.server, 'ACTIVE')
        self.guest(self.server, boot=boots + 1)

    def test_a_server_is_resized_before_its_image_is_whole(self):
        with self.assert_boots_again(self.server):
            self.compute.resize_server(self.server,
                                       self.trial.flavor('small'))
            self.wait_for_status(self.server, 'VERIFY_RESIZE')
            self.compute.confirm_server_resize(self.server)
            self.wait_for_status(self.server, 'ACTIVE')

    def test_a_snapshot_of_an_image_that_is_not_whole(self):
        boots = self.boots(self.server)
        self.trial.network.shape(self.wan)
        snapshot = self.snapshot(self.server)
        self.wait_until_known(snapshot)
        server = self.create(snapshot, self.host)
        self.assertEqual(boots + 1, self.boots(server))

    def test_a_server_is_shelved_before_its_image_is_whole(self):
        self.trial.network.shape(self.wan)
        with self.assert_boots_again(self.server):
            self.compute.shelve_server(self.server)
            shelved = self.wait_for_status(self.server, 'SHELVED',
                                           'SHELVED_OFFLOADED')
            if shelved.status == 'SHELVED':
                self.compute.shelve_offload_server(self.server)
                self.wait_for_status(self.server, 'SHELVED_OFFLOADED')
            self.compute.unshelve_server(self.server)
            self.wait_for_status(self.server, 'ACTIVE')

    def test_a_server_is_rescued_before_its_image_is_whole(self):
        other, path = self.cold_lazy()
        with self.assert_boots_again(self.server):
            self.compute.rescue_server(self.server, image_ref=other)
            self.wait_for_status(self.server, 'RESCUE')
            self.guest(self.server, name='guest-base', boot=1)
            self.assert_linked(other)
            self.assert_linked(self.image_id)
            self.compute.unrescue_server(self.server)
            self.wait_for_status(self.server, 'ACTIVE')

    def test_a_server_is_rebuilt_before_its_image_is_whole(self):
        self.compute.rebuild_server(self.server, image=self.image_id)
        self.wait_for_status(self.server, 'ACTIVE')
        self.guest(self.server, boot=1)
        self.assert_linked(self.image_id)
        other, path = self.cold_lazy()
        self.compute.rebuild_server(self.server, image=other)
        self.wait_for_status(self.server, 'ACTIVE')
        self.guest(self.server, boot=1)
        self.assert_linked(other)

    def test_nova_ages_links(self):
        base = self.base(self.host, self.image_id)
        self.age(base)
        self.wait_until(lambda: self.days(base) < 1,
                        'the link in use got young', nova_hosts.SECONDS)
        self.assert_linked(self.image_id)
        self.trial.delete(self.server)
        self.age(base)
        self.wait_until(lambda: not os.path.lexists(base),
                        'the unused link is gone', nova_hosts.SECONDS)
        self.wait_until(lambda: self.served(self.image_id) is None,
                        'diffcached has removed the image')

    def age(self, base):
        self.on_host('touch', '-d', '3 days ago', base)

    def days(self, base):
        seconds = int(self.on_host('stat', '-L', '-c', '%Y', base))
        return (time.time() - seconds) / 86400

    def on_host(self, *words):
        """Run a command on a base: links lead to mounts of their host."""
        *words, base = words
        path = self.trial.where.host / 'instances' / '_base' / base.name
        return self.trial.run(*self.trial.processes.enter(self.host), *words,
                              path)

    def test_a_server_is_evacuated_before_its_image_is_whole(self):
        service = next(
            each for each in self.compute.services()
            if each.host == self.host and each.binary == 'nova-compute')
        self.addCleanup(self.wait_until, lambda: self.forced_up(service),
                        f'{self.host} is up again')
        with self.trial.stopped(f'{self.host}-nova'):
            self.compute.update_service_forced_down(service, self.host)
            self.compute.evacuate_server(self.server, host=self.other)
            self.wait_for_status(self.server, 'ACTIVE')
            # As it was created: its disk has stayed behind.
            self.guest(self.server, self.other, boot=1)
            self.assert_linked(self.image_id, self.other)

    def forced_up(self, service):
        """Nova-compute has started, and cleaned up what was evacuated."""
        try:
            self.compute.update_service_forced_down(service, self.host,
                                                    forced=False)
        except exceptions.BadRequestException:
            return False
        return True

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
