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
"""What Cinder reads of a volume in write-back misses nothing.

A guest writes numbered records at full speed, and makes each durable, while
Cinder reads its volume again and again, and the agent of its host is killed
now and then. It writes them from the end of the volume towards its beginning:
the backend of these trials copies a file from its beginning, so that a copy
has all records before any that it has.

DIFFCACHE_HOLDS is how often each is done; an agent is killed in every tenth.
"""

import itertools
import os
import pathlib
import re
import signal
import threading
import time
import types

from tests.functional.openstack import test_volumes
from tests.functional.openstack import test_write_back

ROUNDS = int(os.environ.get('DIFFCACHE_HOLDS', '10'))
BLOCK = 4096
# The block of the first record; the others are before it.
FIRST = 200_000
# Of a group, the volumes.
GROUP = 3
_LETTERS = 'bcd'
WORK = f'''
b=/bin/busybox
(until [ -b /dev/vdLAST ]; do $b usleep 100000; done
echo "records begin" >/dev/ttyS0
n=0
while :; do
    for letter in LETTERS; do
        n=$((n + 1))
        echo "record $n" | $b dd of=/dev/vd$letter bs={BLOCK} \\
            conv=sync,notrunc,fsync seek=$(({FIRST} - n)) 2>/dev/null ||
            echo "failed=$n" >/dev/ttyS0
    done
    echo "record=$n" >/dev/ttyS0
done) &
'''


def records(path):
    """Return the numbers of the records that a file has."""
    found = set()
    with open(path, 'rb') as file:
        file.seek(max(0, (FIRST - 100_000)) * BLOCK)
        for block in iter(lambda: file.read(BLOCK), b''):
            if block.startswith(b'record '):
                found.add(int(block.split(b'\n')[0].split()[1]))
    return found


