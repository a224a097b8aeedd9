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
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import patch_requests
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.sites import views
from tests.unit.agent import fakes
from tests.unit.agent.images.delivery import test_serving

BASE, TARGET = test_serving.BASE, test_serving.TARGET
PATCH = fakes.make_patch(BASE, TARGET)
# Seconds that the image takes over the WAN.
WHOLE = fakes.SIZE * 8 / 20e6


class PatchRequestsTest(test_serving.ServeTestCase):
    """A site that has a base; the repository has no patch from it yet."""

    patches: list[tuple[bytes, bytes]] = []

    def setUp(self):
        super().setUp()
        self.host = self.hosts['h1']
        self.site_map = self.host.state.site_map
        self.site_map.reachable = True
        self.agents = self.host.agents
        self.requests = self.host.patch_requests
        self.hosts['h2'].put(BASE)
        self.refresh()

    def create(self, seconds=1.0):
        """Have the repository create the patch on the next request."""
        self.hosts['repo'].put(PATCH, views.PATCHES)
        self.site_map.next = fakes.site_view(
            list(self.hosts.values()), self.images, [(BASE, TARGET)])
        self.agents.answers = [objects.Patch(
            id=fakes.content_id(PATCH), base=fakes.content_id(BASE),
            target=fakes.content_id(TARGET), size=len(PATCH),
            create_seconds=seconds, apply_seconds=0.1)]

    def assert_counts(self, **counts):
        self.assertEqual(
            {**dict.fromkeys(patch_requests.OUTCOMES, 0), **counts},
            self.requests.counts())

    def assert_whole(self):
        served = self.serve()
        self.assertEqual(('repository', len(TARGET)),
                         (served.way, served.wan_bytes))

    def test_the_patch_is_created_and_crosses_instead_of_the_image(self):
        for mode in building.MODES:
            self.create()
            self.network.claims.clear()
            served = self.serve(mode)
            self.assertEqual(('build', len(PATCH)),
                             (served.way, served.wan_bytes))
            self.refresh()
        self.assert_counts(created=2)
        host, wanted = self.agents.calls[0]
        self.assertEqual(
            ('repo', fakes.content_id(TARGET), [fakes.content_id(BASE)],
             20.0), (host, wanted.target, wanted.bases, wanted.mbps))
        self.assertAlmostEqual(WHOLE, wanted.seconds, 3)

    def test_no_request_for_an_image_that_the_conductor_may_not_know(self):
        self.create()
        self.site_map.early.add(fakes.content_id(TARGET))
        self.assert_whole()
        self.assertEqual([], self.agents.calls)

    def test_without_a_patch_the_image_comes_whole(self):
        self.assert_whole()
        self.assert_counts(declined=1)

    def answer_late(self):
        """Answer the next request when the host no longer waits for it."""
        def answer():
            self.host.now += self.agents.calls[-1][1].wait
            return exceptions.ServiceUnavailable('no answer in time')

        self.agents.answers = [answer]

    def test_half_the_time_of_the_image_is_waited_at_most(self):
        self.answer_late()
        started = self.host.now
        self.assert_whole()
        self.assertAlmostEqual(WHOLE / 2, self.host.now - started, 3)
        self.assert_counts(late=1)

    def test_a_late_repository_is_left_alone_for_a_while(self):
        self.answer_late()
        for _attempt in range(2):
            self.assert_whole()
            self.network.claims.clear()
        self.assertEqual(1, len(self.agents.calls))
        self.host.now += 301
        self.create()
        self.assertEqual('build', self.serve().way)
        self.assert_counts(late=1, created=1)

    def test_what_patches_took_before_limits_the_wait(self):
        self.create(seconds=2.9)
        self.assertEqual('build', self.serve().way)
        self.host.view = fakes.site_view(
            list(self.hosts.values()), self.images, [])
        self.network.claims.clear()
        self.answer_late()
        started = self.host.now
        self.assert_whole()
        # Three times the 3 s that the last one took; half would be 20 s.
        self.assertAlmostEqual(9.0, self.host.now - started, 3)

    def test_quick_patches_leave_a_second(self):
        self.create(seconds=0.0)
        self.assertEqual('build', self.serve().way)
        self.host.view = fakes.site_view(
            list(self.hosts.values()), self.images, [])
        self.network.claims.clear()
        self.assert_whole()
        self.assertEqual(1.0, self.agents.calls[-1][1].wait)

    def test_a_busy_repository_is_asked_again(self):
        self.agents.answers = [exceptions.Busy('busy')]
        self.assert_whole()
        self.network.claims.clear()
        self.create()
        self.assertEqual('build', self.serve().way)
        self.assert_counts(busy=1, created=1)

    def test_a_repository_without_an_answer_is_left_alone_for_a_while(self):
        self.agents.answers = [exceptions.ServiceUnavailable('dead')]
        for _attempt in range(2):
            self.assert_whole()
            self.network.claims.clear()
        self.assertEqual(1, len(self.agents.calls))
        self.assert_counts(failed=1)
        self.host.now += 301
        self.create()
        self.assertEqual('build', self.serve().way)
        self.assert_counts(failed=1, created=1)

    def test_a_repository_of_an_older_release(self):
        self.agents.answers = [exceptions.InvalidInput('unknown method')]
        self.assert_whole()
        self.assert_counts(failed=1)

    def test_a_patch_that_is_on_no_map_is_not_waited_for(self):
        self.create()
        self.site_map.next = None
        self.assert_whole()
        self.assert_counts(failed=1)

    def test_a_wrong_patch_costs_a_fallback(self):
        self.create()
        key = fakes.key_of(PATCH, views.PATCHES)
        self.network.files['http://repo'][key] = b'gar\nbage'
        served = self.serve()
        self.assertEqual(('repository', 1), (served.way, served.fallbacks))

    def test_nothing_is_asked_without_a_conductor(self):
        self.site_map.reachable = False
        self.assert_whole()
        self.assertEqual([], self.agents.calls)

    def test_nothing_is_asked_without_a_base_at_the_site(self):
        self.host.view = fakes.site_view(
            [self.hosts['repo'], self.host], self.images, [])
        self.assert_whole()
        self.assertEqual([], self.agents.calls)

    def test_nothing_is_asked_of_what_the_site_has(self):
        self.hosts['h3'].put(TARGET)
        self.refresh()
        self.assertEqual('peer', self.serve().way)
        self.assertEqual([], self.agents.calls)

    def test_nothing_is_asked_if_all_patches_are_known(self):
        self.create()
        self.host.view = self.site_map.next
        self.assertEqual('build', self.serve().way)
        self.assertEqual([], self.agents.calls)

    def test_few_bases_are_named_and_own_ones_first(self):
        others = {f'image {n:03}': b'%03d' % n * 100
                  for n in range(2 * patch_requests.agent_api.MOST_BASES)}
        for content in others.values():
            self.hosts['h2'].put(content)
        self.host.put(others['image 099'])
        self.host.view = fakes.site_view(
            list(self.hosts.values()), {**self.images, **others}, [])
        self.assert_whole()
        bases = self.agents.calls[0][1].bases
        self.assertEqual(patch_requests.agent_api.MOST_BASES, len(bases))
        self.assertEqual(fakes.content_id(others['image 099']), bases[0])
