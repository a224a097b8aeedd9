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
"""Work on versions of a stopped server, whose disk is real."""

import fcntl
import hashlib
import json
import pathlib
import random
import shutil
import struct
import subprocess
import types
import unittest
from unittest import mock

from diffcache_openstack.agent.versions import guests
from diffcache_openstack.agent.versions import project_stores
from diffcache_openstack.agent.versions import server_restores
from diffcache_openstack.agent.versions import version_tasks
from diffcache_openstack.agent.versions import version_worker
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.guests import view_cleanup
from tests import base
from tests.unit.agent.versions import key_files
from tests.unit.versions import fixture

SERVER = 'a-server'
MIB = 1 << 20


class Glance:
    """Takes images."""

    def __init__(self):
        self.images = {}

    def is_there(self, image_id):
        return image_id in self.images

    def upload(self, file, new, progress):
        self.images[new.id] = (new, file.read_bytes())
        return new.id


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class WorkerTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.base = self.write_file(
            'base', hashlib.shake_256(b'base').digest(MIB))
        self.disk = self.directory / 'disk'
        fixture.make_qcow2(self.disk, 4 * MIB, self.base)
        self.conf = opts.new_config()
        self.conf.set_override('store', f'file://{self.directory}/store',
                               'versions')
        self.running = False
        self.delivered = []
        self.glance = Glance()
        self.guests = types.SimpleNamespace(find=self.find, check=pathlib.Path)
        self.worker = version_worker.Worker(
            project_stores.ProjectStores(self.conf), self.guests, self,
            self.glance, self.directory / 'versions' / 'work',
            version_worker.Limits())
        self.number = 0

    def find(self, server_id):
        return guests.Guest(server_id, (guests.Disk(
            'vda', self.disk, 'qcow2', self.base),),
            object() if self.running else None)

    # What the agent has to offer.

    def deliver_content(self, content_id, output, gone):
        if gone.is_set():
            raise exceptions.Cancelled('gone')
        if content_id not in self.delivered:
            return False
        output.write_bytes(self.base.read_bytes())
        return True

    # What tests do.

    def do(self, kind, **values):
        """The report of a task."""
        self.number += 1
        return self.do_again(objects.VersionTask(
            id=f'00000000-0000-4000-8000-{self.number:012d}', kind=kind,
            project_id='p', server_id=SERVER, **values))

    def do_again(self, task):
        doing = version_tasks.RunningTask(
            task, self.directory / f'{task.id}.json', {})
        self.worker.perform(doing)
        return doing.report

    def save(self):
        return self.do(versions.SAVE).saved

    def write(self, *commands):
        fixture.qemu_io(self.disk, *commands)

    def content(self, disk=None):
        raw = self.directory / 'raw'
        subprocess.run(['qemu-img', 'convert', '-O', 'raw',
                        str(disk or self.disk), str(raw)], check=True)
        return hashlib.sha256(raw.read_bytes()).hexdigest()


