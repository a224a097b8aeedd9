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
"""Tasks on versions over the API, with a host that does what it is told."""

import json

from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import conductor_versions_api
from tests.unit.api import base
from tests.unit.api.handlers import test_versions
from tests.unit.conductor import fakes


class TestOtherWork(test_versions.VersionsTest):

    def test_export_is_the_repositorys(self):
        version = self.save()
        task = self.act(version, 'export', name='Gold')
        given = self.hub.next()
        self.assertEqual(
            (versions.EXPORT, 'Gold', None, 't1'),
            (given.kind, given.name, given.image_id, given.base_image))
        self.hub.report(given, result=json.dumps({'image_id': 'an-image'}))
        self.assertEqual('an-image', self.task(task)['result']['image_id'])
        self.assertEqual('an-image', self.show(version)['image_id'])
        # The next one may find that it is there still.
        self.act(version, 'export')
        self.assertEqual('an-image', self.hub.next().image_id)

    def test_diff(self):
        one, other = self.save(1), self.save(2)
        self.act(one, 'diff', against=other['id'])
        given = self.hub.next()
        self.assertEqual((fakes.saved(1).disks, fakes.saved(2).disks),
                         (given.disks, given.others))

    def test_what_is_not_complete_will_not_do(self):
        version = self.create()
        for action in ('restore', 'export'):
            error = self.refused(
                409, 'POST', f'{test_versions.PATH}/{version["id"]}/{action}',
                {action: {}}, user='member')
            self.assertIn('saving', error['detail'])

    def test_verify(self):
        self.refused(404, 'POST', f'{test_versions.TASKS}/verify',
                     {'verify': {}})
        self.save()
        status, _body, _headers = self.call(
            'POST', f'{test_versions.TASKS}/verify',
            {'verify': {'project_id': base.PROJECT}})
        self.assertEqual((202, versions.VERIFY),
                         (status, self.hub.next().kind))

    def test_replicate_and_rebuild(self):
        path = f'{test_versions.TASKS}/replicate'
        self.refused(404, 'POST', path, {'replicate': {}})
        self.save()
        for values, kind in (({}, versions.REPLICATE),
                             ({'from_copy': True}, versions.RECOVER)):
            status, _body, _headers = self.call(
                'POST', path, {'replicate': {'project_id': base.PROJECT,
                                             **values}})
            given = self.hub.next()
            self.assertEqual((202, kind), (status, given.kind))
            self.hub.report(given)
        self.refused(403, 'POST', path, {'replicate': {}}, user='member')

    def test_the_store_is_shown_to_its_project(self):
        path = f'/v1/version-stores/{base.PROJECT}'
        self.refused(404, 'GET', path, user='member')
        self.save()
        _status, body, _headers = self.call('GET', path, user='member')
        shown = body['version_store']
        self.assertEqual((base.PROJECT, None, None), (
            shown['project_id'], shown['copied_at'], shown['copy_lag']))
        self.call('POST', f'{test_versions.TASKS}/replicate',
                  {'replicate': {'project_id': base.PROJECT}})
        self.hub.report(self.hub.next())
        self.save(2)
        _status, body, _headers = self.call('GET', path, user='member')
        shown = body['version_store']
        self.assertEqual(1, shown['copy_lag']['versions'])
        self.assertIsNotNone(shown['copy_lag']['oldest'])
        self.refused(404, 'GET', path, user='other')

    def test_cancel(self):
        version = self.create()
        given = self.host.next()
        path = f'{test_versions.TASKS}/{given.id}/cancel'
        self.assertEqual(200, self.call('POST', path, {}, user='member')[0])
        self.assertEqual(given.id, self.host.cancelled.get(
            timeout=fakes.SECONDS))
        self.host.report(given, versions.CANCELLED, error='It was cancelled.')
        self.assertEqual('error', self.show(version)['state'])
        # Again is no error.
        status, body, _headers = self.call('POST', path, {}, user='member')
        self.assertEqual((200, 'cancelled'),
                         (status, body['version_task']['state']))


class TestMaintenanceHosts(test_versions.VersionsTest):
    """Hosts only add to the store; the hub accepts, and deletes."""

    def setUp(self):
        super().setUp()
        self.conf.set_override('maintenance_hosts', ['hub'], 'versions')

    def test_what_a_host_added_is_accepted_by_another(self):
        version = self.save()
        task = self.hub.next()
        self.assertEqual((versions.ACCEPT, base.PROJECT),
                         (task.kind, task.project_id))
        # A report that is repeated starts no other.
        self.hub.report(task)
        self.call('DELETE', f'{test_versions.PATH}/{version["id"]}',
                  user='member')
        self.assertEqual(versions.FORGET, self.hub.next().kind)
        self.assertTrue(self.host.idle())

    def test_maintenance_waits_for_its_host(self):
        self.conf.set_override('maintenance_hosts', ['other'], 'versions')
        self.save()
        self.conductor._dispatcher.look()
        self.assertTrue(self.hub.idle() and self.host.idle())

    def test_what_is_refused_is_an_error(self):
        version, other = self.save(1), None
        task = self.hub.next()
        refused = json.dumps(
            {'refused': [fakes.saved(1).disks[0].version]})
        self.hub.report(task, versions.RUNNING, result=refused)
        shown = self.show(version)
        self.assertEqual(('error', 'integrity_error'), (
            shown['state'], shown['error_code']))
        self.hub.report(task)
        # A host that only adds refuses nothing.
        other = self.create()
        task = self.host.next()
        self.host.report(task, saved=fakes.saved(2), result=json.dumps(
            {'refused': [fakes.saved(2).disks[0].version]}))
        self.assertEqual('available', self.show(other)['state'])


