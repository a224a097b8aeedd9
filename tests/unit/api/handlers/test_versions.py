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
"""Versions of servers over the API, with a host that does what it is told."""

import dataclasses
import json
import uuid

from diffcache_openstack.cloud import volumes
from diffcache_openstack.db import models
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from tests.unit.api import base
from tests.unit.conductor import fakes

PATH = '/v1/versions'
TASKS = '/v1/version-tasks'


class VersionsTest(base.ApiTest):

    def setUp(self):
        super().setUp()
        self.host = fakes.listen(self, 'h1')
        self.hub = fakes.listen(self, 'hub')

    def create(self, server='stopped', user='member', **values):
        """A version whose saving has begun."""
        status, body, headers = self.call(
            'POST', PATH, {'version': {'server_id': server, **values}},
            user=user)
        self.assertEqual(202, status, body)
        self.assertEqual(f'http://localhost{PATH}/{body["version"]["id"]}',
                         headers['Location'])
        return body['version']

    def save(self, number=1, **values):
        """A version that was saved."""
        version = self.create(**values)
        self.host.report(self.host.next(), saved=fakes.saved(number))
        return self.show(version)

    def show(self, version, **arguments):
        return self.get(f'{PATH}/{version["id"]}', **arguments)['version']

    def act(self, version, action, user='member', **values):
        """The task that an action begins."""
        status, body, _headers = self.call(
            'POST', f'{PATH}/{version["id"]}/{action}', {action: values},
            user=user)
        self.assertEqual(202, status, body)
        return body['version_task']

    def task(self, task):
        return self.get(f'{TASKS}/{task["id"]}')['version_task']


class TestSaving(VersionsTest):

    def test_life(self):
        version = self.create(name='Friday', description='before upgrade',
                              alpha='auto', rate=10 ** 7)
        self.assertEqual(
            ('saving', 'request', base.PROJECT, 'user-member', 't1', None),
            tuple(version[name] for name in (
                'state', 'trigger', 'project_id', 'user_id', 'base_image',
                'parent_id')))
        task = self.host.next()
        self.assertEqual(
            (versions.SAVE, 'stopped', version['id'], 'auto', 10 ** 7),
            (task.kind, task.server_id, task.version_id, task.alpha,
             task.rate))
        self.assertTrue(self.host.report(task, versions.RUNNING, done=5,
                                         total=10))
        self.assertEqual(
            {'id': task.id, 'kind': 'save', 'state': 'running', 'done': 5,
             'total': 10}, self.show(version)['task'])
        self.host.report(task, saved=fakes.saved())
        version = self.show(version)
        self.assertEqual(
            ('available', 'h1', 2 ** 30, 8192, 12.5, True, None),
            tuple(version[name] for name in (
                'state', 'host', 'size', 'bytes_changed', 'pause_ms',
                'quiesced', 'task')))

    def test_paths_of_hosts_are_not_shown(self):
        self.assertNotIn('secret', json.dumps(self.save()))

    def test_second_is_told_from_the_first(self):
        first = self.save()
        self.assertEqual(first['id'], self.create()['parent_id'])

    def test_failure_says_why(self):
        version = self.create()
        task = self.host.next()
        self.host.report(task, versions.FAILED, error='no space')
        version = self.show(version)
        self.assertEqual(('error', 'no space'),
                         (version['state'], version['error']))
        # Told again, it is of no interest any more.
        self.assertFalse(self.host.report(task, saved=fakes.saved()))

    def test_servers_of_a_project_are_saved_side_by_side(self):
        for server in ('stopped', 'running'):
            self.create(server=server)
            self.assertEqual(server, self.host.next().server_id)

    def test_server_of_another_project_is_not_there(self):
        for user, server in (('member', 'foreign'), ('other', 'running'),
                             ('member', 'gone')):
            error = self.refused(404, 'POST', PATH, {
                'version': {'server_id': server}}, user=user)
            self.assertIn(server, error['detail'])

    def test_admin_saves_it_for_its_project(self):
        version = self.create(server='foreign', user='admin')
        self.assertEqual(base.OTHER_PROJECT, version['project_id'])

    def test_host_without_agent_is_waited_for(self):
        self.nova.change('stopped', host='h9')
        version = self.create()
        self.conductor._dispatcher.look()
        self.assertEqual('queued', self.show(version)['task']['state'])
        self.nova.change('stopped', host='h1')
        self.conductor._dispatcher.look()
        self.assertEqual(version['id'], self.host.next().version_id)

    def test_server_on_no_host_is_an_error(self):
        self.nova.change('running', host=None)
        version = self.create(server='running')
        self.conductor._dispatcher.look()
        version = self.show(version)
        self.assertEqual('error', version['state'])
        self.assertIn('no host', version['error'])

    def test_silent_host_is_sent_the_task_again(self):
        self.conf.set_override('resend_interval', 2, 'versions')
        self.create()
        task = self.host.next()
        self.write(_age, task.id)
        self.conductor._dispatcher.look()
        self.assertEqual(task, self.host.next())

    def test_rate_that_occupies_a_host_is_refused(self):
        error = self.refused(400, 'POST', PATH, {'version': {
            'server_id': 'stopped', 'rate': 1}}, user='member')
        self.assertIn('1000000', error['detail'])

    def test_queue_of_a_project_asks_nova_a_few_times_a_round(self):
        """Servers on a host without agent cost a bounded time."""
        self.nova.change('stopped', host='h9')
        dispatcher = self.conductor._dispatcher
        look = dispatcher.look
        # No round but the one that is counted.
        dispatcher.wake = dispatcher.look = lambda: None
        for _number in range(10):
            self.create()
        asked = []
        get = self.nova.get
        self.nova.get = lambda *arguments: asked.append(1) or get(*arguments)
        self.create(server='foreign', user='other')
        asked.clear()
        look()
        self.assertEqual(5, len(asked))

    def test_bad_values(self):
        for values in ({}, {'server_id': ''}, {'alpha': '1.5'},
                       {'alpha': 'much'}, {'rate': 0}, {'colour': 'red'}):
            self.refused(400, 'POST', PATH, {'version': {
                'server_id': 'stopped', **values} if values else {}},
                user='member')


