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
"""The tab of a server's versions, and its forms."""

import unittest.mock

from tests.unit.dashboard import needs

from django import urls
from openstack_dashboard import policy

ID = 'c7a1d3b4-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
PARENT = 'a1b2e4c5-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
TASK = 'e9c3f5d6-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
SERVER = needs.ServerPageTest.server
TAB = (urls.reverse('horizon:project:instances:detail', args=[SERVER])
       + '?tab=instance_details__versions')
ACTIONS = urls.reverse('horizon:project:image_cache_versions:actions',
                       args=[SERVER])
SAVE = urls.reverse('horizon:project:image_cache_versions:save',
                    args=[SERVER])
RESTORE = urls.reverse('horizon:project:image_cache_versions:restore',
                       args=[SERVER, TASK])
POLICY = urls.reverse('horizon:project:image_cache_versions:policy',
                      args=[SERVER])
COMPARE, EXPORT = (
    urls.reverse(f'horizon:project:image_cache_versions:{name}',
                 args=[SERVER, ID]) for name in ('compare', 'export'))
PROJECT = needs.ServerPageTest.project
VERSION = {
    'id': ID, 'name': 'before<upgrade>', 'description': '',
    'server_id': SERVER, 'project_id': PROJECT, 'parent_id': PARENT,
    'state': 'available', 'trigger': 'request', 'generation': 3,
    'protected': False, 'size': 20 * 10 ** 9, 'bytes_stored': 3 * 10 ** 9,
    'error': None, 'created_at': '2026-11-23T18:00:00Z', 'task': None}
WORK = {
    'id': TASK, 'kind': 'save', 'state': 'running', 'project_id': PROJECT,
    'server_id': SERVER, 'version_id': ID, 'host': None,
    'done': 4 * 10 ** 9, 'total': 10 ** 10, 'result': {}, 'error': None,
    'created_at': '2026-11-23T18:00:00Z'}
FOUND = {'dry_run': True, 'bytes_differing': 7 * 10 ** 8,
         'bytes_rebuild': 9 * 10 ** 9, 'cheaper': 'rollback',
         'reason': 'It costs less.'}
CHECKED = {**WORK, 'kind': 'restore', 'state': 'done', 'result': FOUND}
RULES = {
    'id': PARENT, 'project_id': PROJECT, 'server_id': SERVER, 'every': 5400,
    'keep_last': 5, 'keep_hourly': 0, 'keep_daily': 0, 'keep_weekly': 0,
    'keep_monthly': 0, 'on_shutdown': False, 'on_delete': True,
    'required': False, 'alpha': '0', 'created_at': '2026-11-23T18:00:00Z'}
SUBMIT = 'btn-primary" type="submit" value="Roll Back"'


class VersionsTest(needs.ServerPageTest):
    """A server with one version and one task, in Horizon's own page."""

    def setUp(self):
        super().setUp()
        self.versions(VERSION)
        self.tasks(WORK)

    def versions(self, *entries):
        """Have the service list some versions."""
        self.answer('/versions', needs.listing('versions', *entries))

    def tasks(self, *entries):
        """Have the service list some tasks."""
        self.answer('/version-tasks', needs.listing('version_tasks',
                                                    *entries))

    def act(self, table, action, row, query=''):
        """Take an action; return the response of the tab that follows."""
        return self.client.post(f'{ACTIONS}{query}', {
            'action': f'{table}__{action}__{row}'}, follow=True)


