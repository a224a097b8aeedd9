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
"""Servers with a local disk and a volume, which is a file of the host."""

import hashlib
import json
import signal
import uuid

from tests.functional.agent import servers

MIB = servers.MIB
# At which what is written to both disks takes four seconds.
RATE = 4_000_000
VOLUME = '22222222-2222-4222-8222-222222222222'


class VolumesTestCase(servers.ServersTestCase):
    """A server with a volume, the last of its disks."""

    def local_disks(self):
        """What the server has besides."""
        return [self.disk]

    def define(self):
        # Where Cinder's mounts are: not among the servers' directories.
        self.volume = self.directory / 'volume'
        self.volume.write_bytes(hashlib.shake_256(b'volume').digest(8 * MIB)
                                + bytes(servers.DISK - 8 * MIB))
        return self.site.libvirt.define(self.server, *self.local_disks(),
                                        volumes={VOLUME: self.volume})

    def writes(self, *commands):
        """Let the guest write the same to all."""
        for number in range(len(self.local_disks()) + 1):
            self.site.libvirt.guest_writes(self.domain, *commands, 'flush',
                                           number=number)

    def both(self):
        """What the guest would read now of both, as hashes."""
        return [self.content(), _hash(self.volume)]

    def exported(self, version, device):
        """What an image of a disk of a version has, as a hash."""
        task_id = str(uuid.uuid4())
        self.site.versions.export_version(
            self.site.context, version['id'], task_id, 'an image', device)
        image_id = self.done(task_id)['image_id']
        return self.content(self.write_file(
            'image', self.site.cloud.files[image_id]))

    def begin_slowly(self):
        """A version and its task, when the server's disks are being read."""
        version_id = self.begin(volumes=[VOLUME], rate=RATE)
        task_id = self.site.version(version_id)['task']['id']
        self.site.wait(lambda: self.site.task(task_id)['done'])
        return version_id

    def assert_nothing_is_left(self):
        """QEMU has only the server's own disks open."""
        import libvirt_qemu
        for command in ('query-fdsets', 'query-block-exports'):
            self.assertEqual([], json.loads(libvirt_qemu.qemuMonitorCommand(
                self.domain, json.dumps({'execute': command}), 0))['return'])
        self.assertEqual(1, self.domain.info()[0])