def _age(session, task_id):
    """Have a task been sent long ago."""
    row = session.get(models.VersionTask, task_id)
    row.sent_at = row.sent_at.replace(year=2020)


class TestListing(VersionsTest):

    def test_of_a_server_and_by_state(self):
        first = self.save()
        second = self.create(server='running')
        listed = self.get(f'{PATH}?server_id=stopped')['versions']
        self.assertEqual([first['id']], [each['id'] for each in listed])
        listed = self.get(f'{PATH}?state=saving')['versions']
        self.assertEqual([second['id']], [each['id'] for each in listed])
        part = self.get(f'{PATH}?limit=1')
        self.assertEqual(second['id'], part['versions'][0]['id'])
        self.assertIn('marker', part['versions_links'][0]['href'])

    def test_markers_of_another_project_are_as_unknown_ones(self):
        version = self.save()
        task = self.get(TASKS)['version_tasks'][0]
        for path, own, others in ((PATH, version['id'], 'state=error'),
                                  (TASKS, task['id'], 'kind=forget')):
            self.get(f'{path}?marker={own}')
            # Filters do not hide what one has seen.
            self.get(f'{path}?{others}&marker={own}')
            unknown = str(uuid.UUID(int=7))
            errors = [self.refused(400, 'GET', f'{path}?marker={marker}',
                                   user='other')['detail'].replace(marker, 'X')
                      for marker in (own, unknown)]
            self.assertEqual(errors[0], errors[1])

    def test_another_project_sees_nothing(self):
        version = self.save()
        task = self.get(TASKS)['version_tasks'][0]
        self.assertEqual([], self.get(PATH, user='other')['versions'])
        self.assertEqual([], self.get(TASKS, user='other')['version_tasks'])
        for method, path, body in (
                ('GET', f'{PATH}/{version["id"]}', None),
                ('PATCH', f'{PATH}/{version["id"]}',
                 {'version': {'generation': 1, 'name': 'mine'}}),
                ('DELETE', f'{PATH}/{version["id"]}', None),
                ('POST', f'{PATH}/{version["id"]}/restore', {'restore': {}}),
                ('POST', f'{PATH}/{version["id"]}/export', {'export': {}}),
                ('POST', f'{PATH}/{version["id"]}/export',
                 {'export': {'device': 'vda'}}),
                ('POST', f'{PATH}/{version["id"]}/diff',
                 {'diff': {'against': version['id']}}),
                ('GET', f'{TASKS}/{task["id"]}', None),
                ('POST', f'{TASKS}/{task["id"]}/cancel', {})):
            self.refused(404, method, path, body, user='other')


