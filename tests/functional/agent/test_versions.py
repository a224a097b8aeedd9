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
"""Servers saved and restored by a conductor and agents."""

import hashlib
import re
import signal
import subprocess
import uuid

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from tests.functional.agent import servers

PROJECT = servers.PROJECT
MIB = servers.MIB


@servers.NEEDS_LIBVIRT
class TestServers(servers.ServersTestCase):

    def test_saved_while_running_and_rolled_back_in_place(self):
        self.power_on()
        self.writes('write -P 1 10M 1M')
        first = self.save(name='one')
        # What the guest wrote, and nothing of its base.
        self.assertEqual(MIB, first['bytes_changed'])
        self.assertGreater(first['pause_ms'], 0)
        self.power_off()
        first_content = self.content()
        self.power_on()
        self.writes('write -P 2 20M 64k', 'write -P 3 10M 4k')
        second = self.save()
        self.assertEqual((first['id'], 64 * 1024 + 4096),
                         (second['parent_id'], second['bytes_changed']))
        self.assertLess(second['bytes_read'], MIB)
        self.assertRaises(
            exceptions.PermanentError, self.restore, first)
        self.power_off()
        second_content = self.content()
        self.assertEqual(64 * 1024 + 4096, self.restore(
            first, dry_run=True)['bytes_differing'])
        self.assertEqual(second_content, self.content())
        kept = str(uuid.uuid4())
        result = self.restore(first, keep=kept)
        self.assertLessEqual(result['bytes_written'],
                             1.02 * (64 * 1024 + 4096))
        self.assertEqual(first_content, self.content())
        self.restore(self.saved(kept))
        self.assertEqual(second_content, self.content())
        subprocess.run(['qemu-img', 'check', '-q', self.disk], check=True)

    def test_save_that_was_asked_for_while_the_agent_was_away(self):
        process = self.site.processes['host-1']
        process.stop(signal.SIGKILL)
        version_id = self.begin()
        self.site.wait(lambda: self.site.version(version_id)['task'][
            'state'] == 'running')
        self.site.start_agent('host-1')
        self.assertEqual(version_id, self.saved(version_id)['id'])

    def test_way_back_is_chosen_by_cost_unless_one_is_asked_for(self):
        self.power_on()
        self.writes('write -P 1 10M 1M')
        first = self.save()
        self.power_off()
        expected = self.content()
        self.assertEqual('rollback', self.restore(first)['method'])
        self.power_on()
        self.writes('write -P 2 9M 32M')
        self.power_off()
        plan = self.restore(first, dry_run=True)
        self.assertEqual('rebuild', plan['cheaper'])
        result = self.restore(first)
        self.assertEqual(('rebuild', plan['reason']),
                         (result['method'], result['reason']))
        self.assertEqual(expected, self.content())
        # It starts, and what changed since is all that is read.
        self.power_on()
        self.writes('write -P 2 10M 64k')
        again = self.save()
        self.assertEqual(64 * 1024, again['bytes_changed'])
        self.assertLess(again['bytes_read'], MIB)
        self.power_off()
        self.assertEqual('rebuild', self.restore(first, way='rebuild')[
            'method'])
        self.assertEqual(expected, self.content())

    def test_every_kind_of_work_on_the_store(self):
        self.power_on()
        self.writes('write -P 1 10M 1M')
        first = self.save()
        self.writes('write -P 2 20M 64k')
        second = self.save()
        task_id = str(uuid.uuid4())
        self.site.versions.diff_versions(self.site.context, first['id'],
                                         second['id'], task_id)
        self.assertEqual(64 * 1024, self.done(task_id)['bytes'])
        task_id = str(uuid.uuid4())
        self.site.versions.maintain_store(self.site.context, PROJECT,
                                          task_id, 'verify')
        self.assertIs(True, self.done(task_id)['intact'])
        self.site.versions.delete_version(self.site.context, first['id'])
        self.site.wait(lambda: self.gone(first['id']))
        self.power_off()
        before = self.content()
        self.restore(second)
        self.assertEqual(before, self.content())

    def test_image_of_a_version_is_made_where_there_is_no_server(self):
        self.site.agents.register_image(
            self.site.context, 'hub', str(self.base), 'an-image', 'Base')
        self.power_on()
        self.writes('write -P 1 10M 1M')
        version = self.save(base_image='an-image')
        self.power_off()
        expected = self.content()
        task_id = str(uuid.uuid4())
        self.site.versions.export_version(self.site.context, version['id'],
                                          task_id, 'Gold')
        image_id = self.done(task_id)['image_id']
        image = self.site.cloud.images[image_id]
        self.assertEqual(
            ('Gold', PROJECT, 'private', 'active', 'qcow2', 'an-image'),
            tuple(image[name] for name in (
                'name', 'owner', 'visibility', 'status', 'disk_format',
                'diffcache_base_image')))
        self.disk = self.write_file('image', self.site.cloud.files[image_id])
        self.assertEqual(expected, self.content())
        # It is there, so it is not made again.
        task_id = str(uuid.uuid4())
        self.site.versions.export_version(self.site.context, version['id'],
                                          task_id, '')
        self.assertEqual({'image_id': image_id, 'uploaded': 0},
                         self.done(task_id))

    def test_saved_before_it_is_deleted_if_the_policy_says_so(self):
        client = local_client.LocalClient(
            str(self.site.directory / 'host-1' / 'agent.sock'), timeout=180)
        wish = {'project_id': PROJECT, 'trigger': 'delete',
                'image_id': None}
        self.power_on()
        self.assertIsNone(client.save_server(self.server, wish)['version'])
        self.site.versions.set_policy(
            self.site.context, objects.VersionPolicy(
                id=str(uuid.uuid4()), project_id=PROJECT, on_delete=True,
                required=True))
        self.writes('write -P 1 10M 1M')
        # Nova does not delete it yet.
        self.assertRaises(exceptions.Forbidden, client.save_server,
                          self.server, wish)
        self.nova('ACTIVE', 'deleting')
        answer = client.save_server(self.server, wish)
        self.assertEqual((True, None), (answer['required'], answer['error']))
        version = self.site.version(answer['version'])
        self.assertEqual(('available', 'delete', MIB), tuple(
            version[name] for name in ('state', 'trigger',
                                       'bytes_changed')))
        # A server that is not here cannot be saved, which is told.
        other = str(uuid.uuid4())
        self.site.cloud.servers[other] = {
            **self.site.cloud.servers[self.server], 'id': other}
        answer = client.save_server(other, wish)
        self.assertTrue(answer['required'])
        self.assertTrue(re.search('is not on this host', answer['error']))

    def test_saved_when_it_was_shut_down_if_the_policy_says_so(self):
        client = local_client.LocalClient(
            str(self.site.directory / 'host-1' / 'agent.sock'), timeout=180)
        wish = {'project_id': PROJECT, 'trigger': 'shutdown',
                'image_id': None}
        self.site.versions.set_policy(
            self.site.context, objects.VersionPolicy(
                id=str(uuid.uuid4()), project_id=PROJECT,
                server_id=self.server, on_shutdown=True))
        self.power_on()
        self.writes('write -P 1 10M 1M')
        self.power_off()
        self.nova('ACTIVE', 'powering-off')
        answer = client.save_server(self.server, wish)
        self.assertEqual((False, None), (answer['required'],
                                         answer['error']))
        version = self.site.version(answer['version'])
        self.assertEqual(('available', 'shutdown', MIB, True), tuple(
            version[name] for name in ('state', 'trigger', 'bytes_changed',
                                       'quiesced')))
        # Its policy wants nothing before it is deleted.
        wish['trigger'] = 'delete'
        self.assertIsNone(client.save_server(self.server, wish)['version'])

    def test_image_of_a_server_is_read_of_a_version(self):
        """Nova waits for it; one such version of each server stays."""
        client = local_client.LocalClient(
            str(self.site.directory / 'host-1' / 'agent.sock'), timeout=180)
        output = self.disk.with_name('snapshot')
        wanted = {'project_id': PROJECT, 'disk': str(self.disk),
                  'output': str(output), 'format': 'qcow2'}
        self.power_on()
        self.writes('write -P 1 10M 1M')
        # Nova makes no image of it yet.
        self.assertRaises(exceptions.Forbidden, client.write_server_image,
                          self.server, wanted)
        self.nova('ACTIVE', 'image_pending_upload')
        written = client.write_server_image(self.server, wanted)
        self.assertEqual(MIB, written['bytes_changed'])
        self.assertGreater(written['pause_ms'], 0)
        self.power_off()
        self.assertEqual(self.content(), self.content(output))
        # It stands alone, and the next one costs what changed.
        self.assertNotIn('backing', subprocess.run(
            ['qemu-img', 'info', output], check=True, capture_output=True,
            text=True).stdout)
        [first] = self.site.images_of(self.server)
        self.power_on()
        self.writes('write -P 2 20M 64k')
        self.nova('ACTIVE', 'image_pending_upload')
        self.assertEqual(64 * 1024, client.write_server_image(
            self.server, wanted)['bytes_changed'])
        self.site.wait(lambda: self.gone(first))
        self.assertEqual(1, len(self.site.images_of(self.server)))
        self.power_off()
        self.nova('SHUTOFF', 'image_pending_upload')
        wanted['format'] = 'raw'
        written = client.write_server_image(self.server, wanted)
        self.assertEqual(0, written['bytes_changed'])
        self.assertEqual(self.content(), hashlib.sha256(
            output.read_bytes()).hexdigest())
        wanted['output'] = '/etc/diffcache-snapshot'
        self.assertRaises(exceptions.InvalidInput, client.write_server_image,
                          self.server, wanted)