class TestSaving(WorkerTest):

    def test_stores_what_changed(self):
        self.write('write -P 1 2M 64k')
        first = self.save()
        self.assertEqual((4 * MIB, 65536), (first.size, first.bytes_changed))
        [disk] = first.disks
        self.assertEqual(('vda', 4 * MIB, str(self.base)),
                         (disk.device, disk.size, disk.base_name))
        self.write('write -P 2 3M 4k')
        self.assertEqual(4096, self.save().bytes_changed)

    def test_task_that_is_done_again_saves_nothing_twice(self):
        task = objects.VersionTask(
            id='00000000-0000-4000-8000-000000000099', kind=versions.SAVE,
            project_id='p', server_id=SERVER)
        first = self.do_again(task).saved
        self.write('write -P 2 3M 4k')
        self.assertEqual(first.disks, self.do_again(task).saved.disks)

    def test_base_is_read_once(self):
        self.save()
        known = json.loads(
            (self.directory / 'versions' / 'bases.json').read_text())
        self.assertEqual([str(self.base)], list(known))
        mark = known[str(self.base)]
        self.assertEqual(self.save().disks[0].base_id, mark[-1])

    def test_a_stop_ends_the_reading_of_a_base_image(self):
        """The next process begins it anew."""
        task = objects.VersionTask(
            id='00000000-0000-4000-8000-000000000097', kind=versions.SAVE,
            project_id='p', server_id=SERVER)
        doing = version_tasks.RunningTask(task, self.directory / 'task.json',
                                          {})
        doing.interrupted = True
        self.assertRaises(exceptions.Interrupted, self.worker.perform, doing)
        self.assertFalse((self.directory / 'versions' / 'bases.json').exists())
        # Also that for its index.
        doing.interrupted = False
        self.worker._bases.content_id(self.base)
        doing.interrupted = True
        self.assertRaises(exceptions.Interrupted, self.worker.perform, doing)
        self.assertEqual([], list(
            (self.directory / 'store').rglob('.writers/work-*/base-*')))
        doing.interrupted = False
        self.worker.perform(doing)
        self.assertEqual(1, len(doing.report.saved.disks))

    def test_raw_disk_is_raw_whatever_its_guest_wrote_to_it(self):
        # Tables that name somebody else's disk as what lies below.
        secret = self.write_file('secret', b'secret' * 1000)
        hostile = self.directory / 'hostile'
        fixture.make_qcow2(hostile, MIB, secret)
        content = hostile.read_bytes()
        self.guests.find = lambda server_id: guests.Guest(
            server_id, (guests.Disk('vda', hostile, 'raw'),))
        saved = self.save()
        [disk] = saved.disks
        self.assertEqual((len(content), None),
                         (disk.size, disk.base_name))
        self.do(versions.RESTORE, disks=saved.disks, method='rebuild')
        self.assertEqual(content, hostile.read_bytes())

    def test_nothing_is_left_of_a_task_that_was_lost(self):
        raw = self.write_file('raw-disk', b'1' * 8192)
        self.guests.find = lambda server_id: guests.Guest(
            server_id, (guests.Disk('vda', raw, 'raw'),), agent='an-agent')
        task = objects.VersionTask(
            id='00000000-0000-4000-8000-000000000097', kind=versions.SAVE,
            project_id='p', server_id=SERVER)
        view = raw.with_name(f'.raw-disk.{view_cleanup.tag_of(task.id)}.view')
        view.write_bytes(b'2' * 8192)
        self.write_file('/'.join(('versions', 'work', task.id, 'base')), b'3')
        doing = version_tasks.RunningTask(task, self.directory / 'task.json',
                                          {'begun': True})
        thawed = []
        with mock.patch.object(version_worker.guest_agent, 'thaw',
                               thawed.append):
            self.worker.abandon(doing)
        self.assertEqual(['an-agent'], thawed)
        self.assertFalse(view.exists())
        self.assertEqual(
            [], list((self.directory / 'versions' / 'work').iterdir()))

    def test_a_server_that_a_lost_task_left_paused_is_resumed(self):
        class Monitor:
            told: list[str] = []

            def command(self, name, /, **_arguments):
                self.told.append(name)
                return {'query-status': {'status': 'paused'},
                        'query-fdsets': []}.get(name)

        raw = self.write_file('raw-disk', b'1' * 8192)
        self.guests.find = lambda server_id: guests.Guest(
            server_id, (guests.Disk('vda', raw, 'raw'),), Monitor())
        task = objects.VersionTask(
            id='00000000-0000-4000-8000-000000000096', kind=versions.SAVE,
            project_id='p', server_id=SERVER,
            volumes=['00000000-0000-4000-8000-000000000001'])
        tag = view_cleanup.tag_of(task.id)
        part = raw.with_name(f'.raw-disk.{tag}.view.part')
        part.write_bytes(b'2' * 8192)
        self.worker.abandon(version_tasks.RunningTask(
            task, self.directory / 'task.json', {}))
        self.assertEqual(['query-status', 'cont', 'query-fdsets'],
                         Monitor.told)
        self.assertFalse(part.exists())

    def test_copy_of_a_disk_goes_unless_the_save_is_tried_again(self):
        raw = self.write_file('raw-disk', b'1' * 8192)
        self.guests.find = lambda server_id: guests.Guest(
            server_id, (guests.Disk('vda', raw, 'raw'),))
        task = objects.VersionTask(
            id='00000000-0000-4000-8000-000000000098', kind=versions.SAVE,
            project_id='p', server_id=SERVER)
        view = raw.with_name(f'.raw-disk.{view_cleanup.tag_of(task.id)}.view')
        view.write_bytes(b'2' * 8192)
        doing = version_tasks.RunningTask(task, self.directory / 'task.json',
                                          {})
        doing.interrupted = True
        self.assertRaises(exceptions.Interrupted, self.worker.perform, doing)
        self.assertTrue(view.exists())
        doing.interrupted = False

        def fail(*_args):
            raise exceptions.ServiceUnavailable('The store is away.')

        with mock.patch.object(version_worker, '_WAITS_SECONDS', (0.0,)), \
                mock.patch.object(file.FileStore, 'put_file', fail):
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.worker.perform, doing)
        self.assertFalse(view.exists())


