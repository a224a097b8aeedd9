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
import contextlib
import dataclasses
import datetime
import threading
from unittest import mock

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.images.limits import job_limits as shares
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

BASE, TARGET = b'base' * 100, b'target' * 100
PATCH = fakes.make_patch(BASE, TARGET)
SECONDS = 20


class FillTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.network = fakes.Network()
        self.hosts = {name: fakes.Host(self.directory, self.network, name,
                                       None if name == 'repo' else 10 ** 10)
                      for name in ('repo', 'h1', 'h2')}
        self.keys = [self.hosts['repo'].put(content)
                     for content in (BASE, TARGET)]
        self.patch_key = self.hosts['repo'].put(PATCH, views.PATCHES)
        self.refresh()
        self.open = True
        self.changes = []
        self.told = []

    def refresh(self):
        site = fakes.site_view(list(self.hosts.values()),
                               {'base': BASE, 'target': TARGET},
                               [(BASE, TARGET)])
        for host in self.hosts.values():
            host.view = site

    def filler(self, name='h1'):
        host = self.hosts[name]
        filler = filling.Filler(
            host.builder, host.arrivals, host.state, host.flights,
            fakes.Handle, filling.FillLimits(1000, lambda: self.open),
            self.directory / f'{name}-plan.json')
        self.patch(host.state, 'object_added',
                   lambda: self.changes.append(host.held.keys()))
        self.patch(host.state.report_due, 'set',
                   lambda: self.told.append(filler.report()))
        return filler

    def started(self, name='h1'):
        filler = self.filler(name)
        filler.start()
        self.addCleanup(filler.stop)
        return filler

    def plan(self, *keys, generation=1, shares=None):
        return filling.FillPlan(generation, tuple(
            holdings.PlacedObject(key, n) for n, key in enumerate(keys)),
            shares or {})

    def until(self, condition):
        pause = threading.Event()
        for _ in range(100 * SECONDS):
            if condition():
                return
            pause.wait(0.01)
        self.fail('It never came to be.')


