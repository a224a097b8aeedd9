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
"""Commands about versions of servers, over the API itself."""

import json
import types

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.client.osc import hooks
from diffcache_openstack.client.osc.server import version_commands
from diffcache_openstack.client.osc.server import version_policies
from diffcache_openstack.client.osc.server import version_stores
from diffcache_openstack.common import stand_ins
from diffcache_openstack import objects
from diffcache_openstack.objects import versions as states
from tests.unit.client import cloud
from tests.unit.conductor import fakes

VOLUME = '00000000-0000-4000-8000-000000000010'


class Compute:
    """Nova, as the client sees it: servers are named as their ids."""

    def __init__(self, nova):
        self._nova = nova
        self.calls = []

    def find_server(self, name, ignore_missing=True):
        if name in self._nova.servers:
            return self._nova.servers[name]
        if ignore_missing:
            return None
        raise sdk_exceptions.NotFoundException(f'No Server found for {name}')

    def get_server(self, server_id):
        return self._nova.servers[server_id]

    def stop_server(self, server):
        self.calls.append(('stop', server.id))
        self._nova.change(server.id, status='SHUTOFF')

    def start_server(self, server):
        self.calls.append(('start', server.id))
        self._nova.change(server.id, status='ACTIVE')

    def wait_for_server(self, server, status, interval, wait):
        return self._nova.servers[server.id]


class VersionsTest(cloud.CommandTest):

    def setUp(self):
        super().setUp()
        self.host = fakes.listen(self, 'h1')
        self.hub = fakes.listen(self, 'hub')
        self.compute = Compute(self.nova)
        self.app.client_manager.sdk_connection.compute = self.compute

    def save(self, number=1, server='stopped', **values):
        """The id of a version that was saved."""
        shown = self.shown(version_commands.CreateVersion, server)
        self.host.report(self.host.next(), saved=fakes.saved(number, **values))
        return shown['id']

    def soon(self, host, **values):
        """Have a host report the next task's end while somebody waits."""
        def wait(task_id, timeout, progress=None):
            host.report(host.next(), **values)
            return type(self.cloud).wait_for_version_task(
                self.cloud, task_id, timeout, 0.05, progress)

        self.cloud.wait_for_version_task = wait


