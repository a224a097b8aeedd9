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
"""The embedded site: everything but broker, database server and processes."""

import concurrent.futures
import os
import random
import subprocess
import unittest

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.embedded import sites
from diffcache_openstack.sites import views
from tests import base
from tests.functional.agent import family
from tests import waiting

MIB = family.MIB
HOSTS = ('host-1', 'host-2', 'host-3')
FAST = sites.LinkSpec(8000, 80000, 8000)


class EmbeddedTestCase(base.TestCase):
    """A site with the images of the family registered, nothing cached."""

    links = FAST
    capacity = 64 * MIB

    def setUp(self):
        super().setUp()
        self.images = family.write(self.directory, self.image_contents())
        self.sha256 = {name: family.sha256(path)
                       for name, path in self.images.items()}
        self.site = self.new_site()
        self.prepare()
        self.site.start()
        self.addCleanup(self.site.stop)
        self.contents = {
            name: self.site.register(path, name, name).content_id
            for name, path in self.images.items()}
        self.patches = {
            (record.base, record.target): record.id
            for record in self.site.make_patches()}
        self.site.wait_catalogue(len(self.patches))

    def image_contents(self):
        """What the images hold, by name."""
        return family.contents()

    def prepare(self):
        """Change what has to be changed before the start."""

    def new_site(self, options=None):
        return sites.Site(
            self.directory / 'site',
            [sites.HostSpec(name, self.capacity) for name in HOSTS],
            self.links,
            self.directory / 'site' / 'repository',
            {('agent', 'sync_outputs'): False,
             # What crosses the WAN is counted in raw bytes.
             ('repository', 'compression_level'): 0,
             # Who holds what is the tests' choice.
             ('agent', 'keep_requested'): False,
             ('agent', 'heartbeat_interval'): 2,
             # What ways are chosen by; the links are faster, for the
             # tests' sake.
             ('planner', 'repository_bandwidth'): 20,
             **(options or {})})

    def image(self, name):
        return views.Key(views.IMAGES, self.contents[name])

    def patch_key(self, base_name, target_name):
        return views.Key(views.PATCHES, self.patches[
            self.contents[base_name], self.contents[target_name]])

    def hold(self, **held):
        """Have hosts hold objects, and all hosts know of it."""
        for number, (host, objects) in enumerate(held.items(), start=1):
            self.site.hosts[host.replace('_', '-')].filler.hold(
                filling.FillPlan.received(number, [
                    (*key, n) for n, key in enumerate(objects)]))
        waiting.until(self.site.filled, 'the caches to fill')

    def deliver(self, host, name, output, mode=None):
        agent = self.site.hosts[host]
        return agent.server.deliver(agent.site_map.find(name),
                                    outputs.LocalOutput(output), mode)

    def get_beside_others(self, host, name, mode=building.ON_THE_FLY,
                          number=0):
        """Have an image served, and check it to the last byte."""
        output = self.directory / f'{host}-{name}-{mode}-{number}.out'
        request = self.deliver(host, name, output, mode)
        self.assertEqual(self.sha256[name], family.sha256(output))
        output.unlink()
        return request

    def get(self, *args, **kwargs):
        """Have an image served while no other is, so that nothing is left."""
        request = self.get_beside_others(*args, **kwargs)
        self.assertNothingLeft(args[0])
        return request

    def assertNothingLeft(self, host):
        root = self.site.hosts[host].held.root
        self.assertEqual([], os.listdir(root / holdings.STAGING))
        self.assertEqual([], [
            name for name in os.listdir(self.directory)
            if name.endswith('.part')])


