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
"""Volumes of Cinder on servers, with and without the hosts' SSD cache.

They need an OpenStack that was brought up with ``--volumes``.
"""

import hashlib
import pathlib
import uuid

from tests.functional.openstack import file_guest
from tests.functional.openstack import nova_hosts

# The guest's blocks, and how often it writes one and reads it again.
BLOCK = 65536
BLOCKS = 32
ROUNDS = 40
SECONDS = nova_hosts.SECONDS
TYPE = {'diffcache:ssd_cache': 'write-through'}
# It says the checksum of what it finds on a volume; then it writes blocks, in
# order, and reads each again, from the volume and not from memory: as long as
# a condition holds.
WORK = f'''
b=/bin/busybox
sum() {{ $b dd if=/dev/vdb bs={BLOCK} count={BLOCKS} 2>/dev/null \\
    | $b sha256sum | $b cut -c1-64; }}
(while :; do
    until [ -b /dev/vdb ]; do $b usleep 100000; done
    echo "volume boot=$count found=$(sum)" >/dev/ttyS0
    round=0 wrong=0
    while MORE; do
        $b dd if=/dev/urandom of=/wanted bs={BLOCK} count=1 2>/dev/null
        at=$((round % {BLOCKS}))
        $b dd if=/wanted of=/dev/vdb bs={BLOCK} seek=$at conv=notrunc,fsync \\
            2>/dev/null || wrong=$((wrong + 1))
        echo 3 >/proc/sys/vm/drop_caches
        $b dd if=/dev/vdb of=/found bs={BLOCK} skip=$at count=1 2>/dev/null
        $b cmp -s /wanted /found || wrong=$((wrong + 1))
        round=$((round + 1))
        [ $((round % 10)) -ne 0 ] ||
            echo "volume boot=$count round=$round wrong=$wrong" >/dev/ttyS0
    done
    echo 3 >/proc/sys/vm/drop_caches
    echo "volume boot=$count done wrong=$wrong left=$(sum)" >/dev/ttyS0
    size=
    while [ -b /dev/vdb ]; do
        now=$($b cat /sys/block/vdb/size)
        [ "$now" = "$size" ] || echo "volume boot=$count sectors=$now" \\
            >/dev/ttyS0
        size=$now
        $b usleep 100000
    done
    echo "volume boot=$count gone" >/dev/ttyS0
done) &
'''

NOT_ENOUGH = f'[ $round -lt {ROUNDS} ]'
NOT_GROWN = f'[ $($b cat /sys/block/vdb/size) -eq {1 << 21} ]'


