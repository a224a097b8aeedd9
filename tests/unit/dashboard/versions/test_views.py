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
"""The forms about versions of a server."""


from tests.unit.dashboard import needs
from tests.unit.dashboard.versions import base


class SaveTest(base.VersionsTest):

    def test_form(self):
        response = self.client.get(base.SAVE)
        self.assertContains(response, f'action="{base.SAVE}"')
        self.assertEqual([], self.wire.sent)

    def test_a_server_is_saved(self):
        self.answer('/versions', {'version': base.VERSION}, 202, 'POST')
        response = self.client.post(base.SAVE, {
            'name': 'before', 'description': 'of May', 'alpha': 'auto',
            'rate': '50MB', 'is_protected': 'on',
            'exclude_volumes': f'{base.ID} {base.PARENT}'})
        self.assertRedirectsNoFollow(response, base.TAB)
        self.assertEqual([{'version': {
            'server_id': base.SERVER, 'name': 'before',
            'description': 'of May',
            'alpha': 'auto', 'rate': 50 * 10 ** 6, 'protected': True,
            'exclude_volumes': [base.ID, base.PARENT]}}],
            self.wire.bodies)

    def test_defaults(self):
        self.answer('/versions', {'version': base.VERSION}, 202, 'POST')
        self.client.post(base.SAVE, {'alpha': '0'})
        self.assertEqual([{'version': {'server_id': base.SERVER,
                                       'alpha': '0'}}],
                         self.wire.bodies)

    def test_input_that_is_not_sent(self):
        for wrong in ({'rate': 'fast'}, {'rate': '0'}, {'rate': '2TiB'},
                      {'alpha': '7'}, {'name': 'x' * 256}):
            with self.subTest(wrong=wrong):
                response = self.client.post(base.SAVE, {'alpha': '0', **wrong})
                self.assertFormErrors(response, 1)
        self.assertEqual([], self.wire.sent)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/versions', 413, 'Too many versions.', 'POST')
        response = self.client.post(base.SAVE, {'alpha': '0'})
        self.assertEqual(['Could not save the server: Too many versions.'],
                         self.messages(response))


class RestoreTest(base.VersionsTest):

    def setUp(self):
        super().setUp()
        self.answer(f'/versions/{base.ID}', {'version': base.VERSION})
        self.answer(f'/versions/{base.ID}/restore',
                    {'version_task': base.CHECKED},
                    202, 'POST')
        self.check()

    def check(self, **values):
        """Have the service show the task that checks."""
        self.answer(f'/version-tasks/{base.TASK}', {
            'version_task': {**base.CHECKED, **values}})

    def test_a_check_comes_first(self):
        response = self.client.post(
            base.ACTIONS, {'action': f'versions__restore__{base.ID}'})
        self.assertRedirectsNoFollow(response, base.RESTORE)
        self.assertEqual([{'restore': {'dry_run': True}}], self.wire.bodies)

    def test_a_check_that_is_refused(self):
        self.refuse(f'/versions/{base.ID}/restore', 409, 'It is ACTIVE.',
                    'POST')
        response = self.act('versions', 'restore', base.ID)
        self.assertRedirects(response, base.TAB)
        self.assertEqual(
            ['Could not check what would be written: It is ACTIVE.'],
            self.messages(response))

    def test_a_check_that_goes_on(self):
        self.check(state='running', result={})
        response = self.client.get(base.RESTORE)
        self.assertContains(response, '40%')
        self.assertNotContains(response, base.SUBMIT)
        self.assertEqual('2', response['Refresh'])

    def test_the_page_is_loaded_again_until_the_check_has_ended(self):
        for state, interval in (
                ('queued', '2'), ('running', '2'), ('done', None),
                ('failed', None), ('cancelled', None)):
            with self.subTest(state=state):
                self.check(state=state)
                self.assertEqual(
                    interval, self.client.get(base.RESTORE).get('Refresh'))

    def test_what_would_be_written(self):
        response = self.client.get(base.RESTORE)
        for text in ('before&lt;upgrade&gt;', '700 MB', '9.0 GB', 'in place',
                     'It costs less.', f'action="{base.RESTORE}"',
                     base.SUBMIT):
            self.assertContains(response, text)
        self.assertFalse(response.has_header('Refresh'))

    def test_a_check_that_failed(self):
        self.check(state='failed', result={}, error='The host is down.')
        response = self.client.get(base.RESTORE)
        self.assertContains(response, 'The host is down.')
        self.assertNotContains(response, base.SUBMIT)

    def test_roll_back(self):
        response = self.client.post(base.RESTORE, {
            'method': 'auto', 'keep_current': 'on'})
        self.assertRedirectsNoFollow(response, base.TAB)
        self.assertEqual([{'restore': {'method': 'auto',
                                       'keep_current': True}}],
                         self.wire.bodies)

    def test_roll_back_and_discard_the_current_state(self):
        self.client.post(base.RESTORE, {'method': 'rebuild'})
        self.assertEqual([{'restore': {'method': 'rebuild',
                                       'keep_current': False}}],
                         self.wire.bodies)

    def test_not_before_the_check_is_done(self):
        for values in ({'state': 'running'}, {'state': 'failed'},
                       {'result': {'method': 'rollback'}}):
            with self.subTest(values=values):
                self.check(**values)
                response = self.client.post(base.RESTORE, {'method': 'auto'})
                self.assertRedirectsNoFollow(response, base.RESTORE)
        self.assertEqual([], self.wire.bodies)

    def test_tasks_that_are_no_check_of_this_server(self):
        for values in ({'kind': 'save'}, {'server_id': '2'}):
            with self.subTest(values=values):
                self.check(**values)
                self.assertEqual(404,
                                 self.client.get(base.RESTORE).status_code)

    def test_a_refused_call_is_a_message(self):
        self.refuse(f'/versions/{base.ID}/restore', 409, 'It is ACTIVE.',
                    'POST')
        response = self.client.post(base.RESTORE, {'method': 'auto'})
        self.assertEqual(['Could not roll back the server: It is ACTIVE.'],
                         self.messages(response))

    def test_no_such_task(self):
        self.refuse(f'/version-tasks/{base.TASK}', 404,
                    'There is no such task.')
        self.assertRedirectsNoFollow(self.client.get(base.RESTORE), base.TAB)


