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
"""How far servers' images are, and what hosts learn from their boots."""

import os
import shutil
import time
import uuid

from openstack import exceptions

from diffcache_openstack.client import service
from tests.functional.openstack import nova_hosts
from tests.functional.openstack import test_nova_lazy

OWNER, READER, OTHER = 'hydration-owner', 'hydration-reader', 'hydration-other'
# Bytes per second, at which the image takes half an hour.
RATE = 100_000
# For how long it is watched what crosses the WAN, in seconds.
WATCHED = 15
# Heartbeats of agents meanwhile, and what a request under way still brings.
BESIDES = 2 << 20

MIB = 1 << 20
# What the next build changes, and a link that takes minutes for that.
CHANGED = 16 * MIB
SLOW_MBITS = 2


class HydrationTest(test_nova_lazy.LazyTest):

    def boot_lazily(self, image, *options, user='admin'):
        """Type what boots a server lazily; returns its ID when active."""
        created = self.type(
            f'server create --flavor tiny --image {image} --nic none'
            f' --boot-mode lazy {" ".join(options)}'
            f' trial-{uuid.uuid4().hex[:8]} -f json', user)
        self.addCleanup(self.trial.delete, created['id'])
        self.trial.wait_active(created['id'])
        return created['id']

    def host_of(self, server):
        return self.compute.get_server(server).compute_host


class TestOwners(HydrationTest):

    def setUp(self):
        super().setUp()
        self.trial.member(OWNER)
        self.reader = service.proxy_of(
            self.trial.user(READER, OWNER, 'reader'))
        self.stranger = service.proxy_of(self.trial.member(OTHER))
        self.image_id, self.path = self.cold()
        self.server = self.boot_lazily(
            self.image_id, '--hydrate-by 60', f'--hydrate-rate {RATE}',
            user=OWNER)

    def owner(self, command, *options):
        return self.type(f'server hydration {command} {self.server}'
                         f' {" ".join(options)} -f json', OWNER)

    def wait_for(self, **wanted):
        """Wait until the owner is shown some values; returns all."""
        def look():
            found = self.owner('show')
            return wanted.items() <= found.items() and found

        return self.wait_until(look, f'{wanted} is shown')

    def listed(self, user):
        return {each['Server']: each for each in self.type(
            'server hydration list --long -f json', user)}

    def wan_of(self, seconds):
        """Bytes that cross the WAN meanwhile, and how long it took."""
        before, began = self.trial.wan_bytes(), time.monotonic()
        time.sleep(seconds)
        return self.trial.wan_bytes() - before, time.monotonic() - began

    def test_the_owner_sees_it_steers_it_and_waits_for_it(self):
        self.wait_until(lambda: self.listed(OWNER), 'it is listed')
        seen = self.owner('show')
        self.assertEqual(
            ('arriving', 'deadline', RATE, False, self.image_id, ''),
            tuple(seen[name] for name in ('state', 'mode', 'rate', 'kept',
                                          'image', 'host')))
        # What cannot be kept is told, with when it will be whole.
        self.assertLess(seen['deadline_at'], seen['expected_at'])
        host = self.host_of(self.server)
        self.guest(self.server, host)
        self.assert_linked(self.image_id, host)
        moved, took = self.wan_of(WATCHED)
        self.assertLess(moved, RATE * took + BESIDES)

        self.owner('unset', '--rate')
        kept = self.owner('set', '--deadline 3600')
        self.assertEqual((True, None), (kept['kept'], kept['rate']))
        self.assertGreater(kept['deadline_at'], kept['expected_at'])

        paused = self.owner('set', '--paused')
        self.assertEqual((True, 'deadline'), (paused['paused'],
                                              paused['mode']))
        self.wait_until_quiet()
        moved, _took = self.wan_of(WATCHED)
        self.assertLess(moved, BESIDES)
        before = self.served(self.image_id, host)['present']
        resumed = self.owner('set', '--unpaused')
        self.assertEqual((False, 'deadline', kept['deadline_at']), tuple(
            resumed[name] for name in ('paused', 'mode', 'deadline_at')))
        self.wait_until(
            lambda: self.served(self.image_id, host)['present'] > before,
            'more arrives')
        # The row is what the agent reported, not only what was asked for.
        self.wait_for(paused=False, generation=resumed['generation'])

        self.trial.network.shape(self.wan)
        whole = self.owner('set', '--deadline none', '--wait')
        self.assertEqual(('complete', 100.0, 0), tuple(
            whole[name] for name in ('state', 'percent', 'remaining_bytes')))
        self.wait_until_whole(self.image_id, self.path, host)

    def test_others_see_nothing_and_readers_change_nothing(self):
        self.wait_until(lambda: self.listed(OWNER), 'it is listed')
        self.assertEqual({}, self.listed(OTHER))
        self.assertRaises(exceptions.NotFoundException,
                          self.stranger.get_hydration, self.server)
        self.assertRaises(exceptions.NotFoundException,
                          self.stranger.update_hydration, self.server,
                          paused=True)
        self.assertEqual('arriving',
                         self.reader.get_hydration(self.server).state)
        self.assertRaises(exceptions.ForbiddenException,
                          self.reader.update_hydration, self.server,
                          paused=True)
        self.assertIn('does not allow this', self.refused(
            f'server hydration set {self.server} --paused', READER, OWNER))
        # An operator sees all, and where.
        server = self.boot_lazily(self.image_id)
        self.wait_until(lambda: {self.server, server} <= set(
            found := self.listed('admin')) and found, 'both are listed')
        for each in self.server, server:
            self.assertEqual(self.host_of(each),
                             self.listed('admin')[each]['Host'])
        self.assertEqual([self.server], list(self.listed(OWNER)))
        self.assertFalse(self.owner('show')['paused'])


