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
"""Glance's API over HTTP: what is sent, repeated, and made of answers."""

import io

from diffcache_openstack.cloud import glance
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from tests import base
from tests import openstack_apis

IMAGES = '/image/v2/images'
DOCUMENT = {'id': 'i1', 'name': 'Gold', 'diffcache_version': 'v1'}
FAILURES = (openstack_apis.DROP, openstack_apis.Answer(503, {}))


class GlanceTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(openstack_apis.Cloud())
        self.glance = glance.Glance(opts.new_config(files=[str(
            self.write_file('conf', self.cloud.options('glance').encode()))]))


class TestReading(GlanceTest):

    def test_all_pages(self):
        self.cloud.answer(
            'GET', IMAGES,
            openstack_apis.Answer(document={
                'images': [{'id': 'i1'}], 'next': '/v2/images?marker=i1'}),
            openstack_apis.Answer(document={'images': [{'id': 'i2'}]}))
        self.assertEqual([{'id': 'i1'}, {'id': 'i2'}],
                         self.glance.images(hidden=True))
        self.assertEqual('true', self.cloud.requests[0].query['os_hidden'])
        self.assertEqual({'marker': 'i1'}, self.cloud.requests[1].query)

    def test_community_images_of_other_projects_are_listed(self):
        """Each start of a repository deleted them for good."""
        self.cloud.answer('GET', IMAGES,
                          openstack_apis.Answer(document={'images': []}))
        self.glance.images(hidden=False)
        self.assertEqual('all', self.cloud.requests[0].query['visibility'])

    def test_one_request_id_for_all_pages(self):
        # glanceclient sends the id of the first page's answer with others.
        context = self.useFixture(openstack_apis.Context()).context
        self.cloud.answer(
            'GET', IMAGES,
            openstack_apis.Answer(
                document={'images': [], 'next': '/v2/images?marker=i1'},
                headers={'X-OpenStack-Request-ID': 'req-of-glance'}),
            openstack_apis.Answer(document={'images': []}))
        self.glance.images(hidden=False)
        self.assertEqual(
            [[context.request_id]] * 2,
            [request.headers.get_all('X-OpenStack-Request-ID')
             for request in self.cloud.requests])

    def test_one(self):
        self.cloud.answer('GET', f'{IMAGES}/i1',
                          openstack_apis.Answer(document=DOCUMENT))
        self.assertEqual(DOCUMENT, self.glance.image('i1'))

    def test_an_id_is_no_path(self):
        self.assertRaises(exceptions.NotFound, self.glance.image, '../x')
        self.assertEqual([f'{IMAGES}/..%2Fx'], self.cloud.sent('GET'))

    def test_members(self):
        members = [{'member_id': 'p1', 'image_id': 'i1'}]
        self.cloud.answer('GET', f'{IMAGES}/i1/members',
                          openstack_apis.Answer(document={
                              'members': members}))
        self.assertEqual(members, self.glance.members('i1'))

    def test_repeated_after_failures(self):
        for failure in FAILURES:
            self.cloud.answer('GET', f'{IMAGES}/i1', failure,
                              openstack_apis.Answer(document=DOCUMENT))
            self.assertEqual(DOCUMENT, self.glance.image('i1'))

    def test_request_id_of_a_refusal(self):
        self.cloud.answer('GET', f'{IMAGES}/i1', openstack_apis.Answer(
            403, b'<html><title>403</title>Not you.</html>',
            {'Content-Type': 'text/html',
             'X-OpenStack-Request-ID': 'req-of-glance'}))
        text = str(self.assertRaises(exceptions.Forbidden,
                                     self.glance.image, 'i1'))
        self.assertIn('Not you.', text)
        self.assertIn('(Request-ID: req-of-glance)', text)

    def test_an_error_without_a_type_of_content(self):
        self.cloud.answer('GET', f'{IMAGES}/i1', openstack_apis.Answer(
            404, b'gone', {'Content-Type': ''}))
        self.assertRaises(exceptions.NotFound, self.glance.image, 'i1')

    def test_no_service_listens(self):
        self.glance = glance.Glance(opts.new_config(files=[str(
            self.write_file('conf', (
                self.cloud.options('glance') +
                'endpoint_override = http://127.0.0.1:1\n').encode()))]))
        self.assertIn('Glance could not show image i1', str(
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.glance.image, 'i1')))


