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
"""The tab of a server's versions: its tables and actions."""

import unittest.mock

from tests.unit.dashboard import needs
from tests.unit.dashboard.versions import base

from openstack_dashboard import policy


class TabTest(base.VersionsTest):

    def test_versions_and_tasks(self):
        response = self.client.get(base.TAB)
        for text in ('before&lt;upgrade&gt;', '2026-11-23 18:00:00',
                     '3.0 GB', base.ID[:12], base.PARENT[:12], 'Available',
                     'Request',
                     'Running', '40%', '10.0 GB'):
            self.assertContains(response, text)
        self.assertContains(response, base.SAVE)
        self.assertIn(('GET', '/versions', {'limit': '21', 'server_id': '1'}),
                      self.wire.sent)
        self.assertIn(
            ('GET', '/version-tasks', {'limit': '21', 'server_id': '1'}),
            self.wire.sent)

    def test_it_is_loaded_when_it_is_opened(self):
        response = self.client.get(base.TAB.partition('?')[0])
        self.assertContains(response, '"#instance_details__versions"')
        self.assertEqual([], self.wire.sent)

    def test_rows_are_updated_that_come_into_a_page(self):
        response = self.client.get(
            base.TAB, headers={'x-requested-with': 'XMLHttpRequest'})
        self.assertContains(response, 'horizon.datatables.update()')
        self.assertNotContains(self.client.get(base.TAB),
                               'horizon.datatables.update()')

    def test_pages_are_those_of_the_service(self):
        self.versions(*(
            {**base.VERSION, 'id': f'{number:08}{base.ID[8:]}'}
            for number in range(21)))
        marker = f'{19:08}{base.ID[8:]}'
        response = self.client.get(base.TAB)
        self.assertContains(response, '?tab=instance_details__versions'
                                      f'&amp;version_marker={marker}')
        self.wire.sent.clear()
        response = self.client.get(f'{base.TAB}&version_marker={marker}')
        self.assertIn(('GET', '/versions', {
            'limit': '21', 'server_id': '1', 'marker': marker}),
            self.wire.sent)

    def test_actions_are_those_of_the_state(self):
        protected = {**base.VERSION, 'protected': True}
        for version, offered in (
                (base.VERSION, {'restore', 'protect', 'delete'}),
                (protected, {'restore', 'unprotect'}),
                ({**base.VERSION, 'state': 'saving'}, {'protect'}),
                ({**base.VERSION, 'state': 'error'}, {'protect', 'delete'}),
                ({**base.VERSION, 'state': 'deleting'}, set())):
            with self.subTest(state=version['state'], offered=offered):
                self.versions(version)
                response = self.client.get(base.TAB)
                for action in 'restore', 'protect', 'unprotect', 'delete':
                    check = (self.assertContains if action in offered
                             else self.assertNotContains)
                    check(response, f'versions__{action}__{base.ID}')

    def test_a_server_is_launched_from_an_exported_version(self):
        self.assertNotContains(self.client.get(base.TAB),
                               'LaunchInstanceModal')
        self.versions({**base.VERSION, 'image_id': 'i7'})
        response = self.client.get(base.TAB)
        self.assertContains(response, 'LaunchInstanceModalController')
        self.assertContains(response, 'imageId: &#x27;i7&#x27;')
        self.assertNotContains(response, base.EXPORT)

    def test_tasks_that_can_be_cancelled(self):
        for state, kind, is_offered in (
                ('running', 'save', True), ('queued', 'restore', True),
                ('running', 'restore', False), ('running', 'forget', False),
                ('done', 'save', False)):
            with self.subTest(state=state, kind=kind):
                self.tasks({**base.WORK, 'state': state, 'kind': kind})
                check = (self.assertContains if is_offered
                         else self.assertNotContains)
                check(self.client.get(base.TAB), f'tasks__cancel__{base.TASK}')

    def test_results_of_tasks(self):
        self.tasks(base.CHECKED, {
            **base.CHECKED, 'id': base.ID, 'result': {
                'method': 'rebuild', 'bytes_written': 9 * 10 ** 9}},
            {**base.WORK, 'id': base.PARENT, 'state': 'failed',
             'error': 'No space.'},
            {**base.WORK, 'id': 'a', 'kind': 'diff', 'state': 'done',
             'result': {'bytes': 10 ** 6, 'disks': {}}},
            {**base.WORK, 'id': 'b', 'kind': 'export', 'state': 'done',
             'result': {'image_id': 'i7'}})
        response = self.client.get(base.TAB)
        for text in ('700 MB differ, the cheaper method is &quot;in place'
                     '&quot;', '9.0 GB written, method &quot;new disks&quot;',
                     'No space.', '1.0 MB differ', 'Image i7'):
            self.assertContains(response, text)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/versions', 503, 'No database.')
        response = self.client.get(base.TAB)
        self.assertEqual(['Could not list the versions: No database.'],
                         self.messages(response))
        self.assertContains(response, '40%')

    def test_without_the_service_there_is_no_tab(self):
        self.act_as('member', [entry for entry in self.service_catalog
                               if entry['type'] != 'diffcache'])
        response = self.client.get(base.TAB)
        self.assertEqual(200, response.status_code)
        self.assertNotContains(response, '"#instance_details__versions"')
        self.assertEqual([], self.wire.sent)

    def test_it_is_not_in_the_menu(self):
        page = self.client.get(base.TAB).content.decode()
        menu = r'openstack-panel "[^>]*>\s*%s\s*</a>'
        self.assertRegex(page, menu % 'Images')
        self.assertNotRegex(page, menu % 'Versions')