class TabTest(VersionsTest):

    def test_versions_and_tasks(self):
        response = self.client.get(TAB)
        for text in ('before&lt;upgrade&gt;', '2026-11-23 18:00:00',
                     '3.0 GB', ID[:12], PARENT[:12], 'Available', 'Request',
                     'Running', '40%', '10.0 GB'):
            self.assertContains(response, text)
        self.assertContains(response, SAVE)
        self.assertIn(('GET', '/versions', {'limit': '21', 'server_id': '1'}),
                      self.wire.sent)
        self.assertIn(
            ('GET', '/version-tasks', {'limit': '21', 'server_id': '1'}),
            self.wire.sent)

    def test_it_is_loaded_when_it_is_opened(self):
        response = self.client.get(TAB.partition('?')[0])
        self.assertContains(response, '"#instance_details__versions"')
        self.assertEqual([], self.wire.sent)

    def test_rows_are_updated_that_come_into_a_page(self):
        response = self.client.get(
            TAB, headers={'x-requested-with': 'XMLHttpRequest'})
        self.assertContains(response, 'horizon.datatables.update()')
        self.assertNotContains(self.client.get(TAB),
                               'horizon.datatables.update()')

    def test_pages_are_those_of_the_service(self):
        self.versions(*(
            {**VERSION, 'id': f'{number:08}{ID[8:]}'}
            for number in range(21)))
        marker = f'{19:08}{ID[8:]}'
        response = self.client.get(TAB)
        self.assertContains(response, '?tab=instance_details__versions'
                                      f'&amp;version_marker={marker}')
        self.wire.sent.clear()
        response = self.client.get(f'{TAB}&version_marker={marker}')
        self.assertIn(('GET', '/versions', {
            'limit': '21', 'server_id': '1', 'marker': marker}),
            self.wire.sent)

    def test_actions_are_those_of_the_state(self):
        protected = {**VERSION, 'protected': True}
        for version, offered in (
                (VERSION, {'restore', 'protect', 'delete'}),
                (protected, {'restore', 'unprotect'}),
                ({**VERSION, 'state': 'saving'}, {'protect'}),
                ({**VERSION, 'state': 'error'}, {'protect', 'delete'}),
                ({**VERSION, 'state': 'deleting'}, set())):
            with self.subTest(state=version['state'], offered=offered):
                self.versions(version)
                response = self.client.get(TAB)
                for action in 'restore', 'protect', 'unprotect', 'delete':
                    check = (self.assertContains if action in offered
                             else self.assertNotContains)
                    check(response, f'versions__{action}__{ID}')

    def test_a_server_is_launched_from_an_exported_version(self):
        self.assertNotContains(self.client.get(TAB), 'LaunchInstanceModal')
        self.versions({**VERSION, 'image_id': 'i7'})
        response = self.client.get(TAB)
        self.assertContains(response, 'LaunchInstanceModalController')
        self.assertContains(response, 'imageId: &#x27;i7&#x27;')
        self.assertNotContains(response, EXPORT)

    def test_tasks_that_can_be_cancelled(self):
        for state, kind, is_offered in (
                ('running', 'save', True), ('queued', 'restore', True),
                ('running', 'restore', False), ('running', 'forget', False),
                ('done', 'save', False)):
            with self.subTest(state=state, kind=kind):
                self.tasks({**WORK, 'state': state, 'kind': kind})
                check = (self.assertContains if is_offered
                         else self.assertNotContains)
                check(self.client.get(TAB), f'tasks__cancel__{TASK}')

    def test_results_of_tasks(self):
        self.tasks(CHECKED, {
            **CHECKED, 'id': ID, 'result': {
                'method': 'rebuild', 'bytes_written': 9 * 10 ** 9}},
            {**WORK, 'id': PARENT, 'state': 'failed', 'error': 'No space.'},
            {**WORK, 'id': 'a', 'kind': 'diff', 'state': 'done',
             'result': {'bytes': 10 ** 6, 'disks': {}}},
            {**WORK, 'id': 'b', 'kind': 'export', 'state': 'done',
             'result': {'image_id': 'i7'}})
        response = self.client.get(TAB)
        for text in ('700 MB differ, the cheaper method is &quot;in place'
                     '&quot;', '9.0 GB written, method &quot;new disks&quot;',
                     'No space.', '1.0 MB differ', 'Image i7'):
            self.assertContains(response, text)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/versions', 503, 'No database.')
        response = self.client.get(TAB)
        self.assertEqual(['Could not list the versions: No database.'],
                         self.messages(response))
        self.assertContains(response, '40%')

    def test_without_the_service_there_is_no_tab(self):
        self.act_as('member', [entry for entry in self.service_catalog
                               if entry['type'] != 'diffcache'])
        response = self.client.get(TAB)
        self.assertEqual(200, response.status_code)
        self.assertNotContains(response, '"#instance_details__versions"')
        self.assertEqual([], self.wire.sent)

    def test_it_is_not_in_the_menu(self):
        page = self.client.get(TAB).content.decode()
        menu = r'openstack-panel "[^>]*>\s*%s\s*</a>'
        self.assertRegex(page, menu % 'Images')
        self.assertNotRegex(page, menu % 'Versions')