class VolumeTest(nova_hosts.NovaTest):
    """Boots guests that write to a volume and read it."""

    flavor = 'tiny'

    def setUp(self):
        super().setUp()
        if not self.trial.where.volumes:
            self.skipTest('needs tools/openstack up --volumes')
        self.host = self.trial.hosts[0]
        self.storage = self.trial.admin.block_storage
        self.local = self.agent(self.host)

    # -- what is made

    def volume_type(self, specs):
        """Make a volume type with QoS specs; return its name."""
        name = f'trial-{uuid.uuid4().hex[:8]}'
        made = self.storage.create_type(name=name)
        self.addCleanup(self.storage.delete_type, made)
        answer = self.storage.post('/qos-specs', json={'qos_specs': {
            'name': name, 'consumer': 'front-end', **specs}})
        found = answer.json()['qos_specs']['id']
        self.addCleanup(self.storage.delete,
                        f'/qos-specs/{found}?force=true')
        self.storage.get(f'/qos-specs/{found}/associate?vol_type_id={made.id}')
        return name

    def volume(self, kind=None):
        """Make a volume; return its id."""
        made = self.storage.create_volume(size=1, volume_type=kind)
        self.addCleanup(self._delete_volume, made.id)
        return self.storage.wait_for_status(made, 'available').id

    def _delete_volume(self, volume):
        found = self.wait_until(
            lambda: (now := self.storage.get_volume(volume)).status
            in ('available', 'error') and now, 'the volume is free')
        self.storage.delete_volume(volume)
        self.storage.wait_for_delete(found)

    def worker(self, more=NOT_ENOUGH):
        """Boot a guest that works on volumes; return its id.

        :param more: for how long, a condition in its shell
        """
        return self.working(WORK.replace('MORE', more))

    def working(self, work):
        """Boot a guest that does some work; return its id."""
        path = self.directory / 'guest.raw'
        file_guest.make_working(self.trial.guests()['guest-base'], path, work)
        image = self.trial.upload(f'volumes-{uuid.uuid4().hex[:8]}', path)
        self.addCleanup(self.trial.admin.image.delete_image, image)
        return self.boot(image, self.host, self.flavor).server

    def attach(self, server, volume):
        self.trial.admin.compute.create_volume_attachment(
            server, volume_id=volume)
        # First it is reserved; a failure makes it available again.
        self.storage.wait_for_status(
            self.storage.get_volume(volume), 'in-use',
            failures=['available', 'error'], wait=SECONDS)

    def detach(self, server, volume):
        self.trial.admin.compute.delete_volume_attachment(server, volume)
        self.storage.wait_for_status(self.storage.get_volume(volume),
                                     'available', wait=SECONDS)

    # -- what is seen

    def guest_said(self, server, text, boot=1):
        """Wait for a line of the guest; return its fields."""
        line = self.trial.wait_for_line(
            server, self.host, f'volume boot={boot} {text}', SECONDS)
        return dict(word.partition('=')[::2] for word in line.split())

    def origin(self, volume):
        """The file that a volume is."""
        return pathlib.Path(self.trial.where.data, 'cinder', 'files',
                            f'volume-{volume}')

    def sum(self, volume):
        with open(self.origin(volume), 'rb') as file:
            return hashlib.sha256(file.read(BLOCK * BLOCKS)).hexdigest()

    def cached(self):
        """What is attached to the host's cache."""
        return self.local.ssd_cache()['volumes']

    def document(self, server):
        """What libvirt has of a server."""
        return self.trial.run(*self.trial.processes.enter(self.host), 'virsh',
                              'dumpxml', server)


class TestPlain(VolumeTest):

    def test_a_volume_without_the_cache(self):
        # In this order, as the last is deleted first.
        volume = self.volume()
        server = self.worker()
        self.attach(server, volume)
        self.assertEqual('0', self.guest_said(server, 'done')['wrong'])
        self.assertNotIn(volume, self.cached())
        self.detach(server, volume)
        self.assertEqual(self.guest_said(server, 'done')['left'],
                         self.sum(volume))