class TestVersions(VersionsTest):

    def test_create_show_list_set(self):
        version_id = self.save()
        shown = self.shown(version_commands.ShowVersion, version_id)
        self.assertEqual(('available', 8192, 12.5), (
            shown['state'], shown['changed'], shown['pause_ms']))
        json.dumps(shown)
        self.take(version_commands.SetVersion, version_id, '--name', 'Gold',
                  '--protected')
        [row] = self.listed(version_commands.ListVersions, '--server',
                            'stopped')
        self.assertEqual('Gold', row['Name'])
        self.assertTrue(self.shown(version_commands.ShowVersion,
                                   version_id)['protected'])
        self.assertEqual([], self.listed(
            version_commands.ListVersions, '--server', 'one-that-is-gone'))

    def test_create_waits(self):
        self.cloud.wait_for_server_version = self._saved_meanwhile
        shown = self.shown(version_commands.CreateVersion, 'stopped', '--wait',
                           '--rate', '10MB', '--alpha', 'auto')
        self.assertEqual(('available', 'auto'),
                         (shown['state'], shown['alpha']))

    def _saved_meanwhile(self, version_id, timeout, progress):
        self.host.report(self.host.next(), saved=fakes.saved())
        return type(self.cloud).wait_for_server_version(
            self.cloud, version_id, timeout, 0.05, progress)

    def test_volumes_are_left_out_by_name_or_id(self):
        seen, unseen = (f'00000000-0000-4000-8000-0000000000{number}'
                        for number in (10, 11))
        self.nova.change('running', volumes=(seen, unseen))
        # One that Cinder does not show is left out by its ID.
        self.app.client_manager.sdk_connection.block_storage = (
            types.SimpleNamespace(find_volume=lambda name, ignore_missing:
                                  types.SimpleNamespace(id=seen)))
        self.take(version_commands.CreateVersion, 'running',
                  '--exclude-volume', 'scratch', '--exclude-volume', unseen)
        self.assertEqual([], self.host.next().volumes)

    def test_create_that_fails_is_an_error(self):
        def fail(version_id, timeout, progress):
            self.host.report(self.host.next(), states.FAILED,
                             error='no space')
            return self.cloud.get_server_version(version_id)

        self.cloud.wait_for_server_version = fail
        error = self.assertRaises(
            exceptions.CommandError, self.take, version_commands.CreateVersion,
            'stopped', '--wait')
        self.assertIn('no space', str(error))

    def test_delete_and_wait(self):
        version_id = self.save()
        self.soon(self.hub)
        self.take(version_commands.DeleteVersion, version_id, '--wait')
        self.assertEqual([], self.listed(version_commands.ListVersions))

    def test_one_that_failed_is_deleted(self):
        version_id = self.shown(version_commands.CreateVersion,
                                'stopped')['id']
        self.host.report(self.host.next(), states.FAILED, error='no space')
        self.assertEqual('error', self.shown(version_commands.ShowVersion,
                                             version_id)['state'])
        self.take(version_commands.DeleteVersion, version_id, '--wait')
        self.assertEqual([], self.listed(version_commands.ListVersions))

    def test_diff(self):
        one, other = self.save(1), self.save(2)
        self.soon(self.hub, result=json.dumps({
            'bytes': 4096, 'disks': [{'device': 'vda', 'bytes': 4096}]}))
        self.assertEqual(4096, self.shown(version_commands.DiffVersions, one,
                                          other)['bytes'])

    def test_export(self):
        version_id = self.save(disks=[
            *fakes.saved().disks, objects.VersionDisk(
                device='vdb', size=2 ** 30, volume_id=VOLUME,
                version='00000000-0000-4000-8000-000000000002')])
        self.assertEqual([None, VOLUME], [
            disk['volume_id'] for disk in self.shown(
                version_commands.ShowVersion, version_id)['disks']])
        for device in ((), ('--device', 'vdb')):
            self.soon(self.hub, result=json.dumps({'image_id': 'x'}))
            shown = self.shown(version_commands.ExportVersion, version_id,
                               '--wait', '--name', 'Gold', *device)
            self.assertEqual({'image_id': 'x'}, shown['result'])
        error = self.assertRaises(
            sdk_exceptions.NotFoundException, self.take,
            version_commands.ExportVersion, version_id, '--device', 'vdz')
        self.assertIn('vda, vdb', str(error))

    def test_tasks(self):
        version_id = self.save()
        task = self.shown(version_commands.ExportVersion, version_id)
        rows = self.listed(version_commands.ListTasks, '--version', version_id)
        self.assertEqual(['export', 'save'], [row['Kind'] for row in rows])
        # One that is cancelled before it is given is not given any more.
        self.hub.next()
        self.take(version_commands.CancelTask, task['id'])
        self.assertEqual('export', self.shown(version_commands.ShowTask,
                                              task['id'])['kind'])

    def test_verify(self):
        self.save()
        self.soon(self.hub, result=json.dumps({'intact': True}))
        self.assertEqual({'intact': True, 'versions_damaged': []}, self.shown(
            version_commands.Verify, '--wait')['result'])

    def test_replicate_and_show_store(self):
        self.save()
        self.soon(self.hub, result=json.dumps({'versions_copied': 1}))
        for options in ((), ('--from-copy',)):
            self.assertEqual({'versions_copied': 1}, self.shown(
                version_stores.Replicate, '--wait', *options)['result'])
        self.app.client_manager.sdk_connection.current_project_id = \
            cloud.base.PROJECT
        shown = self.shown(version_stores.ShowStore)
        self.assertEqual(0, shown['copy_lag']['versions'])