@servers.NEEDS_LIBVIRT
class TestSeveralDisks(servers.ServersTestCase):

    def define(self):
        self.data = self.make_disk('data')
        return self.site.libvirt.define(self.server, self.disk, self.data)

    def contents(self):
        return self.content(), self.content(self.data)

    def test_one_moment_of_all_and_back_with_all_or_none(self):
        self.power_on()
        self.writes('write -P 1 10M 64k')
        self.site.libvirt.guest_writes(self.domain, 'write -P 2 20M 64k',
                                       number=1)
        first = self.save()
        self.assertEqual(2 * 64 * 1024, first['bytes_changed'])
        self.assertEqual(['vda', 'vdb'], [
            disk['device'] for disk in first['disks']])
        before = self.contents()
        self.writes('write -P 3 10M 64k')
        self.site.libvirt.guest_writes(self.domain, 'write -P 4 21M 64k',
                                       number=1)
        self.power_off()
        result = self.restore(first)
        self.assertEqual(('rollback', 2 * 64 * 1024),
                         (result['method'], result['bytes_written']))
        self.assertEqual(before, self.contents())
        # The second does not fit any more: the first stays as it is.
        self.power_on()
        self.writes('write -P 3 10M 64k')
        self.power_off()
        subprocess.run(['qemu-img', 'resize', '-q', self.data, '+1M'],
                       check=True)
        after = self.contents()
        task_id = self.begin_to_restore(first)
        found = self.site.wait(lambda: self.task_ended(task_id))
        self.assertEqual('failed', found['state'])
        self.assertIn('Resize the disk', found['error'])
        self.assertEqual(after, self.contents())
        self.assertEqual([], list(self.site.instances.glob('*.rollback')))
