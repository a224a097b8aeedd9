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
"""The step "Image Cache" of Horizon's form that launches an instance."""

from diffcache_openstack.client.osc import hooks
from tests.functional.openstack.dashboard import browser

_MEMBER = 'launcher'
_STEP = '[ng-controller^=ImageCacheLaunchController]'
_LAZY = 'Lazy: start while the image arrives'
_FULL = 'Full: start when the image is on the host'
# Horizon's own service sends what its form does, with what the step adds.
_CREATE = '''spec => angular.element(document.body).injector()
    .get('horizon.app.core.openstack-service-api.nova').createServer(spec)
    .then(() => true)'''


class TestLaunch(browser.BrowserTest):

    def setUp(self):
        super().setUp()
        self.trial.member(_MEMBER)
        self.user = self.visitor(_MEMBER)
        self.page = self.user.page
        self.open_step()

    def open_step(self):
        """Open the form that launches an instance, at the step."""
        self.user.open('/project/instances/')
        self.page.locator('[id*=action_launch]').first.click()
        self.page.locator('wizard .nav-item a', has_text='Image Cache').click()
        self.page.wait_for_selector('#image-cache-boot-mode')

    def fill(self, **values):
        for name, value in values.items():
            self.page.fill(f'#image-cache-{name}', value)

    def choose(self, mode):
        self.page.select_option('#image-cache-boot-mode', label=mode)

    def is_marked(self):
        """Whether the form says that the step has something wrong."""
        return self.page.locator('wizard .nav-item', has_text='Image Cache'
                                 ).locator('.hz-icon-required').is_visible()

    def sent(self):
        """What Horizon sends to create a server.

        No server comes of it: Horizon's own steps need a network, which this
        OpenStack has none of.
        """
        with self.page.expect_request('**/api/nova/servers/') as request:
            self.page.evaluate(_CREATE, {
                'name': 'launched', 'source_id': None, 'flavor_id': None,
                'key_name': None, 'user_data': '', 'security_groups': [],
                'meta': {'team': 'shop'}})
        return request.value.post_data_json

    def test_a_lazy_boot_with_a_deadline_and_a_rate(self):
        self.choose(_LAZY)
        self.fill(minutes='30', rate='2.5', profile='web')
        self.page.click('label[for=image-cache-prefer-cached]')
        self.user.check('launch-lazy', _STEP)
        sent = self.sent()
        self.assertEqual(
            {hooks.PREFER_HINT: 'true', hooks.BOOT_MODE: 'lazy'},
            sent['scheduler_hints'])
        self.assertEqual(
            {'team': 'shop', hooks.BOOT_MODE: 'lazy',
             hooks.HYDRATE_BY: '1800', hooks.PROFILE: 'web',
             hooks.HYDRATE_RATE: '2500000'}, sent['meta'])

    def test_a_full_boot_has_no_deadline(self):
        self.fill(minutes='30')
        self.choose(_FULL)
        self.assertFalse(self.page.is_visible('#image-cache-minutes'))
        self.assertEqual({'team': 'shop', hooks.BOOT_MODE: 'full'},
                         self.sent()['meta'])

    def test_what_is_wrong_is_marked(self):
        for wrong in {'minutes': '0'}, {'rate': '-1'}, {'profile': 'a/b'}:
            with self.subTest(wrong):
                self.fill(**wrong)
                self.assertTrue(self.is_marked())
                self.fill(**dict.fromkeys(wrong, ''))
                self.assertFalse(self.is_marked())

    def test_a_form_that_is_opened_again_begins_anew(self):
        self.choose(_LAZY)
        self.page.locator('wizard .btn-default', has_text='Cancel').click()
        self.open_step()
        sent = self.sent()
        self.assertEqual({'team': 'shop'}, sent['meta'])
        self.assertNotIn('scheduler_hints', sent)
