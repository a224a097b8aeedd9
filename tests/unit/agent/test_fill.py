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
import threading

from diffcache_openstack.agent import fill
from diffcache_openstack.agent import holdings
from diffcache_openstack.agent import maker
from diffcache_openstack.agent import serve
from diffcache_openstack.agent import view
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
        self.patch_key = self.hosts['repo'].put(PATCH, view.PATCHES)
        self.refresh()
        self.open = True
        self.changes = []

    def refresh(self):
        site = fakes.site_view(list(self.hosts.values()),
                               {'base': BASE, 'target': TARGET},
                               [(BASE, TARGET)])
        for host in self.hosts.values():
            host.view = site

    def filler(self, name='h1'):
        host = self.hosts[name]
        filler = fill.Filler(
            host.maker, host.held, host.flights, host.gate, fakes.Token,
            lambda: host.view,
            fill.Limits(1000, lambda: self.open),
            self.directory / f'{name}-plan.json',
            lambda: self.changes.append(host.held.keys()))
        return filler

    def started(self, name='h1'):
        filler = self.filler(name)
        filler.start()
        self.addCleanup(filler.stop)
        return filler

    def plan(self, *keys, generation=1):
        return fill.Plan(generation, tuple(
            holdings.Wanted(key, n) for n, key in enumerate(keys)))

    def test_fills_in_the_plans_order(self):
        filler = self.started()
        filler.hold(self.plan(self.patch_key, self.keys[0]))
        self.assertTrue(filler.wait_filled(SECONDS))
        filler.stop()
        order = [key for host, _, key in self.network.fetches
                 if host == 'h1' and key.kind != view.MANIFESTS]
        self.assertEqual([self.patch_key, self.keys[0]], order)
        self.assertIn(self.keys[0], self.changes[-1])

    def test_builds_at_the_site_what_is_cheaper_built(self):
        self.hosts['h2'].put(BASE)
        self.hosts['h2'].put(PATCH, view.PATCHES)
        self.refresh()
        filler = self.started()
        filler.hold(self.plan(self.keys[1]))
        self.assertTrue(filler.wait_filled(SECONDS))
        self.assertEqual(
            {'http://h2'}, {url for _, url, key in self.network.fetches
                            if key.kind != view.MANIFESTS})

    def test_the_plan_outlives_the_process(self):
        self.filler().hold(self.plan(self.keys[0], generation=7))
        again = self.started()
        self.assertEqual(7, again.generation)
        self.assertTrue(again.wait_filled(SECONDS))

    def test_an_older_plan_is_ignored(self):
        filler = self.filler()
        filler.hold(self.plan(self.keys[0], generation=7))
        filler.hold(self.plan(generation=6))
        self.assertEqual(7, filler.generation)
        self.assertEqual([self.keys[0]], filler.missing())

    def test_closed_windows_keep_it_off_the_wan(self):
        self.open = False
        self.hosts['h2'].put(PATCH, view.PATCHES)
        self.refresh()
        filler = self.started()
        for key in self.keys:
            self.hosts['h1']._store(view.Key(view.MANIFESTS, key.id), b'm')
        filler.hold(self.plan(self.keys[0], self.patch_key))
        with filler._wake:
            self.assertTrue(filler._wake.wait_for(
                lambda: filler.missing() == [self.keys[0]], SECONDS))
        self.assertEqual([], [f for f in self.network.fetches
                              if f[1] == 'http://repo'])

    def test_a_request_takes_over_the_running_fill(self):
        host = self.hosts['h1']
        host.maker.manifest(self.keys[0].id, host.new_pace())
        host.plane.started.clear()
        host.plane.hold_fetches.clear()
        filler = self.started()
        filler.hold(self.plan(self.keys[0]))
        self.assertTrue(host.plane.started.wait(SECONDS))
        output = self.directory / 'disk'
        server = serve.ImageServer(
            host.maker, host.held, host.flights, host.new_pace,
            serve.PendingOutputs(self.directory / 'outputs'))
        thread = threading.Thread(target=server.serve, args=(
            host.view.template('base'), output, maker.ON_THE_FLY))
        thread.start()
        self.assertTrue(self.rates_of(filler, None))
        host.plane.hold_fetches.set()
        thread.join()
        self.assertEqual(BASE, output.read_bytes())
        self.assertTrue(filler.wait_filled(SECONDS))

    def rates_of(self, filler, rate):
        pause = threading.Event()
        for _ in range(500):
            if [p.rate for p in list(filler._working.values())] == [rate]:
                return True
            pause.wait(0.01)
        return False

    def test_what_fails_is_tried_again(self):
        self.patch(fill, 'FIRST_RETRY', 0.01)
        self.network.down.add('http://repo')
        filler = self.started()
        filler.hold(self.plan(self.keys[0]))
        pause = threading.Event()
        while not filler._retry_at:
            pause.wait(0.01)
        self.network.down.clear()
        self.assertTrue(filler.wait_filled(SECONDS))

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