class TestChanging(VersionsTest):

    def test_name_and_protection(self):
        version = self.save()
        path = f'{PATH}/{version["id"]}'
        status, body, _headers = self.call('PATCH', path, {'version': {
            'generation': 1, 'name': 'gold', 'protected': True}},
            user='member')
        self.assertEqual((200, 'gold', True, 2), (
            status, body['version']['name'], body['version']['protected'],
            body['version']['generation']))
        error = self.refused(409, 'PATCH', path, {'version': {
            'generation': 1, 'name': 'iron'}}, user='member')
        self.assertEqual('diffcache.concurrent_update', error['code'])
        self.assertIn('protected', self.refused(
            409, 'DELETE', path, user='member')['detail'])

    def test_deletion_is_done_when_the_store_forgot_it(self):
        version = self.save()
        child = self.save(2)
        path = f'{PATH}/{version["id"]}'
        self.assertEqual(204, self.call('DELETE', path, user='member')[0])
        self.assertEqual('deleting', self.show(version)['state'])
        task = self.hub.next()
        self.assertEqual((versions.FORGET, fakes.saved().disks),
                         (task.kind, task.disks))
        self.hub.report(task)
        self.refused(404, 'GET', path)
        self.assertIsNone(self.show(child)['parent_id'])

    def test_a_deletion_is_among_the_tasks_of_the_server(self):
        version = self.save()
        self.call('DELETE', f'{PATH}/{version["id"]}', user='member')
        self.hub.report(self.hub.next())
        [task] = self.get('/v1/version-tasks?server_id=stopped&kind=forget')[
            'version_tasks']
        self.assertEqual((version['id'], 'done'),
                         (task['version_id'], task['state']))

    def test_one_that_failed_is_gone_at_once(self):
        version = self.create()
        self.host.report(self.host.next(), versions.FAILED, error='no')
        path = f'{PATH}/{version["id"]}'
        self.assertEqual(204, self.call('DELETE', path, user='member')[0])
        self.refused(404, 'GET', path)

    def test_one_that_failed_is_no_parent_once_it_is_deleted(self):
        version, child = self.create(), self.create()
        self.assertEqual(version['id'], child['parent_id'])
        self.host.report(self.host.next(), versions.FAILED, error='no')
        self.call('DELETE', f'{PATH}/{version["id"]}', user='member')
        self.assertIsNone(self.show(child)['parent_id'])

    def test_one_whose_deletion_failed_is_deleted_again(self):
        version = self.save()
        path = f'{PATH}/{version["id"]}'
        for state in (versions.FAILED, versions.DONE):
            self.assertEqual(204, self.call('DELETE', path, user='member')[0])
            self.hub.report(self.hub.next(), state, error='no')
        self.refused(404, 'GET', path)

    def test_one_that_is_saved_is_not_deleted(self):
        version = self.create()
        self.refused(409, 'DELETE', f'{PATH}/{version["id"]}', user='member')


