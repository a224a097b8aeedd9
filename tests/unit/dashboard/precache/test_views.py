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
"""Pages of precache jobs."""

from tests.unit.dashboard import needs

from django import urls

ID = 'c7a1d3b4-5a4e-4f0e-9d5e-0d8a6a1b2c3d'
INDEX = urls.reverse('horizon:admin:image_cache_precache:index')
DETAIL = urls.reverse('horizon:admin:image_cache_precache:detail', args=[ID])
JOB = {
    'id': ID, 'name': 'Course', 'project_id': 'p', 'user_id': 'u',
    'state': 'running', 'generation': 1, 'message': None,
    'request_id': None, 'created_at': '2026-11-23T18:00:00Z',
    'updated_at': '2026-11-23T18:00:00Z',
    'progress': {'targets': 8, 'ready': 5, 'failed': 1, 'bytes': 100,
                 'bytes_done': 66},
    'priority': 50, 'rate': None, 'window': None, 'pinned': True,
    'expires_at': '2026-11-24T18:00:00Z', 'images': ['i1'],
    'families': ['f1'], 'hosts': None, 'aggregates': ['room'],
    'availability_zones': []}


class IndexTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/precache-jobs', needs.listing('precache_jobs', JOB))

    def test_jobs_and_their_progress(self):
        response = self.client.get(INDEX)
        for text in ('Course', 'Running', '5 of 8, 1 failed', '66%',
                     'i1, f1', 'room', '2026-11-24 18:00:00'):
            self.assertContains(response, text)

    def test_cancel(self):
        self.answer(f'/precache-jobs/{ID}/cancel', {'precache_job': JOB},
                    method='POST')
        response = self.client.post(
            INDEX, {'action': f'jobs__cancel__{ID}'}, follow=True)
        self.assertIn(('POST', f'/precache-jobs/{ID}/cancel', {}),
                      self.wire.sent)
        self.assertEqual(['Cancelled Job: Course'], self.messages(response))

    def test_a_job_that_has_ended_is_not_cancelled(self):
        self.answer('/precache-jobs', needs.listing(
            'precache_jobs', {**JOB, 'state': 'expired'}))
        self.assertNotContains(self.client.get(INDEX), 'jobs__cancel__')

    def test_a_refused_call_is_a_message(self):
        self.refuse('/precache-jobs', 500, 'Broken.')
        self.assertEqual(['Could not list precache jobs: Broken.'],
                         self.messages(self.client.get(INDEX)))


class DetailTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer(f'/precache-jobs/{ID}', {'precache_job': JOB})

    def test_overview(self):
        response = self.client.get(DETAIL)
        for text in 'Course', '5 of 8, 1 failed', '66%', 'Yes':
            self.assertContains(response, text)

    def test_progress_by_host(self):
        target = {'id': 't1', 'host': 'c1', 'template_id': 'i1',
                  'state': 'fetching', 'way': None, 'bytes_total': 10 ** 9,
                  'bytes_done': 25 * 10 ** 7, 'message': 'link is slow',
                  'updated_at': '2026-11-23T18:00:00Z', 'attempts': 1,
                  'retry_at': None}
        self.answer(f'/precache-jobs/{ID}/targets', needs.listing(
            'targets', target, {**target, 'id': 't2', 'host': None,
                                'message': None}))
        response = self.client.get(f'{DETAIL}?tab=job__targets')
        for text in 'Fetching', '25%', 'link is slow', 'hosts/c1/':
            self.assertContains(response, text)

    def test_a_job_that_does_not_exist(self):
        self.refuse(f'/precache-jobs/{ID}', 404, 'No job.')
        self.assertRedirectsNoFollow(self.client.get(DETAIL), INDEX)
