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
"""Hosts teach each other what servers read of an image that is arriving."""

import dataclasses
import os
import random
from unittest import mock

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.cloud import servers as nova_servers
from diffcache_openstack.embedded import sites
from diffcache_openstack.prefetch import profiles
from tests.functional.lazy import services
from tests import waiting

_CHUNK = profiles.CHUNK
_CHUNKS = 48
# Far from each other: read-ahead brings none of them.
_BOOT = (3, 11, 20, 29, 38, 45)
_PROJECTS = ('4cbe8c81a3b54c6fb3b2d3cdd44f2e0c',
             '8f0d1b9b6a8d4f1f8c5d7a3e2b1c0d9e')


class LearningTest(services.LazyServicesTest):
    """Two hosts and a third, each with its agent and diffcached."""

    share = 'image'

    def setUp(self):
        super().setUp()
        self.image = self.folder / 'image.raw'
        self.image.write_bytes(random.Random(7).randbytes(_CHUNKS * _CHUNK))
        names = ('h1', 'h2', 'h3')
        for name in names:
            self.start_service(self.folder / name)
        self.daemons = {
            name: diffcached.Diffcached(f'{self.folder}/{name}/socket')
            for name in names}
        self.site = sites.Site(
            self.folder / 'site',
            [sites.HostSpec(name, 10 ** 9) for name in names],
            sites.LinkSpec(1e4, 1e4, 1e5), self.folder / 'repository', {
                ('data_plane', 'key_file'): f'{self.folder}/key',
                ('agent', 'heartbeat_interval'): 1,
                ('agent', 'sync_outputs'): False,
                ('conductor', 'rpc_timeout'): 10,
                ('lazy', 'share_profiles'): self.share,
                ('lazy', 'hydrate'): 'none',
                ('lazy', 'worth_seconds'): 0.0})
        for name, host in self.site.hosts.items():
            host.conf.set_override('socket', f'{self.folder}/{name}/socket',
                                   'lazy')
        self.site.start()
        self.addCleanup(self.site.stop)
        self.record = self.site.register(self.image, 'image', 'An image')
        self.site.wait_catalogue(0)

    def boot(self, host, project=_PROJECTS[0], label='m1.small', keep=True):
        """Begin to boot a server; returns the descriptor of its base."""
        lazy = self.site.hosts[host]._lazy
        path = lazy.open('image')['path']
        lazy.add_server(lazy_servers.LazyServer(f'server-{host}', project,
                                                'image',
                                                label))
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        if keep:
            self.addCleanup(os.close, descriptor)
        return descriptor

    def read(self, descriptor, *chunks):
        for chunk in chunks:
            os.pread(descriptor, 4096, chunk * _CHUNK)

    def status(self, host):
        return self.answered(self.daemons[host])

    def wait(self, condition, what):
        waiting.until(condition, what)

    def check_prefetched(self, host, descriptor):
        """Check that only the first of the reads of a boot can miss.

        Chunks that this host is home of may be there without a prefetch.
        """
        self.wait(lambda: all(self.has(host, chunk) for chunk in _BOOT),
                  'the profile to be prefetched')
        self.read(descriptor, *_BOOT)
        found = self.status(host)
        self.assertLessEqual(found['misses'], 1)
        self.assertGreater(found['prefetched'], 0)
        self.assertEqual(found['prefetched'], found['prefetched_used'])

    def has(self, host, chunk):
        """Return whether a chunk is in the file of a host."""
        with open(self.status(host)['data_path'], 'rb') as file:
            file.seek(chunk * _CHUNK)
            return any(file.read(4096))

    def wait_known(self, host, chunks):
        """Wait until a host has a profile of this many chunks."""
        known = self.site.hosts[host]._learning._known
        self.wait(lambda: any(len(each.rows) == chunks
                              for each in known.values()),
                  f'{host} to know {chunks} chunks')


class TestSharing(LearningTest):

    def test_a_host_prefetches_what_servers_of_another_read(self):
        # Both have begun to boot; one is ahead.
        ahead, behind = self.boot('h1'), self.boot('h2')
        self.read(ahead, *_BOOT)
        self.assertEqual(len(_BOOT), self.status('h1')['misses'])
        self.wait_known('h2', len(_BOOT))
        self.read(behind, _BOOT[0])
        self.check_prefetched('h2', behind)
        self.assertEqual(0, self.status('h2')['errors'])

        self.check_a_later_deployment()
        self.check_a_restarted_agent()

    def check_a_later_deployment(self):
        # Another flavor, at a host that had no part in it.
        later = self.boot('h3', label='m1.large')
        self.wait_known('h3', len(_BOOT))
        self.read(later, _BOOT[0])
        self.check_prefetched('h3', later)
        # What it read itself, first of its flavor, makes it forget nothing.
        known = self.site.hosts['h3']._learning._known
        [first] = known.values()
        self.wait(lambda: all(each.generation != first.generation
                              for each in known.values()),
                  'the profile of the flavor')
        self.wait_known('h3', len(_BOOT))

    def check_a_restarted_agent(self):
        """What an agent reports after its restart counts once."""
        # Nor do others report what they read last.
        for host in self.site.hosts.values():
            host._learning.stop()
        agent = self.site.hosts['h1']
        content = self.record.content_id
        again = lazy_servers.Servers(agent._state / 'lazy_servers.json')
        reads = again.report(content, profiles.of_means(
            self.daemons['h1'].profile(content)['profile']))
        exchange = agent._learning._conductor.exchange_reads
        context = agent._learning._context
        before = exchange(context, 'h1', dataclasses.replace(
            reads, rows={}), None)
        self.assertEqual(before, exchange(context, 'h1', reads, None))

    def test_without_the_conductor_the_last_profile_is_used(self):
        self.read(self.boot('h1'), *_BOOT)
        os.close(self.boot('h2', keep=False))
        self.wait_known('h2', len(_BOOT))
        agent = self.site.hosts['h2']
        self.site.stop_conductor()
        agent._learning.stop()
        agent._lazy.remove_server('server-h2')
        agent._lazy.release(self.record.content_id)
        self.wait(lambda: not self.daemons['h2'].images(),
                  'the image to be removed')
        self.read(self.boot('h2'), _BOOT[0])
        self.wait(lambda: self.status('h2')['prefetched'] >= len(_BOOT) - 1,
                  'the profile to be prefetched')
        # What the guest has read itself is not fetched again.
        self.assertEqual(len(_BOOT) - 1, self.status('h2')['prefetched'])


class TestProjects(LearningTest):

    share = 'project'

    def setUp(self):
        # The embedded site has no Nova, which names servers of both.
        self.enterContext(mock.patch.object(
            nova_servers.Servers, 'on', return_value=[
                nova_servers.Server('s', project, 'ACTIVE')
                for project in _PROJECTS]))
        super().setUp()

    def test_projects_do_not_learn_from_each_other(self):
        self.read(self.boot('h1', _PROJECTS[0]), *_BOOT)
        self.wait_known('h1', len(_BOOT))
        self.boot('h2', _PROJECTS[1])
        self.boot('h3', _PROJECTS[0])
        self.wait_known('h3', len(_BOOT))
        self.assertEqual({}, self.site.hosts['h2']._learning._known)