class TestFills(FillTest):

    def test_fills_in_the_plans_order(self):
        filler = self.started()
        filler.hold(self.plan(self.patch_key, self.keys[0]))
        self.until(lambda: not filler.missing())
        filler.stop()
        order = [key for host, _, key in self.network.fetches
                 if host == 'h1' and key.kind != views.MANIFESTS]
        self.assertEqual([self.patch_key, self.keys[0]], order)
        self.assertIn(self.keys[0], self.changes[-1])

    def test_builds_at_the_site_what_is_cheaper_built(self):
        self.hosts['h2'].put(BASE)
        self.hosts['h2'].put(PATCH, views.PATCHES)
        self.refresh()
        filler = self.started()
        filler.hold(self.plan(self.keys[1]))
        self.until(lambda: not filler.missing())
        self.assertEqual(
            {'http://h2'}, {url for _, url, key in self.network.fetches
                            if key.kind != views.MANIFESTS})

    def test_the_plan_outlives_the_process(self):
        self.filler().hold(self.plan(self.keys[0], generation=7))
        again = self.started()
        self.assertEqual(7, again.generation)
        self.until(lambda: not again.missing())

    def test_an_older_plan_is_ignored(self):
        filler = self.filler()
        filler.hold(self.plan(self.keys[0], generation=7))
        filler.hold(self.plan(generation=6))
        self.assertEqual(7, filler.generation)
        self.assertEqual([self.keys[0]], filler.missing())

    def test_closed_windows_keep_it_off_the_wan(self):
        self.open = False
        self.hosts['h2'].put(PATCH, views.PATCHES)
        self.refresh()
        filler = self.started()
        for key in self.keys:
            self.hosts['h1']._store(views.Key(views.MANIFESTS, key.id), b'm')
        filler.hold(self.plan(self.keys[0], self.patch_key))
        with filler._wake:
            self.assertTrue(filler._wake.wait_for(
                lambda: filler.missing() == [self.keys[0]], SECONDS))
        self.assertEqual([], [f for f in self.network.fetches
                              if f[1] == 'http://repo'])

    def test_a_request_takes_over_the_running_fill(self):
        with self.taken_over() as filler:
            pass
        self.until(lambda: not filler.missing())

    def test_another_plan_leaves_alone_what_a_request_waits_for(self):
        with self.taken_over() as filler:
            filler.hold(self.plan(generation=2))
        # The fill has brought it, and not the request on its own.
        self.assertIn(self.keys[0], self.hosts['h1'].held)

    @contextlib.contextmanager
    def taken_over(self):
        """A fill is under way during the block, and a request waits for it.

        At the end the request is answered.
        """
        host = self.hosts['h1']
        host.builder.manifest(self.keys[0].id, host.new_throttle())
        host.plane.started.clear()
        host.plane.hold_fetches.clear()
        filler = self.started()
        filler.hold(self.plan(self.keys[0]))
        self.assertTrue(host.plane.started.wait(SECONDS))
        output = self.directory / 'disk'
        thread = threading.Thread(target=host.server.deliver, args=(
            host.view.image('base'), outputs.LocalOutput(output),
            building.ON_THE_FLY))
        thread.start()
        try:
            self.assertTrue(self.rates_of(filler, None))
            yield filler
        finally:
            host.plane.hold_fetches.set()
            thread.join()
        self.assertEqual(BASE, output.read_bytes())

    def rates_of(self, filler, rate):
        pause = threading.Event()
        for _ in range(500):
            if [p.rate for p in list(filler._working.values())] == [rate]:
                return True
            pause.wait(0.01)
        return False

    def test_what_fails_is_tried_again(self):
        self.patch(filling, 'FIRST_RETRY', 0.01)
        self.network.down.add('http://repo')
        filler = self.started()
        filler.hold(self.plan(self.keys[0]))
        self.until(lambda: any(found.attempts > 1 for report in self.told
                               for found in report))
        [missing] = self.told[-1]
        self.assertEqual((self.keys[0], self.keys[0].id in missing.error),
                         (missing.key, True))
        self.network.down.clear()
        self.until(lambda: not filler.missing())
        self.assertEqual([], filler.report())

    def test_what_was_withdrawn_is_not_missing(self):
        base, target = self.keys
        self.network.down.add('http://repo')
        filler = self.started()
        filler.hold(self.plan(base, target, self.patch_key))
        self.assertEqual([base, target, self.patch_key], filler.missing())
        host = self.hosts['h1']
        known = host.view
        host.view = dataclasses.replace(
            known, generation=2, patches=(), images=tuple(
                dataclasses.replace(image, status='deactivated')
                if image.content_id == target.id else image
                for image in known.images))
        self.assertEqual([base], filler.missing())
        self.assertEqual([base], [found.key for found in filler.report()])
        self.network.down.clear()
        self.told.clear()
        filler.wake()
        self.until(lambda: not filler.missing())
        self.assertEqual([], [found for report in self.told
                              for found in report if found.error])
        # Reactivated, it is wanted again.
        host.view = dataclasses.replace(known, generation=3)
        filler.wake()
        self.until(lambda: not filler.missing())
        self.assertIn(target, host.held)

    def test_a_plan_may_come_before_its_map(self):
        host = self.hosts['h1']
        known, host.view = host.view, views.SiteView(generation=1)
        self.patch(filling, 'FIRST_RETRY', 0.01)
        filler = self.started()
        filler.hold(self.plan(self.keys[0]))
        self.until(lambda: self.told)
        self.assertEqual([self.keys[0]], filler.missing())
        host.view = dataclasses.replace(known, generation=2)
        filler.wake()
        self.until(lambda: not filler.missing())
        self.assertIn(self.keys[0], host.held)

    def test_retries_are_told_with_their_time(self):
        self.network.down.add('http://repo')
        filler = self.started()
        filler.hold(self.plan(self.keys[0]))
        self.until(lambda: self.told)
        self.until(lambda: not filler._working)
        [missing] = filler.report()
        self.assertEqual((False, 1), (missing.active, missing.attempts))
        self.assertLessEqual(missing.retry_in, filling.FIRST_RETRY)

    def test_bytes_that_came_are_told(self):
        host = self.hosts['h1']
        host.plane.hold_fetches.clear()
        self.patch(filling, 'REPORT_INTERVAL', 0.0)
        filler = self.started()
        filler.hold(self.plan(self.keys[0]))
        self.until(lambda: self.told)
        [missing] = self.told[-1]
        self.assertEqual((True, 0), (missing.active, missing.attempts))
        self.assertGreater(missing.total, 0)
        host.plane.hold_fetches.set()
        self.until(lambda: not filler.missing())

    def test_another_plan_ends_what_it_no_longer_wants(self):
        host = self.hosts['h1']
        host.plane.hold_fetches.clear()
        filler = self.started()
        filler.hold(self.plan(self.keys[0]))
        self.assertTrue(host.plane.started.wait(SECONDS))
        filler.hold(self.plan(generation=2))
        pause = threading.Event()
        while filler._working:
            pause.wait(0.01)
        self.assertEqual([], filler.missing())
        self.assertNotIn(self.keys[0], host.held)