class TestRestoring(VersionsTest):

    def test_keeps_what_was(self):
        version = self.save()
        task = self.act(version, 'restore')
        given = self.host.next()
        self.assertEqual(
            (task['id'], versions.RESTORE, fakes.saved().disks, False),
            (given.id, given.kind, given.disks, given.dry_run))
        kept = {'id': given.keep_version}
        self.assertEqual(('saving', 'rollback', version['id']), tuple(
            self.show(kept)[name] for name in
            ('state', 'trigger', 'parent_id')))
        self.host.report(given, kept=fakes.saved(2), result=json.dumps(
            {'bytes_written': 4096}))
        self.assertEqual(('done', {'bytes_written': 4096}), tuple(
            self.task(task)[name] for name in ('state', 'result')))
        self.assertEqual('available', self.show(kept)['state'])

    def test_fails_before_anything_was_kept(self):
        task = self.act(self.save(), 'restore')
        given = self.host.next()
        self.host.report(given, versions.FAILED, error='other disks')
        self.assertEqual('other disks', self.task(task)['error'])
        self.assertEqual('error',
                         self.show({'id': given.keep_version})['state'])

    def test_without_keeping_and_dry(self):
        version = self.save()
        self.act(version, 'restore', keep_current=False)
        given = self.host.next()
        self.assertIsNone(given.keep_version)
        self.host.report(given)
        self.act(version, 'restore', dry_run=True)
        given = self.host.next()
        self.assertEqual((None, True), (given.keep_version, given.dry_run))

    def test_method(self):
        version = self.save()
        self.act(version, 'restore', method='rebuild')
        given = self.host.next()
        self.assertEqual('rebuild', given.method)
        self.host.report(given)
        self.act(version, 'restore')
        given = self.host.next()
        self.assertEqual('auto', given.method)

    def test_running_server_is_refused(self):
        version = self.save()
        self.nova.change('stopped', status='ACTIVE')
        error = self.refused(409, 'POST', f'{PATH}/{version["id"]}/restore',
                             {'restore': {}}, user='member')
        self.assertIn('openstack server stop', error['detail'])

    def test_server_that_is_about_to_start_is_refused(self):
        version = self.save()
        self.nova.change('stopped', task='powering-on')
        self.refused(409, 'POST', f'{PATH}/{version["id"]}/restore',
                     {'restore': {}}, user='member')

    def test_deleted_server_is_not_found(self):
        version = self.save()
        del self.nova.servers['stopped']
        self.refused(404, 'POST', f'{PATH}/{version["id"]}/restore',
                     {'restore': {}}, user='member')

    def test_not_twice_and_not_saved_meanwhile(self):
        version = self.save()
        self.act(version, 'restore')
        for path, body in ((f'{PATH}/{version["id"]}/restore',
                            {'restore': {}}),
                           (PATH, {'version': {'server_id': 'stopped'}})):
            error = self.refused(409, 'POST', path, body, user='member')
            self.assertIn('being restored', error['detail'])

    def test_begun_is_not_cancelled(self):
        task = self.act(self.save(), 'restore')
        self.host.next()
        self.refused(409, 'POST', f'{TASKS}/{task["id"]}/cancel', {},
                     user='member')


