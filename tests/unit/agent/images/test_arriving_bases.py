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
"""Bases that are arriving at the site."""

import dataclasses

from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images import arriving_bases
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests.unit.agent import fakes
from tests.unit.agent.images.delivery import test_serving
from tests import waiting

BASE, TARGET = test_serving.BASE, test_serving.TARGET
PATCH = fakes.make_patch(BASE, TARGET)
CONSIDERED, COMING = orders.Stage.CONSIDERED, orders.Stage.COMING


class ArrivalsTestCase(test_serving.ServeTestCase):

    patches = [(BASE, TARGET), (TARGET, BASE)]

    def setUp(self):
        super().setUp()
        # A content ID is lower than another one by chance.
        self.first, self.second = sorted((BASE, TARGET),
                                         key=fakes.content_id)
        names = {content: name for name, content in self.images.items()}
        self.names = [names[self.first], names[self.second]]

    def announce(self, content, stage):
        return fakes.Announcement(self.network.announced,
                                  (fakes.key_of(content), stage))

    def bring(self, content):
        """Have h2 bring content over the WAN."""
        self.network.claims[fakes.key_of(content)] = 'h2'
        self.network.files['http://h2'][fakes.key_of(content)] = content
        return self.announce(content, COMING)

    def deliver(self, name, mode=building.ON_THE_FLY):
        image = self.hosts['h1'].view.image(name)
        return self.server().deliver(
            image, outputs.LocalOutput(self.output), mode)

    def assert_counts(self, **counts):
        self.assertEqual(
            {**dict.fromkeys(arriving_bases.OUTCOMES, 0), **counts},
            self.hosts['h1'].arrivals.counts())

    def announced(self):
        return sorted(self.network.announced)


class ArrivalsTest(ArrivalsTestCase):

    def test_only_the_patch_crosses_where_the_base_is_coming(self):
        self.bring(BASE)
        for mode in building.MODES:
            served = self.serve(mode)
            self.assertEqual(('build', len(PATCH), len(BASE), 0), (
                served.way, served.wan_bytes, served.lan_bytes,
                served.fallbacks))
            del self.network.claims[fakes.key_of(PATCH, views.PATCHES)]
        self.assert_counts(used=2)

    def test_what_comes_whole_is_announced_until_it_is_not_lent_any_more(self):
        at = []
        self.hosts['h1'].plane.fetch, fetch = (
            lambda *args: at.append(self.announced()) or fetch(*args),
            self.hosts['h1'].plane.fetch)
        self.assertEqual('repository', self.serve().way)
        self.assertEqual([(fakes.key_of(TARGET), COMING)], at[0])
        self.assertEqual(at[0], self.announced())

    def test_without_lending_it_is_announced_while_it_comes(self):
        self.hosts['h1'].transfers._lend_seconds = 0
        self.assertEqual('repository', self.serve().way)
        self.assertEqual([], self.announced())

    def test_what_failed_is_not_announced(self):
        self.network.down.add('http://repo')
        self.assertRaises(exceptions.PeerUnavailable, self.serve)
        self.assertEqual([], self.announced())

    def test_the_image_itself_goes_before_its_bases(self):
        self.bring(BASE)
        self.bring(TARGET)
        served = self.serve()
        self.assertEqual(('repository', 0, len(TARGET)), (
            served.way, served.wan_bytes, served.lan_bytes))

    def test_a_base_whose_holder_died_crosses_in_place_of_the_image(self):
        self.bring(BASE)
        self.network.down.add('http://h2')
        served = self.serve()
        self.assertEqual(('build', len(BASE) + len(PATCH)),
                         (served.way, served.wan_bytes))

    def test_a_damaged_patch_costs_a_fallback(self):
        self.bring(BASE)
        key = fakes.key_of(PATCH, views.PATCHES)
        self.network.files['http://repo'][key] = b'damaged'
        served = self.serve()
        self.assertEqual(('repository', 1, len(TARGET)), (
            served.way, served.fallbacks, served.wan_bytes))

    def test_a_coordinator_that_gives_no_answer_costs_nothing_more(self):
        def refuse(_key, _stage):
            raise exceptions.PeerUnavailable('no room for more claims')

        self.hosts['h1'].plane.announce = refuse
        self.assertEqual('repository', self.serve().way)
        self.assert_counts(failed=1)

    def test_a_client_that_could_download_less_gets_the_patch(self):
        self.bring(BASE)
        image = self.hosts['h1'].view.image('target')
        served = self.server().deliver(
            image, outputs.LocalOutput(self.output),
            watch=contents.Watch(1))
        self.assertEqual('build', served.way)

    def test_a_download_by_the_client_is_not_announced(self):
        image = self.hosts['h1'].view.image('target')
        self.assertRaises(
            exceptions.DownloadCheaper, self.server().deliver, image,
            outputs.LocalOutput(self.output), watch=contents.Watch(1))
        self.assertEqual([], self.announced())

    def test_the_time_of_such_builds_is_not_that_of_a_mode(self):
        self.bring(BASE)
        self.network.files['http://h1'][fakes.key_of(
            PATCH, views.PATCHES)] = PATCH
        self.hosts['h1'].put(PATCH, views.PATCHES)
        self.refresh()
        self.assertEqual(('build', 0), (
            (served := self.serve()).way, served.wan_bytes))
        self.assertEqual([0, 0], [
            mode['builds'] for mode in self.server().modes.report().values()])