def _is_locked(file):
    """Whether a guest could not lock a disk, as QEMU does it."""
    lock = struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 201, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
    except BlockingIOError:
        return True
    return False


class TestRestoring(WorkerTest):

    def setUp(self):
        super().setUp()
        self.write('write -P 1 2M 64k')
        self.first, self.before = self.save(), self.content()
        self.write('write -P 2 3M 4k', 'write -P 3 0 4k')
        self.after = self.content()

    def restore(self, **values):
        return self.do(versions.RESTORE, disks=self.first.disks, **values)

    def test_back_and_forth(self):
        report = self.restore(
            keep_version='00000000-0000-4000-8000-00000000000a')
        self.assertEqual(self.before, self.content())
        self.assertEqual(8192, json.loads(report.result)['bytes_differing'])
        self.first = report.kept
        self.restore()
        self.assertEqual(self.after, self.content())

    def test_nothing_writes_between_keeping_and_rolling_back(self):
        # Regression: the lock was released in between, and what was written
        # there was in no version.
        keep, seen = server_restores.ServerRestores._keep, []

        def keep_and_look(restores, running, guest, attached):
            keep(restores, running, guest, attached)
            with open(self.disk, 'r+b') as other:
                seen.append(_is_locked(other))

        self.patch(server_restores.ServerRestores, '_keep', keep_and_look)
        self.restore(keep_version='00000000-0000-4000-8000-00000000000a')
        self.assertEqual([True], seen)
        self.assertEqual(self.before, self.content())

    def test_dry_run_changes_nothing(self):
        result = json.loads(self.restore(dry_run=True).result)
        self.assertEqual((8192, 'rollback'),
                         (result['bytes_differing'], result['cheaper']))
        self.assertIn('8192 bytes in 2 ranges', result['reason'])
        self.assertEqual(self.after, self.content())

    def test_cheaper_way_unless_another_is_asked_for(self):
        for method, used in (('auto', 'rollback'), ('rebuild', 'rebuild'),
                             ('rollback', 'rollback')):
            self.write('write -P 4 3M 4k')
            result = json.loads(self.restore(method=method).result)
            self.assertEqual(used, result['method'])
            self.assertTrue(result['reason'])
            self.assertEqual(self.before, self.content())

    def test_running_server_is_refused(self):
        self.running = True
        self.assertRaises(exceptions.Conflict, self.restore)

    def test_server_with_other_disks_is_refused(self):
        self.first.disks[0].device = 'vdb'
        error = self.assertRaises(exceptions.Conflict, self.restore)
        self.assertIn('vdb', str(error))
        self.assertEqual(self.after, self.content())

    def test_disk_in_the_middle_of_a_rollback_is_not_saved(self):
        journal = self.disk.with_name('disk.rollback')
        journal.write_text(json.dumps(
            {'version': self.first.disks[0].version, 'kept': None,
             'series': f'{SERVER}-vda'}))
        self.assertRaises(exceptions.Conflict, self.save)
        self.restore()
        self.assertFalse(journal.exists())
        self.assertEqual(self.before, self.content())