class ActionsTest(VersionsTest):

    def setUp(self):
        super().setUp()
        self.answer(f'/versions/{ID}', {'version': VERSION})

    def test_it_leads_to_the_tab(self):
        self.assertRedirectsNoFollow(self.client.get(ACTIONS), TAB)
        self.assertEqual([], self.wire.sent)

    def test_protect(self):
        self.answer(f'/versions/{ID}', {'version': VERSION}, method='PATCH')
        response = self.act('versions', 'protect', ID)
        self.assertRedirects(response, TAB)
        self.assertEqual(['Protected Version: before<upgrade>'],
                         self.messages(response))
        self.assertEqual([{'version': {'protected': True, 'generation': 3}}],
                         self.wire.bodies)

    def test_unprotect(self):
        self.versions({**VERSION, 'protected': True})
        self.answer(f'/versions/{ID}', {'version': VERSION}, method='PATCH')
        self.act('versions', 'unprotect', ID)
        self.assertEqual([{'version': {'protected': False, 'generation': 3}}],
                         self.wire.bodies)

    def test_a_protection_that_is_refused(self):
        self.refuse(f'/versions/{ID}', 403, 'Not yours.', 'PATCH')
        response = self.act('versions', 'protect', ID)
        self.assertEqual('Could not change the protection: Not yours.',
                         self.messages(response)[0])

    def test_delete(self):
        self.answer(f'/versions/{ID}', None, 204, 'DELETE')
        response = self.act('versions', 'delete', ID)
        self.assertIn(('DELETE', f'/versions/{ID}', {}), self.wire.sent)
        self.assertEqual(
            ['Scheduled Deletion of Version: before<upgrade>'],
            self.messages(response))

    def test_deleting_asks_first(self):
        self.assertContains(self.client.get(TAB),
                            'data-batch-action="true"')

    def test_a_deletion_that_is_refused(self):
        self.refuse(f'/versions/{ID}', 409, 'It is protected.', 'DELETE')
        response = self.act('versions', 'delete', ID)
        self.assertEqual('Could not delete the version: It is protected.',
                         self.messages(response)[0])

    def test_a_version_that_is_gone(self):
        self.versions()
        response = self.act('versions', 'delete', ID)
        self.assertRedirects(response, TAB)
        self.assertNotIn('DELETE', [sent[0] for sent in self.wire.sent])

    def test_an_action_comes_back_to_the_page(self):
        self.answer(f'/versions/{ID}', None, 204, 'DELETE')
        self.answer('/versions', lambda query: {
            'versions': [VERSION] if query['marker'] == 'x' else []})
        response = self.client.post(
            f'{ACTIONS}?tab=instance_details__versions&version_marker=x',
            {'action': f'versions__delete__{ID}'})
        self.assertRedirectsNoFollow(response, f'{TAB}&version_marker=x')

    def test_cancel(self):
        self.answer(f'/version-tasks/{TASK}/cancel', {'version_task': WORK},
                    method='POST')
        response = self.act('tasks', 'cancel', TASK)
        self.assertEqual([f'Cancelled Task: {TASK}'],
                         self.messages(response))

    def test_a_task_that_has_to_complete(self):
        self.refuse(f'/version-tasks/{TASK}/cancel', 409, 'It has started.',
                    'POST')
        response = self.act('tasks', 'cancel', TASK)
        self.assertEqual('Could not cancel the task: It has started.',
                         self.messages(response)[0])

    def test_forged_requests_are_refused(self):
        self.client.handler.enforce_csrf_checks = True
        for path, data in ((ACTIONS, {'action': f'versions__delete__{ID}'}),
                           (SAVE, {'alpha': '0'}),
                           (RESTORE, {'method': 'auto'})):
            response = self.client.post(path, data)
            self.assertEqual(403, response.status_code)
        self.assertEqual([], self.wire.sent)


