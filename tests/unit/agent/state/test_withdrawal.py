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
import dataclasses

from diffcache_openstack.agent.state import withdrawal
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

BASE, TARGET = b'base' * 100, b'target' * 100
PATCH = fakes.make_patch(BASE, TARGET)
RECIPE = b'recipe'


def ends(path):
    """Of the patches of the fake site."""
    base_id, _, target = path.read_bytes().partition(b'\n')
    if not target:
        raise exceptions.FormatError('no patch')
    return base_id.decode(), fakes.content_id(target)


class WithdrawalTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.host = fakes.Host(self.directory, fakes.Network(), 'h1',
                               10 ** 9)
        self.keys = {name: self.host.put(content, kind) for
                     name, content, kind in (
                         ('base', BASE, views.IMAGES),
                         ('target', TARGET, views.IMAGES),
                         ('patch', PATCH, views.PATCHES),
                         ('recipe', RECIPE, views.RECIPES))}
        self.ended = []
        self.withdrawal = withdrawal.Withdrawal(
            self.host.held, self.ended.append, ends)
        self.site = fakes.site_view([self.host],
                                    {'base': BASE, 'target': TARGET},
                                    [(BASE, TARGET)])

    def held(self):
        return {name for name, key in self.keys.items()
                if key in self.host.held and self.host.held.path(
                    key).exists()}

    def enforce(self, **statuses):
        images = tuple(dataclasses.replace(
            image, status=statuses.get(image.id, 'active'),
            form_id=(fakes.content_id(RECIPE) if image.id == 'target'
                     else None)) for image in self.site.images)
        return self.withdrawal.enforce(dataclasses.replace(
            self.site, images=images))

    def test_all_active(self):
        self.assertFalse(self.enforce())
        self.assertEqual(set(self.keys), self.held())

    def test_gone_with_all_that_has_pieces_of_it(self):
        self.assertTrue(self.enforce(target='deleted'))
        self.assertEqual({'base'}, self.held())
        self.assertEqual([self.keys['target']], self.ended)
        self.assertFalse(self.host.held.manifest(
            self.keys['target'].id).exists())

    def test_deactivated_is_gone_too(self):
        self.assertTrue(self.enforce(target='deactivated'))
        self.assertEqual({'base'}, self.held())

    def test_also_if_the_plan_wants_it_and_it_is_in_use(self):
        with self.host.held.lease(self.keys['base']) as path, \
                open(path, 'rb') as reader:
            self.enforce(base='deleted')
            self.assertEqual(BASE, reader.read())
        self.assertNotIn('base', self.held())

    def test_a_patch_that_cannot_be_read_goes_too(self):
        self.host.held.path(self.keys['patch']).write_bytes(b'damaged')
        self.enforce(base='deleted')
        self.assertNotIn('patch', self.held())

    def test_a_borrowed_file_is_used_no_longer(self):
        path = self.write_file('_base/abc', b'borrowed')
        self.host.borrow(path)
        self.addCleanup(self.host.borrowed.close)
        self.site = fakes.site_view([self.host], {'lent': b'borrowed'}, [])
        self.assertFalse(self.enforce())
        self.assertTrue(self.enforce(lent=views.DELETED))
        self.assertEqual(frozenset(), self.host.borrowed.keys())
        self.assertEqual(b'borrowed', path.read_bytes())

    def test_content_that_an_active_image_has_stays(self):
        twin = dataclasses.replace(self.site.images[0], id='twin')
        self.site = dataclasses.replace(
            self.site, images=(*self.site.images, twin))
        self.assertFalse(self.enforce(base='deleted'))
        self.assertIn('base', self.held())