class TestImages(WorkerTest):

    def setUp(self):
        super().setUp()
        self.write('write -P 1 2M 64k')
        self.saved = self.save()
        self.expected = self.content()

    def export(self, **values):
        report = self.do(
            versions.EXPORT, disks=self.saved.disks, base_image='an-image',
            version_id='00000000-0000-4000-8000-00000000000b', **values)
        return json.loads(report.result)

    def image(self, result):
        new, data = self.glance.images[result['image_id']]
        self.assertEqual(len(data), result['uploaded'])
        return new, self.write_file('image', data)

    def test_whole_and_lies_on_nothing(self):
        new, image = self.image(self.export(name='Gold'))
        self.assertEqual(('Gold', 'p', 'an-image', 1),
                         (new.name, new.owner, new.family, new.min_disk))
        # Four MiB, of which one and a cluster have data, and tables.
        self.assertLess(image.stat().st_size, 2 * MIB)
        self.base.rename(self.directory / 'gone')
        self.assertEqual(self.expected, self.content(image))

    def test_base_of_the_catalogue(self):
        self.delivered = [self.saved.disks[0].base_id]
        self.guests.check = lambda path: self.directory / 'gone'
        _new, image = self.image(self.export())
        self.assertEqual(self.expected, self.content(image))

    def test_a_stop_ends_the_delivery_of_a_base(self):
        self.delivered = [self.saved.disks[0].base_id]
        doing = version_tasks.RunningTask(objects.VersionTask(
            id='00000000-0000-4000-8000-000000000096', kind=versions.EXPORT,
            project_id='p', disks=self.saved.disks, base_image='an-image',
            version_id='00000000-0000-4000-8000-00000000000b'),
            self.directory / 'x.json', {})
        doing.cancel.set()
        self.assertRaises(exceptions.Cancelled, self.worker.perform, doing)

    def test_base_that_nobody_has(self):
        self.guests.check = lambda path: self.directory / 'gone'
        error = self.assertRaises(exceptions.ObjectMissing, self.export)
        self.assertIn(str(self.base), str(error))
        self.assertEqual([], list(
            (self.directory / 'versions' / 'work').iterdir()))

    def test_image_that_is_there_will_do(self):
        self.glance.images['x'] = None
        self.assertEqual({'image_id': 'x', 'uploaded': 0},
                         self.export(image_id='x'))


