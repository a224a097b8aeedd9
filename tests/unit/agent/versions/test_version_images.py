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
"""Versions become images of Glance, once."""

import dataclasses
import json

from diffcache_openstack.agent.versions import version_images
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from tests import base
from tests import openstack_apis

NEW = version_images.NewImage('an-id', 'p', 'Gold', 'a-base', 'a-version', 3)
IMAGES = '/image/v2/images'


class Glance(openstack_apis.Cloud):
    """Images by id: their documents, and their files."""

    def __init__(self):
        super().__init__()
        self.images = {}
        self.fails = None

    def find(self, request):
        if request.path.partition('?')[0] == IMAGES and \
                request.method == 'GET':
            return self.list(request)
        if request.path == IMAGES:
            return self.create(json.loads(request.body))
        if not request.path.startswith(f'{IMAGES}/'):
            return super().find(request)
        image_id = request.path.split('/')[4]
        if image_id not in self.images:
            return openstack_apis.Answer(404, {})
        return getattr(self, request.method)(image_id, request.body)

    def create(self, document):
        if document['id'] in self.images:
            return openstack_apis.Answer(409, {})
        self.images[document['id']] = {**document, 'status': 'queued'}
        return openstack_apis.Answer(201, document)

    def list(self, request):
        return openstack_apis.Answer(document={'images': [
            _shown(image) for image in self.images.values()
            if image['owner'] == request.query.get('owner')]})

    def GET(self, image_id, _body):
        return openstack_apis.Answer(document=_shown(self.images[image_id]))

    def PUT(self, image_id, body):
        self.images[image_id]['file'] = body
        if self.fails:
            return self.fails
        self.images[image_id]['status'] = 'active'
        return openstack_apis.Answer(204, b'')

    def DELETE(self, image_id, _body):
        del self.images[image_id]
        return openstack_apis.Answer(204, b'')


def _shown(image):
    return {name: value for name, value in image.items() if name != 'file'}


class ImagesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.glance = self.useFixture(Glance())
        self.conf = opts.new_config(files=[str(self.write_file(
            'conf', self.glance.options('glance').encode()))])
        self.images = version_images.VersionImages(self.conf)
        self.file = self.write_file('file', b'content' * 1000)
        self.progress = []

    def upload(self):
        return self.images.upload(
            self.file, NEW, lambda *done: self.progress.append(done))

    def test_upload(self):
        self.assertFalse(self.images.is_there('an-id'))
        self.assertEqual('an-id', self.upload())
        image = self.glance.images['an-id']
        self.assertEqual(
            ('p', 'private', 'qcow2', 'bare', 3, 'a-base', 'a-version'),
            tuple(image[name] for name in (
                'owner', 'visibility', 'disk_format', 'container_format',
                'min_disk', 'diffcache_base_image', 'diffcache_version')))
        self.assertEqual(self.file.read_bytes(), image['file'])
        self.assertEqual([(7000, 7000)], self.progress)
        self.assertTrue(self.images.is_there('an-id'))

    def test_again_takes_what_is_there(self):
        self.upload()
        self.progress.clear()
        self.assertEqual(('an-id', []), (self.upload(), self.progress))

    def test_after_an_upload_that_was_cut_off(self):
        self.glance.images['an-id'] = {'status': 'saving', 'owner': 'p'}
        image_id = self.upload()
        self.assertEqual([image_id], list(self.glance.images))
        self.assertTrue(self.images.is_there(image_id))

    def test_failed_upload_leaves_nothing(self):
        for answer, kind in (
                (openstack_apis.Answer(413, b'<p>quota</p>', {
                    'Content-Type': 'text/html'}),
                 exceptions.ServiceUnavailable),
                (openstack_apis.Answer(403, b'<p>quota</p>', {
                    'Content-Type': 'text/html'}), exceptions.Forbidden),
                (openstack_apis.DROP, exceptions.ServiceUnavailable)):
            self.glance.fails = answer
            error = self.assertRaises(kind, self.upload)
            if answer is not openstack_apis.DROP:
                self.assertIn('quota', str(error))
            self.assertEqual({}, self.glance.images)

    def limit(self, **limits):
        for name, most in limits.items():
            self.conf.set_override(name, most, 'versions')
        self.images = version_images.VersionImages(self.conf)

    def test_a_project_has_so_many_images_of_versions(self):
        # Regression: Glance counts them as those of the service's project.
        self.limit(export_limit=1)
        self.glance.images = {
            'other': {'id': 'other', 'owner': 'q', 'size': 5,
                      version_images.VERSION: 'v'},
            'own': {'id': 'own', 'owner': 'p', 'size': 5}}
        self.upload()
        more = dataclasses.replace(NEW, id='b')
        error = self.assertRaises(
            exceptions.QuotaExceeded, self.images.upload, self.file, more,
            lambda *_done: None)
        self.assertIn('export_limit', str(error))
        self.assertNotIn('b', self.glance.images)
        # What is there is no more than before.
        self.assertEqual('an-id', self.upload())
        self.limit(export_limit=-1)
        self.images.upload(self.file, more, lambda *_done: None)

    def test_a_project_has_so_many_bytes_of_them(self):
        self.glance.images['old'] = {
            'id': 'old', 'owner': 'p', 'size': 1000,
            version_images.VERSION: 'v'}
        self.limit(export_size_limit=1000)
        self.assertRaises(exceptions.QuotaExceeded, self.upload)
        self.assertEqual(['old'], list(self.glance.images))
        self.limit(export_size_limit=1001)
        self.upload()

    def test_not_configured(self):
        error = self.assertRaises(
            exceptions.InvalidInput,
            version_images.VersionImages(opts.new_config()).is_there, 'x')
        self.assertIn('[glance]', str(error))
