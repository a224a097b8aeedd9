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
"""Base images that Nova keeps serve the site, and are bases of patches."""

import os
import shutil
import threading
import time

from diffcache_openstack.agent.data_plane import inspector
from diffcache_openstack.agent import service
from diffcache_openstack.agent_client import local_client
from tests.functional.agent import family
from tests.functional.agent import test_embedded
from tests import waiting

MIB = family.MIB


class BorrowedTest(test_embedded.EmbeddedTestCase):
    """Hosts whose caches are smaller than any image."""

    capacity = MIB

    def new_site(self, options=None):
        return super().new_site({('agent', 'keep_requested'): True,
                                 ('agent', 'lend_seconds'): 1,
                                 **(options or {})})

    def prepare(self):
        self.clients = {}
        for name, agent in self.site.hosts.items():
            bases = self.directory / name / 'instances' / '_base'
            bases.mkdir(parents=True)
            socket = str(self.directory / f'{name}.sock')
            agent.conf.set_override('socket', socket, 'agent')
            agent.conf.set_override('output_directories',
                                    [str(bases.parent)], 'agent')
            self.clients[name] = local_client.LocalClient(socket, 180)

    def boot(self, host, image):
        """Do what Nova does to start a server; return the base image."""
        client, base = self.clients[host], self.base(host, image)
        partial = base.with_name(f'{image}.diffcache')
        self.request = client.content(image, str(partial))
        partial.rename(base)
        self.assertTrue(client.lend(image, str(base)))
        os.utime(base)
        self.assertEqual(self.sha256[image], family.sha256(base))
        return base

    def base(self, host, image):
        return self.directory / host / 'instances' / '_base' / image

    def crossed(self, work, *arguments):
        """Return the bytes over the WAN of some work."""
        before = self.site.wan_bytes()
        work(*arguments)
        return self.site.wan_bytes() - before

    def borrowed(self, host):
        return {key for key in self.site.hosts[host].held.borrowed.keys()}

    def await_map(self, host, image, shown=True):
        """Wait until all hosts know that one has an image, or has not."""
        key = self.image(image)
        waiting.until(lambda: all(
            (key in agent.site_map.current().holdings(host)) == shown
            for agent in self.site.hosts.values()), 'the site map')

    def test_a_second_host_long_after_costs_nothing(self):
        base = self.boot('host-1', 'system')
        self.await_map('host-1', 'system')
        time.sleep(31)  # Until the claim has expired.
        self.assertEqual(0, self.crossed(self.boot, 'host-2', 'system'))
        self.assertEqual('peer', self.request['way'])
        base.unlink()
        self.await_map('host-1', 'system', shown=False)

    def test_a_base_of_a_peer_is_patched(self):
        self.boot('host-1', 'system')
        self.await_map('host-1', 'system')
        self.assert_crosses_as_patch('host-2', 'system', 'java')

    def assert_crosses_as_patch(self, host, base, image):
        """Start a server; its image comes as a patch."""
        patch = self.site.hosts[host].site_map.current().patch(
            self.patch_key(base, image).id)
        crossed = self.crossed(self.boot, host, image)
        self.assertEqual('build', self.request['way'])
        manifest = self.site.repository.held.manifest(
            self.contents[image]).stat().st_size
        self.assertLessEqual(crossed - manifest, 1.1 * patch.size)

    def test_an_agent_that_was_restarted_finds_it_again(self):
        self.boot('host-1', 'system')
        former = self.site.hosts['host-1']
        # Nova touched the file after it was borrowed.
        former._borrowing.work()
        former.stop()
        verified = []
        self.patch(inspector.NativeInspector, 'deep',
                   lambda _self, key, *_paths: verified.append(key))
        agent = service.Agent(former.conf)
        self.site.hosts['host-1'] = agent
        agent.start()
        self.addCleanup(agent.stop)
        self.assertEqual({self.image('system')}, self.borrowed('host-1'))
        self.assertEqual([], verified)
        self.await_map('host-1', 'system')
        self.assert_crosses_as_patch('host-1', 'system', 'java')

    def test_a_second_host_costs_nothing(self):
        self.boot('host-1', 'system')
        self.assertEqual('repository', self.request['way'])
        self.assertEqual({self.image('system')}, self.borrowed('host-1'))
        held = self.site.hosts['host-1'].held
        self.assertNotIn(self.image('system'), held.keys())
        self.assertEqual(0, self.crossed(self.boot, 'host-2', 'system'))
        self.assertEqual(0, self.crossed(self.boot, 'host-3', 'system'))

    def test_the_next_build_is_its_patch(self):
        self.boot('host-1', 'system')
        self.assert_crosses_as_patch('host-1', 'system', 'java')

    def test_what_nova_downloaded_itself_is_verified_first(self):
        for host, content in (('host-1', self.images['system']),
                              ('host-2', self.images['java'])):
            base = self.base(host, 'system')
            shutil.copyfile(content, base)
            base.chmod(0o644)
            self.assertFalse(self.clients[host].lend('system', str(base)))
        self.await_map('host-1', 'system')
        self.assertEqual(set(), self.borrowed('host-2'))
        self.assertEqual(0, self.crossed(self.boot, 'host-3', 'system'))

    def test_a_fill_copies_it(self):
        agent = self.site.hosts['host-1']
        self.boot('host-1', 'system')
        agent.held.capacity = 64 * MIB
        self.assertEqual(0, self.crossed(
            lambda: self.hold(host_1=[self.image('system')])))
        self.assertIn(self.image('system'), agent.held)

    def test_a_changed_file_is_withdrawn_and_not_served(self):
        base = self.boot('host-1', 'system')
        with open(base, 'r+b') as stream:
            stream.seek(5 * MIB)
            stream.write(b'changed')
        self.assertGreater(self.crossed(self.boot, 'host-2', 'system'), 0)
        agent = self.site.hosts['host-1']
        agent._borrowing.work()
        self.assertEqual(set(), self.borrowed('host-1'))
        self.assertEqual(0, agent.plane.stats()['lies'])
        self.assertEqual({}, self.site.hosts['host-2'].plane.left_alone())

    def test_a_changed_base_does_not_spoil_a_build(self):
        base = self.boot('host-1', 'system')
        with open(base, 'r+b') as stream:
            stream.seek(5 * MIB)
            stream.write(b'changed')
        self.boot('host-1', 'java')
        self.assertEqual('repository', self.request['way'])
        self.assertEqual({self.image('java')}, self.borrowed('host-1'))

    def test_a_file_removed_during_a_transfer_is_read_to_its_end(self):
        base = self.boot('host-1', 'system')
        agent = self.site.hosts['host-1']
        agent.plane.set_rate(4.0 * MIB)
        ended = threading.Event()

        def boot():
            self.boot('host-2', 'system')
            ended.set()

        before = self.site.wan_bytes()
        thread = threading.Thread(target=boot)
        thread.start()
        self.addCleanup(thread.join)
        waiting.until(lambda: agent.plane.readers(*self.image('system')),
                      'the transfer to begin')
        base.unlink()
        agent._borrowing.work()
        agent.plane.set_rate(None)
        thread.join()
        self.assertTrue(ended.is_set())
        self.assertEqual(before, self.site.wan_bytes())
        waiting.until(lambda: agent._borrowing.work()
                      or not self.borrowed('host-1'),
                      'the file to be closed')