class UpdateTest(VersionsTest):
    """Rows that Horizon updates while something goes on."""

    def update(self, table, row):
        return self.client.get(ACTIONS, {
            'action': 'row_update', 'table': table, 'obj_id': row},
            headers={'x-requested-with': 'XMLHttpRequest'})

    def test_a_version(self):
        self.answer(f'/versions/{ID}', {'version': {
            **VERSION, 'state': 'saving'}})
        response = self.update('versions', ID)
        self.assertContains(response, 'Saving')
        self.assertContains(response, 'warning')
        self.assertEqual([('GET', f'/versions/{ID}', {})], self.wire.sent)

    def test_a_task_has_a_bar(self):
        self.answer(f'/version-tasks/{TASK}', {'version_task': WORK})
        response = self.update('tasks', TASK)
        self.assertContains(response, 'percent="40%"')

    def test_a_task_that_ended_is_updated_no_more(self):
        self.answer(f'/version-tasks/{TASK}', {'version_task': CHECKED})
        response = self.update('tasks', TASK)
        self.assertNotContains(response, 'warning')

    def test_a_version_that_is_gone(self):
        response = self.update('versions', ID)
        self.assertEqual(404, response.status_code)

    def test_no_answer(self):
        self.answer(f'/versions/{ID}',
                    needs.requests.ConnectionError('no route'))
        response = self.update('versions', ID)
        self.assertEqual(503, response.status_code)


class SaveTest(VersionsTest):

    def test_form(self):
        response = self.client.get(SAVE)
        self.assertContains(response, f'action="{SAVE}"')
        self.assertEqual([], self.wire.sent)

    def test_a_server_is_saved(self):
        self.answer('/versions', {'version': VERSION}, 202, 'POST')
        response = self.client.post(SAVE, {
            'name': 'before', 'description': 'of May', 'alpha': 'auto',
            'rate': '50MB', 'is_protected': 'on'})
        self.assertRedirectsNoFollow(response, TAB)
        self.assertEqual([{'version': {
            'server_id': SERVER, 'name': 'before', 'description': 'of May',
            'alpha': 'auto', 'rate': 50 * 10 ** 6, 'protected': True}}],
            self.wire.bodies)

    def test_defaults(self):
        self.answer('/versions', {'version': VERSION}, 202, 'POST')
        self.client.post(SAVE, {'alpha': '0'})
        self.assertEqual([{'version': {'server_id': SERVER, 'alpha': '0'}}],
                         self.wire.bodies)

    def test_input_that_is_not_sent(self):
        for wrong in ({'rate': 'fast'}, {'rate': '0'}, {'rate': '2TiB'},
                      {'alpha': '7'}, {'name': 'x' * 256}):
            with self.subTest(wrong=wrong):
                response = self.client.post(SAVE, {'alpha': '0', **wrong})
                self.assertFormErrors(response, 1)
        self.assertEqual([], self.wire.sent)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/versions', 413, 'Too many versions.', 'POST')
        response = self.client.post(SAVE, {'alpha': '0'})
        self.assertEqual(['Could not save the server: Too many versions.'],
                         self.messages(response))


