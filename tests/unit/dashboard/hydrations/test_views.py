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
"""The tab of a server's arriving image, and its form."""

import re
from tests.unit.dashboard import needs

from django import urls

SERVER = needs.ServerPageTest.server
PROJECT = needs.ServerPageTest.project
TAB = (urls.reverse('horizon:project:instances:detail', args=[SERVER])
       + '?tab=instance_details__hydration')
ACTIONS = urls.reverse('horizon:project:image_cache_hydrations:actions',
                       args=[SERVER])
CHANGE = urls.reverse('horizon:project:image_cache_hydrations:change',
                      args=[SERVER])
PATH = f'/hydrations/{SERVER}'
HYDRATION = {
    'server_id': SERVER, 'project_id': PROJECT, 'image_id': 'i1',
    'host': 'c1', 'state': 'arriving', 'percent': 41.9, 'chunk': 1 << 18,
    'chunks': 1000, 'present': 419, 'remaining_bytes': 152 * 10 ** 6,
    'bytes_fetched': 10 ** 8, 'misses': 7, 'stall_ms': 2500,
    'mode': 'deadline', 'paused': False,
    'deadline_at': '2026-11-23T18:00:00Z',
    'expected_at': '2026-11-23T17:00:00Z', 'kept': True, 'rate': 2 * 10 ** 6,
    'measured_rate': 1500000.5, 'sources': [], 'generation': 5,
    'updated_at': '2026-11-23T16:00:00Z'}


class HydrationsTest(needs.ServerPageTest):
    """A server whose image arrives, in Horizon's own page."""

    def setUp(self):
        super().setUp()
        self.hydration()

    def hydration(self, **changed):
        """Have the service show the hydration, and change it."""
        document = {'hydration': {**HYDRATION, **changed}}
        self.answer(PATH, document)
        self.answer(PATH, document, method='PATCH')

    def act(self, action):
        """Take an action; return the response of the tab that follows."""
        return self.client.post(ACTIONS, {
            'action': f'hydration__{action}__{SERVER}'}, follow=True)

    def change(self, **values):
        """Send the form; return the response."""
        return self.client.post(CHANGE, {'when': 'keep', 'rate': '2.0 MB',
                                         **values}, follow=True)


class TabTest(HydrationsTest):

    def test_an_arriving_image(self):
        response = self.client.get(TAB)
        for text in ('41%', 'Arriving', '152 MB', 'By the deadline',
                     '2026-11-23 18:00:00', '2026-11-23 17:00:00', '2.0 MB/s',
                     '1.5 MB/s', '2.5 s', CHANGE):
            self.assertContains(response, text)
        self.assertNotContains(response, 'too late')

    def test_a_pause_and_its_end_are_confirmed(self):
        """Horizon asked for none, though servers share what is changed."""
        for paused, action in ((False, 'pause'), (True, 'resume')):
            self.hydration(paused=paused)
            page = self.client.get(TAB).content.decode()
            [button] = re.findall(
                f'<button[^>]* id="hydration__row_{SERVER}__action_{action}"'
                f'[^>]*>', page)
            self.assertIn('btn-danger', button)
            self.assertIn('help_text=', button)

    def test_the_row_is_updated_until_the_image_is_complete(self):
        self.assertContains(self.client.get(TAB), 'ajax-update warning')
        self.hydration(state='complete', percent=100.0)
        response = self.client.get(TAB)
        self.assertContains(response, '100%')
        self.assertNotContains(response, 'ajax-update warning')

    def test_an_update_of_the_row(self):
        response = self.client.get(ACTIONS, {
            'action': 'row_update', 'table': 'hydration', 'obj_id': SERVER},
            headers={'x-requested-with': 'XMLHttpRequest'})
        self.assertContains(response, '41%')
        self.refuse(PATH, 404, 'No hydration.')
        response = self.client.get(ACTIONS, {
            'action': 'row_update', 'table': 'hydration', 'obj_id': SERVER},
            headers={'x-requested-with': 'XMLHttpRequest'})
        # Horizon removes the row.
        self.assertEqual(404, response.status_code)

    def test_rows_are_updated_that_come_into_a_page(self):
        response = self.client.get(
            TAB, headers={'x-requested-with': 'XMLHttpRequest'})
        self.assertContains(response, 'horizon.datatables.update()')
        self.assertContains(response, "$('#instance_details__hydration')")
        self.assertNotContains(self.client.get(TAB),
                               'horizon.datatables.update()')

    def test_it_is_loaded_when_it_is_opened(self):
        response = self.client.get(TAB.partition('?')[0])
        self.assertContains(response, '"#instance_details__hydration"')
        self.assertEqual([], self.wire.sent)

    def test_a_deadline_that_cannot_be_kept(self):
        self.hydration(kept=False)
        self.assertContains(self.client.get(TAB),
                            '2026-11-23 17:00:00, too late')

    def test_an_image_of_which_nothing_is_known(self):
        self.hydration(
            state='unknown', percent=None, mode='none', deadline_at=None,
            expected_at=None, kept=None, rate=None, measured_rate=None)
        response = self.client.get(TAB)
        self.assertContains(response, 'Only what is read')
        self.assertContains(response, f'{" " * 12}-\n', 5)

    def test_a_server_with_a_whole_image(self):
        self.refuse(PATH, 404, 'No hydration.')
        response = self.client.get(TAB)
        self.assertContains(response, 'all of it is on the host')
        self.assertEqual([], self.messages(response))

    def test_a_refused_call_is_a_message(self):
        self.refuse(PATH, 503, 'No database.')
        self.assertEqual(
            ['Could not show how far the image is: No database.'],
            self.messages(self.client.get(TAB)))

    def test_actions_are_those_of_the_state(self):
        for changed, offered in (
                ({}, {'pause', 'change'}),
                ({'paused': True}, {'resume', 'change'}),
                ({'state': 'unknown'}, {'pause', 'change'}),
                ({'state': 'complete'}, set())):
            with self.subTest(changed):
                self.hydration(**changed)
                response = self.client.get(TAB)
                for action in 'pause', 'resume', 'change':
                    check = (self.assertContains if action in offered
                             else self.assertNotContains)
                    check(response,
                          f'hydration__row_{SERVER}__action_{action}')

    def test_readers_see_it_and_are_offered_nothing(self):
        self.with_rules()
        self.act_as('reader')
        response = self.client.get(TAB)
        self.assertContains(response, '41%')
        for action in 'pause', 'change':
            self.assertNotContains(
                response, f'hydration__row_{SERVER}__action_{action}')

    def test_members_are_offered_the_actions(self):
        self.with_rules()
        self.act_as('member')
        response = self.client.get(TAB)
        for action in 'pause', 'change':
            self.assertContains(
                response, f'hydration__row_{SERVER}__action_{action}')

    def test_members_do_not_change_a_server_of_another_project(self):
        self.with_rules()
        self.act_as('member')
        self.hydration(project_id='another')
        self.assertNotContains(self.client.get(TAB),
                               f'hydration__row_{SERVER}__action_pause')

    def test_without_the_service_there_is_no_tab(self):
        self.act_as('member', [entry for entry in self.service_catalog
                               if entry['type'] != 'diffcache'])
        response = self.client.get(TAB)
        self.assertEqual(200, response.status_code)
        self.assertNotContains(response, '"#instance_details__hydration"')
        self.assertEqual([], self.wire.sent)

    def test_the_tab_of_versions_is_there_too(self):
        self.assertContains(self.client.get(TAB),
                            '"#instance_details__versions"')


