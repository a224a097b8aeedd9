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
"""Patches that a repository creates once a host needs them."""

from diffcache_openstack.agent.repository import patch_making
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.sites import views
from testing import closed_windows
from tests.functional.agent import family
from tests.functional.agent import test_embedded


class OnRequestTestCase(test_embedded.EmbeddedTestCase):
    """A repository whose background thread creates no patches.

    Hosts take the WAN for so slow that any patch is the faster way, and wait
    for one for as long as it may take here.
    """

    on_demand = 20

    def setUp(self):
        super().setUp()
        self.assertEqual({}, self.patches)
        self.hold(host_2=[self.image('system')])

    def new_site(self, options=None):
        return super().new_site({
            ('planner', 'repository_bandwidth'): 0.1,
            ('repository', 'windows'): [closed_windows.window()],
            ('repository', 'patches_on_demand'): self.on_demand,
            **(options or {})})

    def created(self):
        """Return the patches that the repository has."""
        return self.site.repository.repository.patches()

    def requested(self, host):
        """Return what became of a host's requests for patches."""
        return self.site.hosts[host].status.report()['patches_requested']


class PatchesOnRequestTest(OnRequestTestCase):

    def test_the_patch_is_created_and_crosses_instead_of_the_image(self):
        before = self.site.wan_bytes()
        request = self.get('host-1', 'database')
        self.assertEqual(('build', 0), (request.way, request.fallbacks))
        [patch] = self.created()
        self.assertEqual(request.patch_id, patch.id)
        manifest = self.site.repository.held.manifest(
            self.contents['database']).stat().st_size
        self.assertLessEqual(self.site.wan_bytes() - before - manifest,
                             1.1 * patch.size)
        self.assertEqual(1, self.requested('host-1')['created'])

    def test_it_is_created_once_for_all_hosts(self):
        self.assertEqual('build', self.get('host-1', 'database').way)
        self.assertEqual('build', self.get('host-3', 'database').way)
        self.assertEqual(1, len(self.created()))

    def test_an_unlike_image_comes_whole(self):
        self.assertEqual('repository', self.get('host-1', 'other').way)
        self.assertEqual([], self.created())
        self.assertEqual(1, self.requested('host-1')['declined'])

    def test_a_wrong_patch_costs_a_fallback(self):
        create = patch_making.PatchMaker.create

        def create_damaged(maker, *pair):
            created = create(maker, *pair)
            patch = self.site.repository.repository.find_patch(*pair)
            family.damage(self.site.repository.held.path(
                views.Key(views.PATCHES, patch.id)), patch.size // 2)
            return created

        self.patch(patch_making.PatchMaker, 'create', create_damaged)
        request = self.get('host-1', 'database')
        self.assertEqual(('repository', 1), (request.way, request.fallbacks))
        self.assertEqual(1, self.requested('host-1')['created'])

    def test_a_host_that_asks_for_thousands(self):
        agent = self.site.hosts['host-3']
        ctxt = contexts.RequestContext.for_service('test')

        def ask(target, *bases):
            return agent._clients.agents.create_patch(
                ctxt, 'repository', agent_api.PatchWanted(
                    target, bases, 10.0 ** 9, 0.02, 600.0))

        for number in range(200):
            self.assertRaises(exceptions.NotFound, ask, f'{number:064x}',
                              self.contents['system'])
        self.assertIsNone(ask(self.contents['other'], *(
            f'{number:064x}' for number in range(agent_api.MOST_BASES))))
        self.assertRaises(
            exceptions.InvalidInput, ask, self.contents['other'], *(
                f'{number:064x}' for number in range(1000)))
        self.assertRaises(exceptions.InvalidInput, ask, '../' * 21 + 'a')
        found = [ask(self.contents['database'], self.contents['system'])
                 for _number in range(50)]
        self.assertEqual(1, len({patch.id for patch in found}))
        self.assertEqual(1, len(self.created()))

    def test_a_compute_host_creates_none(self):
        agent = self.site.hosts['host-3']
        self.assertRaises(
            exceptions.InvalidInput, agent._clients.agents.create_patch,
            contexts.RequestContext.for_service('test'), 'host-1',
            agent_api.PatchWanted(
                self.contents['database'], [self.contents['system']], 60.0,
                0.02, 60.0))


class NoPatchesOnRequestTest(OnRequestTestCase):

    on_demand = 0

    def test_the_image_comes_whole(self):
        self.assertEqual('repository', self.get('host-1', 'database').way)
        self.assertEqual([], self.created())