class FillsTest(ArrivalsTestCase):
    """What the plan brings, as a base and by a base."""

    def fill(self, rate=None):
        """Fill h1 with the target; returns the announcements meanwhile."""
        host, at = self.hosts['h1'], []
        host.plane.deliver, deliver = (
            lambda order, *args: at.append(self.announced())
            or deliver(order, *args), host.plane.deliver)
        filler = filling.Filler(
            host.builder, host.arrivals, host.state, host.flights,
            fakes.Handle, filling.FillLimits(rate, lambda: True),
            self.directory / 'plan.json')
        filler.start()
        self.addCleanup(filler.stop)
        key = fakes.key_of(TARGET)
        filler.hold(filling.FillPlan(1, (holdings.PlacedObject(key, 1),)))
        waiting.until(lambda: not filler.missing(), 'the fill')
        self.assertEqual(TARGET, host.held.path(key).read_bytes())
        return at[-1]

    def test_only_the_patch_crosses_where_the_base_is_coming(self):
        self.bring(BASE)
        self.fill()
        self.assertNotIn(fakes.key_of(TARGET), self.network.claims)
        self.assert_counts(used=1)

    def test_it_is_announced(self):
        self.assertEqual([(fakes.key_of(TARGET), COMING)], self.fill())

    def test_it_is_announced_until_the_map_shows_it_though_nothing_is_lent(
            self):
        self.hosts['h1'].transfers._lend_seconds = 0
        self.assertEqual(self.fill(), self.announced())

    def test_what_is_limited_is_not_announced_and_waits_for_nothing(self):
        other = self.bring(BASE)
        self.assertEqual([other._entry], self.fill(rate=1000))
        self.assertIn(fakes.key_of(TARGET), self.network.claims)
        self.assert_counts()


class FarArrivalsTest(ArrivalsTestCase):
    """A base that takes so long that the image alone is there sooner."""

    def refresh(self):
        super().refresh()
        for host in self.hosts.values():
            site = host.view
            host.view = fakes.with_sizes(site, {
                fakes.content_id(BASE): 3 * fakes.SIZE})

    def test_it_is_not_waited_for(self):
        self.bring(BASE)
        self.assertEqual('repository', self.serve().way)
        self.assert_counts()


