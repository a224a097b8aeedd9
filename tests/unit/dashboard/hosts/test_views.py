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
"""Pages of hosts."""

import copy

from tests.unit.dashboard import needs

from django import urls

INDEX = urls.reverse('horizon:admin:image_cache_hosts:index')
DETAIL = urls.reverse('horizon:admin:image_cache_hosts:detail', args=['c1'])
HOST = {
    'name': 'c1', 'site': 'edge', 'role': 'compute', 'alive': True,
    'capacity': 20 * 10 ** 9, 'plan_generation': 4,
    'seen_at': '2026-11-23T18:00:00Z',
    'held': {'objects': 3, 'bytes': 5 * 10 ** 9},
    'plan': {'objects': 4, 'bytes': 8 * 10 ** 9, 'held_objects': 2,
             'held_bytes': 4 * 10 ** 9}}
STANDING = {'answers': False, 'since': '2026-11-23T17:00:00Z',
            'reason': 'refused', 'mbps': 93.5, 'transfers': 7, 'failures': 2,
            'bytes': 10 ** 9}
SHOWN = {
    **HOST, 'links': {'local': 1000.0, 'peer': 940.0, 'repo': 100.0},
    'fill': {'max_rate': 5 * 10 ** 6, 'windows': ['22:00-06:00'],
             'seconds_per_day': 28800},
    'measured': {'peer': None, 'repo': 95.5},
    'repositories': [{'name': 'r1', **STANDING}], 'clients': []}


def hosts(count):
    """Return hosts by name."""
    return [{**HOST, 'name': f'c{number:04}'} for number in range(count)]


class IndexTest(needs.PageTest):

    def test_hosts_and_their_fill(self):
        self.answer('/hosts', needs.listing(
            'hosts', HOST, {
                **HOST, 'name': 'r1', 'role': 'repository', 'alive': False,
                'plan': {**HOST['plan'], 'objects': 0}}))
        response = self.client.get(INDEX)
        self.assertContains(response, f'href="{DETAIL}"')
        for text in ('5.0 GB', '20.0 GB', '25%',
                     '2 of 4 objects, 4.0 GB of 8.0 GB', 'No plan',
                     'Compute', 'Repository', 'Up', 'Down'):
            self.assertContains(response, text)
        self.assertIn(self.token.id, self.wire.tokens)

    def test_pages_are_those_of_the_service(self):
        self.answer('/hosts', {
            'hosts': hosts(21), 'hosts_links': [
                {'rel': 'next', 'href': f'{needs.ENDPOINT}/hosts?marker=x'}]})
        response = self.client.get(INDEX)
        self.assertEqual(20, len(response.context['table'].data))
        self.assertContains(response, '?host_marker=c0019')
        self.assertEqual([('GET', '/hosts', {'limit': '21'})],
                         self.wire.sent)

    def test_the_last_page(self):
        self.answer('/hosts', lambda query: {
            'hosts': hosts(20) if query['marker'] == 'b9' else []})
        response = self.client.get(f'{INDEX}?host_marker=b9')
        self.assertFalse(response.context['table'].has_more_data())
        self.assertEqual(
            ('GET', '/hosts', {'limit': '21', 'marker': 'b9'}),
            self.wire.sent[0])

    def test_filters_are_those_of_the_service(self):
        self.answer('/hosts', needs.listing('hosts', HOST))
        query = {'hosts__filter__q': 'edge',
                 'hosts__filter__q_field': 'site'}
        response = self.client.post(f'{INDEX}?host_marker=b9', query,
                                    follow=True)
        self.assertEqual(200, response.status_code)
        self.assertEqual([('GET', '/hosts', {'limit': '21', 'site': 'edge'})],
                         [each for each in self.wire.sent
                          if each[2].get('marker') != 'c1'])

    def test_a_refused_call_is_a_message(self):
        for status in 400, 403, 404, 409, 500, 503:
            with self.subTest(status=status):
                self.refuse('/hosts', status, 'The conductor says no.')
                response = self.client.get(INDEX)
                self.assertEqual(200, response.status_code)
                self.assertEqual(
                    ['Could not list hosts: The conductor says no.'],
                    self.messages(response))

    def test_an_answer_of_no_service(self):
        self.answer('/hosts', 'Bad Gateway', 502)
        response = self.client.get(INDEX)
        self.assertEqual(['Could not list hosts: 502 Status 502'],
                         self.messages(response))

    def test_no_answer(self):
        self.answer('/hosts', needs.requests.ConnectionError('no route'))
        response = self.client.get(INDEX)
        # Neither the URL, nor the text of a Python library.
        self.assertEqual(['Could not list hosts: The API of the image cache'
                          ' cannot be reached.'], self.messages(response))

    def test_a_token_that_expired_asks_for_a_login(self):
        self.refuse('/hosts', 401, 'Expired.')
        response = self.client.get(INDEX)
        self.assertTemplateUsed(response, 'not_authorized.html')

    def test_a_host_that_is_down_can_be_removed(self):
        self.answer('/hosts', needs.listing(
            'hosts', HOST, {**HOST, 'name': 'c2', 'alive': False}))
        self.answer('/hosts/c2', None, 204, 'DELETE')
        response = self.client.get(INDEX)
        self.assertContains(response, 'hosts__delete__c2')
        self.assertNotContains(response, 'hosts__delete__c1')
        response = self.client.post(
            INDEX, {'action': 'hosts__delete__c2'}, follow=True)
        self.assertIn(('DELETE', '/hosts/c2', {}), self.wire.sent)
        self.assertEqual(['Removed Host: c2'], self.messages(response))

    def test_a_host_that_came_back_is_not_removed(self):
        self.answer('/hosts', needs.listing('hosts', {**HOST, 'alive': False}))
        self.refuse('/hosts/c1', 409, 'c1 is alive.', 'DELETE')
        response = self.client.post(
            INDEX, {'action': 'hosts__delete__c1'}, follow=True)
        self.assertEqual(['Could not remove the host: c1 is alive.'],
                         self.messages(response)[:1])