@servers.NEEDS_LIBVIRT
class TestVolumes(VolumesTestCase):
    """A server with a disk of its own, too."""

    def test_the_moment_of_both_is_saved_while_the_guest_writes(self):
        self.power_on()
        self.writes('write -P 1 10M 8M')
        moment = self.both()
        version_id = self.begin_slowly()
        self.writes('write -P 2 14M 8M', 'write -z 0 1M')
        first = self.saved(version_id)
        self.assertEqual(
            [('vda', None), ('vdb', VOLUME)],
            [(disk['device'], disk['volume_id']) for disk in first['disks']])
        self.assertEqual(moment, [self.exported(first, device)
                                  for device in ('vda', 'vdb')])
        later = self.both()
        second = self.save(volumes=[VOLUME])
        # 9 MiB of each disk differ.
        self.assertEqual((first['id'], 18 * MIB),
                         (second['parent_id'], second['bytes_changed']))
        self.assertEqual(later, [self.exported(second, device)
                                 for device in ('vda', 'vdb')])
        self.assert_nothing_is_left()

    def test_an_agent_that_is_killed_saves_another_moment(self):
        self.power_on()
        self.writes('write -P 1 10M 8M')
        version_id = self.begin_slowly()
        self.site.processes['host-1'].stop(signal.SIGKILL)
        self.writes('write -P 2 14M 8M')
        moment = self.both()
        self.site.start_agent('host-1')
        version = self.saved(version_id)
        self.assertEqual(moment[1], self.exported(version, 'vdb'))
        self.assert_nothing_is_left()

    def saved_states(self):
        """A version of the running server, and what it is afterwards."""
        self.power_on()
        self.writes('write -P 1 10M 8M')
        moment = self.both()
        version = self.save(volumes=[VOLUME])
        self.writes('write -P 2 14M 8M', 'write -P 3 40M 1M')
        later = self.both()
        self.power_off()
        return version, moment, later

    def test_both_are_rolled_back_and_what_was_is_kept(self):
        version, moment, later = self.saved_states()
        planned = self.restore(version, dry_run=True)
        self.assertEqual(later, self.both())
        kept = str(uuid.uuid4())
        done = self.restore(version, kept)
        self.assertEqual(moment, self.both())
        # 9 MiB of each: no more is written.
        self.assertEqual(
            (18 * MIB, 18 * MIB),
            (planned['bytes_differing'], done['bytes_differing']))
        self.assertLessEqual(done['bytes_written'], 18 * MIB)
        self.assertEqual(later, [self.exported({'id': kept}, device)
                                 for device in ('vda', 'vdb')])
        self.power_on()
        self.writes('write -P 4 14M 1M')
        self.power_off()
        self.restore(self.saved(kept))
        self.assertEqual(later, self.both())

    def test_a_stopped_server_is_saved_with_its_volume(self):
        first, moment, later = self.saved_states()
        second = self.save(volumes=[VOLUME])
        self.assertEqual((first['id'], 18 * MIB),
                         (second['parent_id'], second['bytes_changed']))
        self.assertEqual(later, [self.exported(second, device)
                                 for device in ('vda', 'vdb')])
        self.restore(first)
        self.assertEqual(moment, self.both())
        self.assertEqual([self.domain.UUIDString()], [
            each.UUIDString() for each
            in self.site.libvirt.connection.listAllDomains()])
        self.power_on()
        self.assert_nothing_is_left()

    def test_an_agent_that_is_killed_completes_the_restore(self):
        version, moment, _later = self.saved_states()
        task_id = self.begin_to_restore(version, str(uuid.uuid4()))
        journal = self.site.instances / f'{VOLUME}.rollback'
        self.site.wait(journal.exists)
        self.site.processes['host-1'].stop(signal.SIGKILL)
        self.site.start_agent('host-1')
        self.done(task_id)
        self.assertEqual(moment, self.both())
        self.assertFalse(journal.exists())

    def test_a_volume_that_is_in_use_stays_as_it_is(self):
        version, _moment, later = self.saved_states()
        other = self.site.libvirt.define(str(uuid.uuid4()), volumes={
            VOLUME: self.volume})
        other.create()
        task_id = self.begin_to_restore(version)
        failed = self.site.wait(lambda: self.task_ended(task_id))
        self.assertIn('lock', failed['error'])
        other.destroy()
        self.assertEqual(later, self.both())
        # Nothing keeps it from being started.
        self.assertEqual([], list(self.site.instances.glob('*.rollback')))

    def test_a_volume_that_is_detached_is_named(self):
        version, _moment, later = self.saved_states()
        self.domain.undefine()
        self.site.libvirt.define(self.server, self.disk)
        task_id = self.begin_to_restore(version)
        failed = self.site.wait(lambda: self.task_ended(task_id))
        self.assertIn(f'does not have volume {VOLUME}', failed['error'])
        self.assertEqual(later, self.both())

    def test_a_volume_that_is_left_out_stays_as_it_is(self):
        self.power_on()
        self.writes('write -P 1 10M 8M')
        version = self.save()
        self.assertEqual(['vda'],
                         [disk['device'] for disk in version['disks']])
        self.writes('write -P 2 14M 8M')
        self.power_off()
        volume = _hash(self.volume)
        self.restore(version)
        self.assertEqual(volume, _hash(self.volume))


@servers.NEEDS_LIBVIRT
class TestBootedFromVolume(VolumesTestCase):
    """A server that has no disk of its own."""

    def local_disks(self):
        """Nothing."""
        return []

    def test_it_is_saved_with_its_volume(self):
        self.power_on()
        self.writes('write -P 1 10M 8M')
        version_id = self.begin()
        failed = self.site.wait(lambda: self.ended(version_id))
        self.assertIn('save it with its volumes', failed['error'])
        moment = _hash(self.volume)
        version_id = self.begin_slowly()
        self.writes('write -P 2 14M 8M')
        version = self.saved(version_id)
        self.assertEqual([('vda', VOLUME)], [
            (disk['device'], disk['volume_id']) for disk in version['disks']])
        self.assertEqual(moment, self.exported(version, None))
        self.assert_nothing_is_left()

    def test_it_is_rolled_back(self):
        # As Nova has for each server.
        (self.site.instances / self.server).mkdir()
        self.power_on()
        self.writes('write -P 1 10M 8M')
        moment = _hash(self.volume)
        version = self.save(volumes=[VOLUME])
        self.writes('write -P 2 14M 8M')
        later = _hash(self.volume)
        self.power_off()
        kept = str(uuid.uuid4())
        done = self.restore(version, kept)
        self.assertEqual(('rollback', 8 * MIB),
                         (done['method'], done['bytes_differing']))
        self.assertLessEqual(done['bytes_written'], 8 * MIB)
        self.assertEqual(moment, _hash(self.volume))
        self.restore(self.saved(kept))
        self.assertEqual(later, _hash(self.volume))


def _hash(path):
    """What a raw file has, as a hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