class SlowPatchesTest(ArrivalsTestCase):
    """Patches that were applied by a busy repository when they were timed."""

    def refresh(self):
        super().refresh()
        for host in self.hosts.values():
            host.view = dataclasses.replace(host.view, patches=tuple(
                dataclasses.replace(patch, apply_seconds=1000.0)
                for patch in host.view.patches))

    def test_an_image_does_not_cross_whole_for_the_time_of_its_patch(self):
        self.bring(BASE)
        served = self.serve()
        self.assertEqual(('build', len(PATCH)),
                         (served.way, served.wan_bytes))
        self.assert_counts(used=1)


class DecisionTest(ArrivalsTestCase):
    """Hosts that decide at the same time."""

    def while_asleep(self, *steps):
        """Do one step in each pause of h1."""
        remaining = list(steps)
        self.hosts['h1'].while_asleep = lambda: (
            remaining.pop(0)() if remaining else None)

    def test_the_first_crosses_if_the_other_host_gives_way(self):
        other = self.announce(self.second, CONSIDERED)
        self.while_asleep(other.close)
        self.assertEqual('repository', self.deliver(self.names[0]).way)
        self.assert_counts()

    def test_the_first_is_built_if_the_other_host_missed_it(self):
        other = self.announce(self.second, CONSIDERED)
        self.while_asleep(lambda: (self.bring(self.second), other.close()))
        self.assertEqual('build', self.deliver(self.names[0]).way)
        self.assert_counts(used=1)

    def test_the_second_waits_for_the_first(self):
        other = self.announce(self.first, CONSIDERED)

        def decide():
            # Not considered here meanwhile, so that no host waits for it.
            self.assertEqual([other._entry], self.announced())
            self.bring(self.first)
            other.close()

        self.while_asleep(decide)
        self.assertEqual('build', self.deliver(self.names[1]).way)
        self.assert_counts(used=1)

    def test_the_second_crosses_if_the_first_goes_another_way(self):
        other = self.announce(self.first, CONSIDERED)
        self.while_asleep(other.close)
        self.assertEqual('repository', self.deliver(self.names[1]).way)
        self.assert_counts()

    def test_an_undecided_host_is_waited_for_a_second(self):
        for name, other in zip(self.names, (self.second, self.first)):
            self.network.claims.clear()
            self.network.announced.clear()
            self.announce(other, CONSIDERED)
            started = self.hosts['h1'].now
            self.assertEqual('repository', self.deliver(name).way)
            self.assertAlmostEqual(1.0, self.hosts['h1'].now - started, 1)
        self.assert_counts(undecided=2)

    def test_a_client_that_goes_ends_the_wait(self):
        self.announce(self.second, CONSIDERED)
        watch = contents.Watch()
        self.while_asleep(watch.gone.set)
        image = self.hosts['h1'].view.image(self.names[0])
        self.assertRaises(
            exceptions.Cancelled, self.server().deliver, image,
            outputs.LocalOutput(self.output), watch=watch)
        self.assertEqual([(fakes.key_of(self.second), CONSIDERED)],
                         self.announced())


class SizesTest(DecisionTest):
    """The higher ID has fewer bytes, and goes first."""

    def setUp(self):
        super().setUp()
        self.first, self.second = self.second, self.first
        self.names.reverse()
        self.refresh()

    def refresh(self):
        super().refresh()
        larger = min((BASE, TARGET), key=fakes.content_id)
        for host in self.hosts.values():
            host.view = fakes.with_sizes(host.view, {
                fakes.content_id(larger): fakes.SIZE + 1000})


class OneWayTest(ArrivalsTestCase):
    """There is a patch in one direction only."""

    def setUp(self):
        self.patches = [min((BASE, TARGET), (TARGET, BASE), key=lambda pair:
                            [fakes.content_id(pair[1])])]
        super().setUp()

    def test_the_base_goes_first_whatever_its_id(self):
        # The target has the lower ID.
        self.assertEqual([(self.second, self.first)], self.patches)
        other = self.announce(self.second, CONSIDERED)
        self.hosts['h1'].while_asleep = lambda: (
            other._entry in self.network.announced
            and (self.bring(self.second), other.close()))
        self.assertEqual('build', self.deliver(self.names[0]).way)
        self.assert_counts(used=1)