class TestRestoring(VersionsTest):

    def test_stopped_server_stays_stopped(self):
        version_id = self.save()
        self.soon(self.host, kept=fakes.saved(2))
        shown = self.shown(version_commands.RestoreVersion, version_id,
                           '--wait')
        self.assertEqual(('done', []), (shown['state'], self.compute.calls))

    def test_running_server_is_stopped_and_started(self):
        version_id = self.save(server='running')
        self.soon(self.host, kept=fakes.saved(2))
        self.take(version_commands.RestoreVersion, version_id, '--restart')
        self.assertEqual([('stop', 'running'), ('start', 'running')],
                         self.compute.calls)

    def test_server_that_could_not_be_restored_stays_off(self):
        version_id = self.save(server='running')
        self.soon(self.host, state=states.FAILED, error='damaged')
        error = self.assertRaises(
            exceptions.CommandError, self.take,
            version_commands.RestoreVersion,
            version_id, '--restart')
        self.assertIn('damaged', str(error))
        self.assertEqual([('stop', 'running')], self.compute.calls)

    def test_refused_server_is_started_again(self):
        version_id = self.save(server='running')
        self.nova.change('running', task='imaging')
        self.assertRaises(
            sdk_exceptions.ConflictException, self.take,
            version_commands.RestoreVersion, version_id, '--restart')
        self.assertEqual([('stop', 'running'), ('start', 'running')],
                         self.compute.calls)

    def test_dry_run(self):
        version_id = self.save()
        self.shown(version_commands.RestoreVersion, version_id, '--dry-run')
        self.assertTrue(self.host.next().dry_run)

    def test_method(self):
        version_id = self.save()
        self.shown(version_commands.RestoreVersion, version_id, '--method',
                   'rebuild')
        self.assertEqual('rebuild', self.host.next().method)


class TestPolicies(VersionsTest):

    def test_life(self):
        shown = self.shown(
            version_policies.CreatePolicy, '--server', 'running', '--every',
            '6h', '--keep-daily', '7', '--on-delete', '--required')
        self.assertEqual(
            (21600, 7, True, True, False, True),
            tuple(shown[name] for name in (
                'every', 'daily', 'on_delete', 'required', 'on_shutdown',
                'volumes')))
        self.take(version_policies.CreatePolicy, '--project-default',
                  '--keep-last', '2', '--without-volumes')
        self.assertEqual(2, len(self.listed(version_policies.ListPolicies)))
        shown = self.shown(version_policies.ShowPolicy, '--project-default')
        self.assertEqual((2, False), (shown['last'], shown['volumes']))
        self.assertNotIn('stored_per_day', shown)

    def test_estimate(self):
        self.take(version_policies.CreatePolicy, '--server', 'running',
                  '--every', '6h')
        self.save(server='running')
        shown = self.shown(version_policies.ShowPolicy, '--server',
                           'running', '--estimate')
        self.assertEqual((1, None, None), (
            shown['judged_by_versions'], shown['stored_per_day'],
            shown['restore_seconds']))
        self.assertEqual(0.5, shown['save_seconds'])
        self.take(version_policies.DeletePolicy, '--server', 'running')
        error = self.assertRaises(
            exceptions.CommandError, self.take, version_policies.ShowPolicy,
            '--server', 'running')
        self.assertIn('no version policy', str(error))