class RestoreTest(VersionsTest):

    def setUp(self):
        super().setUp()
        self.answer(f'/versions/{ID}', {'version': VERSION})
        self.answer(f'/versions/{ID}/restore', {'version_task': CHECKED},
                    202, 'POST')
        self.check()

    def check(self, **values):
        """Have the service show the task that checks."""
        self.answer(f'/version-tasks/{TASK}', {
            'version_task': {**CHECKED, **values}})

    def test_a_check_comes_first(self):
        response = self.client.post(
            ACTIONS, {'action': f'versions__restore__{ID}'})
        self.assertRedirectsNoFollow(response, RESTORE)
        self.assertEqual([{'restore': {'dry_run': True}}], self.wire.bodies)

    def test_a_check_that_is_refused(self):
        self.refuse(f'/versions/{ID}/restore', 409, 'It is ACTIVE.', 'POST')
        response = self.act('versions', 'restore', ID)
        self.assertRedirects(response, TAB)
        self.assertEqual(
            ['Could not check what would be written: It is ACTIVE.'],
            self.messages(response))

    def test_a_check_that_goes_on(self):
        self.check(state='running', result={})
        response = self.client.get(RESTORE)
        self.assertContains(response, '40%')
        self.assertNotContains(response, SUBMIT)
        self.assertEqual('2', response['Refresh'])

    def test_the_page_is_loaded_again_until_the_check_has_ended(self):
        for state, interval in (
                ('queued', '2'), ('running', '2'), ('done', None),
                ('failed', None), ('cancelled', None)):
            with self.subTest(state=state):
                self.check(state=state)
                self.assertEqual(
                    interval, self.client.get(RESTORE).get('Refresh'))

    def test_what_would_be_written(self):
        response = self.client.get(RESTORE)
        for text in ('before&lt;upgrade&gt;', '700 MB', '9.0 GB', 'in place',
                     'It costs less.', f'action="{RESTORE}"',
                     SUBMIT):
            self.assertContains(response, text)
        self.assertFalse(response.has_header('Refresh'))

    def test_a_check_that_failed(self):
        self.check(state='failed', result={}, error='The host is down.')
        response = self.client.get(RESTORE)
        self.assertContains(response, 'The host is down.')
        self.assertNotContains(response, SUBMIT)

    def test_roll_back(self):
        response = self.client.post(RESTORE, {'method': 'auto',
                                              'keep_current': 'on'})
        self.assertRedirectsNoFollow(response, TAB)
        self.assertEqual([{'restore': {'method': 'auto',
                                       'keep_current': True}}],
                         self.wire.bodies)

    def test_roll_back_and_discard_the_current_state(self):
        self.client.post(RESTORE, {'method': 'rebuild'})
        self.assertEqual([{'restore': {'method': 'rebuild',
                                       'keep_current': False}}],
                         self.wire.bodies)

    def test_not_before_the_check_is_done(self):
        for values in ({'state': 'running'}, {'state': 'failed'},
                       {'result': {'method': 'rollback'}}):
            with self.subTest(values=values):
                self.check(**values)
                response = self.client.post(RESTORE, {'method': 'auto'})
                self.assertRedirectsNoFollow(response, RESTORE)
        self.assertEqual([], self.wire.bodies)

    def test_tasks_that_are_no_check_of_this_server(self):
        for values in ({'kind': 'save'}, {'server_id': '2'}):
            with self.subTest(values=values):
                self.check(**values)
                self.assertEqual(404,
                                 self.client.get(RESTORE).status_code)

    def test_a_refused_call_is_a_message(self):
        self.refuse(f'/versions/{ID}/restore', 409, 'It is ACTIVE.', 'POST')
        response = self.client.post(RESTORE, {'method': 'auto'})
        self.assertEqual(['Could not roll back the server: It is ACTIVE.'],
                         self.messages(response))

    def test_no_such_task(self):
        self.refuse(f'/version-tasks/{TASK}', 404, 'There is no such task.')
        self.assertRedirectsNoFollow(self.client.get(RESTORE), TAB)


class CompareTest(VersionsTest):

    def setUp(self):
        super().setUp()
        self.versions(VERSION, {**VERSION, 'id': PARENT, 'name': 'older'})

    def test_other_versions_are_offered(self):
        response = self.client.get(COMPARE)
        self.assertContains(response, f'value="{PARENT}"')
        self.assertNotContains(response, f'value="{ID}"')

    def test_two_versions_are_compared(self):
        self.answer(f'/versions/{ID}/diff', {'version_task': WORK}, 202,
                    'POST')
        response = self.client.post(COMPARE, {'against': PARENT})
        self.assertRedirectsNoFollow(response, TAB)
        self.assertEqual([{'diff': {'against': PARENT}}], self.wire.bodies)

    def test_a_version_that_is_not_offered(self):
        response = self.client.post(COMPARE, {'against': TASK})
        self.assertFormErrors(response, 1)

    def test_a_refused_call_is_a_message(self):
        self.refuse(f'/versions/{ID}/diff', 409, 'Busy.', 'POST')
        response = self.client.post(COMPARE, {'against': PARENT})
        self.assertEqual(['Could not compare the versions: Busy.'],
                         self.messages(response))


class ExportTest(VersionsTest):

    def test_a_version_is_exported(self):
        self.answer(f'/versions/{ID}/export', {'version_task': WORK}, 202,
                    'POST')
        response = self.client.post(EXPORT, {'name': 'gold'})
        self.assertRedirectsNoFollow(response, TAB)
        self.assertEqual([{'export': {'name': 'gold'}}], self.wire.bodies)

    def test_a_refused_call_is_a_message(self):
        self.refuse(f'/versions/{ID}/export', 409, 'Busy.', 'POST')
        response = self.client.post(EXPORT, {})
        self.assertEqual(['Could not export the version: Busy.'],
                         self.messages(response))


