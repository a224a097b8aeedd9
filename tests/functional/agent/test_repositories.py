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
"""A site that reads from two repositories, of which one fails."""

import concurrent.futures
import contextlib
import socket

from diffcache_openstack.agent import service as agents
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.db import engine
from diffcache_openstack.db.sites import networks
from diffcache_openstack.embedded import sites
from diffcache_openstack.sites import views
from tests.functional.agent import family
from tests.functional.agent import test_embedded
from tests import waiting

LEAF = 65536
SECOND = 'repository-2'


class _TwoRepositories(sites.Site):
    """An embedded site with another repository."""

    def __init__(self, directory, *args):
        super().__init__(directory, *args)
        self.second = agents.Agent(self._conf({
            **self._keys.of(host_keys.REPOSITORY, SECOND),
            ('agent', 'host'): SECOND,
            ('agent', 'role'): sites.REPOSITORY,
            ('agent', 'state_dir'): str(directory / SECOND)}))

    def agents(self):
        return [*super().agents(), self.second]

    def read(self, function, *arguments):
        """Run a function in a transaction that reads."""
        with contextlib.closing(engine.Database(self._conf({}))) as database:
            return database.read(function, *arguments)


class RepositoriesTest(test_embedded.EmbeddedTestCase):

    def setUp(self):
        super().setUp()
        self.first, self.second = self.site.repository, self.site.second
        for name, path in self.images.items():
            self.second.repository.register(path, name, name)
        host = self.site.hosts['host-1']
        keys = {views.Key(views.IMAGES, content)
                for content in self.contents.values()}
        waiting.until(lambda: host.site_map.current().holdings(SECOND)
                      >= keys, 'the holdings of both repositories')

    def new_site(self, options=None):
        site = self.directory / 'site'
        return _TwoRepositories(
            site, [sites.HostSpec(name, self.capacity)
                   for name in test_embedded.HOSTS],
            self.links, site / 'repository',
            {('agent', 'sync_outputs'): False,
             ('agent', 'keep_requested'): False,
             ('agent', 'heartbeat_interval'): 2,
             ('repository', 'compression_level'): 0,
             ('repository', 'max_patch_ratio'): 0.0,
             # The first one is preferred.
             ('planner', 'named_repository_bandwidth'):
                 {sites.REPOSITORY: '40', SECOND: '20'}})

    def known(self, name, host='host-1'):
        """What a host knows of a repository."""
        plane = self.site.hosts[host].plane
        return next(found for found in plane.repositories()
                    if found['name'] == name)

    def test_the_preferred_one_is_used(self):
        request = self.get('host-1', 'java')
        self.assertEqual(('repository', 0), (request.way, request.fallbacks))
        self.assertIn('from repository', request.detail)
        self.assertEqual(0, self.known(SECOND)['transfers'])
        self.assertGreaterEqual(self.known(sites.REPOSITORY)['bytes'],
                                request.wan_bytes)

    def test_one_that_is_killed_in_the_middle_of_a_transfer(self):
        record = self.first.repository.find('java')
        # Much longer than the test takes to notice that it is on its way.
        self.first.plane.set_rate(family.MIB / 4)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.get, 'host-1', 'java')
            waiting.until(
                lambda: self.received() > 8 * LEAF,
                'a part of the image')
            self.first.plane.close()
            request = running.result(120)
        self.assertEqual(('repository', 1), (request.way, request.fallbacks))
        self.assertIn(SECOND, request.detail)
        self.assertGreaterEqual(request.wan_bytes, record.data_size)
        self.assertLess(request.wan_bytes, record.data_size + LEAF)
        self.assertGreater(self.known(sites.REPOSITORY)['bytes'], LEAF)
        self.assertEqual(1, self.known(sites.REPOSITORY)['failures'])

    def received(self):
        stats = self.site.hosts['host-1'].plane.stats()
        return stats['received'][views.IMAGES]

    def test_one_that_drops_packets_costs_one_timeout(self):
        with self.black_hole(self.first):
            requests = [self.get('host-1', name)
                        for name in ['java', 'system'] * 5]
            found = self.known(sites.REPOSITORY)
        self.assertEqual({'repository'}, {each.way for each in requests})
        self.assertEqual((0, 1), (found['transfers'], found['failures']))
        self.assertIn('cannot connect', found['reason'])
        waiting.until(lambda: self.reported_dead(sites.REPOSITORY),
                      'the report of the dead repository')

    def reported_dead(self, name):
        """Whether the conductor knows that a host gets no answer."""
        seen = self.site.read(networks.of_host, 'host-1')
        return seen is not None and any(
            each.name == name and not each.answers and each.failures == 1
            and 'cannot connect' in each.reason for each in seen.repositories)

    @contextlib.contextmanager
    def black_hole(self, agent):
        """Have connections to an agent time out."""
        agent.plane.close()
        host, port = agent.plane.url.rpartition('//')[2].split(':')
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, int(port)))
            listener.listen(0)
            # The kernel drops what a full queue has no room for.
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex((host, int(port)))
            yield