class ServeTest(EmbeddedTestCase):

    def test_planned_filled_and_served_in_both_modes(self):
        self.site.report_history([(host, name) for host in HOSTS
                                  for name in self.images] * 10)
        plan = self.site.plan()
        self.assertTrue(plan.items)
        waiting.until(self.site.filled, 'the caches to fill')
        before = self.site.wan_bytes()
        for mode in building.MODES:
            for host in HOSTS:
                for name in self.images:
                    request = self.get(host, name, mode)
                    self.assertNotEqual('repository', request.way)
                    self.assertEqual(0, request.fallbacks)
        # A patch of some hundred bytes may be nearer at the repository than
        # a whole image at a peer; what is more has been planned for.
        self.assertLess(self.site.wan_bytes() - before, 64 * 1024)

    def test_built_from_peers_in_both_modes(self):
        self.hold(host_2=[self.image('system')],
                  host_3=[self.patch_key('system', 'java')])
        before = self.site.wan_bytes()
        for mode in building.MODES:
            request = self.get('host-1', 'java', mode)
            self.assertEqual('build', request.way)
            self.assertGreater(request.lan_bytes, 8 * MIB)
        self.assertEqual(before, self.site.wan_bytes())

    def test_patch_over_the_wan_base_at_the_site(self):
        self.hold(host_2=[self.image('system')])
        for mode in building.MODES:
            before = self.site.wan_bytes()
            request = self.get('host-1', 'java', mode)
            self.assertEqual('build', request.way)
            moved = self.site.wan_bytes() - before
            self.assertLess(moved, 3 * MIB)

    def test_missing_image(self):
        output = self.directory / 'out'
        error = self.assertRaises(
            exceptions.NotFound, self.deliver, 'host-1',
            'no-such-image', output)
        self.assertIn('no-such-image', str(error))
        self.assertFalse(output.exists())

    def test_requests_reach_the_history(self):
        request = self.get('host-1', 'other')
        agent = self.site.hosts['host-1']
        waiting.until(lambda: not len(agent.requests), 'the report')
        self.assertEqual('repository', request.way)

    def test_a_restarted_host_has_what_it_had(self):
        self.hold(host_1=[self.image('system'),
                          self.patch_key('system', 'java')])
        self.site.stop()
        self.site = self.new_site()
        self.site.start()
        self.addCleanup(self.site.stop)
        self.site.wait_catalogue(len(self.patches))
        before = self.site.wan_bytes()
        self.assertEqual('local', self.get('host-1', 'system').way)
        self.assertEqual('build', self.get('host-1', 'java').way)
        self.assertEqual(before, self.site.wan_bytes())


class ChainTest(EmbeddedTestCase):
    """Patches between neighbours only: the rest differs too much."""

    def image_contents(self):
        return family.generations()

    def new_site(self, options=None):
        return super().new_site(
            {('planner', 'hops'): 2, **(options or {})})

    def test_built_through_what_nobody_has(self):
        self.assertNotIn((self.contents['first'], self.contents['third']),
                         self.patches)
        self.hold(host_1=[self.image('first'),
                          self.patch_key('first', 'second'),
                          self.patch_key('second', 'third')])
        before = self.site.wan_bytes()
        for mode in building.MODES:
            request = self.get('host-1', 'third', mode)
            self.assertEqual(('build', 0), (request.way, request.fallbacks))
            self.assertEqual(2, request.detail.count('patch '))
            self.assertIsNone(request.patch_id)
        self.assertEqual(before, self.site.wan_bytes())


class CompressedTest(EmbeddedTestCase):
    """A repository that has the compressed forms of its images."""

    def image_contents(self):
        return {'text': b'option = default\n' * 400_000}

    def new_site(self, options=None):
        return super().new_site({('repository', 'compression_level'): 3,
                                 **(options or {})})

    def test_the_compressed_form_crosses_the_wan(self):
        content_id = self.contents['text']
        form = (self.directory / 'site' / 'repository' / 'objects'
                / views.COMPRESSED / content_id)
        waiting.until(form.exists, 'the compressed form')
        request = self.get('host-1', 'text')
        self.assertEqual('repository', request.way)
        self.assertEqual(form.stat().st_size, request.wan_bytes)
        received = self.site.hosts['host-1'].plane.stats()['received']
        self.assertEqual(0, received[views.IMAGES])
        self.assertEqual(request.wan_bytes, received[views.COMPRESSED])