class PolicyTest(VersionsTest):

    def policies(self, *entries):
        """Have the service list some policies."""
        self.answer('/version-policies',
                    needs.listing('version_policies', *entries))

    def test_a_policy_is_set(self):
        self.policies()
        self.answer('/version-policies', {'version_policy': RULES},
                    method='POST')
        self.assertNotContains(self.client.get(POLICY), 'is_removed')
        response = self.client.post(POLICY, {
            'every': '6h', 'keep_daily': 7, 'is_on_delete': True})
        self.assertRedirectsNoFollow(response, TAB)
        self.assertEqual([{'version_policy': {
            'server_id': SERVER, 'every': 21600, 'keep_daily': 7,
            'on_delete': True, 'on_shutdown': False, 'required': False}}],
            self.wire.bodies)

    def test_the_form_has_the_policy(self):
        self.policies(RULES)
        response = self.client.get(POLICY)
        for text in 'value="90m"', 'value="5"', 'is_removed':
            self.assertContains(response, text)

    def test_a_policy_is_removed(self):
        self.policies(RULES)
        self.answer(f'/version-policies/{PARENT}', {}, 204, 'DELETE')
        response = self.client.post(POLICY, {'is_removed': True})
        self.assertRedirectsNoFollow(response, TAB)
        self.assertIn(('DELETE', f'/version-policies/{PARENT}', {}),
                      self.wire.sent)

    def test_a_time_that_is_none(self):
        self.policies()
        response = self.client.post(POLICY, {'every': 'often'})
        self.assertContains(response, 'write 30m, 6h or 1d')
        self.assertEqual([], self.wire.bodies)

    def test_a_refused_call_is_a_message(self):
        self.policies()
        self.refuse('/version-policies', 400, 'Too often.', 'POST')
        response = self.client.post(POLICY, {'every': '1s'})
        self.assertEqual(['Could not change the policy: Too often.'],
                         self.messages(response))


class RightsTest(VersionsTest):
    """With the rules of the service."""

    def setUp(self):
        super().setUp()
        self.with_rules()

    def test_a_member_acts(self):
        self.act_as('member')
        response = self.client.get(TAB)
        for action in (f'versions__restore__{ID}',
                       f'versions__protect__{ID}',
                       f'versions__delete__{ID}', f'tasks__cancel__{TASK}',
                       SAVE, POLICY, COMPARE, EXPORT):
            self.assertContains(response, action)

    def test_a_reader_looks(self):
        self.act_as('reader')
        response = self.client.get(TAB)
        self.assertContains(response, '40%')
        for action in 'restore', 'protect', 'delete', 'cancel':
            self.assertNotContains(response, f'__{action}__')
        for path in SAVE, POLICY, COMPARE, EXPORT:
            self.assertNotContains(response, path)

    def test_a_reader_does_not_delete(self):
        self.act_as('reader')
        self.act('versions', 'delete', ID)
        self.assertNotIn('DELETE', [sent[0] for sent in self.wire.sent])

    def test_a_reader_has_no_forms(self):
        self.answer(f'/version-tasks/{TASK}', {'version_task': CHECKED})
        self.answer(f'/versions/{ID}', {'version': VERSION})
        self.answer('/version-policies', needs.listing('version_policies'))
        for path in SAVE, RESTORE, POLICY, COMPARE, EXPORT:
            with self.subTest(path=path):
                self.act_as('member')
                self.assertEqual(200, self.client.get(path).status_code)
                self.act_as('reader')
                self.assertEqual(403, self.client.get(path).status_code)

    def test_tasks_that_may_not_be_listed(self):
        with unittest.mock.patch.object(
                policy, 'check', lambda rules, *_, **__: rules[0][1]
                != 'diffcache:version_tasks:list'):
            response = self.client.get(TAB)
        self.assertContains(response, 'before&lt;upgrade&gt;')
        self.assertNotIn('/version-tasks',
                         [path for _method, path, _query in self.wire.sent])

    def test_others_have_no_tab(self):
        self.act_as('auditor')
        response = self.client.get(TAB)
        self.assertNotContains(response, '"#instance_details__versions"')
        self.assertEqual([], self.wire.sent)
