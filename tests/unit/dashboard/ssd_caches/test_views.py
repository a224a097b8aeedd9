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
"""Pages of SSD caches, and a volume's tab."""

from tests.unit.dashboard import needs

from django import urls
from openstack_dashboard import api as horizon_api
from openstack_dashboard.test import helpers

from diffcache_openstack.dashboard.ssd_caches import curves

VOLUME_ID = '3f6a2c52-8d0e-4d0b-9f0a-6f1f5a1e7c11'
OTHER_ID = 'a16a2c52-8d0e-4d0b-9f0a-6f1f5a1e7c11'
INDEX = urls.reverse('horizon:admin:image_cache_ssd_caches:index')
DETAIL = urls.reverse('horizon:admin:image_cache_ssd_caches:detail',
                      args=['c1'])
ADDRESS = urls.reverse('horizon:admin:image_cache_ssd_caches:volume',
                       args=[VOLUME_ID])
MIB = 256
CACHE = {'host': 'c1', 'state': 'ok', 'capacity': 1024 * MIB,
         'policy': 'latency', 'epoch': 120, 'volumes': 1,
         'updated_at': '2026-11-23T18:00:00Z'}
DECISION = {'time': '2026-11-23T17:58:00Z', 'policy': 'latency',
            'changed': True, 'explain': ['412 blocks move to other volumes']}
VOLUME = {
    'id': VOLUME_ID, 'server_id': 's', 'project_id': 'p', 'host': 'c1',
    'mode': 'write-through', 'state': 'ok', 'limit': 100 * MIB,
    'blocks': 90 * MIB, 'dirty': 0, 'reads': 5000, 'writes': 1000,
    'hits': 4500, 'misses': 1500, 'evictions': 20, 'bypassed': 7, 'min': 0,
    'max': None, 'weight': 1.0, 'priority': None, 'sla': 'hit=0.9',
    'generation': 1, 'explain': ['<it> reads most'],
    'updated_at': '2026-11-23T18:00:00Z'}
CURVE = {'seconds': 120.0, 'references': 1000, 'distinct': 120 * MIB,
         'sampled': 1.0, 'hit_us': 100.0, 'miss_us': 2100.0,
         'sizes': [50 * MIB, 200 * MIB], 'hits': [500, 900]}


class CurveTest(needs.PageTest):

    def test_misses_fall_at_the_sizes(self):
        drawing = curves.draw(CURVE, 100 * MIB)
        # The plane is 556 by 240 pixels; 200 MiB is its right edge.
        self.assertEqual('M60.0,16.0 H199.0 V136.0 H616.0 V232.0 H616',
                         drawing.path)
        self.assertEqual(338.0, drawing.current.at)

    def test_figures_of_other_sizes(self):
        self.assertEqual(
            [('26.2 MB', '100%', '2.1 ms'), ('52.4 MB', '50%', '1.1 ms'),
             ('105 MB', '50%', '1.1 ms'), ('210 MB', '10%', '0.3 ms'),
             ('419 MB', '10%', '0.3 ms')],
            [(each.size, each.misses, each.latency)
             for each in curves.draw(CURVE, 100 * MIB).points])

    def test_nothing_was_requested(self):
        drawing = curves.draw({**CURVE, 'references': 0, 'sizes': [],
                               'hits': []}, 0)
        self.assertEqual('M60.0,16.0 H616', drawing.path)


class CacheTest(needs.PageTest):

    def test_caches_of_hosts(self):
        self.answer('/ssd-caches', needs.listing(
            'ssd_caches', CACHE, {**CACHE, 'host': 'c2', 'state': 'failed'}))
        response = self.client.get(INDEX)
        self.assertContains(response, f'href="{DETAIL}"')
        for text in 'In use', 'Failed', '1.1 GB', 'latency', '120 s':
            self.assertContains(response, text)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/ssd-caches', 503, 'No database.')
        self.assertEqual(['Could not list SSD caches: No database.'],
                         self.messages(self.client.get(INDEX)))

    def test_a_host_without_one(self):
        self.refuse('/ssd-caches/c1', 404, 'Host c1 has none.')
        self.assertRedirectsNoFollow(self.client.get(DETAIL), INDEX)

    def test_overview(self):
        self.answer('/ssd-caches/c1', {'ssd_cache': CACHE})
        for text in '1.1 GB', 'In use':
            self.assertContains(self.client.get(DETAIL), text)

    def test_volumes_with_sizes_and_reasons(self):
        self.answer('/ssd-caches/c1', {'ssd_cache': CACHE})
        self.answer('/volume-caches', needs.listing('volume_caches', VOLUME))
        response = self.client.get(f'{DETAIL}?tab=ssd_cache__volumes')
        for text in ('105 MB', '75%', '&lt;it&gt; reads most',
                     f'href="{ADDRESS}"'):
            self.assertContains(response, text)
        self.assertIn(('GET', '/volume-caches',
                       {'limit': '21', 'host': 'c1'}), self.wire.sent)

    def test_each_decision_is_explained(self):
        self.answer('/ssd-caches/c1', {'ssd_cache': {
            **CACHE, 'decisions': [DECISION]}})
        response = self.client.get(f'{DETAIL}?tab=ssd_cache__decisions')
        for text in ('412 blocks move to other volumes',
                     '2026-11-23 17:58:00', 'Yes'):
            self.assertContains(response, text)

    def test_no_decision_yet(self):
        self.answer('/ssd-caches/c1', {'ssd_cache': {
            **CACHE, 'decisions': []}})
        self.assertContains(
            self.client.get(f'{DETAIL}?tab=ssd_cache__decisions'),
            'No epoch has ended yet.')

    def test_others_than_operators(self):
        self.with_rules()
        self.act_as('member')
        for address in INDEX, DETAIL, ADDRESS:
            response = self.client.get(address)
            self.assertIn(response.status_code, (302, 403))
        self.assertEqual([], self.wire.sent)


class VolumeTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer(f'/volume-caches/{VOLUME_ID}', {'volume_cache': VOLUME})

    def test_curve_and_reasons(self):
        self.answer(f'/volume-caches/{VOLUME_ID}/curve', {'curve': CURVE})
        response = self.client.get(ADDRESS)
        for text in ('image-cache-curve', '&lt;it&gt; reads most',
                     'Write-through', '75%', '126 MB', 'hit=0.9'):
            self.assertContains(response, text)

    def test_no_epoch_has_ended(self):
        response = self.client.get(ADDRESS)
        self.assertContains(response, 'No epoch of this volume has ended')
        self.assertEqual([], self.messages(response))

    def test_a_curve_that_is_refused(self):
        self.refuse(f'/volume-caches/{VOLUME_ID}/curve', 503, 'Busy.')
        response = self.client.get(ADDRESS)
        self.assertEqual(['Could not show the curve: Busy.'],
                         self.messages(response))
        self.assertContains(response, 'Write-through')


class ProjectTest(needs.PageTest):

    def show(self, role='member'):
        """Show Horizon's page of a volume to a user; returns its tab."""
        self.with_rules()
        self.act_as(role)
        volume = self.cinder_volumes.first()
        volume.id = VOLUME_ID
        with helpers.mock.patch.multiple(
                horizon_api.cinder, volume_get=helpers.mock.DEFAULT,
                volume_snapshot_list=helpers.mock.DEFAULT,
                message_list=helpers.mock.DEFAULT,
                tenant_absolute_limits=helpers.mock.DEFAULT) as calls, \
                helpers.mock.patch.object(
                    horizon_api.nova, 'server_get',
                    return_value=self.servers.first()):
            calls['volume_get'].return_value = volume
            calls['volume_snapshot_list'].return_value = []
            calls['message_list'].return_value = []
            calls['tenant_absolute_limits'].return_value = \
                self.cinder_limits['absolute']
            return self.client.get(
                urls.reverse('horizon:project:volumes:detail',
                             args=[VOLUME_ID])
                + '?tab=volume_details__image_cache_ssd_cache')

    def test_a_project_sees_its_volume(self):
        self.answer(f'/volume-caches/{VOLUME_ID}', {'volume_cache': {
            **VOLUME, 'host': None}})
        self.answer(f'/volume-caches/{VOLUME_ID}/curve', {'curve': CURVE})
        response = self.show()
        self.assertContains(response, 'image-cache-curve')
        self.assertContains(response, 'Write-through')
        self.assertNotContains(response, '<dt>Host</dt>')

    def test_a_volume_without_an_ssd_cache(self):
        response = self.show()
        self.assertContains(response, 'This volume is in no SSD cache')
        self.assertEqual([], self.messages(response))

    def test_a_refused_call_is_a_message(self):
        self.refuse(f'/volume-caches/{VOLUME_ID}', 503, 'Busy.')
        self.assertIn('Could not show the SSD cache: Busy.',
                      self.messages(self.show()))

    def test_a_user_who_may_not_see_it(self):
        response = self.show('stranger')
        self.assertNotContains(response, 'image_cache_ssd_cache')
        self.assertEqual([], self.wire.sent)


class ServerTest(needs.ServerPageTest):

    def show(self):
        """Return the tab of Horizon's own page of a server."""
        return self.client.get(
            urls.reverse('horizon:project:instances:detail',
                         args=[self.server])
            + '?tab=instance_details__image_cache_ssd_cache')

    def volumes(self, *volumes):
        """Have the service list some volumes."""
        self.answer('/volume-caches', needs.listing('volume_caches',
                                                    *volumes))

    def test_losses_of_its_volumes_come_first(self):
        self.volumes(VOLUME, {
            **VOLUME, 'id': OTHER_ID, 'losses': ['1048576 to 1052672']})
        response = self.show()
        text = response.content.decode()
        self.assertIn('1048576 to 1052672', text)
        self.assertLess(text.index(OTHER_ID), text.index(VOLUME_ID))
        self.assertContains(response, 'Lost by the storage', 1)
        self.assertContains(response, '75%', 2)
        self.assertIn(('GET', '/volume-caches',
                       {'server_id': self.server}), self.wire.sent)

    def test_no_volume_is_cached(self):
        self.volumes()
        self.assertContains(self.show(),
                            'No volume of this server is in an SSD cache.')

    def test_a_refused_call_is_a_message(self):
        self.refuse('/volume-caches', 503, 'Busy.')
        self.assertIn('Could not list the volumes: Busy.',
                      self.messages(self.show()))

    def test_others_have_no_tab(self):
        self.with_rules()
        self.act_as('stranger')
        self.volumes(VOLUME)
        self.assertNotContains(self.show(), VOLUME_ID)