class TestLearning(HydrationTest):

    def test_hosts_learn_from_each_other_and_share_the_link(self):
        image, path = self.cold()
        self.wait_until_quiet()
        cost = self.known(self.host, image)['wan_bytes']
        before = self.trial.wan_bytes()
        first = self.boot_lazily(
            image, f'--availability-zone nova:{self.host}')
        self.guest(first, self.host)
        [profile] = self.wait_until(
            lambda: self.type(f'image profile list --image {image} -f json'),
            'a profile is learned')
        self.assertEqual((image, 'tiny'), (profile['Image'],
                                           profile['Label']))
        learned = self.type(f'image profile show {profile["ID"]} -f json')
        self.assertGreaterEqual(learned['instances'], 1)
        self.assertLess(learned['bytes'], path.stat().st_size)

        log = self.end_of_log(f'{self.other}-agent')
        second = self.boot_lazily(
            image, f'--availability-zone nova:{self.other}')
        self.guest(second, self.other)
        self.assert_linked(image, self.other)
        self.assertTrue(self.said(
            f'{self.other}-agent', f'Image {image}: prefetching by', log))
        ahead, behind = (self.served(image, host)
                         for host in (self.host, self.other))
        self.assertGreater(behind['prefetched'], 0)
        self.assertLessEqual(behind['misses'], ahead['misses'])
        for host in self.host, self.other:
            self.wait_until_whole(image, path, host)
        moved = self.trial.wan_bytes() - before
        print(f'{moved} bytes over the WAN for 2 hosts, of {cost};'
              f' misses {ahead["misses"]} and {behind["misses"]}, prefetched'
              f' {ahead["prefetched"]} and {behind["prefetched"]}')
        self.assertLess(moved, 1.05 * cost + BESIDES)


class TestNextBuild(HydrationTest, test_nova_lazy.ReadingTest):

    def reading(self):
        """The next build of an image that the host has, and its file."""
        base, path = self.reading_disk(), self.temporary('raw')
        image = self.upload(base)
        self.addCleanup(self.base(self.host, image).unlink, missing_ok=True)
        self.trial.network.shape(self.wan)
        self.create(image, self.host)
        shutil.copy(base, path)
        with open(path, 'r+b') as file:
            file.seek(-CHANGED - MIB, os.SEEK_END)
            file.write(os.urandom(CHANGED))
        build = self.upload(path, diffcache_boot_mode='lazy',
                            diffcache_base_image=image)
        self.addCleanup(self.base(self.host, build).unlink, missing_ok=True)
        self.patch_size = self.wait_until(
            lambda: self.patch_of(build), 'there is a patch',
            nova_hosts.SECONDS)
        self.wait_until_quiet()
        self.before = self.trial.wan_bytes()
        # The guest is up before what it has to bring has come.
        self.trial.network.shape(SLOW_MBITS)
        return build, path

    def patch_of(self, build):
        """Bytes of the patch to an image; None while there is none."""
        found = self.known(self.host, build)['wan_bytes']
        return found if CHANGED <= found < CHANGED + BESIDES else None

    def test_the_next_build_costs_its_patch(self):
        self.trial.network.shape(self.wan)
        self.assert_reads()
        self.wait_until_whole(self.image_id, self.path)
        cache = service.proxy_of(self.trial.admin)
        found = cache.get_hydration(self.server)
        self.assertEqual('complete', found.state)
        moved = self.trial.wan_bytes() - self.before
        print(f'{moved} bytes over the WAN with a patch of {self.patch_size};'
              f' sources {found.sources}')
        self.assertLess(moved, 1.02 * self.patch_size + MIB)
        # All was read through base and patch, and nothing where it is whole.
        self.assertEqual([0], [each['bytes'] for each in found.sources
                               if 'patch' not in each['url']])