class HoldsTest(test_write_back.WriteBackTest):
    """What these trials do."""

    def writing(self, *volumes):
        """Have a guest write records, in turns to volumes in write-back."""
        letters = _LETTERS[:len(volumes)]
        server = self.working(
            WORK.replace('LETTERS', ' '.join(letters)).replace(
                'LAST', letters[-1]))
        for volume in volumes:
            self.attach(server, volume)
            self.assertEqual('write-back', self.cached()[volume]['mode'])
        self.trial.wait_for_line(server, self.host, 'records begin')
        self.console = self.trial.inside(
            self.host, self.trial.where.host / 'instances' / server
            / 'console.log')
        return server

    def durable(self):
        """Return the last record that the guest knows to be durable."""
        lines = self.console.read_text(errors='replace').splitlines()
        return next(int(line.strip().partition('=')[2])
                    for line in reversed(lines[:-1])
                    if line.startswith('record='))

    def wait_for_more(self, last):
        """Wait until there are more records, and some are dirty."""
        self.wait_until(lambda: self.durable() > last + 5,
                        'the guest writes on')

    def assert_whole(self, path, least):
        """A file has all records up to one, and at least some."""
        found = records(path)
        last = max(found, default=0)
        self.assertEqual([], sorted(set(range(1, last + 1)) - found)[:10])
        self.assertGreaterEqual(last, least)

    def kill_agent(self, number):
        """Kill the agent while Cinder works, in every tenth."""
        if number % 10 != 5:
            return None

        def kill():
            with self.trial.stopped(f'{self.host}-agent',
                                    number=signal.SIGKILL):
                pass

        killing = threading.Thread(target=kill)
        killing.start()
        return killing

    def rounds(self, make):
        """Make something of the volume again and again.

        :param make: returns the file of what it made, and deletes that
        """
        seconds, failed = [], 0
        for number in range(ROUNDS):
            least = self.durable()
            killing = self.kill_agent(number)
            begun = time.monotonic()
            done = make(number, least)
            seconds.append(time.monotonic() - begun)
            failed += not done
            if killing is not None:
                killing.join()
                self.wait_until(lambda: self.local.ssd_cache(),
                                'the agent answers')
            self.wait_for_more(least)
        print(f'{self.id()}: {ROUNDS} rounds, {failed} refused, median'
              f' {sorted(seconds)[ROUNDS // 2]:.2f} s, guest at record'
              f' {self.durable()}')
        # What the agent's end cut off may fail, and nothing else.
        self.assertLessEqual(failed, (ROUNDS + 4) // 10)

    def held(self, volume):
        """Return the seconds of each hold of a volume: before, in, after."""
        return [[float(each) for each in re.findall(r'(\d+\.\d{3}) s ', line)]
                for line in self.trial.log('cinder-volume').read_text(
                    errors='replace').splitlines()
                if f'Held volume {volume} on ' in line]

    def finished(self, get, resource):
        """Wait until Cinder has made something; return whether it did."""
        def state():
            found = get(resource)
            return found.status in ('available', 'active', 'error',
                                    'killed', 'deleted') and found

        return self.wait_until(state, 'it was made',
                               test_volumes.SECONDS).status in (
            'available', 'active')


class TestOneVolume(HoldsTest):

    def setUp(self):
        super().setUp()
        self.kept = self.volume(self.volume_type(test_write_back.WRITE_BACK))
        self.writer = self.writing(self.kept)

    def file(self, name):
        return pathlib.Path(self.trial.where.data, 'cinder', 'files', name)

    def test_snapshots(self):
        def make(_number, least):
            made = self.storage.create_snapshot(volume_id=self.kept,
                                                force=True)
            done = self.finished(self.storage.get_snapshot, made.id)
            if done:
                self.assert_whole(self.file(f'snapshot-{made.id}'), least)
            self.storage.delete_snapshot(made)
            self.storage.wait_for_delete(made)
            return done

        self.rounds(make)
        self.assertEqual('write-back', self.cached()[self.kept]['mode'])

    def test_clones(self):
        def make(_number, least):
            made = self.storage.create_volume(
                size=1, source_volume_id=self.kept)
            done = self.finished(self.storage.get_volume, made.id)
            if done:
                self.assert_whole(self.file(f'volume-{made.id}'), least)
            self._delete_volume(made.id)
            return done

        self.rounds(make)
        self.assertEqual('write-back', self.cached()[self.kept]['mode'])

    def test_images(self):
        glance = self.trial.admin.image

        def image(made):
            # Cinder deletes one that it cannot fill.
            return glance.find_image(made) or types.SimpleNamespace(
                status='deleted')

        def make(number, least):
            path = self.directory / 'image'
            made = self.storage.post(
                f'/volumes/{self.kept}/action', microversion='3.1', json={
                    'os-volume_upload_image': {
                        'image_name': f'records-{number}', 'force': True,
                        'container_format': 'bare', 'disk_format': 'raw'}}
            ).json()['os-volume_upload_image']['image_id']
            try:
                done = self.finished(image, made)
                if done:
                    with open(path, 'wb') as target:
                        glance.download_image(made, output=target)
                    self.assert_whole(path, least)
                return done
            finally:
                glance.delete_image(made)
                path.unlink(missing_ok=True)
                self.storage.wait_for_status(
                    self.storage.get_volume(self.kept), 'in-use',
                    failures=['error'], wait=test_volumes.SECONDS)

        self.rounds(make)
        self.assertEqual('write-back', self.cached()[self.kept]['mode'])

    def test_backups(self):
        target = self.volume()

        def make(number, least):
            made = self.storage.create_backup(
                volume_id=self.kept, name=f'records-{number}', force=True)
            done = self.finished(self.storage.get_backup, made.id)
            if done:
                self.storage.restore_backup(made, volume_id=target)
                self.storage.wait_for_status(
                    self.storage.get_volume(target), 'available',
                    failures=['error_restoring'], wait=test_volumes.SECONDS)
                self.assert_whole(self.file(f'volume-{target}'), least)
            self.storage.delete_backup(made)
            self.storage.wait_for_delete(made, wait=test_volumes.SECONDS)
            return done

        self.rounds(make)
        self.assertEqual('write-back', self.cached()[self.kept]['mode'])


class TestIdle(HoldsTest):
    """What a hold costs where there is nothing to write back."""

    def test_snapshots_beside_those_of_a_free_volume(self):
        kind = self.volume_type(test_write_back.WRITE_BACK)
        held, free = self.volume(kind), self.volume(kind)
        self.attach(self.working(''), held)
        self.assertEqual('write-back', self.cached()[held]['mode'])
        seconds = {held: [], free: []}
        for volume in (held, free) * ROUNDS:
            begun = time.monotonic()
            made = self.storage.create_snapshot(volume_id=volume, force=True)
            while self.storage.get_snapshot(made).status == 'creating':
                time.sleep(0.002)
            seconds[volume].append(time.monotonic() - begun)
            self._delete_snapshot(made)
        medians = [sorted(each)[ROUNDS // 2] for each in seconds.values()]
        ours = sorted(begin + end for begin, _, end in self.held(held))
        self.assertEqual(ROUNDS, len(ours))
        print(f'{self.id()}: {ROUNDS} rounds, medians {medians[0]:.3f} s in'
              f' write-back, {medians[1]:.3f} s of a free volume; of the'
              f' first, the hold {ours[ROUNDS // 2]:.3f} s, at most'
              f' {ours[-1]:.3f} s')


class TestGroups(HoldsTest):
    """Group snapshots of a backend that snapshots one after the other."""

    def test_one_counter_over_three_volumes(self):
        kind = self.volume_type(test_write_back.WRITE_BACK)
        group = self.group(kind)
        volumes = [self.volume(kind) for _ in range(GROUP)]
        self.storage.put(f'/groups/{group}', microversion='3.13', json={
            'group': {'add_volumes': ','.join(volumes)}})
        self.wait_until(lambda: self.storage.get_group(group).status
                        == 'available', 'the group has its volumes')
        self.addCleanup(self.leave, group, volumes)
        self.writing(*volumes)
        for number in range(ROUNDS):
            least = self.durable()
            made = self.storage.create_group_snapshot(
                group_id=group, name=f'records-{number}')
            self.assertTrue(self.finished(self.storage.get_group_snapshot,
                                          made.id))
            snapshots = [each for each in self.storage.snapshots()
                         if each.group_snapshot_id == made.id]
            self.assertEqual(GROUP, len(snapshots))
            found = set(itertools.chain.from_iterable(
                records(pathlib.Path(self.trial.where.data, 'cinder', 'files',
                                     f'snapshot-{each.id}'))
                for each in snapshots))
            self.assertEqual(set(range(1, max(found) + 1)), found)
            self.assertGreaterEqual(max(found), least)
            self.storage.delete_group_snapshot(made)
            self.wait_until(lambda: made.id not in [
                each.id for each in self.storage.group_snapshots()],
                'it is deleted')
            self.wait_for_more(least)

    def group(self, kind):
        """Make a group of volumes of a type; return its ID."""
        made = self.storage.create_group_type(name=f'group-{kind}')
        self.addCleanup(self.storage.delete_group_type, made)
        group = self.storage.create_group(
            name=kind, group_type=made.id,
            volume_types=[self.storage.find_type(kind).id])
        self.wait_until(lambda: self.storage.get_group(group).status
                        == 'available', 'the group is made')
        self.addCleanup(self._delete_group, group)
        return group.id

    def _delete_group(self, group):
        self.storage.delete_group(group)
        self.wait_until(lambda: group.id not in [
            each.id for each in self.storage.groups()], 'it is deleted')

    def leave(self, group, volumes):
        self.storage.put(f'/groups/{group}', microversion='3.13', json={
            'group': {'remove_volumes': ','.join(volumes)}})
        self.wait_until(lambda: self.storage.get_group(group).status
                        == 'available', 'the group has no volumes')
