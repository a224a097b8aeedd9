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
"""Pages of plans."""

import re

from tests.unit.dashboard import needs

from django import urls

ID = 'c7a1d3b4-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
OTHER = 'd8b2e4c5-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
INDEX = urls.reverse('horizon:admin:image_cache_plans:index')
CREATE = urls.reverse('horizon:admin:image_cache_plans:create')
DETAIL = urls.reverse('horizon:admin:image_cache_plans:detail', args=[ID])
PLAN = {
    'id': ID, 'site': 'edge', 'state': 'proposed', 'generation': None,
    'base_generation': 4, 'solver': 'ilp', 'cost_s': 120.5,
    'lower_bound_s': 110.0, 'gap': 0.1, 'proved_optimal': False,
    'solver_seconds': 2.0, 'created_at': '2026-11-23T18:00:00Z',
    'changes': {}, 'error': None, 'move_wan_bytes': 3 * 10 ** 9,
    'move_lan_bytes': 10 ** 9, 'fill_seconds': 600.0, 'saved_seconds': 33.25,
    'saved_wan_bytes': 7 * 10 ** 9, 'cost_wan_bytes': 10 ** 9,
    'objective': 'seconds'}


def item(number, **values):
    """Return an object that a plan places."""
    return {'host': 'c1', 'kind': 'images', 'id': f'{number:064}',
            'bytes': 10 ** 9, 'priority': number, 'saved_seconds': 9.5,
            'held': True, 'base': None, 'target': None,
            'images': [f'image{number}'], **values}


class IndexTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/plans', needs.listing(
            'plans', PLAN, {**PLAN, 'id': OTHER, 'state': 'current',
                            'generation': 4}))

    def test_plans_and_what_they_save(self):
        response = self.client.get(INDEX)
        self.assertContains(response, f'href="{DETAIL}"')
        for text in ('Proposed', '2026-11-23 18:00:00', 'Waiting time',
                     '120.5 s', '33.25 s', '7.0 GB', '3.0 GB', '600 s'):
            self.assertContains(response, text)
        self.assertEqual(('GET', '/plans', {'limit': '21'}),
                         self.wire.sent[0])

    def test_figures_that_are_not_known(self):
        self.answer('/plans', needs.listing('plans', {
            **PLAN, 'state': 'computing', 'cost_s': None,
            'saved_seconds': None, 'saved_wan_bytes': None,
            'move_wan_bytes': None, 'fill_seconds': None,
            'objective': None}))
        response = self.client.get(INDEX)
        self.assertContains(response, 'Computing')
        self.assertEqual([], self.messages(response))

    def test_actions_are_those_of_the_state(self):
        response = self.client.get(INDEX)
        self.assertContains(response, f'plans__apply__{ID}')
        self.assertContains(response, f'plans__cancel__{ID}')
        self.assertNotContains(response, f'plans__apply__{OTHER}')
        self.assertNotContains(response, f'plans__cancel__{OTHER}')

    def test_applying_needs_a_confirmation_that_tells_what_it_moves(self):
        [button] = [each for each in re.findall(
            '<button[^>]*>', self.client.get(INDEX).content.decode())
            if f'plans__apply__{ID}' in each]
        self.assertIn('btn-danger', button)
        self.assertIn('Hosts fetch 3.0 GB over the WAN and 1.0 GB from each'
                      ' other, in 600 s,', button)

    def test_apply_over_the_plan_that_was_seen(self):
        self.answer(f'/plans/{ID}/apply', {'plan': PLAN}, method='POST')
        response = self.client.post(
            INDEX, {'action': f'plans__apply__{ID}'}, follow=True)
        self.assertEqual([f'Applied Plan: {ID}'], self.messages(response))
        self.assertEqual([{'generation': 4}], self.wire.bodies)

    def test_another_plan_was_applied_meanwhile(self):
        self.refuse(f'/plans/{ID}/apply', 409, 'There is a newer plan.',
                    'POST')
        response = self.client.post(
            INDEX, {'action': f'plans__apply__{ID}'}, follow=True)
        self.assertEqual('Could not apply the plan: There is a newer plan.',
                         self.messages(response)[0])

    def test_cancel(self):
        self.answer(f'/plans/{ID}/cancel', {'plan': PLAN}, method='POST')
        response = self.client.post(
            INDEX, {'action': f'plans__cancel__{ID}'}, follow=True)
        self.assertEqual([f'Cancelled Plan: {ID}'], self.messages(response))

    def test_apply_a_plan_that_is_not_on_the_page(self):
        self.answer('/plans', needs.listing('plans', {**PLAN, 'id': OTHER}))
        self.answer(f'/plans/{ID}', {'plan': PLAN})
        self.answer(f'/plans/{ID}/apply', {'plan': PLAN}, method='POST')
        response = self.client.post(
            INDEX, {'action': f'plans__apply__{ID}'}, follow=True)
        self.assertEqual([f'Applied Plan: {ID}'], self.messages(response))
        self.assertEqual([{'generation': 4}], self.wire.bodies)

    def test_apply_a_plan_that_does_not_exist(self):
        self.answer('/plans', needs.listing('plans'))
        self.refuse(f'/plans/{ID}', 404, 'There is no such plan.')
        response = self.client.post(
            INDEX, {'action': f'plans__apply__{ID}'}, follow=True)
        self.assertEqual(['Could not show the plan: There is no such plan.'],
                         self.messages(response))
        self.assertEqual([], self.wire.bodies)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/plans', 503, 'No database.')
        response = self.client.get(INDEX)
        self.assertEqual(['Could not list plans: No database.'],
                         self.messages(response))


class CreateTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/sites', needs.listing('sites', {'name': 'edge'},
                                            {'name': 'north'}))

    def test_no_form_without_the_right(self):
        with self.without('diffcache:plans:create'):
            response = self.client.get(CREATE)
            self.assertTemplateUsed(response, 'not_authorized.html')
            response = self.client.post(CREATE, {})
            self.assertTemplateUsed(response, 'not_authorized.html')
        self.assertEqual([], self.wire.sent)

    def test_sites_are_offered(self):
        response = self.client.get(CREATE)
        self.assertContains(response, 'value="north"')

    def test_a_plan_is_computed(self):
        self.answer('/plans', {'plan': PLAN}, 202, 'POST')
        response = self.client.post(CREATE, {'site': 'north'})
        self.assertRedirectsNoFollow(response, INDEX)
        self.assertEqual([{'plan': {'site': 'north'}}], self.wire.bodies)

    def test_a_site_that_is_not_offered(self):
        response = self.client.post(CREATE, {'site': 'south'})
        self.assertFormErrors(response, 1)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/plans', 409, 'Busy.', 'POST')
        response = self.client.post(CREATE, {'site': 'edge'})
        self.assertEqual(['Could not compute a plan: Busy.'],
                         self.messages(response))

    def test_no_sites(self):
        self.refuse('/sites', 500, 'No database.')
        response = self.client.get(CREATE)
        self.assertIn('Could not list the sites: No database.',
                      self.messages(response))