class CompareTest(base.VersionsTest):

    def setUp(self):
        super().setUp()
        self.versions(base.VERSION,
                      {**base.VERSION, 'id': base.PARENT, 'name': 'older'})

    def test_other_versions_are_offered(self):
        response = self.client.get(base.COMPARE)
        self.assertContains(response, f'value="{base.PARENT}"')
        self.assertNotContains(response, f'value="{base.ID}"')

    def test_two_versions_are_compared(self):
        self.answer(f'/versions/{base.ID}/diff', {'version_task': base.WORK},
                    202,
                    'POST')
        response = self.client.post(base.COMPARE, {'against': base.PARENT})
        self.assertRedirectsNoFollow(response, base.TAB)
        self.assertEqual([{'diff': {'against': base.PARENT}}],
                         self.wire.bodies)

    def test_a_version_that_is_not_offered(self):
        response = self.client.post(base.COMPARE, {'against': base.TASK})
        self.assertFormErrors(response, 1)

    def test_a_refused_call_is_a_message(self):
        self.refuse(f'/versions/{base.ID}/diff', 409, 'Busy.', 'POST')
        response = self.client.post(base.COMPARE, {'against': base.PARENT})
        self.assertEqual(['Could not compare the versions: Busy.'],
                         self.messages(response))


class ExportTest(base.VersionsTest):

    def test_a_version_is_exported(self):
        self.answer(f'/versions/{base.ID}/export', {'version_task': base.WORK},
                    202,
                    'POST')
        response = self.client.post(base.EXPORT, {
            'name': 'gold', 'device': 'vdb'})
        self.assertRedirectsNoFollow(response, base.TAB)
        self.assertEqual([{'export': {'name': 'gold', 'device': 'vdb'}}],
                         self.wire.bodies)

    def test_a_refused_call_is_a_message(self):
        self.refuse(f'/versions/{base.ID}/export', 409, 'Busy.', 'POST')
        response = self.client.post(base.EXPORT, {})
        self.assertEqual(['Could not export the version: Busy.'],
                         self.messages(response))


class PolicyTest(base.VersionsTest):

    def policies(self, *entries):
        """Have the service list some policies."""
        self.answer('/version-policies',
                    needs.listing('version_policies', *entries))

    def test_a_policy_is_set(self):
        self.policies()
        self.answer('/version-policies', {'version_policy': base.RULES},
                    method='POST')
        self.assertNotContains(self.client.get(base.POLICY), 'is_removed')
        response = self.client.post(base.POLICY, {
            'every': '6h', 'keep_daily': 7, 'is_on_delete': True,
            'has_volumes': True})
        self.assertRedirectsNoFollow(response, base.TAB)
        self.assertEqual([{'version_policy': {
            'server_id': base.SERVER, 'every': 21600, 'keep_daily': 7,
            'on_delete': True, 'on_shutdown': False, 'required': False,
            'volumes': True}}],
            self.wire.bodies)

    def test_the_form_has_the_policy(self):
        self.policies(base.RULES)
        response = self.client.get(base.POLICY)
        for text in 'value="90m"', 'value="5"', 'is_removed':
            self.assertContains(response, text)

    def test_a_policy_is_removed(self):
        self.policies(base.RULES)
        self.answer(f'/version-policies/{base.PARENT}', {}, 204, 'DELETE')
        response = self.client.post(base.POLICY, {'is_removed': True})
        self.assertRedirectsNoFollow(response, base.TAB)
        self.assertIn(('DELETE', f'/version-policies/{base.PARENT}', {}),
                      self.wire.sent)

    def test_a_time_that_is_none(self):
        self.policies()
        response = self.client.post(base.POLICY, {'every': 'often'})
        self.assertContains(response, 'write 30m, 6h or 1d')
        self.assertEqual([], self.wire.bodies)

    def test_a_refused_call_is_a_message(self):
        self.policies()
        self.refuse('/version-policies', 400, 'Too often.', 'POST')
        response = self.client.post(base.POLICY, {'every': '1s'})
        self.assertEqual(['Could not change the policy: Too often.'],
                         self.messages(response))