class TestVolumes(VersionsTest):
    """Volumes of a server, each looked at with the caller's token."""

    def setUp(self):
        super().setUp()
        self.ids = [f'00000000-0000-4000-8000-0000000000{number}'
                    for number in (10, 11, 12)]
        server = self.nova.servers['running']
        self.nova.servers['running'] = dataclasses.replace(
            server, volumes=tuple(self.ids))
        self.services.cinder.volumes = {
            volume_id: volumes.Volume(volume_id, False, False)
            for volume_id in self.ids}

    def refused(self, status, user='member', **values):
        answered, body, _headers = self.call(
            'POST', PATH, {'version': {'server_id': 'running', **values}},
            user=user)
        self.assertEqual(status, answered, body)
        self.assertEqual([], self.get(PATH)['versions'])
        return body['errors'][0]['detail']

    def test_all_are_saved(self):
        self.create('running')
        self.assertEqual(self.ids, self.host.next().volumes)
        self.assertEqual(['member'] * 3, self.services.cinder.tokens)

    def test_some_are_left_out(self):
        del self.services.cinder.volumes[self.ids[1]]
        self.create('running', exclude_volumes=[self.ids[1]])
        self.assertEqual([self.ids[0], self.ids[2]],
                         self.host.next().volumes)

    def test_one_that_the_caller_may_not_read(self):
        del self.services.cinder.volumes[self.ids[1]]
        self.assertIn(f'--exclude-volume {self.ids[1]}', self.refused(403))

    def test_volumes_of_servers_that_the_caller_may_not_save(self):
        for status, user in ((401, None), (403, 'reader'), (404, 'other')):
            for excluded in ([], self.ids):
                self.assertEqual(status, self.call('POST', PATH, {'version': {
                    'server_id': 'running', 'exclude_volumes': excluded}},
                    user=user)[0])
        self.assertEqual([], self.services.cinder.tokens)
        self.assertEqual([], self.get(PATH)['versions'])

    def test_those_that_cannot_be_saved_are_named_together(self):
        self.services.cinder.volumes[self.ids[0]] = volumes.Volume(
            self.ids[0], True, False)
        self.services.cinder.volumes[self.ids[2]] = volumes.Volume(
            self.ids[2], False, True)
        text = self.refused(409)
        self.assertIn(f'volume {self.ids[0]} is encrypted', text)
        self.assertIn(f'volume {self.ids[2]} is of a multiattach type', text)
        self.assertIn(f'--exclude-volume {self.ids[0]} --exclude-volume'
                      f' {self.ids[2]}', text)

    def test_one_that_the_server_does_not_have(self):
        self.assertIn('exclude_volumes', self.refused(
            400, exclude_volumes=['00000000-0000-4000-8000-000000000099']))

    def become(self, status, **values):
        self.nova.servers['running'] = dataclasses.replace(
            self.nova.servers['running'], status=status, **values)

    def test_of_servers_that_do_not_run(self):
        self.become('SUSPENDED')
        self.assertIn('Start or stop it', self.refused(409))
        self.create('running', exclude_volumes=self.ids)
        self.assertEqual([], self.host.next().volumes)

    def test_of_a_stopped_server(self):
        self.become('SHUTOFF')
        self.create('running')
        self.assertEqual(self.ids, self.host.next().volumes)

    def test_cinder_is_away(self):
        self.services.cinder.volumes = None
        self.refused(503)

    def save_with_volume(self):
        version = self.create('running')
        disks = fakes.saved().disks + [objects.VersionDisk(
            device='vdb', size=2 ** 30, volume_id=self.ids[0],
            version='00000000-0000-4000-8000-000000000002')]
        self.host.report(self.host.next(), saved=fakes.saved(
            disks=disks, frozen_ms=3.5))
        return self.show(version)

    def test_which_disk_is_which_volume(self):
        version = self.save_with_volume()
        self.assertEqual(
            [{'device': 'vda', 'size': 2 ** 30, 'volume_id': None},
             {'device': 'vdb', 'size': 2 ** 30, 'volume_id': self.ids[0]}],
            version['disks'])
        self.assertEqual(3.5, version['frozen_ms'])

    def test_each_is_exported_by_its_device(self):
        version = self.save_with_volume()
        self.act(version, 'export', device='vdb')
        task = self.hub.next()
        self.assertEqual(['vdb'], [disk.device for disk in task.disks])
        self.hub.report(task, result='{"image_id": "i-2"}')
        self.assertIsNone(self.show(version)['image_id'])
        self.act(version, 'export')
        task = self.hub.next()
        self.assertEqual(['vda'], [disk.device for disk in task.disks])
        self.hub.report(task, result='{"image_id": "i-1"}')
        self.assertEqual('i-1', self.show(version)['image_id'])
        status, _body, _headers = self.call(
            'POST', f'{PATH}/{version["id"]}/export',
            {'export': {'device': 'vdz'}}, user='member')
        self.assertEqual(404, status)

    def restore(self, version, status, **values):
        """What a restore of the stopped server answers."""
        self.become('SHUTOFF', **values)
        self.services.cinder.tokens.clear()
        answered, body, _headers = self.call(
            'POST', f'{PATH}/{version["id"]}/restore', {'restore': {}},
            user='member')
        self.assertEqual(status, answered, body)
        return body

    def test_they_are_restored_with_the_rights_of_the_caller(self):
        self.restore(self.save_with_volume(), 202)
        # The version has one of the three.
        self.assertEqual(['member'], self.services.cinder.tokens)
        task = self.host.next()
        self.assertEqual([None, self.ids[0]],
                         [disk.volume_id for disk in task.disks])

    def test_one_that_the_caller_may_not_read_is_not_restored(self):
        version = self.save_with_volume()
        del self.services.cinder.volumes[self.ids[0]]
        body = self.restore(version, 403)
        self.assertIn(self.ids[0], body['errors'][0]['detail'])
        self.assertNotIn('restore', [
            task['kind'] for task in self.get(TASKS)['version_tasks']])

    def test_those_that_cannot_be_restored_are_named(self):
        version = self.save_with_volume()
        detail = self.restore(version, 409, volumes=(self.ids[1],))[
            'errors'][0]['detail']
        self.assertIn('not attached to the server any more', detail)
        self.assertIn('--device vdb', detail)
        self.services.cinder.volumes[self.ids[0]] = volumes.Volume(
            self.ids[0], False, True)
        detail = self.restore(version, 409, volumes=(self.ids[0],))[
            'errors'][0]['detail']
        self.assertIn('of a multiattach type', detail)