class TestPlans(FillTest):

    def test_plan_that_cannot_be_stored_is_followed(self):
        # Regression: the plan that made room on a full filesystem was not.
        filler = self.filler()
        filler.hold(self.plan(*self.keys))
        with mock.patch.object(files, 'write_json',
                               side_effect=exceptions.NoSpace('full')):
            filler.hold(self.plan(self.keys[0], generation=2))
        self.assertEqual(2, filler.generation)
        self.assertEqual([self.keys[0]], filler.missing())


class TestManifests(FillTest):

    def test_that_of_a_patch_s_target_does_not_cross(self):
        filler = self.started()
        filler.hold(self.plan(self.patch_key))
        self.until(lambda: not filler.missing())
        self.assertEqual(
            {fakes.key_of(BASE, views.MANIFESTS), self.patch_key},
            {key for _, _, key in self.network.fetches})
        for content in (BASE, TARGET):
            self.assertIn(fakes.key_of(content, views.MANIFESTS),
                          self.hosts['h1'].held)


class TestShares(FillTest):
    """What precache jobs allow."""

    def setUp(self):
        super().setUp()
        self.host = self.hosts['h1']
        self.host.plane.hold_fetches.clear()

    def share(self, rate=None, windows=(), job='job'):
        return shares.Share(job, rate, windows)

    def held_back(self, *keys, workers=1, **given):
        """A filler that is in the middle of what it may do."""
        filler = filling.Filler(
            self.host.builder, self.host.arrivals, self.host.state,
            self.host.flights, fakes.Handle,
            filling.FillLimits(1000, lambda: True, workers),
            self.directory / 'plan.json')
        filler.start()
        self.addCleanup(filler.stop)
        self.addCleanup(self.host.plane.hold_fetches.set)
        filler.hold(self.plan(*keys, **given))
        self.until(lambda: filler._working)
        return filler

    def rates(self, filler):
        return [throttle.rate for throttle in list(filler._working.values())]

    def test_the_smaller_rate_holds(self):
        for rate, expected in ((10, 10), (5000, 1000), (None, 1000)):
            filler = self.held_back(self.keys[0], shares={
                self.keys[0]: self.share(rate, ('00:00-24:00',))})
            self.until(lambda: self.rates(filler) == [expected])
            filler.stop()

    def test_objects_of_one_job_come_one_after_another(self):
        limited = {key: self.share(10) for key in self.keys}
        filler = self.held_back(*self.keys, workers=2, shares=limited)
        with filler._wake:
            self.assertEqual((None, 1), (filler._choose()[0],
                                         len(filler._working)))
        self.host.plane.hold_fetches.set()
        self.until(lambda: not filler.missing())

    def test_objects_of_two_jobs_come_together(self):
        filler = self.held_back(*self.keys, workers=2, shares={
            key: self.share(10, job=key.id) for key in self.keys})
        self.until(lambda: len(self.rates(filler)) == 2)
        self.assertEqual([10, 10], self.rates(filler))

    def test_another_rate_holds_at_once(self):
        key = self.keys[0]
        filler = self.held_back(key, shares={key: self.share(10)})
        filler.hold(self.plan(key, shares={key: self.share(20)}))
        self.until(lambda: self.rates(filler) != [10])
        self.assertEqual([20], self.rates(filler))

    def test_closed_window_of_a_job_keeps_it_off_the_wan(self):
        self.host.plane.hold_fetches.set()
        first, second = self.keys
        for key in self.keys:
            self.host._store(views.Key(views.MANIFESTS, key.id), b'm')
        minute = datetime.datetime.now() - datetime.timedelta(hours=2)
        closed = f'{minute:%H:%M}-{minute + datetime.timedelta(hours=1):%H:%M}'
        filler = self.filler()
        filler.hold(self.plan(first, second, shares={
            first: self.share(None, (closed,))}))
        filler.start()
        self.addCleanup(filler.stop)
        self.until(lambda: filler.missing() == [first])
        self.assertEqual([], [key for _, url, key in self.network.fetches
                              if key == first and url == 'http://repo'])

    def test_limits_outlive_the_process(self):
        share = self.share(10, ('22:00-06:00', 'sat-sun 00:00-24:00'))
        self.filler().hold(self.plan(
            self.keys[0], shares={self.keys[0]: share}))
        self.assertEqual({self.keys[0]: share}, filling.FillPlan.load(
            self.directory / 'h1-plan.json').shares)

    def test_window_that_cannot_be_read_is_refused(self):
        self.assertRaises(exceptions.InvalidInput, shares.load,
                          [['images', 'x', 'job', None, ['at night']]])
