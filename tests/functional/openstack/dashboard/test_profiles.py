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
"""What a server read as it booted lazily, as heat maps in a browser."""

from diffcache_openstack.client import service
from tests.functional.openstack.dashboard import browser
from tests.functional.openstack import nova_hosts
from tests.functional.openstack import test_nova_lazy


class TestBootProfiles(browser.BrowserTest, test_nova_lazy.LazyTest):

    def profile(self, cache, image):
        """The profile of an image as soon as its host has reported it."""
        return self.wait_until(
            lambda: next(iter(cache.profiles(image_id=image)), None),
            'there is a profile', nova_hosts.SECONDS)

    def test_what_a_lazy_boot_read_is_shown_and_deleted(self):
        cache = service.proxy_of(self.trial.admin)
        image, _path = self.cold_lazy()
        self.create(image, self.host)
        profile = self.profile(cache, image)
        operator = self.visitor('admin')
        tab = (f'/admin/image_cache_images/{image}/'
               f'?tab=image__profiles&profile={profile.id}')
        operator.open(tab)
        self.assertEqual([], operator.messages())
        for number in range(2):
            self.assertLess(0, operator.page.locator(
                '.image-cache-heat-map').nth(number).locator('rect').count())
        self.assertIn('100%', operator.texts('#image__profiles td'))
        operator.check('image-profiles')
        operator.open(f'/project/images/{image}/')
        operator.page.locator('.tabset-details .nav-tabs a',
                              has_text='Image Cache').click()
        operator.page.locator('.image-cache-heat-map').first.wait_for()
        operator.check('project-image')
        operator.open(tab)
        operator.act('profiles', profile.id, 'delete')
        operator.confirm()
        self.assertIn('Deleted Profile', ' '.join(operator.messages()))