class TestHooks(VersionsTest):

    def before(self, kind, **arguments):
        """The arguments after a hook saw them."""
        hook = kind(types.SimpleNamespace(app=self.app))
        return hook.before(types.SimpleNamespace(**{
            'prefer_cached': False, 'hints': None, 'boot_mode': None,
            'profile': None, 'hydrate_by': None, 'hydrate_rate': None,
            'properties': None, 'boot_from_volume': None,
            'block_devices': [], **arguments}))

    def test_server_from_a_version(self):
        version_id = self.save()
        for kind in (hooks.ServerCreate, hooks.ServerRebuild):
            self.soon(self.hub, result=json.dumps({'image_id': 'an-image'}))
            self.assertEqual('an-image', self.before(
                kind, image=None, from_version=version_id).image)

    def test_lazy_server_from_a_version(self):
        version_id = self.save()
        images = self.app.client_manager.image
        # A snapshot of a server from it: Nova copies the properties.
        project = self.cloud.get_server_version(version_id).project_id
        images.create_image(f'version {version_id}', data=b'a disk',
                            owner=project, diffcache_lazy_version=version_id)
        # One that another project shows to all.
        images.create_image(
            f'version {version_id}', data=stand_ins.content(version_id),
            owner='other', diffcache_lazy_version=version_id)
        for kind in (hooks.ServerCreate, hooks.ServerRebuild):
            self.assertEqual('image-2', self.before(
                kind, image=None, from_version=version_id,
                boot_mode='lazy').image)
        *_, image = images.created
        self.assertEqual(
            (version_id, 'lazy', 'raw', 'private', project),
            (image.diffcache_lazy_version, image.diffcache_boot_mode,
             image.disk_format, image.visibility, image.owner))
        [disk] = fakes.saved().disks
        self.assertEqual(-(-disk.size // 2 ** 30), image.min_disk)
        self.assertIn(version_id.encode(), image.data)
        # Nothing was exported.
        self.assertEqual(['save'], [
            task.kind for task in self.cloud.version_tasks()])

    def test_a_boot_mode_of_an_image_is_not_ignored(self):
        error = self.assertRaises(
            exceptions.CommandError, self.before, hooks.ServerRebuild,
            image='an-image', from_version=None, boot_mode='lazy')
        self.assertIn('openstack image set --boot-mode', str(error))

    @staticmethod
    def disk(device, **values):
        """A further disk of a version."""
        return objects.VersionDisk(
            device=device, size=2 ** 30 + 1,
            version='00000000-0000-4000-8000-000000000002', **values)

    def exported(self):
        """Have the hub export disks; return their devices as it does."""
        devices = []

        def wait(task_id, timeout, progress=None):
            task = self.hub.next()
            devices.append(task.disks[0].device)
            self.hub.report(task, result=json.dumps(
                {'image_id': f'image-{task.disks[0].device}'}))
            return self.cloud.get_version_task(task_id)

        self.cloud.wait_for_version_task = wait
        return devices

    def test_new_volumes_in_place_of_those_of_a_version(self):
        volumes = [self.disk(device, volume_id=VOLUME)
                   for device in ('vdb', 'vdc')]
        version_id = self.save(disks=[*fakes.saved().disks, *volumes])
        exported = self.exported()
        found = self.before(hooks.ServerCreate, image=None,
                            from_version=version_id)
        self.assertEqual(['vda', 'vdb', 'vdc'], exported)
        self.assertEqual(('image-vda', None),
                         (found.image, found.boot_from_volume))
        self.assertEqual([{
            'uuid': f'image-{device}', 'source_type': 'image',
            'destination_type': 'volume', 'volume_size': 2}
            for device in ('vdb', 'vdc')], found.block_devices)

    def test_a_server_that_booted_from_a_volume(self):
        version_id = self.save(disks=[self.disk('vda', volume_id=VOLUME)])
        self.exported()
        found = self.before(hooks.ServerCreate, image=None,
                            from_version=version_id)
        self.assertEqual(('image-vda', 2, []), (
            found.image, found.boot_from_volume, found.block_devices))

    def test_disks_that_the_server_would_lack(self):
        for kind, mode, second in (
                (hooks.ServerCreate, None, self.disk('vdb')),
                (hooks.ServerCreate, 'lazy',
                 self.disk('vdb', volume_id=VOLUME)),
                (hooks.ServerRebuild, None,
                 self.disk('vdb', volume_id=VOLUME))):
            version_id = self.save(disks=[*fakes.saved().disks, second])
            error = self.assertRaises(
                exceptions.CommandError, self.before, kind, image=None,
                from_version=version_id, boot_mode=mode)
            self.assertIn('2 disks (vda, vdb)', str(error))
            self.assertIn(f'export {version_id} --device vdb', str(error))
            self.take(version_commands.DeleteVersion, version_id)
            self.hub.report(self.hub.next())
        # Nothing was exported.
        self.assertNotIn('export', [
            task.kind for task in self.cloud.version_tasks()])

    def test_without_a_version_nothing_changes(self):
        self.assertEqual('t1', self.before(
            hooks.ServerCreate, image='t1', from_version=None).image)

    def test_image_and_version_are_too_much(self):
        self.assertRaises(exceptions.CommandError, self.before,
                          hooks.ServerRebuild, image='t1', from_version='v')