class DetailTest(needs.PageTest):

    def show(self, *items, **values):
        """Have the service show a plan with some items."""
        self.answer('/holdings', needs.listing('holdings'))
        self.answer(f'/plans/{ID}', {'plan': {
            **PLAN, 'hosts': ['c1'], 'items': items, **values}})

    def test_overview(self):
        self.show(item(1), item(2, held=False))
        response = self.client.get(DETAIL)
        for text in '120.5 s', '110 s', '1 of 2 objects', 'ilp':
            self.assertContains(response, text)
        self.assertContains(response, f'plans__apply__{ID}')
        self.assertContains(response, '1 object of 2 is missing.')

    def test_objects_with_reasons(self):
        self.show(item(1), item(2, held=False, host='c2'))
        self.answer(f'/plans/{ID}/explanation', {'explanation': [
            {'host': 'c2', 'kind': 'images', 'id': f'{2:064}',
             'why': 'read by many', 'bytes': 1, 'saves_s': 9.5,
             'requests': 3.0, 'eviction': 1, 'pinned': False}]})
        response = self.client.get(f'{DETAIL}?tab=plan__items')
        for text in ('read by many', 'Missing', 'Held', 'image2',
                     '/admin/image_cache_hosts/c2/', '9.5 s'):
            self.assertContains(response, text)

    def test_objects_are_shown_in_pages(self):
        self.show(*map(item, range(45)))
        self.answer(f'/plans/{ID}/explanation', {'explanation': []})
        address = f'{DETAIL}?tab=plan__items'
        response = self.client.get(address)
        self.assertContains(response, 'image19')
        self.assertNotContains(response, 'image20')
        marker = f'item_marker=c1.images.{19:064}'
        self.assertContains(response, f'?tab=plan__items&amp;{marker}')
        response = self.client.get(f'{address}&{marker}')
        self.assertContains(response, 'image20')
        self.assertNotContains(response, 'image19')

    def test_reasons_name_images(self):
        self.show(item(1))
        self.answer('/images', needs.listing('images', {
            'id': 'image1', 'name': 'web', 'content_id': 'ab' * 32}))
        self.answer(f'/plans/{ID}/explanation', {'explanation': [
            {'host': 'c1', 'kind': 'images', 'id': f'{1:064}',
             'why': 'builds abababababab from 123456789012', 'bytes': 1,
             'saves_s': 9.5, 'requests': 3.0, 'eviction': 1,
             'pinned': False}]})
        response = self.client.get(f'{DETAIL}?tab=plan__items')
        self.assertContains(response, 'builds web from 123456789012')

    def others(self, query=''):
        """Return the table of what hosts hold besides."""
        response = self.client.get(f'{DETAIL}?tab=plan__items{query}')
        [others] = [table for table in response.context['tables']
                    if table.name == 'others']
        return response, others

    def hold(self, *holdings):
        """Have the service list what hosts hold without a place."""
        self.show(item(1))
        self.answer(f'/plans/{ID}/explanation', {'explanation': []})
        self.answer('/holdings', lambda query: {'holdings': [
            each for each in holdings
            if each['id'] > query.get('marker', '')][:int(query['limit'])]})

    @staticmethod
    def holding(number, host='c1'):
        """Return an object that a host holds."""
        object_id = f'{number:064}'
        return {'id': f'{host}.images.{object_id}', 'host': host,
                'site': 'edge', 'kind': 'images', 'object_id': object_id,
                'bytes': 1, 'images': [f'other{number}']}

    def test_what_hosts_hold_besides(self):
        self.hold(self.holding(2))
        response, others = self.others()
        self.assertEqual([('c1', f'{2:064}', ['other2'])], [
            (row['host'], row['id'], row['names']) for row in others.data])
        self.assertContains(response, 'other2')

    def test_what_hosts_hold_besides_is_shown_in_pages(self):
        self.hold(*(self.holding(number, f'c{host:02}')
                    for host in range(15) for number in range(2, 5)))
        marker, found = '', []
        for count in (20, 20, 5):
            response, others = self.others(marker)
            self.assertEqual(count, len(others.data))
            found += [(row['host'], row['id']) for row in others.data]
            marker = f'&other_marker={found[-1][0]}.images.{found[-1][1]}'
            self.assertEqual(count == 20, marker.replace(
                '&', '&amp;') in response.content.decode())
        self.assertEqual(45, len(set(found)))

    def test_calls_do_not_grow_with_hosts_and_objects(self):
        def calls(hosts):
            names = [f'c{host:03}' for host in range(hosts)]
            self.hold(*(self.holding(number, host)
                        for host in names for number in range(2, 30)))
            self.answer(f'/plans/{ID}', {'plan': {
                **PLAN, 'hosts': names, 'items': [
                    item(1, host=host) for host in names]}})
            del self.wire.sent[:]
            self.others()
            return [(path, query) for _method, path, query in self.wire.sent]

        few = calls(1)
        self.assertEqual([('/holdings', {'limit': '21', 'not_in_plan': ID})],
                         [each for each in few if each[0] == '/holdings'])
        self.assertEqual(few, calls(100))

    def test_objects_that_cannot_be_listed(self):
        self.show(item(1))
        self.answer(f'/plans/{ID}/explanation', {'explanation': []})
        self.refuse('/holdings', 503, 'Busy.')
        response, others = self.others()
        self.assertEqual(['Could not list the objects: Busy.'],
                         self.messages(response))
        self.assertEqual([], list(others.data))

    def test_a_plan_that_failed_is_not_explained(self):
        self.show(state='failed', error='No solution.')
        response = self.client.get(f'{DETAIL}?tab=plan__items')
        self.assertEqual(1, len(self.wire.sent))
        self.assertContains(self.client.get(DETAIL), 'No solution.')
        self.assertEqual([], self.messages(response))

    def test_a_plan_that_does_not_exist(self):
        response = self.client.get(DETAIL)
        self.assertRedirectsNoFollow(response, INDEX)
