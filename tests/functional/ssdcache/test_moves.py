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
"""A volume that moves from one host's cache to another's."""

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_moves
from diffcache_openstack.agent.ssdcache import volume_reports
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack import objects
from diffcache_openstack.ssdcache import ssdcached
from testing import nbd
from tests.functional.ssdcache import test_serve

BLOCK = test_serve.BLOCK
RATE = 1 << 40


class OtherHosts:
    """Agents of other hosts, as remote calls reach them."""

    def __init__(self, hosts):
        self._hosts = hosts

    def volume_use(self, _context, host, volume_id):
        found = volume_reports.use(self._hosts[host], volume_id)
        return objects.VolumeUse.obj_from_primitive(found.obj_to_primitive())


class TestMoves(test_serve.CacheTest):

    def setUp(self):
        super().setUp()
        self.hosts = {}
        self.add_host('h1')
        self.moves = self.add_host('h2')

    def add_host(self, name):
        home = self.directory / name
        home.mkdir()
        self.move_in(home)
        self.start('--format', volumes=())
        engine = ssdcached.SsdcachedEngine(self.control, str(home / 'nbd'))
        found = volume_moves.Moves(engine, OtherHosts(self.hosts), None, RATE)
        self.hosts[name] = cached_volumes.CachedVolumes(
            engine, cached_volumes.CacheOptions((str(self.directory), )),
            home / 'ssd_cache.json', volume_sizes.SizeRules(), moves=found)
        return found

    def attach(self, host, name, mode='write-through'):
        found = self.hosts[host].attach(name, volume_settings.VolumeSettings(
            str(self.origins[name]), mode))
        return self.enterContext(nbd.Client(
            f'nbd+unix:///{found["export"]}?socket={found["socket"]}'))

    def read(self, client, blocks, times=1):
        return [client.read(block * BLOCK, BLOCK)
                for _time in range(times) for block in blocks]

    def shown(self, name):
        return self.hosts['h2'].status()['volumes'][name]

    def wait_until_warm(self):
        self.moves._wanted.put(None)
        self.moves._run()

    def test_its_size_and_its_blocks_come_with_it(self):
        hot = [*range(100, 700), 2000, 2002]
        before = self.attach('h1', 'a')
        self.read(before, hot, 2)
        self.hosts['h1'].end_epoch()
        self.read(self.attach('h2', 'b'), range(300), 2)
        self.hosts['h2'].end_epoch()
        after = self.attach('h2', 'a', 'pass-through')
        self.hosts['h2'].expect('a', 'h1')
        # After its blocks were listed, and before it moves.
        before.send(nbd.WRITE, 100 * BLOCK, BLOCK, bytes([7]) * BLOCK)
        self.assertEqual(0, before.receive().error)
        self.read(after, [100])
        self.assertEqual(0, self.shown('a')['blocks'])
        self.hosts['h1'].detach('a')
        self.hosts['h2'].set_mode('a', 'write-through')
        limits = {name: self.shown(name)['limit'] for name in 'ab'}
        self.assertLessEqual(600, limits['a'])
        self.assertLessEqual(300, limits['b'])
        self.wait_until_warm()
        self.assertEqual(len(hot), self.moves.warmed)
        self.assertEqual(len(hot), self.shown('a')['blocks'])
        self.assertEqual(bytes([7]) * BLOCK, self.read(after, [100])[0])
        self.read(after, hot[1:])
        traffic = self.shown('a')['traffic']
        self.assertEqual((len(hot), 0), (traffic['hits'], traffic['misses']))

    def test_a_volume_that_the_other_host_does_not_have(self):
        self.attach('h2', 'a', 'pass-through')
        self.hosts['h2'].expect('a', 'h1')
        self.hosts['h2'].set_mode('a', 'write-through')
        self.wait_until_warm()
        self.assertEqual(0, self.shown('a')['blocks'])
        self.assertEqual({'received': 0, 'failed': 1}, self.moves.counts())