class TestStore(WorkerTest):

    def test_diff_forget_prune_verify(self):
        self.write('write -P 1 2M 64k')
        first = self.save()
        self.write('write -P 2 3M 4k')
        second = self.save()
        found = json.loads(self.do(versions.DIFF, disks=first.disks,
                                   others=second.disks).result)
        self.assertEqual((4096, [[3 * MIB, 4096]]),
                         (found['bytes'], found['disks'][0]['ranges']))
        for _again in range(2):
            self.do(versions.FORGET, disks=first.disks)
        result = json.loads(self.do(versions.PRUNE).result)
        self.assertLessEqual(result['bytes_after'], result['bytes_before'])
        self.assertIs(True, json.loads(
            self.do(versions.VERIFY).result)['intact'])

    def test_restored_from_the_copy_of_a_damaged_and_of_a_lost_store(self):
        self.conf.set_override('copy', f'file://{self.directory}/copy',
                               'versions')
        noise = self.write_file('noise', random.Random(3).randbytes(65536))
        self.write(f'write -s {noise} 2M 64k')
        saved, content = self.save(), self.content()
        self.do(versions.REPLICATE)
        [pack] = (self.directory / 'store' / 'p').glob('pack-*')
        pack.write_bytes(pack.read_bytes()[:-6000] + bytes(6000))
        for lose in (lambda: None, pack.unlink, lambda: shutil.rmtree(
                self.directory / 'store')):
            self.write('write -P 7 2M 128k')
            lose()
            self.do(versions.RESTORE, disks=saved.disks)
            self.assertEqual(content, self.content())
        self.do(versions.RECOVER)
        self.assertIs(True, json.loads(
            self.do(versions.VERIFY).result)['intact'])
        self.save()
        self.assertEqual(1, json.loads(
            self.do(versions.REPLICATE).result)['versions_copied'])

    def test_compressed_again_if_the_options_say_so(self):
        # Words, of which a higher level makes less.
        rng = random.Random(1)
        words = [rng.randbytes(rng.randint(2, 9)) for _ in range(2000)]
        text = self.write_file('text', b''.join(rng.choices(
            words, [1 / at for at in range(1, 2001)], k=60000))[:256 << 10])
        self.write(f'write -s {text} 2M 256k')
        self.save()
        for level, factor in ((0, 1), (15, 0.99)):
            self.conf.set_override('prune_level', level, 'versions')
            result = json.loads(self.do(versions.PRUNE).result)
            self.assertLessEqual(result['bytes_after'],
                                 factor * result['bytes_before'])
        self.assertLess(result['bytes_after'], result['bytes_before'])

    def test_damage_is_named(self):
        noise = self.write_file(
            'noise', hashlib.shake_256(b'noise').digest(65536))
        self.write(f'write -s {noise} 2M 64k')
        saved = self.save()
        [pack] = [path for path in (self.directory / 'store').rglob('pack-*')
                  if path.is_file()]
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 1
        pack.write_bytes(data)
        result = json.loads(self.do(versions.VERIFY).result)
        self.assertEqual((False, [saved.disks[0].version]),
                         (result['intact'], result['disks_damaged']))

    def use_inbox(self, maintains):
        self.conf.set_override('inbox', f'file://{self.directory}/inbox',
                               'versions')
        self.conf.set_override('maintains_store', maintains, 'versions')
        self.worker._stores = project_stores.ProjectStores(self.conf)

    def test_what_other_hosts_added_is_accepted_first(self):
        self.use_inbox(False)
        saved = self.save()
        self.use_inbox(True)
        self.assertEqual([], self.names('store'))
        self.do(versions.FORGET, disks=saved.disks)
        self.assertIn('latest-0', self.names('store'))
        self.use_inbox(False)
        self.save()
        self.use_inbox(True)
        self.do(versions.ACCEPT)
        # Nothing is left but files of the store itself.
        self.assertEqual([], self.names('inbox'))

    def test_indexes_of_other_hosts_are_compared_with_the_image(self):
        self.use_inbox(False)
        self.delivered = [self.save().disks[0].base_id]
        self.use_inbox(True)

        def fail(*_args):
            raise exceptions.PeerUnavailable('no source')

        # No verdict on what the host added.
        with mock.patch.object(self, 'deliver_content', fail), \
                mock.patch.object(version_worker, '_WAITS_SECONDS', ()):
            self.assertRaises(exceptions.ServiceUnavailable, self.do,
                              versions.ACCEPT)
        self.do(versions.ACCEPT)
        self.assertEqual({'checked': 1, 'refused': 0, 'unchecked': 0},
                         self.worker.base_indexes)
        self.assertEqual([], list(
            (self.directory / 'versions' / 'work').iterdir()))

    def names(self, store):
        return sorted(path.name for path in (
            self.directory / store).glob('p/[!.]*'))

    def save_what_is_refused(self):
        """Save to the inbox, and damage what is there; return the version."""
        self.use_inbox(False)
        self.write('write -P 7 2M 4k')
        saved = self.save()
        [pack] = (self.directory / 'inbox' / 'p').glob('pack-*')
        pack.write_bytes(b'junk')
        self.use_inbox(True)
        return saved

    def test_what_is_refused_is_reported_before_the_next_attempt(self):
        saved = self.save_what_is_refused()
        reports = []

        def wait(seconds):
            reports.append(json.loads(doing.report.result))
            return False

        doing = version_tasks.RunningTask(objects.VersionTask(
            id='00000000-0000-4000-8000-000000000077', kind=versions.ACCEPT,
            project_id='p'), self.directory / 'x.json', {})
        doing.cancel = types.SimpleNamespace(wait=wait, is_set=lambda: False)
        self.worker.perform(doing)
        [report] = reports
        self.assertEqual([saved.disks[0].version], report['refused'])
        self.assertIn('cannot be accepted', report['reasons'][0])

    def test_what_is_refused_is_reported_with_the_result(self):
        """No report may have been sent before the next attempt."""
        self.use_inbox(False)
        self.save()
        self.use_inbox(True)
        self.do(versions.ACCEPT)
        saved = self.save_what_is_refused()
        with mock.patch.object(version_worker, '_WAITS_SECONDS', (0.0,)):
            report = json.loads(self.do(versions.PRUNE).result)
        self.assertEqual([saved.disks[0].version], report['refused'])
        self.assertIn('bytes_after', report)

    def use_keys(self, name, *former):
        key_files.configure(self, name, *former)
        self.worker._stores = project_stores.ProjectStores(self.conf)

    def test_the_key_is_replaced_in_parts(self):
        self.use_keys('old')
        for place in ('2M', '3M'):
            self.write(f'write -P 7{place[0]} {place} 4k')
            self.save()
        self.use_keys('new', 'old')
        self.conf.set_override('prune_limit', 1, 'versions')
        results = [json.loads(self.do(
            versions.REKEY, name=versions.ROTATE).result)]
        # The operator's call again replaces nothing.
        results.append(json.loads(self.do(
            versions.REKEY, name=versions.ROTATE).result))
        self.assertEqual([(2, 1), (2, 0)], [
            (each['key_number'], each['packs_left']) for each in results])
        self.assertEqual([], results[-1]['former_keys'])
        self.use_keys('new')
        self.assertIs(True, json.loads(
            self.do(versions.VERIFY).result)['intact'])
        # Nothing is left, and nothing is replaced once more.
        for name in ('', versions.ROTATE):
            again = json.loads(self.do(versions.REKEY, name=name).result)
            self.assertEqual((2, 0), (again['key_number'],
                                      again['packs_left']))

    def test_nothing_was_ever_saved(self):
        for report in (self.do(versions.REKEY, name=versions.ROTATE),
                       self.do(versions.PRUNE),
                       self.do(versions.FORGET, disks=[])):
            self.assertIsNone(report.error)
            self.assertIsNone(report.saved)


class TestRates(WorkerTest):

    def rate(self, requested):
        """The rate at which a disk is read for a task."""
        return self.worker.job(version_tasks.RunningTask(objects.VersionTask(
            id='00000000-0000-4000-8000-000000000001', kind=versions.SAVE,
            project_id='p', rate=requested), self.directory / 'x', {})).rate

    def test_no_task_is_slower_than_the_operator_allows(self):
        self.worker._limits = version_worker.Limits(min_rate=1000)
        self.assertEqual([1000.0, 5000.0, None],
                         [self.rate(each) for each in (1, 5000, None)])
        self.worker._limits = version_worker.Limits(2000, 1000)
        self.assertEqual([1000.0, 2000.0, 2000.0],
                         [self.rate(each) for each in (1, 5000, None)])