class PlannedChainTest(EmbeddedTestCase):
    """Five images in a line; the site has room for one and four patches."""

    def image_contents(self):
        stream = random.Random(5).randbytes(20 * MIB)
        return {f'image-{n}': stream[3 * n * MIB:(3 * n + 8) * MIB]
                for n in range(5)}

    def new_site(self, options=None):
        return sites.Site(
            self.directory / 'site',
            [sites.HostSpec('host-1', 21 * MIB),
             sites.HostSpec('host-2', MIB), sites.HostSpec('host-3', MIB)],
            self.links, self.directory / 'site' / 'repository',
            {('agent', 'sync_outputs'): False,
             # What crosses the WAN is counted in raw bytes.
             ('repository', 'compression_level'): 0,
             # Who holds what is the tests' choice.
             ('agent', 'keep_requested'): False,
             ('agent', 'heartbeat_interval'): 2,
             # What was just delivered would save patches.
             ('agent', 'lend_seconds'): 0,
             ('planner', 'repository_bandwidth'): 0.2,
             ('planner', 'hops'): 4, **(options or {})})

    def test_planned_filled_and_served(self):
        self.site.report_history([(host, name) for host in HOSTS
                                  for name in self.images] * 10)
        plan = self.site.plan()
        kinds = sorted(item.kind for item in plan.items)
        self.assertEqual([views.IMAGES] + [views.PATCHES] * 4, kinds)
        waiting.until(self.site.filled, 'the caches to fill')
        before = self.site.wan_bytes()
        applied = {}
        for host in HOSTS:
            for name in self.images:
                request = self.get(host, name)
                self.assertEqual(0, request.fallbacks, request.detail)
                applied[name] = request.detail.count('patch ')
        counts = [applied[name] for name in sorted(applied)]
        held = counts.index(0)
        self.assertEqual([abs(n - held) for n in range(5)], counts)
        self.assertGreaterEqual(max(counts), 2)
        self.assertEqual(before, self.site.wan_bytes())


class OneTransferTest(EmbeddedTestCase):

    # Slow enough that all requests come while the image arrives.
    links = sites.LinkSpec(32, 8000, 8000)

    def test_sixteen_requests_cross_the_wan_once(self):
        before = self.sent()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            requests = list(pool.map(
                lambda n: self.get_beside_others(HOSTS[n % 3], 'other',
                                                 number=n),
                range(16)))
        data = 6 * MIB
        # Bytes are counted after they were sent.
        waiting.until(lambda: self.sent() - before >= data,
                      'the count of the bytes sent')
        moved = self.sent() - before
        self.assertEqual(data, moved)
        self.assertEqual(data, sum(r.wan_bytes for r in requests))
        for host in HOSTS:
            self.assertNothingLeft(host)

    def sent(self):
        return self.site.repository.plane.stats()['sent'][views.IMAGES]


class ResumeTest(EmbeddedTestCase):

    # Slow enough that the site is stopped long before the image is there.
    links = sites.LinkSpec(2, 8000, 8000)

    def test_a_fill_that_was_cut_off_goes_on_where_it_was(self):
        agent = self.site.hosts['host-1']
        key = self.image('system')
        agent.filler.hold(filling.FillPlan.received(1, [(*key, 0)]))
        waiting.until(lambda: agent.plane.stats()['received'][
            views.IMAGES] > 3 * MIB, 'half of the image')
        self.site.stop()
        sent = self.sent()
        self.assertNotIn(key, agent.held)
        self.links = FAST
        self.site = self.new_site()
        self.site.start()
        self.addCleanup(self.site.stop)
        agent = self.site.hosts['host-1']
        # Until the repository is back the image counts as withdrawn, and so
        # as not missing.
        # A request that comes before the fill has ended shares its way.
        waiting.until(lambda: key in agent.held and not agent.filler._working,
                      'the fill')
        self.assertLess(self.sent(), 6 * MIB)
        self.assertLess(self.sent() + sent, 9 * MIB)
        self.assertEqual('local', self.get('host-1', 'system').way)

    def sent(self):
        return self.site.repository.plane.stats()['sent'][views.IMAGES]


