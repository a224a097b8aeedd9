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

import types

from keystoneauth1 import exceptions as ksa_exceptions

from diffcache_openstack.agent.versions import images
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from tests import base

NEW = images.New('an-id', 'p', 'Gold', 'a-base', 'a-version', 3)


class Glance:
    """Images by id: their documents, and their files."""

    def __init__(self):
        self.images = {}
        self.fails = None

    def get(self, path):
        found = self.images.get(path.rpartition('/')[2])
        if found is None:
            raise ksa_exceptions.NotFound()
        return types.SimpleNamespace(json=lambda: found)

    def post(self, path, json):
        if json['id'] in self.images:
            raise ksa_exceptions.Conflict()
        self.images[json['id']] = {**json, 'status': 'queued'}

    def put(self, path, data, headers):
        image = self.images[path.split('/')[-2]]
        image['file'] = b''.join(data)
        if self.fails:
            raise self.fails
        image['status'] = 'active'

    def delete(self, path):
        del self.images[path.rpartition('/')[2]]


class ImagesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.glance = Glance()
        self.images = images.Images(opts.new_config())
        self.images._glance = types.SimpleNamespace(
            adapter=lambda: self.glance)
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
                'min_disk', 'diffcache_base_template', 'diffcache_version')))
        self.assertEqual(self.file.read_bytes(), image['file'])
        self.assertEqual([(7000, 7000)], self.progress)
        self.assertTrue(self.images.is_there('an-id'))

    def test_again_takes_what_is_there(self):
        self.upload()
        self.progress.clear()
        self.assertEqual(('an-id', []), (self.upload(), self.progress))

    def test_after_an_upload_that_was_cut_off(self):
        self.glance.images['an-id'] = {'status': 'saving'}
        image_id = self.upload()
        self.assertEqual([image_id], list(self.glance.images))
        self.assertTrue(self.images.is_there(image_id))

    def test_failed_upload_leaves_nothing(self):
        self.glance.fails = ksa_exceptions.RequestEntityTooLarge('quota')
        error = self.assertRaises(exceptions.ServiceUnavailable, self.upload)
        self.assertIn('quota', str(error))
        self.assertEqual({}, self.glance.images)

    def test_not_configured(self):
        error = self.assertRaises(
            exceptions.InvalidInput,
            images.Images(opts.new_config()).is_there, 'x')
        self.assertIn('[glance]', str(error))