class ActionsTest(HydrationsTest):

    def test_it_leads_to_the_tab(self):
        self.assertRedirectsNoFollow(self.client.get(ACTIONS), TAB)
        self.assertEqual([], self.wire.sent)

    def test_pause(self):
        response = self.act('pause')
        self.assertRedirects(response, TAB)
        self.assertEqual([f'Paused Arrival: {SERVER}'],
                         self.messages(response))
        self.assertEqual([{'hydration': {'paused': True, 'generation': 5}}],
                         self.wire.bodies)

    def test_resume(self):
        self.hydration(paused=True)
        self.assertContains(self.client.get(TAB), 'Paused (By the deadline)')
        self.act('resume')
        self.assertEqual([{'hydration': {'paused': False, 'generation': 5}}],
                         self.wire.bodies)

    def test_a_change_that_is_refused(self):
        self.refuse(PATH, 403, 'It is shared.', 'PATCH')
        self.assertEqual('Could not change the arrival: It is shared.',
                         self.messages(self.act('pause'))[0])


class ChangeTest(HydrationsTest):

    def test_the_form_has_the_rate(self):
        response = self.client.get(CHANGE)
        self.assertContains(response, 'value="2.0 MB"')

    def test_a_deadline(self):
        response = self.change(when='deadline', deadline='30m')
        self.assertRedirects(response, TAB)
        self.assertEqual(['Changed the arrival of the image.'],
                         self.messages(response))
        self.assertEqual([{'hydration': {'deadline': 1800,
                                         'generation': 5}}],
                         self.wire.bodies)

    def test_no_deadline_and_no_limit(self):
        self.change(when='idle', rate='')
        self.assertEqual([{'hydration': {'deadline': None, 'rate': None,
                                         'generation': 5}}],
                         self.wire.bodies)

    def test_a_rate_alone(self):
        self.change(rate='5MB')
        self.assertEqual([{'hydration': {'rate': 5 * 10 ** 6,
                                         'generation': 5}}],
                         self.wire.bodies)

    def test_what_is_left_as_it_was_is_not_sent(self):
        self.assertRedirects(self.change(), TAB)
        self.assertEqual([], self.wire.bodies)

    def test_values_that_are_none(self):
        for values, text in (
                ({'when': 'deadline'}, 'is not a duration'),
                ({'when': 'deadline', 'deadline': '0s'}, 'three years'),
                ({'when': 'deadline', 'deadline': '9999999w'}, 'three years'),
                ({'rate': 'fast'}, 'not an amount of bytes'),
                ({'rate': '0'}, 'between 1 B and'),
                ({'rate': '2TB'}, 'between 1 B and')):
            with self.subTest(values):
                self.assertContains(self.change(**values), text)
        self.assertEqual([], self.wire.bodies)

    def test_a_change_that_is_refused(self):
        self.refuse(PATH, 403, 'It is shared.', 'PATCH')
        response = self.change(rate='5MB')
        self.assertIn('Could not change the arrival: It is shared.',
                      self.messages(response))

    def test_a_server_that_reads_a_whole_file_by_now(self):
        self.refuse(PATH, 404, 'No hydration.')
        response = self.client.get(CHANGE, follow=True)
        self.assertRedirects(response, TAB)

    def test_readers_do_not_change_it(self):
        self.with_rules()
        self.act_as('reader')
        for response in (self.client.get(CHANGE), self.change(rate='5MB')):
            self.assertNotEqual(200, response.status_code)
        self.assertEqual([], self.wire.bodies)
