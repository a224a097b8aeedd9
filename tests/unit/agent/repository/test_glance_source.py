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
"""Glance as the source of images, over HTTP."""

import hashlib
from unittest import mock

from diffcache_openstack.agent.repository import glance_source
from diffcache_openstack.agent.repository import image_service
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import notifications
from diffcache_openstack.common import stand_ins
from diffcache_openstack.conf import opts
from tests import base
from tests import openstack_apis

IMAGES = '/image/v2/images'


def document(image_id='i1', **values):
    return {'id': image_id, 'name': 'Gold', 'status': 'active',
            'disk_format': 'raw', 'container_format': 'bare', 'size': 10,
            'virtual_size': None, 'os_hash_algo': 'sha512',
            'os_hash_value': 'abc', 'owner': 'p1', 'visibility': 'public',
            **values}


def described(image_id='i1', **values):
    return image_service.ServiceImage(**{
        'id': image_id, 'name': 'Gold', 'status': 'active',
        'disk_format': 'raw', 'container_format': 'bare', 'size': 10,
        'os_hash_algo': 'sha512', 'os_hash_value': 'abc', 'owner': 'p1',
        'visibility': 'public', 'family': None, 'members': [], **values})


class SourceTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(openstack_apis.Cloud())
        self.source = glance_source.GlanceSource(opts.new_config(files=[str(
            self.write_file('conf', self.cloud.options('glance').encode()
                            + b'largest_image = 1000\n'))]))

    def answer(self, path, *answers):
        self.cloud.answer('GET', f'{IMAGES}{path}', *answers)

    def image(self, **values):
        self.answer('/i1', openstack_apis.Answer(document=document(**values)))
        return self.source.image('i1')

    def test_an_image(self):
        self.assertEqual(described(), self.image())

    def test_one_that_stands_for_a_version_is_not_cached(self):
        digest = hashlib.sha512(stand_ins.content('v')).hexdigest()
        self.assertEqual(
            described(status='stand-in', os_hash_value=digest),
            self.image(diffcache_lazy_version='v', os_hash_value=digest))
        # A snapshot of a server has the property, too.
        self.assertEqual(described(),
                         self.image(diffcache_lazy_version='v'))

    def test_family(self):
        self.assertEqual(described(family='gold'), self.image(
            diffcache_base_image='gold'))

    def test_what_tenants_may_set_to_any_text(self):
        # Regression: the conductor was not told of such an image, nor of any
        # other after it lost contact.
        self.answer('/i1/members', openstack_apis.Answer(document={
            'members': [{'member_id': 'a b'}, {'member_id': 'p2'}]}))
        self.assertEqual(
            described(name='G?ld', visibility='shared', members=['p2']),
            self.image(name='G\x1bld', visibility='shared',
                       diffcache_base_image='my base'))

    def test_fields_that_are_not_known_yet(self):
        self.assertEqual(
            described(status='queued', name='', size=None,
                      os_hash_algo=None, os_hash_value=None),
            self.image(status='queued', name=None, size=None,
                       os_hash_algo=None, os_hash_value=None))

    def test_members_of_a_shared_image(self):
        self.answer('/i1/members', openstack_apis.Answer(document={
            'members': [{'member_id': 'p3', 'image_id': 'i1'},
                        {'member_id': 'p2', 'image_id': 'i1'}]}))
        self.assertEqual(['p2', 'p3'],
                         self.image(visibility='shared').members)

    def test_members_of_an_image_that_is_gone_meanwhile(self):
        self.assertEqual([], self.image(visibility='shared').members)

    def test_too_large_packed_or_unpacked(self):
        for values in {'size': 1001}, {'virtual_size': 1001}:
            self.assertEqual('too large', self.image(**values).status)

    def test_a_deleted_image(self):
        self.assertIsNone(self.source.image('i1'))

    def test_all_images(self):
        def page(request):
            name = {'false': 'i1', 'true': 'i2'}[request.query['os_hidden']]
            return openstack_apis.Answer(document={
                'images': [document(name)]})

        self.answer('', page)
        self.assertEqual([described(), described('i2')],
                         self.source.images())

    def test_download(self):
        self.answer('/i1/file', openstack_apis.Answer(document=b'content'))
        self.assertEqual(b'content', b''.join(self.source.download('i1')))

    def test_refusals_may_be_mended(self):
        for path, call in (
                ('', self.source.images),
                ('/i1', lambda: self.source.image('i1')),
                ('/i1/file', lambda: list(self.source.download('i1')))):
            for answer in (openstack_apis.Answer(403, {}),
                           openstack_apis.Answer(500, {})):
                self.answer(path, answer)
                error = self.assertRaises(exceptions.RetryableError, call)
                self.assertIn('[glance]', str(error))

    def test_begins_while_glance_is_away(self):
        # Services start in any order.
        self.cloud.answer('GET', '/image', openstack_apis.DROP)
        self.answer('', openstack_apis.DROP)
        self.assertRaises(exceptions.RetryableError, self.source.images)
        self.answer('', openstack_apis.Answer(document={'images': []}))
        self.assertEqual([], self.source.images())

    def test_not_configured(self):
        error = self.assertRaises(exceptions.InvalidInput,
                                  glance_source.GlanceSource,
                                  opts.new_config())
        self.assertIn('[glance]', str(error))

    def test_each_repository_gets_all_notifications(self):
        """Two shared them: each missed what the other one was sent."""
        listen = self.patch_listener()
        self.source.start(None, None)
        self.assertIn(self.source._conf.agent.host, listen.call_args[0][3])

    def patch_listener(self):
        listen = mock.Mock()
        self.patch(notifications, 'Listener', listen)
        return listen

    def test_deletions_are_told_from_other_changes(self):
        changed, deleted = mock.Mock(), mock.Mock()
        listen = self.patch_listener()
        self.source.start(changed, deleted)
        [report] = listen.call_args[0][2].values()
        for event, payload in (
                ('image.update', {'id': 'a'}), ('image.delete', {'id': 'b'}),
                ('image.member.delete', {'image_id': 'c'})):
            report({'event_type': event, 'payload': payload})
        self.assertEqual([mock.call('a'), mock.call('c')],
                         changed.call_args_list)
        deleted.assert_called_once_with('b')