class RightsTest(needs.PageTest):
    """With the rules of the service, which Horizon's tests do not check."""

    def setUp(self):
        super().setUp()
        self.with_rules()
        self.answer('/hosts', needs.listing('hosts', {**HOST, 'alive': False}))

    def test_an_administrator_sees_the_panel_and_its_actions(self):
        response = self.client.get(INDEX)
        self.assertContains(response, 'hosts__delete__c1')

    def test_others_do_not(self):
        for role in 'member', 'reader':
            with self.subTest(role=role):
                self.act_as(role)
                response = self.client.get(INDEX)
                self.assertNotEqual(200, response.status_code)
                self.assertEqual([], self.wire.sent)


class DetailTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/hosts/c1', {'host': SHOWN})

    def test_overview(self):
        response = self.client.get(DETAIL)
        for text in ('edge', '25%', '100 Mbit/s', '95.5 Mbit/s',
                     '940 Mbit/s', '5.0 MB/s', '22:00-06:00'):
            self.assertContains(response, text)
        # Other tabs are loaded when they are opened.
        self.assertEqual([('GET', '/hosts/c1', {})], self.wire.sent)

    def test_a_host_without_what_newer_services_report(self):
        host = {name: value for name, value in SHOWN.items()
                if name not in ('fill', 'measured', 'repositories',
                                'clients')}
        self.answer('/hosts/c1', {'host': host})
        response = self.client.get(DETAIL)
        self.assertContains(response, 'Any time')

    def test_objects_have_the_reasons_of_the_plan(self):
        held = [{'id': letter * 64, 'kind': 'images', 'bytes': 10 ** 9,
                 'images': ['image<1>']} for letter in 'ab']
        self.answer('/hosts/c1/objects', needs.listing('objects', *held))
        self.answer('/plans', needs.listing('plans', {
            'id': 'p1', 'state': 'current', 'site': 'edge'}))
        self.answer('/plans/p1/explanation', {'explanation': [
            {'host': 'c1', 'kind': 'images', 'id': 'a' * 64,
             'why': 'saves 90 s a day', 'bytes': 1, 'saves_s': 90.0,
             'requests': 3.0, 'eviction': 1, 'pinned': False}]})
        response = self.client.get(f'{DETAIL}?tab=host__objects')
        self.assertContains(response, 'saves 90 s a day', 1)
        self.assertContains(response, 'current plan does not place it', 1)
        self.assertContains(response, 'image&lt;1&gt;', 2)
        self.assertIn(('GET', '/plans', {
            'site': 'edge', 'state': 'current', 'limit': '1'}),
            self.wire.sent)
        self.assertIn(('GET', '/plans/p1/explanation', {'host': 'c1'}),
                      self.wire.sent)

    def test_objects_are_paged_by_the_service(self):
        self.answer('/hosts/c1/objects', needs.listing('objects', *(
            {'id': f'{number:064}', 'kind': 'recipes', 'bytes': 1,
             'images': []} for number in range(21))))
        self.answer('/plans', {'plans': []})
        response = self.client.get(f'{DETAIL}?tab=host__objects')
        self.assertContains(
            response,
            f'?tab=host__objects&amp;object_marker={19:064}')

    def test_objects_without_an_explanation(self):
        self.answer('/hosts/c1/objects', needs.listing('objects', {
            'id': 'a' * 64, 'kind': 'patches', 'bytes': 1,
            'images': []}))
        self.refuse('/plans', 503, 'The conductor is down.')
        response = self.client.get(f'{DETAIL}?tab=host__objects')
        self.assertContains(response, 'a' * 12)
        self.assertEqual(
            ['Could not explain the plan: The conductor is down.'],
            self.messages(response))

    def test_an_image_and_its_manifest_are_rows_of_their_own(self):
        self.answer('/hosts/c1/objects', needs.listing('objects', *(
            {'id': 'a' * 64, 'kind': kind, 'bytes': size, 'images': []}
            for kind, size in (('manifests', 7000), ('images', 10 ** 9)))))
        self.answer('/plans', needs.listing('plans'))
        response = self.client.get(f'{DETAIL}?tab=host__objects')
        for text in ('7.0 kB', '1.0 GB', 'It comes with an image.',
                     'The current plan does not place it here.'):
            self.assertContains(response, text)

    def test_objects_are_called_what_their_images_are(self):
        self.answer('/hosts/c1/objects', needs.listing(
            'objects',
            {'id': 'a' * 64, 'kind': 'patches', 'bytes': 1, 'images': []},
            {'id': 'b' * 64, 'kind': 'images', 'bytes': 1,
             'images': ['i1', 'i2']}))
        self.answer('/images', needs.listing(
            'images',
            {'id': 'i1', 'name': 'web', 'content_id': 'b' * 64},
            {'id': 'i3', 'name': 'base', 'content_id': 'c' * 64}))
        self.answer('/patches', needs.listing('patches', {
            'id': 'a' * 64, 'base': 'c' * 64, 'target': 'b' * 64}))
        self.answer('/plans', needs.listing('plans'))
        response = self.client.get(f'{DETAIL}?tab=host__objects')
        self.assertContains(response, 'from base to web')
        self.assertContains(response, 'web, i2')

    def test_connections(self):
        response = self.client.get(f'{DETAIL}?tab=host__connections')
        self.assertContains(response, 'refused')
        for text in '93.5 Mbit/s', 'Reads From', 'Read By':
            self.assertContains(response, text)
        self.assertContains(response, '2026-11-23 17:00:00')

    def test_pending_images_of_a_repository(self):
        host = {**copy.deepcopy(SHOWN), 'role': 'repository'}
        self.assertNotContains(self.client.get(DETAIL), 'Pending Images')
        self.answer('/hosts/c1', {'host': host})
        pending = {'image_id': 'i1', 'state': 'waiting_for_space',
                   'attempts': 3, 'error': 'no space',
                   'retry_at': '2026-11-23T19:00:00Z'}
        self.answer('/hosts/c1/pending-images',
                    needs.listing('pending_images', pending))
        response = self.client.get(f'{DETAIL}?tab=host__pending')
        self.assertContains(response, 'Waiting for space')
        self.assertContains(response, 'no space')

    def test_a_host_that_does_not_exist(self):
        self.refuse('/hosts/c1', 404, 'There is no host c1.')
        response = self.client.get(DETAIL)
        self.assertRedirectsNoFollow(response, INDEX)

    def test_names_that_are_paths(self):
        response = self.client.get(f'{INDEX}../')
        self.assertNotEqual(500, response.status_code)