class ActionsTest(base.VersionsTest):

    def setUp(self):
        super().setUp()
        self.answer(f'/versions/{base.ID}', {'version': base.VERSION})

    def test_it_leads_to_the_tab(self):
        self.assertRedirectsNoFollow(self.client.get(base.ACTIONS), base.TAB)
        self.assertEqual([], self.wire.sent)

    def test_protect(self):
        self.answer(f'/versions/{base.ID}', {'version': base.VERSION},
                    method='PATCH')
        response = self.act('versions', 'protect', base.ID)
        self.assertRedirects(response, base.TAB)
        self.assertEqual(['Protected Version: before<upgrade>'],
                         self.messages(response))
        self.assertEqual([{'version': {'protected': True, 'generation': 3}}],
                         self.wire.bodies)

    def test_unprotect(self):
        self.versions({**base.VERSION, 'protected': True})
        self.answer(f'/versions/{base.ID}', {'version': base.VERSION},
                    method='PATCH')
        self.act('versions', 'unprotect', base.ID)
        self.assertEqual([{'version': {'protected': False, 'generation': 3}}],
                         self.wire.bodies)

    def test_a_protection_that_is_refused(self):
        self.refuse(f'/versions/{base.ID}', 403, 'Not yours.', 'PATCH')
        response = self.act('versions', 'protect', base.ID)
        self.assertEqual('Could not change the protection: Not yours.',
                         self.messages(response)[0])

    def test_delete(self):
        self.answer(f'/versions/{base.ID}', None, 204, 'DELETE')
        response = self.act('versions', 'delete', base.ID)
        self.assertIn(('DELETE', f'/versions/{base.ID}', {}), self.wire.sent)
        self.assertEqual(
            ['Scheduled Deletion of Version: before<upgrade>'],
            self.messages(response))

    def test_deleting_asks_first(self):
        self.assertContains(self.client.get(base.TAB),
                            'data-batch-action="true"')

    def test_a_deletion_that_is_refused(self):
        self.refuse(f'/versions/{base.ID}', 409, 'It is protected.', 'DELETE')
        response = self.act('versions', 'delete', base.ID)
        self.assertEqual('Could not delete the version: It is protected.',
                         self.messages(response)[0])

    def test_a_version_that_is_gone(self):
        self.versions()
        response = self.act('versions', 'delete', base.ID)
        self.assertRedirects(response, base.TAB)
        self.assertNotIn('DELETE', [sent[0] for sent in self.wire.sent])

    def test_an_action_comes_back_to_the_page(self):
        self.answer(f'/versions/{base.ID}', None, 204, 'DELETE')
        self.answer('/versions', lambda query: {
            'versions': [base.VERSION] if query['marker'] == 'x' else []})
        response = self.client.post(
            f'{base.ACTIONS}?tab=instance_details__versions&version_marker=x',
            {'action': f'versions__delete__{base.ID}'})
        self.assertRedirectsNoFollow(response, f'{base.TAB}&version_marker=x')

    def test_cancel(self):
        self.answer(f'/version-tasks/{base.TASK}/cancel',
                    {'version_task': base.WORK},
                    method='POST')
        response = self.act('tasks', 'cancel', base.TASK)
        self.assertEqual([f'Cancelled Task: {base.TASK}'],
                         self.messages(response))

    def test_a_task_that_has_to_complete(self):
        self.refuse(f'/version-tasks/{base.TASK}/cancel', 409,
                    'It has started.',
                    'POST')
        response = self.act('tasks', 'cancel', base.TASK)
        self.assertEqual('Could not cancel the task: It has started.',
                         self.messages(response)[0])

    def test_forged_requests_are_refused(self):
        self.client.handler.enforce_csrf_checks = True
        for path, data in ((base.ACTIONS,
                            {'action': f'versions__delete__{base.ID}'}),
                           (base.SAVE, {'alpha': '0'}),
                           (base.RESTORE, {'method': 'auto'})):
            response = self.client.post(path, data)
            self.assertEqual(403, response.status_code)
        self.assertEqual([], self.wire.sent)


