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
CREATE = urls.reverse('horizon:admin:image_cache_precache:create')
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
        self.answer('/images', needs.listing(
            'images', {'id': 'i1', 'name': 'web', 'content_id': 'c' * 64}))

    def test_jobs_and_their_progress(self):
        response = self.client.get(INDEX)
        for text in ('Course', 'Running', '5 of 8, 1 failed', '66%',
                     'web, family of f1', 'room', '2026-11-24 18:00:00'):
            self.assertContains(response, text)

    def test_a_running_job_is_updated(self):
        self.answer(f'/precache-jobs/{ID}', {'precache_job': {
            **JOB, 'state': 'ready'}})
        self.assertContains(self.client.get(INDEX), 'ajax-update warning')
        response = self.client.get(
            f'{INDEX}?action=row_update&table=jobs&obj_id={ID}',
            HTTP_X_REQUESTED_WITH='XMLHttpRequest')
        self.assertContains(response, 'Ready')
        self.assertContains(response, 'web, family of f1')
        self.assertNotContains(response, 'warning')

    def test_retry(self):
        self.answer(f'/precache-jobs/{ID}/retry', {'precache_job': JOB},
                    method='POST')
        response = self.client.post(
            INDEX, {'action': f'jobs__retry__{ID}'}, follow=True)
        self.assertEqual(['Retried Job: Course'], self.messages(response))

    def test_nothing_to_retry(self):
        self.answer('/precache-jobs', needs.listing('precache_jobs', {
            **JOB, 'progress': {**JOB['progress'], 'failed': 0}}))
        self.assertNotContains(self.client.get(INDEX), 'jobs__retry__')

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


class RightsTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.with_rules()
        self.answer('/precache-jobs', needs.listing('precache_jobs', JOB))

    def test_an_administrator_sees_the_panel_and_its_actions(self):
        response = self.client.get(INDEX)
        self.assertContains(response, f'jobs__cancel__{ID}')
        self.assertContains(response, CREATE)

    def test_others_do_not_though_they_may_list_jobs(self):
        for role in 'member', 'reader':
            with self.subTest(role=role):
                self.act_as(role)
                for path in INDEX, CREATE, DETAIL:
                    self.assertNotEqual(200,
                                        self.client.get(path).status_code)
                self.assertEqual([], self.wire.sent)


class CreateTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/images', needs.listing(
            'images', {'id': 'i1', 'name': 'web', 'content_id': 'c' * 64}))
        self.answer('/hosts', needs.listing(
            'hosts', {'name': 'c1', 'site': 'edge', 'role': 'compute'},
            {'name': 'hub', 'site': 'centre', 'role': 'repository'}))
        self.answer('/precache-jobs', {'precache_job': JOB}, 202, 'POST')

    def test_no_form_without_the_right(self):
        with self.without('diffcache:precache_jobs:create'):
            response = self.client.get(CREATE)
            self.assertTemplateUsed(response, 'not_authorized.html')
            response = self.client.post(CREATE, {})
            self.assertTemplateUsed(response, 'not_authorized.html')
        self.assertEqual([], self.wire.sent)

    def test_images_and_hosts_are_offered(self):
        response = self.client.get(CREATE)
        self.assertContains(response, 'value="i1"')
        self.assertContains(response, 'c1 (edge)')
        self.assertNotContains(response, 'value="hub"')

    def test_a_job_is_created(self):
        response = self.client.post(CREATE, {
            'name': 'Course', 'images': ['i1'], 'hosts': ['c1'],
            'priority': 0, 'window': '22:00-06:00', 'is_pinned': True})
        self.assertRedirectsNoFollow(response, INDEX)
        self.assertEqual([{'precache_job': {
            'name': 'Course', 'images': ['i1'], 'hosts': ['c1'],
            'priority': 0, 'window': '22:00-06:00', 'pinned': True}}],
            self.wire.bodies)

    def test_a_family_for_some_days(self):
        self.client.post(CREATE, {'images': ['i1'], 'hosts': ['c1'],
                                  'is_family': True, 'days': 2,
                                  'priority': 50})
        [body] = self.wire.bodies
        self.assertEqual(['i1'], body['precache_job']['families'])
        self.assertRegex(body['precache_job']['expires_at'],
                         r'^\d{4}-\d\d-\d\dT[\d:]{8}Z$')

    def test_no_image_is_chosen(self):
        response = self.client.post(CREATE, {'hosts': ['c1'],
                                             'priority': 50})
        self.assertFormErrors(response, 1)
        self.assertEqual([], self.wire.bodies)

    def test_a_refused_call_is_a_message(self):
        self.refuse('/precache-jobs', 400, 'Bad window.', 'POST')
        response = self.client.post(CREATE, {
            'images': ['i1'], 'hosts': ['c1'], 'priority': 50})
        self.assertEqual(
            ['Could not create the precache job: Bad window.'],
            self.messages(response))


class DetailTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer(f'/precache-jobs/{ID}', {'precache_job': JOB})

    def test_overview(self):
        response = self.client.get(DETAIL)
        for text in 'Course', '5 of 8, 1 failed', '66%', 'Yes':
            self.assertContains(response, text)

    def test_progress_by_host(self):
        target = {'id': 'c1/i1', 'host': 'c1', 'image_id': 'i1',
                  'state': 'fetching', 'way': None, 'bytes_total': 10 ** 9,
                  'bytes_done': 25 * 10 ** 7, 'message': 'link is slow',
                  'updated_at': '2026-11-23T18:00:00Z', 'attempts': 1,
                  'retry_at': None}
        self.answer(f'/precache-jobs/{ID}/targets', needs.listing(
            'targets', target, {**target, 'id': '?/i1', 'host': None,
                                'message': None}))
        response = self.client.get(f'{DETAIL}?tab=job__targets')
        for text in 'Fetching', '25%', 'link is slow', 'hosts/c1/':
            self.assertContains(response, text)
        self.answer(f'/precache-jobs/{ID}/targets', needs.listing(
            'targets', {**target, 'state': 'ready'}))
        row = (f'{DETAIL}?action=row_update&table=targets&obj_id=')
        response = self.client.get(
            f'{row}c1/i1', HTTP_X_REQUESTED_WITH='XMLHttpRequest')
        self.assertContains(response, 'Ready')
        self.assertIn(('GET', f'/precache-jobs/{ID}/targets',
                       {'host': 'c1'}), self.wire.sent)
        response = self.client.get(
            f'{row}c1/i2', HTTP_X_REQUESTED_WITH='XMLHttpRequest')
        self.assertEqual(404, response.status_code)

    def test_a_job_that_does_not_exist(self):
        self.refuse(f'/precache-jobs/{ID}', 404, 'No job.')
        self.assertRedirectsNoFollow(self.client.get(DETAIL), INDEX)