class TestCached(VolumeTest):

    def volume_type_by_command(self):
        """Make a volume type as operators do; return its name."""
        name = f'trial-{uuid.uuid4().hex[:8]}'
        made = self.type(f'volume type create {name} --ssd-cache write-through'
                         ' --ssd-cache-min 8MiB -f json')
        self.addCleanup(self._delete_type, made['id'])
        return name

    def _delete_type(self, made):
        [specs] = [each for each in self.storage.qos_specs()
                   if made in [kind.id for kind in
                               self.storage.qos_spec_associations(each)]]
        self.storage.delete_type(made)
        self.storage.delete_qos_spec(specs, force=True)

    def shown(self, volume):
        """What the API has of a volume."""
        return self.type(f'volume cache show {volume} -f json')

    def test_a_kill_a_hard_reboot_an_extension_and_a_detach(self):
        kind = self.volume_type_by_command()
        volume = self.volume(kind)
        server = self.worker()
        self.attach(server, volume)
        self.assertIn("protocol='nbd'", self.document(server))
        export = self.cached()[volume]['export']
        self.guest_said(server, 'round=10')
        self.trial.kill_ssd_cache(self.host)
        done = self.guest_said(server, 'done')
        self.assertEqual('0', done['wrong'])
        found = self.cached()[volume]
        self.assertEqual(export, found['export'])
        self.assertGreaterEqual(found['blocks'], BLOCK * BLOCKS // 4096)
        self.assertEqual(done['left'], self.sum(volume))
        self.trial.admin.compute.reboot_server(server, 'HARD')
        self.assertEqual(done['left'],
                         self.guest_said(server, 'found=', boot=2)['found'])
        self.assertIn(volume, self.cached())
        done = self.guest_said(server, 'done', boot=2)
        self.assertEqual('0', done['wrong'])
        self.assert_shown(volume, server)
        self.assert_extended(volume, server)
        # A type that is changed holds at once, and after a hard reboot.
        self.type(f'volume type set {kind} --ssd-cache write-around'
                  ' --ssd-cache-admission 2')
        self.assert_follows(volume)
        self.trial.admin.compute.reboot_server(server, 'HARD')
        done = self.guest_said(server, 'done', boot=3)
        self.assert_follows(volume)
        self.detach(server, volume)
        self.assertNotIn(volume, self.cached())
        self.assertEqual(done['left'], self.sum(volume))
        self.attach(server, volume)
        self.assert_follows(volume)
        self.detach(server, volume)

    def assert_follows(self, volume):
        found = self.cached()[volume]
        self.assertEqual(('write-around', 2), (
            found['mode'], found['wanted']['admission']))

    def assert_shown(self, volume, server):
        """The API and its commands have what the host reported."""
        self.type(f'volume cache set {volume} --weight 2')
        found = self.shown(volume)
        self.assertEqual(
            (server, self.host, 'write-through', 2048, 2),
            (found['server'], found['host'], found['mode'], found['minimum'],
             found['weight']))
        self.assertGreater(found['hits'], 0)
        self.assertEqual(self.cached()[volume]['limit'], found['size'])
        [listed] = self.type(f'volume cache list --host {self.host} -f json')
        self.assertEqual((volume, found['size']),
                         (listed['Volume'], listed['Size']))
        curve = self.wait_until(
            lambda: self.requested(volume), 'an epoch has ended')
        self.assertGreater(curve['seconds'], 0)
        hosts = self.type('volume cache host list -f json')
        self.assertEqual(
            [('ok', self.local.ssd_cache()['capacity'])],
            [(each['State'], each['Capacity'])
             for each in hosts if each['Host'] == self.host])

    def requested(self, volume):
        """The curve of a volume; nothing before an epoch has ended."""
        found = self.trial.admin.session.get(
            f'/v1/volume-caches/{volume}/curve', raise_exc=False,
            endpoint_filter={'service_type': 'diffcache'},
            headers={'OpenStack-API-Version': 'diffcache 1.0'})
        return found.ok and self.type(
            f'volume cache curve show {volume} -f json')

    def assert_extended(self, volume, server):
        """The guest sees a new size without a reboot."""
        self.guest_said(server, f'sectors={1 << 21}', boot=2)
        self.storage.extend_volume(volume, 2)
        self.guest_said(server, f'sectors={2 << 21}', boot=2)
        self.storage.wait_for_status(self.storage.get_volume(volume),
                                     'in-use', wait=SECONDS)


class TestLiveMigration(VolumeTest):

    def test_a_server_that_writes(self):
        volume = self.volume(self.volume_type(TYPE))
        server = self.worker(NOT_GROWN)
        self.attach(server, volume)
        self.guest_said(server, 'round=10')
        self.host = self.trial.hosts[1]
        self.trial.admin.compute.live_migrate_server(
            server, host=self.host, block_migration='auto')
        self.wait_until(
            lambda: self.compute.get_server(server).compute_host == self.host,
            'it runs on the other host', SECONDS)
        self.wait_for_status(server, 'ACTIVE')
        self.assertNotIn(volume, self.cached())
        self.local = self.agent(self.host)
        self.assertEqual('write-through', self.cached()[volume]['mode'])
        moves = self.local.ssd_cache()['moves']
        self.assertEqual(0, moves['failed'])
        self.assertGreater(moves['received'], 0)
        self.wait_until(
            lambda: self.local.ssd_cache()['moves']['warmed'],
            'blocks that were hot on the other host are cached', SECONDS)
        # The guest goes on, until it sees the volume grow.
        self.guest_said(server, 'round=')
        self.storage.extend_volume(volume, 2)
        done = self.guest_said(server, 'done')
        self.assertEqual('0', done['wrong'])
        self.assertGreater(self.cached()[volume]['blocks'], 0)
        self.detach(server, volume)
        self.assertNotIn(volume, self.cached())
        self.assertEqual(done['left'], self.sum(volume))


class TestRoom(VolumeTest):
    """Servers go where the SSD has room for the blocks that they reuse."""

    def setUp(self):
        super().setUp()
        if len(self.trial.hosts) < 3:
            self.skipTest('needs tools/openstack up --volumes --computes 3')

    def state(self, host):
        """What the service says of a host's SSD cache."""
        return {each['Host']: each['State'] for each in self.type(
            'volume cache host list -f json')}[host]

    def assert_avoids(self, server, avoided):
        """Migrate a server live: its host is not the one without a cache."""
        with self.trial.stopped(f'{avoided}-ssd-cache'):
            self.wait_until(lambda: self.state(avoided) != 'ok',
                            f'the cache of {avoided} is known to be down')
            before, now = self.host, self.host
            self.compute.live_migrate_server(server, host=None,
                                             block_migration='auto')

            def has_left():
                nonlocal now
                now = self.compute.get_server(server).compute_host
                return now != before

            self.wait_until(has_left, 'it runs on another host', SECONDS)
            self.wait_for_status(server, 'ACTIVE')
            self.assertNotEqual(avoided, now)
        self.wait_until(lambda: self.state(avoided) == 'ok',
                        f'the cache of {avoided} is known to work')
        self.host, self.local = now, self.agent(now)

    def test_live_migrations_go_where_the_cache_has_room(self):
        volume = self.volume(self.volume_type(TYPE))
        server = self.worker(NOT_GROWN)
        self.attach(server, volume)
        self.guest_said(server, 'round=10')
        self.wait_until(
            lambda: self.type(f'volume cache show {volume} -f json')['cached'],
            'the service knows that blocks are cached')
        with self.aggregate(self.trial.hosts,
                            {'ssd_room_weight_multiplier': '1000'}):
            _, second, third = self.trial.hosts
            self.assert_avoids(server, second)
            self.assertEqual(third, self.host)
            self.assertIn(volume, self.cached())
            self.assert_avoids(server, self.trial.hosts[0])
            self.assertEqual(second, self.host)
            self.assert_avoids(server, third)
        self.storage.extend_volume(volume, 2)
        self.assertEqual('0', self.guest_said(server, 'done')['wrong'])
        self.detach(server, volume)


class TestWithout(VolumeTest):
    """What happens where the cache cannot be used."""

    def test_a_cache_that_does_not_run(self):
        volume = self.volume(self.volume_type(TYPE))
        insisting = self.volume(self.volume_type(
            {**TYPE, 'diffcache:ssd_cache:required': 'true'}))
        server = self.worker()
        before = self.tally(self.host)['uncached_volumes']
        with self.trial.stopped(f'{self.host}-ssd-cache'):
            self.attach(server, volume)
            self.assertEqual('0', self.guest_said(server, 'round=10')['wrong'])
            self.trial.admin.compute.create_volume_attachment(
                server, volume_id=insisting)
            self.wait_until(
                lambda: self.storage.get_volume(insisting).status
                == 'available', 'it was not attached')
        self.assertEqual(
            sum(before.values()) + 1,
            sum(self.tally(self.host)['uncached_volumes'].values()))
        self.assertNotIn('nbd', self.document(server))
        self.guest_said(server, 'done')
        self.detach(server, volume)
        self.assertNotIn(volume, self.cached())
