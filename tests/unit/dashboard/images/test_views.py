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
"""Pages of images."""

import urllib.parse

from tests.unit.dashboard import needs

from django import urls

INDEX = urls.reverse('horizon:admin:image_cache_images:index')
DETAIL = urls.reverse('horizon:admin:image_cache_images:detail', args=['i1'])
CONTENT = 'c' * 64
LOOKUPS = '/images/i1/lookups'
MEMBER = '11111111-1111-4111-8111-1111111111%02d'
IMAGE = {
    'id': 'i1', 'name': 'Debian <12>', 'content_id': CONTENT,
    'size': 10 * 10 ** 9, 'data_size': 2 * 10 ** 9,
    'compressed_size': 10 ** 9, 'disk_format': 'qcow2',
    'file_size': 3 * 10 ** 9, 'owner': 'p', 'visibility': 'public',
    'status': 'active', 'family': None, 'members': 2, 'host_count': 4,
    'created_at': '2026-11-23T18:00:00Z'}


def lookup(host, ways=(), lazy_boot=None):
    """Return the cheapest way of a host."""
    return {'host': host, 'site': 'edge', 'ways': list(ways),
            'lazy_boot': lazy_boot}


def patch(digit, **values):
    """Return a patch."""
    return {'id': digit * 64, 'base': 'b' * 64, 'target': CONTENT,
            'size': 7 * 10 ** 6, 'create_seconds': 3.0,
            'apply_seconds': 1.5, 'host_count': 2,
            'created_at': '2026-11-23T18:00:00Z', **values}


class IndexTest(needs.PageTest):

    def test_images(self):
        self.answer('/images', needs.listing('images', IMAGE, {
            **IMAGE, 'id': 'i2', 'name': '', 'compressed_size': None}))
        response = self.client.get(INDEX)
        self.assertContains(response, f'href="{DETAIL}"')
        for text in ('Debian &lt;12&gt;', 'i2', '10.0 GB', '2.0 GB',
                     '1.0 GB', 'Active'):
            self.assertContains(response, text)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/images', 403, 'Not you.')
        self.assertEqual(['Could not list images: Not you.'],
                         self.messages(self.client.get(INDEX)))


class DetailTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/images/i1', {'image': IMAGE})

    def test_overview(self):
        response = self.client.get(DETAIL)
        for text in CONTENT, '3.0 GB', 'qcow2', '2026-11-23 18:00:00':
            self.assertContains(response, text)

    def test_where_it_is(self):
        self.answer('/images/i1/locations', {'locations': [
            {'host': 'c1', 'site': 'edge', 'bytes': 2 * 10 ** 9}]})
        response = self.client.get(f'{DETAIL}?tab=image__hosts')
        self.assertContains(response, '/admin/image_cache_hosts/c1/')
        self.assertContains(response, 'No current plan places it here.')

    def test_why_it_is_there(self):
        self.answer('/images/i1/locations', {'locations': [
            {'host': 'c1', 'site': 'edge', 'bytes': 1, 'held': True,
             'borrowed': True}]})
        self.answer('/plans', needs.listing('plans', {'id': 'p1'}))
        self.answer('/plans/p1/explanation', {'explanation': [
            {'host': 'c1', 'kind': 'images', 'id': CONTENT,
             'why': 'delivered whole'}]})
        response = self.client.get(f'{DETAIL}?tab=image__hosts')
        self.assertContains(response, 'delivered whole')
        self.assertContains(response,
                            'Cache of the host, Nova&#x27;s image cache')

    def test_how_long_a_start_would_take(self):
        self.answer(LOOKUPS, needs.listing('lookups', lookup('c1', [{
            'way': 'build', 'seconds': 1.5, 'wan_bytes': 0,
            'lan_bytes': 7 * 10 ** 6, 'detail': f'base {"c" * 12}'}]),
            lookup('c2')))
        self.answer('/images', needs.listing('images', IMAGE))
        response = self.client.get(f'{DETAIL}?tab=image__starts')
        for text in ('Built from a base and a patch', '1.5 s', '7.0 MB',
                     'base Debian &lt;12&gt;',
                     '/admin/image_cache_hosts/c2/'):
            self.assertContains(response, text)
        self.assertEqual([('GET', LOOKUPS, {'limit': '21'})], [
            each for each in self.wire.sent if 'lookup' in each[1]
            or 'hosts' in each[1]])

    def test_times_to_start_are_shown_in_pages(self):
        names = [f'c{number:02}' for number in range(25)]
        self.answer(LOOKUPS, lambda query: {'lookups': [
            lookup(name) for name in names
            if name > query.get('marker', '')][:int(query['limit'])]})
        address = f'{DETAIL}?tab=image__starts'
        response = self.client.get(address)
        self.assertContains(response, 'start_marker=c19')
        self.assertNotContains(response, 'image_cache_hosts/c20/')
        response = self.client.get(f'{address}&start_marker=c19')
        for name, count in (('c19', 0), ('c20', 1), ('c24', 1)):
            self.assertContains(response, f'image_cache_hosts/{name}/', count)

    def test_how_long_a_lazy_boot_waits(self):
        self.answer(LOOKUPS, needs.listing(
            'lookups', lookup('c1', lazy_boot={
                'seconds': 0.25, 'read_bytes': 9, 'held_bytes': 9,
                'peer_bytes': 0}), lookup('c2')))
        response = self.client.get(f'{DETAIL}?tab=image__starts')
        self.assertContains(response, 'Lazy Boot Waits')
        self.assertContains(response, '0.25 s', count=1)
        self.assertEqual([], self.messages(response))

    def test_a_start_that_cannot_be_looked_up(self):
        self.refuse(LOOKUPS, 409, 'No map.')
        response = self.client.get(f'{DETAIL}?tab=image__starts')
        self.assertEqual(['Could not look the image up: No map.'],
                         self.messages(response))

    def test_the_family_with_its_smallest_patches(self):
        def images(query):
            return {'images': [] if 'marker' in query or query.get(
                'family') != 'i1' else [
                    {**IMAGE, 'id': 'i2', 'name': 'web', 'family': 'i1',
                     'content_id': 'b' * 64}]}

        self.answer('/images', images)
        self.answer('/patches', needs.listing('patches', patch(
            '0', base=CONTENT, target='b' * 64)))
        response = self.client.get(f'{DETAIL}?tab=image__family')
        for text in ('Patch from Debian &lt;12&gt; to web: 7.0 MB',
                     '/admin/image_cache_images/i2/?tab=image__hosts',
                     'whole on 4 hosts'):
            self.assertContains(response, text)

    def family_calls(self, members):
        """Return the calls of the tab for a family of this many images."""
        self.answer('/images', needs.listing('images', *(
            {**IMAGE, 'id': MEMBER % number, 'family': 'i1',
             'content_id': f'{number:064}'} for number in range(members))))
        del self.wire.sent[:]
        self.client.get(f'{DETAIL}?tab=image__family')
        return [(path, query) for _method, path, query in self.wire.sent]

    def test_calls_do_not_grow_with_the_family(self):
        self.answer('/patches', lambda query: {'patches': []})
        few, many = ([path for path, _query in self.family_calls(members)]
                     for members in (1, 39))
        self.assertEqual(1, few.count('/patches'))
        self.assertEqual(few, many)

    def test_patches_of_all_images_of_a_family_in_one_call(self):
        self.answer('/patches', lambda query: {'patches': []})
        [query] = [query for path, query in self.family_calls(39)
                   if path == '/patches']
        self.assertEqual(
            {'i1', *(MEMBER % number for number in range(39))},
            set(query['target']))
        # By default, uWSGI reads 4096 bytes of a request's head.
        self.assertLess(len(urllib.parse.urlencode(query, doseq=True)), 2000)

    def test_the_image_is_in_the_graph_of_a_large_family(self):
        self.answer('/images/i1', {'image': {
            **IMAGE, 'name': 'zz', 'family': 'i0'}})
        self.answer('/images/i0', {'image': {
            **IMAGE, 'id': 'i0', 'content_id': 'd' * 64}})
        self.answer('/patches', lambda query: {'patches': []})
        self.family_calls(50)
        response = self.client.get(f'{DETAIL}?tab=image__family')
        nodes = response.context['graph'].nodes
        self.assertEqual(40, len(nodes))
        self.assertEqual('i0', nodes[0].image.id)
        self.assertIn('i1', {node.image.id for node in nodes})

    def test_a_family_that_cannot_be_listed(self):
        self.refuse('/images', 500, 'Broken.')
        response = self.client.get(f'{DETAIL}?tab=image__family')
        self.assertEqual(['Could not list the family: Broken.'],
                         self.messages(response))

    def test_patches_of_both_directions_have_pages_of_their_own(self):
        def patches(query):
            found = [patch('0')] if 'base' in query else [
                patch(f'{number:02}'[-1], size=number)
                for number in range(21)]
            return {'patches': [] if 'marker' in query else found}

        self.answer('/patches', patches)
        response = self.client.get(f'{DETAIL}?tab=image__patches')
        self.assertContains(response, 'Patches to This Image')
        self.assertContains(response, 'tab=image__patches&amp;incoming')
        self.assertNotContains(response, 'tab=image__patches&amp;outgoing')
        self.assertIn(('GET', '/patches', {'limit': '21', 'base': CONTENT}),
                      self.wire.sent)

    def test_an_image_that_does_not_exist(self):
        self.refuse('/images/i1', 404, 'No image.')
        self.assertRedirectsNoFollow(self.client.get(DETAIL), INDEX)