class UpdateTest(base.VersionsTest):
    """Rows that Horizon updates while something goes on."""

    def update(self, table, row):
        return self.client.get(base.ACTIONS, {
            'action': 'row_update', 'table': table, 'obj_id': row},
            headers={'x-requested-with': 'XMLHttpRequest'})

    def test_a_version(self):
        self.answer(f'/versions/{base.ID}', {'version': {
            **base.VERSION, 'state': 'saving'}})
        response = self.update('versions', base.ID)
        self.assertContains(response, 'Saving')
        self.assertContains(response, 'warning')
        self.assertEqual([('GET', f'/versions/{base.ID}', {})], self.wire.sent)

    def test_a_task_has_a_bar(self):
        self.answer(f'/version-tasks/{base.TASK}', {'version_task': base.WORK})
        response = self.update('tasks', base.TASK)
        self.assertContains(response, 'percent="40%"')

    def test_a_task_that_ended_is_updated_no_more(self):
        self.answer(f'/version-tasks/{base.TASK}',
                    {'version_task': base.CHECKED})
        response = self.update('tasks', base.TASK)
        self.assertNotContains(response, 'warning')

    def test_a_version_that_is_gone(self):
        response = self.update('versions', base.ID)
        self.assertEqual(404, response.status_code)

    def test_no_answer(self):
        self.answer(f'/versions/{base.ID}',
                    needs.requests.ConnectionError('no route'))
        response = self.update('versions', base.ID)
        self.assertEqual(503, response.status_code)


class RightsTest(base.VersionsTest):
    """With the rules of the service."""

    def setUp(self):
        super().setUp()
        self.with_rules()

    def test_a_member_acts(self):
        self.act_as('member')
        response = self.client.get(base.TAB)
        for action in (f'versions__restore__{base.ID}',
                       f'versions__protect__{base.ID}',
                       f'versions__delete__{base.ID}',
                       f'tasks__cancel__{base.TASK}',
                       base.SAVE, base.POLICY, base.COMPARE, base.EXPORT):
            self.assertContains(response, action)

    def test_a_reader_looks(self):
        self.act_as('reader')
        response = self.client.get(base.TAB)
        self.assertContains(response, '40%')
        for action in 'restore', 'protect', 'delete', 'cancel':
            self.assertNotContains(response, f'__{action}__')
        for path in base.SAVE, base.POLICY, base.COMPARE, base.EXPORT:
            self.assertNotContains(response, path)

    def test_a_reader_does_not_delete(self):
        self.act_as('reader')
        self.act('versions', 'delete', base.ID)
        self.assertNotIn('DELETE', [sent[0] for sent in self.wire.sent])

    def test_a_reader_has_no_forms(self):
        self.answer(f'/version-tasks/{base.TASK}',
                    {'version_task': base.CHECKED})
        self.answer(f'/versions/{base.ID}', {'version': base.VERSION})
        self.answer('/version-policies', needs.listing('version_policies'))
        for path in (base.SAVE, base.RESTORE, base.POLICY, base.COMPARE,
                     base.EXPORT):
            with self.subTest(path=path):
                self.act_as('member')
                self.assertEqual(200, self.client.get(path).status_code)
                self.act_as('reader')
                self.assertEqual(403, self.client.get(path).status_code)

    def test_tasks_that_may_not_be_listed(self):
        with unittest.mock.patch.object(
                policy, 'check', lambda rules, *_, **__: rules[0][1]
                != 'diffcache:version_tasks:list'):
            response = self.client.get(base.TAB)
        self.assertContains(response, 'before&lt;upgrade&gt;')
        self.assertNotIn('/version-tasks',
                         [path for _method, path, _query in self.wire.sent])

    def test_others_have_no_tab(self):
        self.act_as('auditor')
        response = self.client.get(base.TAB)
        self.assertNotContains(response, '"#instance_details__versions"')
        self.assertEqual([], self.wire.sent)