class TestRepeating(test_versions.VersionsTest):
    """A call whose answer got lost is made again."""

    def calls(self):
        return conductor_versions_api.VersionsAPI(self.bus, self.conf)

    def open_tasks(self):
        return len(
            self.get(f'{test_versions.TASKS}?limit=100')['version_tasks'])

    def test_save(self):
        new = objects.NewVersion(id=base.unknown_id(), server_id='stopped',
                                 project_id=base.PROJECT)
        for _attempt in range(2):
            self.calls().create_version(self.ctxt, new)
        self.assertEqual(1, self.open_tasks())

    def test_restore(self):
        version, task_id = self.save(), base.unknown_id()
        keep = base.unknown_id()
        for _attempt in range(2):
            self.calls().restore_version(self.ctxt, version['id'], task_id,
                                         keep, False)
        self.assertEqual(2, self.open_tasks())

    def test_delete(self):
        version = self.save()
        for _attempt in range(2):
            self.calls().delete_version(self.ctxt, version['id'])
        self.assertEqual(2, self.open_tasks())

    def test_hook(self):
        self.calls().set_policy(self.ctxt, objects.VersionPolicy(
            id=base.unknown_id(), project_id=base.PROJECT, on_delete=True,
            required=True))
        new = objects.NewVersion(
            id=base.unknown_id(), server_id='stopped',
            project_id=base.PROJECT, trigger=versions.DELETE)
        for server in ('stopped', 'running'):
            self.nova.change(server, task='deleting')
        answers = [self.calls().begin_local(self.ctxt, 'h1', new)
                   for _attempt in range(2)]
        self.assertEqual(answers[0][0].id, answers[1][0].id)
        self.assertTrue(answers[0][1])
        # Another server of the project does not wait.
        other = objects.NewVersion(
            id=base.unknown_id(), server_id='running',
            project_id=base.PROJECT, trigger=versions.DELETE)
        self.calls().begin_local(self.ctxt, 'h1', other)
        other.trigger = versions.SHUTDOWN
        self.assertIsNone(self.calls().begin_local(self.ctxt, 'h1', other))

    def test_hook_waits_for_a_task_of_its_server(self):
        self.calls().set_policy(self.ctxt, objects.VersionPolicy(
            id=base.unknown_id(), project_id=base.PROJECT, on_delete=True))
        self.nova.change('running', task='deleting')
        self.create(server='running')
        task = self.host.next()
        new = objects.NewVersion(
            id=base.unknown_id(), server_id='running',
            project_id=base.PROJECT, trigger=versions.DELETE)
        self.assertRaises(exceptions.Busy, self.calls().begin_local,
                          self.ctxt, 'h1', new)
        # Queued tasks of the server are sent after it.
        self.create(server='running')
        self.host.report(task, saved=fakes.saved())
        self.conductor._dispatcher.look()
        self.assertTrue(self.host.idle())
        self.calls().begin_local(self.ctxt, 'h1', new)

    def test_save_for_an_image_needs_no_policy(self):
        new = objects.NewVersion(
            id=base.unknown_id(), server_id='stopped',
            project_id=base.PROJECT, trigger=versions.IMAGE)
        self.assertRaises(exceptions.Forbidden, self.calls().begin_local,
                          self.ctxt, 'h1', new)
        self.nova.change('stopped', task='image_pending_upload')
        self.assertRaises(exceptions.Forbidden, self.calls().begin_local,
                          self.ctxt, 'h2', new)
        task, required = self.calls().begin_local(self.ctxt, 'h1', new)
        self.assertEqual((new.id, True), (task.version_id, required))

    def test_one_version_for_images_stays(self):
        self.nova.change('stopped', task='image_pending_upload')
        made = []
        for number in range(2):
            new = objects.NewVersion(
                id=base.unknown_id(), server_id='stopped',
                project_id=base.PROJECT, trigger=versions.IMAGE)
            task, _required = self.calls().begin_local(self.ctxt, 'h1', new)
            self.host.report(task, saved=fakes.saved(number))
            made.append(new.id)
        self.assertEqual(['deleting', 'available'],
                         [self.show({'id': each})['state'] for each in made])

    def test_hook_of_a_server_that_nova_does_not_end_there(self):
        self.calls().set_policy(self.ctxt, objects.VersionPolicy(
            id=base.unknown_id(), project_id=base.PROJECT, on_delete=True,
            on_shutdown=True))

        def begin(host='h1', trigger=versions.DELETE, **values):
            return self.calls().begin_local(
                self.ctxt, host, objects.NewVersion(**{
                    'id': base.unknown_id(), 'server_id': 'stopped',
                    'project_id': base.PROJECT, 'trigger': trigger,
                    **values}))
        # Nova neither stops nor deletes it.
        self.assertRaises(exceptions.Forbidden, begin)
        self.nova.change('stopped', task='powering-off')
        self.assertRaises(exceptions.Forbidden, begin)
        # It is on another host, another project's, or none of Nova's.
        self.nova.change('stopped', task='deleting')
        self.assertRaises(exceptions.Forbidden, begin, 'h2')
        self.nova.change('foreign', task='deleting')
        self.assertRaises(exceptions.Forbidden, begin, 'h2',
                          server_id='foreign')
        self.assertRaises(exceptions.NotFound, begin, server_id='none')
        self.nova.change('stopped', host=None)
        self.assertRaises(exceptions.ServiceUnavailable, begin)
        self.assertEqual(0, self.open_tasks())
        # What its base is, Nova says.
        self.nova.change('stopped', host='h1')
        self.assertEqual('t1', begin(base_image='forged')[0].base_image)
