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
"""Pages of sites."""

import re

from tests.unit.dashboard import needs

from django import test
from django import urls

from diffcache_openstack.client import problems as client_problems
from diffcache_openstack.dashboard.sites import problems

INDEX = urls.reverse('horizon:admin:image_cache_sites:index')
DETAIL = urls.reverse('horizon:admin:image_cache_sites:detail',
                      args=['edge'])
SITE = {'name': 'edge', 'map_generation': 7, 'plan_generation': 4,
        'planned_at': '2026-11-23T18:00:00Z',
        'hosts': {'count': 3, 'alive': 2, 'capacity': 10 ** 12}}
WAY = {'way': 'build', 'requests': 40, 'failed': 1, 'mean_s': 0.512,
       'longest_s': 3.25, 'wan_bytes': 10 ** 9, 'lan_bytes': 3 * 10 ** 9}
REPORT = {
    'site': SITE, 'since': '2026-11-16T18:00:00Z',
    'plan': {'id': 'p', 'generation': 4, 'cost_s': 12.5,
             'lower_bound_s': 12.25, 'proved_optimal': False,
             'created_at': '2026-11-23T18:00:00Z', 'objects': 4,
             'held_objects': 2, 'bytes': 8 * 10 ** 9,
             'held_bytes': 4 * 10 ** 9},
    'held': {'images': {'objects': 5, 'bytes': 6 * 10 ** 9}},
    'requests': [WAY], 'wan_bytes': 10 ** 9, 'whole_bytes': 4 * 10 ** 9,
    'repository_mbps': {'assumed': 20.0, 'measured': None}}
HUB = {'name': 'hub', 'site': 'centre', 'role': 'repository', 'alive': False,
       'seen_at': '2026-11-23T17:00:00Z', 'capacity': 0,
       'held': {'objects': 0, 'bytes': 0}, 'clients': [
           {'host': 'c1', 'answers': False, 'since': '2026-11-23T17:00:00Z',
            'reason': 'no route', 'mbps': None, 'transfers': 0, 'failures': 3,
            'bytes': 0}]}
DEAD = {**HUB, 'name': 'c2', 'site': 'edge', 'role': 'compute'}


class IndexTest(needs.PageTest):

    def test_sites_and_their_hosts(self):
        self.answer('/sites', needs.listing('sites', SITE))
        response = self.client.get(INDEX)
        self.assertContains(response, f'href="{DETAIL}"')
        for text in ('2 of 3', '1.0 TB', '2026-11-23'):
            self.assertContains(response, text)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/sites', 503, 'The database does not answer.')
        response = self.client.get(INDEX)
        self.assertEqual(
            ['Could not list sites: The database does not answer.'],
            self.messages(response))


class DetailTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/sites/edge/report', {'report': REPORT})

    def test_overview(self):
        response = self.client.get(DETAIL)
        for text in ('2 of 3', '5 objects, 6.0 GB',
                     '2 of 4 objects, 4.0 GB of 8.0 GB', '12.5 s',
                     '12.25 s', '1.0 GB', '4.0 GB', '3.0 GB (75%)', '1%'):
            self.assertContains(response, text)

    def test_a_site_without_plan_and_requests(self):
        self.answer('/sites/edge/report', {'report': {
            **REPORT, 'plan': None, 'requests': [], 'held': {},
            'wan_bytes': 0, 'whole_bytes': 0}})
        self.assertContains(self.client.get(DETAIL), 'No plan')

    def test_savings_in_bytes_and_hours(self):
        self.answer('/sites/edge/report', {'report': {
            **REPORT, 'repository_mbps': {'assumed': 2.0, 'measured': 5.0},
            'requests': [WAY, {**WAY, 'way': 'nova'}],
            'whole_bytes': 4 * 10 ** 9}})
        response = self.client.get(f'{DETAIL}?tab=site__savings')
        # 40 requests of 0.512 s; 4 GB at 5 Mbit/s take 6400 s.
        for text in ('3.0 GB (75%)', '20.48 s', '1.8 h', '5 Mbit/s'):
            self.assertContains(response, text)
        self.assertNotContains(response, 'Money')

    def test_savings_in_money_where_there_is_a_price(self):
        with test.override_settings(IMAGE_CACHE_WAN_PRICE=0.25,
                                    IMAGE_CACHE_CURRENCY='EUR'):
            response = self.client.get(f'{DETAIL}?tab=site__savings')
        self.assertContains(response, '0.75 EUR')
        self.assertEqual([], self.messages(response))

    def test_savings_without_a_measured_rate(self):
        self.answer('/sites/edge/report', {'report': {
            **REPORT, 'repository_mbps': {'assumed': 10.0,
                                          'measured': None}}})
        response = self.client.get(f'{DETAIL}?tab=site__savings')
        self.assertEqual([], self.messages(response))
        self.assertContains(response, '3.0 GB (75%)')
        self.assertNotContains(response, 'Mbit/s')

    def test_no_host_is_shown_for_the_rates(self):
        self.client.get(f'{DETAIL}?tab=site__savings')
        self.assertNotIn('/hosts', [path for _, path, _ in self.wire.sent])

    def test_ways_of_requests(self):
        response = self.client.get(f'{DETAIL}?tab=site__requests')
        for text in ('Built from a base and a patch', '40', '0.51 s',
                     '3.25 s', '3.0 GB'):
            self.assertContains(response, text)

    def answer_problems(self):
        """Have dead hosts, one that is cut off, and an image refused."""
        def hosts(query):
            return needs.listing(
                'hosts', HUB if query.get('role') == 'repository'
                else DEAD)(query)

        self.answer('/hosts', hosts)
        self.answer('/hosts/hub', {'host': HUB})
        self.answer('/hosts/hub/pending-images', needs.listing(
            'pending_images', {
                'image_id': 't9', 'state': 'refused', 'attempts': 1,
                'retry_at': None, 'error': 'It has a backing file'}))

    def test_problems(self):
        self.answer_problems()
        response = self.client.get(f'{DETAIL}?tab=site__problems')
        for text in ('Host c2 is dead', 'Repository hub is dead',
                     'Host c1 gets nothing from repository hub',
                     'since 2026-11-23 17:00:00: no route',
                     'image t9 (Refused): It has a backing file'):
            self.assertContains(response, text)

    def test_problems_are_in_the_language_of_the_user(self):
        self.answer_problems()
        self.answer('/sites/edge/report', {'report': {
            **REPORT, 'plan': None}})
        response = self.client.get(f'{DETAIL}?tab=site__problems',
                                   HTTP_ACCEPT_LANGUAGE='de')
        [table] = response.context['tables']
        self.assertEqual([
            'Host c2 ist ausgefallen: letzte Meldung um 2026-11-23 17:00:00.',
            'Der Standort edge hat noch keinen Plan: Lassen Sie unter Pläne'
            ' einen berechnen.',
            'Das Repository hub ist ausgefallen: letzte Meldung um 2026-11-23'
            ' 17:00:00.',
            'Host c1 erhält seit 2026-11-23 17:00:00 nichts vom Repository'
            ' hub: no route',
            'Das Repository hub konnte das Abbild t9 nicht aufnehmen'
            ' (Abgelehnt): It has a backing file'], list(table.data))

    def test_each_problem_has_a_sentence_with_the_same_values(self):
        self.assertEqual(client_problems.SENTENCES.keys(),
                         problems.SENTENCES.keys())
        for code, text in client_problems.SENTENCES.items():
            self.assertEqual(
                set(re.findall(r'{(\w+)}', text)),
                set(re.findall(r'%\((\w+)\)s', str(problems.SENTENCES[code]))))

    def test_problems_that_cannot_be_looked_up(self):
        self.refuse('/hosts', 403, 'Policy does not allow it.')
        response = self.client.get(f'{DETAIL}?tab=site__problems')
        self.assertEqual(
            ['Could not look for problems: Policy does not allow it.'],
            self.messages(response))

    def test_nothing_is_estimated_before_something_is_changed(self):
        response = self.client.get(f'{DETAIL}?tab=site__what_if')
        self.assertContains(response, 'type="range"', 4)
        # AngularJS keeps a form without an action from being sent.
        self.assertContains(response, '<form method="get" action="?"')
        self.assertEqual([], self.wire.bodies)

    def test_what_a_faster_link_would_bring(self):
        self.answer('/sites/edge/report', {'report': {
            **REPORT, 'repository_mbps': {'assumed': 20.0,
                                          'measured': None}}})
        figures = {'cost_s': 12.5, 'lower_bound_s': 12.0, 'mean_s': 1.5,
                   'cost_wan_bytes': 10 ** 9}
        self.answer('/what-if', {'what_if': {
            'before': figures, 'after': {**figures, 'cost_s': 3.25}}},
            method='POST')
        response = self.client.get(
            f'{DETAIL}?tab=site__what_if&add_hosts=1&capacity=50&wan=4'
            '&demand=2')
        self.assertEqual([{'what_if': {'site': 'edge', 'changes': {
            'add_hosts': 1, 'capacity_bytes': 25 * 10 ** 10,
            'repository_mbps': 80.0, 'demand_factor': 2.0}}}],
            self.wire.bodies)
        for text in '12.5 s', '3.25 s', '1.0 GB':
            self.assertContains(response, text)

    def test_a_change_beyond_the_sliders(self):
        response = self.client.get(
            f'{DETAIL}?tab=site__what_if&add_hosts=1000&capacity=0&wan=1'
            '&demand=1')
        self.assertContains(response, 'less than or equal to 10')
        self.assertEqual([], self.wire.bodies)

    def test_an_estimate_that_is_refused(self):
        self.refuse('/what-if', 503, 'Busy.', 'POST')
        response = self.client.get(
            f'{DETAIL}?tab=site__what_if&add_hosts=1&capacity=0&wan=1'
            '&demand=1')
        self.assertEqual(
            ['Could not estimate what that would bring: Busy.'],
            self.messages(response))

    def test_a_site_that_there_is_not(self):
        self.refuse('/sites/edge/report', 404, 'No site edge.')
        response = self.client.get(DETAIL)
        self.assertRedirectsNoFollow(response, INDEX)
