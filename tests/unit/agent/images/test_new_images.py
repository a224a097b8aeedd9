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
"""Images that a host needs before the catalogue has them."""

from diffcache_openstack.agent.images.limits import pauses
from diffcache_openstack.agent.images import new_images
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from tests.unit.agent import fakes
from tests.unit.agent.images.delivery import test_serving

NEW = test_serving.TARGET + b'of a moment ago'


class NewImagesTest(test_serving.ServeTestCase):

    def setUp(self):
        super().setUp()
        self.host = self.hosts['h1']
        self.site_map = self.host.state.site_map
        self.site_map.reachable = True
        self.agents = self.host.agents
        self.new = new_images.NewImages(self.host.state, self.agents, None,
                                        lambda: self.host.now)
        self.refresh()

    def found(self, **changes):
        return objects.Image(**{
            'id': 'new', 'content_id': fakes.content_id(NEW),
            'size': len(NEW), 'data_size': len(NEW), **changes})

    def find(self):
        return self.new.find('new', 1000)

    def assert_unknown(self):
        self.assertRaises(exceptions.NotFound, self.find)

    def assert_counts(self, **counts):
        found = self.new.counts()
        self.assertGreaterEqual(found.pop('seconds'), 0)
        self.assertEqual({**dict.fromkeys(new_images.OUTCOMES, 0), **counts},
                         found)

    def test_one_that_a_repository_is_adding(self):
        self.agents.images = [self.found()]
        self.assertEqual(fakes.content_id(NEW), self.find().content_id)
        self.assertEqual([('repo', 'new', 1000, 20.0)], self.agents.calls)
        # It is one of the site map's now.
        self.assertEqual('new', self.find().id)
        self.assertEqual(1, len(self.agents.calls))
        self.assert_counts(found=1)

    def test_no_question_about_what_the_catalogue_has(self):
        self.assertEqual('target', self.new.find('target', 1000).id)
        self.assertEqual([], self.agents.calls)

    def test_one_that_no_repository_will_have_soon(self):
        self.assert_unknown()
        self.assert_counts(declined=1)

    def test_another_image_than_the_requested_one(self):
        self.agents.images = [self.found(id='other')]
        self.assert_unknown()
        self.assert_counts(declined=1)

    def test_one_that_no_repository_vouches_for(self):
        self.site_map.trusts = False
        self.agents.images = [self.found()]
        self.assert_unknown()
        self.assert_counts(declined=1)

    def test_a_repository_without_an_answer_is_left_alone_for_a_while(self):
        for error in (exceptions.ServiceUnavailable('late'),
                      exceptions.InvalidInput('an old agent')):
            self.agents.images = [error]
            self.assert_unknown()
            # No second question.
            self.agents.images = [self.found()]
            self.assert_unknown()
            self.host.now += pauses.SECONDS
        self.assertEqual('new', self.find().id)
        self.assert_counts(failed=2, found=1)

    def test_no_question_while_the_conductor_is_down(self):
        self.site_map.reachable = False
        self.assert_unknown()
        self.assertEqual([], self.agents.calls)

    def test_only_so_many_requests_wait(self):
        for _ in range(new_images.MOST_WAITING):
            self.new._places.acquire()
        self.assert_unknown()
        self.new._places.release()
        self.agents.images = [self.found()]
        self.assertEqual('new', self.find().id)
        # The place is free again.
        self.assertTrue(self.new._places.acquire(blocking=False))
