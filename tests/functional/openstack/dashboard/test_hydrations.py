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
"""How far the image of a server is, and changes of that, in a browser."""

from diffcache_openstack.client import service
from tests.functional.openstack.dashboard import browser
from tests.functional.openstack import nova_hosts
from tests.functional.openstack import test_nova_hydrations

_OWNER, _READER = 'arrival-owner', 'arrival-reader'
_CHANGE = 'Set Deadline and Rate'


class TestImageArrival(browser.BrowserTest,
                       test_nova_hydrations.HydrationTest):

    def setUp(self):
        super().setUp()
        self.cache = service.proxy_of(self.trial.member(_OWNER))
        self.trial.user(_READER, _OWNER, 'reader')
        self.image_id, self.path = self.cold()
        self.server = self.boot_lazily(
            self.image_id, '--hydrate-by 3600', '--hydrate-rate 300kB',
            user=_OWNER)
        self.guest(self.server)
        self.wait_until(lambda: list(self.cache.hydrations()),
                        'it is listed')
        self.row = f'[id="hydration__row__{self.server}"]'

    def open(self, name):
        """The tab of the server, as a user sees it."""
        visitor = self.visitor(name)
        visitor.open(f'/project/instances/{self.server}/'
                     '?tab=instance_details__hydration')
        self.assertEqual([], visitor.messages())
        return visitor

    def act(self, visitor, action, done):
        """Take an action; returns what the row has then, and the service."""
        visitor.act('hydration', self.server, action)
        visitor.confirm()
        self.assertIn(done, ' '.join(visitor.messages()))
        # Without the message, which is Horizon's own.
        visitor.page.reload()
        visitor.settle()
        return (visitor.texts(f'{self.row} td'),
                self.cache.get_hydration(self.server).is_paused)

    def test_an_owner_pauses_resumes_and_changes_it(self):
        owner = self.open(_OWNER)
        self.assertIn('Arriving', owner.texts(f'{self.row} td'))
        self.assertEqual(['Pause Arrival', _CHANGE], owner.offered(self.row))
        owner.check('image-arrival')
        cells, is_paused = self.act(owner, 'pause', 'Paused Arrival')
        self.assertTrue(is_paused)
        self.assertIn('Paused (By the deadline)', cells)
        self.assertEqual(['Resume Arrival', _CHANGE],
                         owner.offered(self.row))
        owner.check('image-arrival-paused')
        cells, is_paused = self.act(owner, 'resume', 'Resumed Arrival')
        self.assertFalse(is_paused)
        self.assertIn('By the deadline', cells)
        owner.act('hydration', self.server, 'change')
        owner.page.wait_for_selector('.modal.in form')
        owner.choose('when', 'idle')
        owner.page.fill('.modal.in [name=rate]', '')
        owner.check('image-arrival-change')
        owner.submit()
        self.assertIn('Changed the arrival', ' '.join(owner.messages()))
        found = self.cache.get_hydration(self.server)
        self.assertEqual(('idle', None), (found.mode, found.rate))
        # The row is updated without loading the page again, to the end.
        owner.page.evaluate('window.isTheSame = true')
        self.trial.network.shape(self.wan)
        owner.page.locator(self.row).get_by_text(
            'Complete', exact=True).wait_for(
                timeout=nova_hosts.SECONDS * 1000)
        self.assertTrue(owner.page.evaluate('window.isTheSame'))
        self.assertIn('100%', owner.texts(f'{self.row} td'))

    def test_a_reader_sees_it_and_is_offered_nothing(self):
        reader = self.open(_READER)
        self.assertIn('Arriving', reader.texts(f'{self.row} td'))
        self.assertEqual([], reader.offered(self.row))
        reader.check('image-arrival-reader')