class TestDownload(GlanceTest):

    def download(self, *answers):
        self.cloud.answer('GET', f'{IMAGES}/i1/file', *answers)
        return b''.join(self.glance.download('i1'))

    def test_all_of_it(self):
        data = bytes(range(256)) * 10_000
        self.assertEqual(data,
                         self.download(openstack_apis.Answer(document=data)))

    def test_all_of_it_without_a_length(self):
        """Apache, in front of uWSGI, sends a file in chunks."""
        self.assertEqual(b'content', self.download(openstack_apis.Answer(
            document=b'content', length=openstack_apis.NO_LENGTH)))

    def test_without_data(self):
        self.assertEqual(b'', self.download(
            openstack_apis.Answer(204, b'')))

    def test_cut_off(self):
        self.assertRaises(
            exceptions.ServiceUnavailable, self.download,
            openstack_apis.Answer(document=b'half', length=8))
        self.assertEqual(1, len(self.cloud.requests))

    def test_an_empty_file(self):
        self.assertEqual(b'', self.download(
            openstack_apis.Answer(document=b'')))

    def test_missing(self):
        self.assertRaises(exceptions.NotFound, self.download,
                          openstack_apis.Answer(404, {}))


class TestChanging(GlanceTest):

    def test_creation(self):
        self.cloud.answer('POST', IMAGES,
                          openstack_apis.Answer(201, DOCUMENT))
        self.glance.create(DOCUMENT)
        self.assertIn(b'"diffcache_version": "v1"',
                      self.cloud.requests[0].body)

    def test_creation_is_not_repeated(self):
        for failure in FAILURES:
            self.cloud.requests.clear()
            self.cloud.answer('POST', IMAGES, failure)
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.glance.create, DOCUMENT)
            self.assertEqual([IMAGES], self.cloud.sent('POST'))

    def test_what_exists(self):
        self.cloud.answer('POST', IMAGES, openstack_apis.Answer(409, {}))
        self.assertRaises(exceptions.Conflict, self.glance.create, DOCUMENT)

    def test_upload(self):
        data = b'content' * 500_000
        self.cloud.answer('PUT', f'{IMAGES}/i1/file',
                          openstack_apis.Answer(204, b''))
        self.glance.upload('i1', io.BytesIO(data))
        self.assertEqual(data, self.cloud.requests[0].body)

    def test_a_refused_token_does_not_upload_an_empty_file(self):
        # A session with another token sends the request again, whose body
        # has been read.
        self.cloud.answer('PUT', f'{IMAGES}/i1/file',
                          openstack_apis.Answer(401, {}),
                          openstack_apis.Answer(204, b''))
        self.assertRaises(exceptions.ServiceUnavailable, self.glance.upload,
                          'i1', io.BytesIO(b'content'))
        self.assertEqual([b'content'], [request.body for request
                                        in self.cloud.requests])

    def test_upload_and_deletion_are_not_repeated(self):
        for method, path, call in (
                ('PUT', f'{IMAGES}/i1/file', lambda: self.glance.upload(
                    'i1', io.BytesIO(b'content'))),
                ('DELETE', f'{IMAGES}/i1', lambda: self.glance.delete(
                    'i1'))):
            for failure in FAILURES:
                self.cloud.requests.clear()
                self.cloud.answer(method, path, failure)
                self.assertRaises(exceptions.ServiceUnavailable, call)
                self.assertEqual([path], self.cloud.sent(method))

    def test_deletion(self):
        self.cloud.answer('DELETE', f'{IMAGES}/i1',
                          openstack_apis.Answer(204, b''))
        self.glance.delete('i1')
        self.assertEqual([f'{IMAGES}/i1'], self.cloud.sent('DELETE'))
