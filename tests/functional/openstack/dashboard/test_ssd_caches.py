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
"""Pages of SSD caches in a browser: of hosts, and of a server's volume."""

from openstack import exceptions

from diffcache_openstack.client import service
from tests.functional.openstack.dashboard import browser
from tests.functional.openstack import test_volumes

_CACHES = '/admin/image_cache_ssd_caches/'
_TAB = 'volume_details__image_cache_ssd_cache'


class TestSsdCaches(browser.BrowserTest, test_volumes.VolumeTest):

    @staticmethod
    def references(cache, volume):
        """How often the volume was referred to in the last epoch."""
        try:
            return cache.volume_curve(volume)['references']
        except exceptions.NotFoundException:
            return 0

    def test_a_volume_has_a_curve_and_reasons(self):
        cache = service.proxy_of(self.trial.admin)
        volume = self.volume(self.volume_type(test_volumes.TYPE))
        server = self.server()
        self.attach(server, volume)
        self.guest_said(server, 'done')
        self.wait_until(lambda: self.references(cache, volume) > 0,
                        'an epoch with requests has ended')
        operator = self.visitor('admin')
        operator.open(_CACHES)
        self.assertIn('In use', operator.texts(
            f'[id="ssd_caches__row__{self.host}"] td'))
        operator.check('ssd-caches')
        for tab in 'overview', 'volumes', 'decisions':
            operator.open(f'{_CACHES}{self.host}/?tab=ssd_cache__{tab}')
            self.assertEqual([], operator.messages())
            operator.check(f'ssd-cache-{tab}')
        for name, path in (
                ('ssd-cache-volume', f'{_CACHES}volumes/{volume}/'),
                ('volume-ssd-cache',
                 f'/project/volumes/{volume}/?tab={_TAB}')):
            operator.open(path)
            self.assertEqual([], operator.messages())
            self.assertEqual(1, operator.page.locator(
                '.image-cache-curve path').count())
            operator.check(name)
        self.detach(server, volume)

    def test_a_volume_without_an_ssd_cache(self):
        operator = self.visitor('admin')
        operator.open(f'/project/volumes/{self.volume()}/?tab={_TAB}')
        self.assertEqual([], operator.messages())
        self.assertIn('This volume is in no SSD cache',
                      ' '.join(operator.texts(f'#{_TAB}')))
        operator.check('volume-without-ssd-cache')
