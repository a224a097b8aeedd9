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
"""Images of one family that arrive at several hosts at the same time."""

import concurrent.futures
import threading

from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.images import arriving_bases
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.embedded import sites
from tests.functional.agent import test_embedded
from tests import waiting

MIB = test_embedded.MIB
HOSTS = test_embedded.HOSTS


class ArrivingBasesTest(test_embedded.EmbeddedTestCase):
    """Nothing is at the site; the repository has all patches."""

    # So that images cross while others are requested.
    links = sites.LinkSpec(200, 80000, 8000)
    options: dict = {}

    def setUp(self):
        super().setUp()
        # A busy machine takes longer for a decision.
        self.patch(arriving_bases, '_LONGEST', waiting.SECONDS)
        self.goes_on = threading.Event()

    def new_site(self, options=None):
        return super().new_site({
            ('planner', 'repository_bandwidth'): 5,
            ('agent', 'lend_seconds'): 0,
            **self.options, **(options or {})})

    def outcomes(self, host):
        return self.site.hosts[host].status.report()['arriving_bases']

    def used(self):
        return sum(self.outcomes(host)['used'] for host in HOSTS)

    def get_all(self, names, mode=building.ON_THE_FLY):
        """Request images at the same time, one at each host."""
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            return list(pool.map(
                lambda pair: self.get_beside_others(*pair, mode),
                zip(HOSTS, names)))

    def test_one_image_of_the_family_crosses_and_patches(self):
        names = ['system', 'database', 'java']
        for mode, order in zip(building.MODES, (names, names[::-1])):
            before = self.site.wan_bytes()
            used = self.used()
            requests = self.get_all(order, mode)
            self.assertEqual(['build', 'build', 'repository'],
                             sorted(request.way for request in requests))
            self.assertEqual(2, self.used() - used)
            # The largest is 10 MiB; any two take 16 at least.
            self.assertLess(self.site.wan_bytes() - before, 14 * MIB)

    def begin(self, host, name):
        """Request an image; return its future once the image is crossing.

        The rest of it crosses when another request reads it, too: no host
        lends what has arrived, so that one which comes later would have it
        cross once more. Or when :meth:`go_on` is called.
        """
        started = threading.Event()
        deliver = native_plane.DataPlane.deliver
        follow = single_flight.SingleFlight._follow

        def noting(plane, order, handle, progress=None):
            is_first = order.key == self.image(name) \
                and not started.is_set()

            def note(done, total, over_wan):
                if is_first and done:
                    started.set()
                    self.assertTrue(self.goes_on.wait(waiting.SECONDS))
                elif order.key == self.image(name) and done:
                    self.go_on()
                progress(done, total, over_wan)
            return deliver(plane, order, handle, note)

        def following(flights, flight, throttle):
            if flight.key == self.image(name):
                self.go_on()
            return follow(flights, flight, throttle)

        self.addCleanup(self.go_on)
        self.patch(native_plane.DataPlane, 'deliver', noting)
        self.patch(single_flight.SingleFlight, '_follow', following)
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        future = pool.submit(self.get_beside_others, host, name)
        waiting.until(started.is_set, 'the image to cross')
        return future

    def go_on(self):
        """Have the image that is crossing arrive."""
        self.goes_on.set()

    def test_a_base_that_crosses_already(self):
        first = self.begin('host-1', 'system')
        second = self.get_beside_others('host-2', 'java')
        self.assertEqual('build', second.way)
        # The patch has 2 MiB.
        self.assertLess(second.wan_bytes, 3 * MIB)
        self.assertEqual('repository', first.result().way)

    def test_two_images_at_one_host(self):
        first = self.begin('host-1', 'system')
        second = self.get_beside_others('host-1', 'java')
        self.assertEqual('build', second.way)
        self.assertLess(second.wan_bytes, 3 * MIB)
        self.assertEqual('repository', first.result().way)

    def test_without_a_patch_both_cross(self):
        first = self.begin('host-1', 'system')
        self.go_on()
        second = self.get_beside_others('host-2', 'other')
        self.assertEqual('repository', second.way)
        self.assertEqual('repository', first.result().way)
        self.assertEqual(0, self.used())

    def test_a_host_that_dies_costs_its_base(self):
        first = self.begin('host-1', 'system')
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            second = pool.submit(self.get, 'host-2', 'java')
            waiting.until(lambda: self.outcomes('host-2')['used'],
                          'the other host to decide')
            self.go_on()
            self.site.hosts['host-1'].plane.close()
            request = second.result()
        self.assertIsNotNone(first.exception())
        # The base crosses to this host, as the image itself would have.
        self.assertEqual(('build', 0), (request.way, request.fallbacks))
        self.assertLess(request.wan_bytes, 11 * MIB)