class LossTest(EmbeddedTestCase):

    def test_a_lost_peer(self):
        self.hold(host_2=[self.image('java')])
        self.site.hosts['host-2'].plane.close()
        request = self.get('host-1', 'java')
        self.assertEqual('repository', request.way)
        self.assertGreaterEqual(request.fallbacks, 1)

    def test_a_lost_peer_in_both_modes(self):
        self.hold(host_2=[self.image('system')],
                  host_3=[self.patch_key('system', 'java')])
        self.site.hosts['host-2'].plane.close()
        for mode in building.MODES:
            self.site.hosts['host-1'].transfers.plane.clear_unreachable()
            request = self.get('host-1', 'java', mode)
            self.assertNotIn('host-2', request.detail)
            self.assertGreaterEqual(request.fallbacks, 1)

    def test_damage_at_a_peer(self):
        key = self.image('java')
        self.hold(host_2=[key])
        family.damage(self.site.hosts['host-2'].held.path(key), 5 * MIB)
        peer = self.site.hosts['host-2']
        peer.filler.stop()
        request = self.get('host-1', 'java')
        self.assertEqual(('repository', 1), (request.way, request.fallbacks))
        waiting.until(lambda: key not in peer.held,
                      'the peer to drop what is damaged')

    def test_damage_here(self):
        key = self.image('java')
        self.hold(host_1=[key])
        held = self.site.hosts['host-1'].held
        family.damage(held.path(key), 5 * MIB)
        for agent in self.site.hosts.values():
            agent.filler.stop()
        request = self.get('host-1', 'java')
        self.assertEqual(('repository', 1), (request.way, request.fallbacks))
        # The plan wants what the request brought.
        self.assertTrue(held.verify(key))
        self.assertEqual('local', self.get('host-1', 'java').way)
        self.assertEqual([f'images-{key.id}'],
                         os.listdir(held.root / holdings.QUARANTINE))

    def test_a_base_that_changed(self):
        base_key = self.image('system')
        self.hold(host_1=[base_key, self.patch_key('system', 'java')])
        held = self.site.hosts['host-1'].held
        self.site.hosts['host-1'].filler.stop()
        for mode in building.MODES:
            if base_key in held:
                family.damage(held.path(base_key), 3 * MIB)
            request = self.get('host-1', 'java', mode)
            self.assertNotEqual('local', request.way)
            self.assert_sound(held, base_key)

    def test_a_bit_flipped_patch(self):
        self.assert_patch_is_useless(lambda path: family.damage(
            path, path.stat().st_size - 1000))

    def test_a_truncated_patch(self):
        self.assert_patch_is_useless(lambda path: os.truncate(
            path, path.stat().st_size // 2))

    def assert_patch_is_useless(self, spoil):
        key = self.patch_key('system', 'java')
        self.hold(host_1=[self.image('system'), key])
        held = self.site.hosts['host-1'].held
        self.site.hosts['host-1'].filler.stop()
        spoil(held.path(key))
        request = self.get('host-1', 'java')
        self.assertGreaterEqual(request.fallbacks, 1)
        self.assert_sound(held, key)

    def assert_sound(self, held, key):
        """What is damaged is out of service; a request may have brought it."""
        self.assertTrue((held.root / holdings.QUARANTINE
                         / f'{key.kind}-{key.id}').exists())
        if key in held:
            self.assertTrue(held.verify(key))

    def test_a_useless_patch_at_the_repository(self):
        key = self.patch_key('system', 'java')
        self.hold(host_1=[self.image('system')])
        family.damage(self.site.repository.held.path(key), 1000)
        for mode in building.MODES:
            request = self.get('host-1', 'java', mode)
            # Either whole, or through an image in between.
            self.assertNotIn(key.id[:12], request.detail)
            self.assertGreaterEqual(request.fallbacks, 1)

    def test_a_repositorys_image_changed_before_its_patch_is_made(self):
        maker = self.site.repository.patch_maker
        path = self.site.repository.held.path(self.image('system'))
        family.damage(path, MIB)
        error = self.assertRaises(
            exceptions.IntegrityError, maker.make_patch,
            self.contents['system'], self.contents['java'])
        self.assertIn(self.contents['system'], str(error))
        self.assertNotIn(self.image('system'), self.site.repository.held)
        self.assertNothingLeft('host-1')

    def test_image_gone_from_the_repository(self):
        held = self.site.repository.held
        held.path(self.image('other')).unlink()
        output = self.directory / 'out'
        error = self.assertRaises(
            exceptions.ObjectMissing, self.deliver, 'host-1',
            'other', output)
        self.assertIn(self.contents['other'], str(error))
        self.assertFalse(output.exists())
        self.assertNothingLeft('host-1')


class WrongKeyTest(EmbeddedTestCase):
    """host-3 has another key than the rest."""

    def prepare(self):
        for name, agents in (('right', [self.site.repository,
                                        self.site.hosts['host-1'],
                                        self.site.hosts['host-2']]),
                             ('wrong', [self.site.hosts['host-3']])):
            path = self.directory / f'{name}.key'
            keys.create_key(path)
            for agent in agents:
                agent.conf.set_override('key_file', str(path), 'data_plane')

    def test_costs_a_fallback_or_is_a_clear_error(self):
        request = self.get('host-1', 'java')
        self.assertEqual('repository', request.way)
        output = self.directory / 'out'
        error = self.assertRaises(
            exceptions.PeerRefused, self.deliver, 'host-3',
            'java', output)
        self.assertIn('key', str(error))
        self.assertFalse(output.exists())
        self.assertNothingLeft('host-3')


@unittest.skipIf(os.geteuid(), 'mounting a small filesystem needs root')
class FullDiskTest(EmbeddedTestCase):
    """host-1's state lies on a filesystem of 16 MiB."""

    def prepare(self):
        self.small = self.directory / 'site' / 'host-1'
        self.mount(self.small, 16)

    def mount(self, path, megabytes):
        path.mkdir(parents=True)
        subprocess.run(['mount', '-t', 'tmpfs', '-o',
                        f'size={megabytes}m', 'tmpfs', path], check=True)
        self.addCleanup(subprocess.run, ['umount', '--lazy', path],
                        check=True)

    def test_no_room_for_the_image(self):
        filler = self.small / 'filler'
        filler.write_bytes(b'x' * (10 * MIB))
        output = self.directory / 'out'
        error = self.assertRaises(
            exceptions.NoSpace, self.deliver, 'host-1',
            'java', output)
        self.assertIn(self.contents['java'], str(error))
        self.assertFalse(output.exists())
        self.assertNothingLeft('host-1')
        filler.unlink()
        self.get('host-1', 'java')

    def test_what_is_unwanted_makes_room(self):
        self.hold(host_1=[self.image('system')])
        agent = self.site.hosts['host-1']
        agent.filler.hold(filling.FillPlan.received(9, []))
        self.get('host-1', 'java')
        self.assertNotIn(self.image('system'), agent.held)

    def test_no_room_for_the_output(self):
        target = self.directory / 'target'
        self.mount(target, 2)
        error = self.assertRaises(
            exceptions.NoSpace, self.deliver, 'host-2',
            'java', target / 'disk')
        self.assertIn(str(target / 'disk'), str(error))
        self.assertEqual([], os.listdir(target))
        self.assertNothingLeft('host-2')
