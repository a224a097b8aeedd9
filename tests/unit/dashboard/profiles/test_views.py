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
"""Boot profiles of images as heat maps."""

import types

from tests.unit.dashboard import needs

from django import urls

from diffcache_openstack.dashboard.profiles import heat_maps

DETAIL = urls.reverse('horizon:admin:image_cache_images:detail', args=['i1'])
TAB = f'{DETAIL}?tab=image__profiles'
CHUNK = 256 << 10
IMAGE = {'id': 'i1', 'name': 'web', 'content_id': 'c' * 64,
         'size': 200 * CHUNK, 'status': 'active'}
PROFILE = {
    'id': 'p1', 'image_id': 'i1', 'project_id': None, 'label': 'm1.small',
    'generation': 3, 'instances': 10, 'chunks': 3,
    'created_at': '2026-11-23T18:00:00Z',
    'updated_at': '2026-11-23T19:00:00Z'}
ROWS = [[0, 10, 1e6], [1, 1, 5e6], [130, 5, 10e6]]


def draw(rows, chunks):
    """Draw a profile of an image of this many chunks."""
    return heat_maps.draw(types.SimpleNamespace(rows=rows, chunk=CHUNK),
                          chunks * CHUNK)


class HeatMapTest(needs.PageTest):

    def test_cells_are_placed_like_text(self):
        drawing = draw(ROWS, 200)
        self.assertEqual(
            [(70, 4), (82, 4), (94, 28)],
            [(cell.left, cell.top) for cell in drawing.cells])
        self.assertEqual('M70,4 H838 V40 H166 V52 H70 Z', drawing.outline)

    def test_levels_are_of_the_most_read_and_of_the_latest(self):
        cells = draw(ROWS, 200).cells
        self.assertEqual([5, 1, 3], [cell.frequent for cell in cells])
        self.assertEqual([5, 3, 1], [cell.early for cell in cells])
        self.assertEqual('0 B to 262 kB: read by 100% of the servers, first'
                         ' after 1 s', cells[0].title)

    def test_legends_name_the_bounds_of_levels(self):
        drawing = draw(ROWS, 200)
        self.assertEqual([(1, '≤ 20%'), (5, '≤ 100%')],
                         [drawing.frequent[0], drawing.frequent[-1]])
        self.assertEqual([(1, '≤ 10 s'), (5, '≤ 2 s')],
                         [drawing.early[0], drawing.early[-1]])

    def test_lines_have_what_was_read(self):
        drawing = draw(ROWS, 200)
        self.assertEqual(4, len(drawing.lines))
        self.assertEqual(
            [('524 kB', '100%', '1 s'), ('262 kB', '50%', '10 s')],
            [(line.read, line.servers, line.first)
             for line in drawing.read_lines])

    def test_cells_of_large_images_have_several_chunks(self):
        chunks = heat_maps.COLUMNS * heat_maps.MOST_LINES * 2
        drawing = draw([[2, 4, 3e6], [3, 8, 2e6], [chunks - 1, 8, 4e6]],
                       chunks)
        self.assertEqual(heat_maps.MOST_LINES, len(drawing.lines))
        self.assertEqual('524 kB', drawing.cell)
        # Of the chunks of a cell, the most servers and the earliest read.
        self.assertEqual([(5, 3), (5, 1)], [
            (cell.frequent, cell.early) for cell in drawing.cells])

    def test_the_end_of_the_image_is_that_of_the_last_line(self):
        drawing = heat_maps.draw(types.SimpleNamespace(
            rows=[[1, 1, 0]], chunk=CHUNK), CHUNK + 1000)
        self.assertEqual('263 kB', drawing.lines[-1].end)
        # One line, which is as long as the image.
        self.assertEqual('M70,4 H94 V16 H70 Z', drawing.outline)

    def test_nothing_was_read(self):
        drawing = draw([], 0)
        self.assertEqual([], drawing.cells)
        self.assertEqual([], drawing.read_lines)


class ProfilesTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/images/i1', {'image': IMAGE})
        self.answer('/profiles', needs.listing(
            'profiles', {**PROFILE, 'id': 'p0', 'label': '', 'instances': 2,
                         'project_id': 'shop'}, PROFILE))
        for name in 'p0', 'p1':
            self.answer(f'/profiles/{name}', {'profile': {
                **PROFILE, 'id': name, 'chunk': CHUNK, 'rows': ROWS}})

    def asked(self):
        """The profiles that were shown."""
        return [path for method, path, _query in self.wire.sent
                if path.startswith('/profiles/')]

    def test_the_profile_of_the_most_servers_is_drawn(self):
        response = self.client.get(TAB)
        for text in ('m1.small', '(no label)', 'shop', '786 kB',
                     'class="heat-5" x="70" y="4"', '2026-11-23 19:00:00'):
            self.assertContains(response, text)
        self.assertEqual(['/profiles/p1'], self.asked())
        self.assertIn(('GET', '/profiles', {
            'limit': '21', 'image_id': 'i1'}), self.wire.sent)

    def test_a_label_leads_to_its_profile(self):
        response = self.client.get(TAB)
        self.assertContains(response,
                            'href="?tab=image__profiles&amp;profile=p0"')
        self.client.get(f'{TAB}&profile=p0')
        self.assertEqual(['/profiles/p1', '/profiles/p0'], self.asked())

    def test_the_image_that_a_profile_was_carried_from(self):
        carried = {**PROFILE, 'instances': 0, 'carried_from': 'i0'}
        self.answer('/images', needs.listing('images', {
            **IMAGE, 'id': 'i0', 'name': 'web <1>'}))
        self.answer('/profiles', needs.listing('profiles', carried))
        self.answer('/profiles/p1', {'profile': {
            **carried, 'chunk': CHUNK, 'rows': ROWS}})
        response = self.client.get(TAB)
        link = ('<a href="/admin/image_cache_images/i0/">web &lt;1&gt;</a>')
        # In the table, and of the profile that is shown.
        self.assertContains(response, 'Carried From')
        self.assertContains(response, f'<dd>{link}</dd>', html=True)
        self.assertContains(response, link, count=2, html=True)

    def test_a_source_that_is_there_no_more_is_shown_by_its_id(self):
        self.answer('/profiles', needs.listing('profiles', {
            **PROFILE, 'carried_from': 'gone'}))
        self.assertContains(self.client.get(TAB), '>gone</a>')

    def test_what_servers_have_read_was_carried_from_nowhere(self):
        for profile in PROFILE, {**PROFILE, 'carried_from': None}:
            self.answer('/profiles', needs.listing('profiles', profile))
            response = self.client.get(TAB)
            self.assertNotContains(response, 'Carried from')
            self.assertNotContains(response, '/admin/image_cache_images/None')

    def test_a_profile_of_another_image_is_not_drawn(self):
        self.answer('/profiles/p2', {'profile': {
            **PROFILE, 'image_id': 'i2', 'chunk': CHUNK, 'rows': ROWS}})
        response = self.client.get(f'{TAB}&profile=p2')
        self.assertNotContains(response, 'image-cache-heat-map')

    def test_no_server_has_booted_lazily(self):
        self.answer('/profiles', needs.listing('profiles'))
        response = self.client.get(TAB)
        self.assertContains(response, 'No server has booted lazily')
        self.assertEqual([], self.asked())

    def test_refused_calls_are_messages(self):
        self.refuse('/profiles/p1', 500, 'Broken.')
        self.assertEqual(['Could not show the profile: Broken.'],
                         self.messages(self.client.get(TAB)))
        self.refuse('/profiles', 403, 'Not you.')
        self.assertEqual(['Could not list the profiles: Not you.'],
                         self.messages(self.client.get(TAB)))

    def test_a_profile_is_deleted(self):
        self.answer('/profiles/p1', None, 204, 'DELETE')
        response = self.client.post(TAB, {
            'action': 'profiles__delete__p1'})
        self.assertRedirects(response, f'{DETAIL}?tab=image__profiles',
                             fetch_redirect_response=False)
        self.assertIn(('DELETE', '/profiles/p1', {}), self.wire.sent)

    def test_a_refused_deletion_is_a_message(self):
        self.refuse('/profiles/p1', 403, 'Not you.', 'DELETE')
        response = self.client.post(TAB, {'action': 'profiles__delete__p1'},
                                    follow=True)
        self.assertIn('Could not delete the profile: Not you.',
                      self.messages(response))
