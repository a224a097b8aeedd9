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

import dataclasses
import threading
from unittest import mock

from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.images.delivery import serving as serve
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes
from tests import waiting

BASE, TARGET = b'base' * 100, b'target' * 100
PATCH = fakes.make_patch(BASE, TARGET)


class ServeTestCase(base.TestCase):
    """Three hosts with nothing and a repository with all."""

    images = {'base': BASE, 'target': TARGET}
    patches = [(BASE, TARGET)]

    def setUp(self):
        super().setUp()
        self.network = fakes.Network()
        self.hosts = {name: fakes.Host(self.directory, self.network, name,
                                       None if name == 'repo' else 10 ** 10)
                      for name in ('repo', 'h1', 'h2', 'h3')}
        for content in self.images.values():
            self.hosts['repo'].put(content)
        self.patch_keys = [
            self.hosts['repo'].put(fakes.make_patch(*pair), views.PATCHES)
            for pair in self.patches]
        self.refresh()
        self.output = self.directory / 'disk'

    def refresh(self):
        site = fakes.site_view(list(self.hosts.values()),
                               self.images, self.patches)
        for host in self.hosts.values():
            host.view = site

    def server(self, name='h1'):
        return self.hosts[name].server

    def serve(self, mode=building.ON_THE_FLY, name='h1'):
        image = self.hosts[name].view.image('target')
        served = self.server(name).deliver(
            image, outputs.LocalOutput(self.output), mode)
        self.assertEqual(TARGET, self.output.read_bytes())
        self.assertEqual([], list(
            (self.hosts[name].held.root / holdings.STAGING).iterdir()))
        return served

    def records(self, name='h1'):
        """The records of requests that wait for the conductor."""
        found = []
        self.hosts[name].requests.deliver(found.extend)
        return [objects.Request.parse_kept(each) for each in found]

    def assert_only_the_patch_crosses(self):
        """Serve the target in each mode, built with the patch at h1."""
        for mode in building.MODES:
            self.network.claims.clear()
            served = self.serve(mode)
            self.assertEqual(('build', len(PATCH)),
                             (served.way, served.wan_bytes))
            del self.network.files['http://h1'][self.patch_keys[0]]


class ServeTest(ServeTestCase):

    def test_from_the_repository(self):
        served = self.serve()
        self.assertEqual(('repository', len(TARGET), 0),
                         (served.way, served.wan_bytes, served.fallbacks))

    def offered(self, own_bytes):
        """Serve to a client that could download this many bytes instead."""
        image = self.hosts['h1'].view.image('target')
        return self.server().deliver(
            image, outputs.LocalOutput(self.output),
            watch=contents.Watch(own_bytes))

    def test_a_file_with_fewer_bytes_is_left_to_its_client(self):
        error = self.assertRaises(exceptions.DownloadCheaper, self.offered,
                                  fakes.SIZE * 9 // 10)
        self.assertIn('target', str(error))
        self.assertFalse(self.output.exists())
        self.assertEqual('repository', self.offered(fakes.SIZE).way)

    def test_what_the_site_has_is_delivered_whatever_its_file_has(self):
        self.hosts['h2'].put(BASE)
        self.hosts['h3'].put(PATCH, views.PATCHES)
        self.refresh()
        self.assertEqual('build', self.offered(1).way)

    def test_what_the_plan_wants_here_is_delivered(self):
        self.hosts['h1'].held.want(
            [holdings.PlacedObject(fakes.key_of(TARGET), 1.0)])
        self.assertEqual('repository', self.offered(1).way)

    def test_local(self):
        self.hosts['h1'].put(TARGET)
        served = self.serve()
        self.assertEqual(('local', 0, 0), (served.way, served.wan_bytes,
                                           served.lan_bytes))

    def test_from_a_peer(self):
        self.hosts['h2'].put(TARGET)
        self.refresh()
        served = self.serve()
        self.assertEqual(('peer', 0, len(TARGET)), (
            served.way, served.wan_bytes, served.lan_bytes))

    def test_without_a_mode_both_are_measured(self):
        self.hosts['h2'].put(BASE)
        self.hosts['h3'].put(PATCH, views.PATCHES)
        self.refresh()
        for _time in range(6):
            self.serve(None)
        self.assertEqual(
            dict.fromkeys(building.MODES, 3),
            {mode: found['builds'] for mode, found
             in self.server('h1').modes.report().items()})

    def bases(self):
        """How the base is read in each mode."""
        plane, found = self.hosts['h1'].transfers.plane, []
        deliver = plane.deliver

        def note(order, *arguments):
            found.extend(source.base for source in order.sources
                         if isinstance(source, orders.BuildSource))
            return deliver(order, *arguments)

        with mock.patch.object(plane, 'deliver', note):
            for mode in building.MODES:
                self.assertEqual('build', self.serve(mode).way)
        return found

    def test_what_a_host_holds_is_not_read_to_be_sure_of_it(self):
        self.hosts['h1'].put(BASE)
        self.hosts['h3'].put(PATCH, views.PATCHES)
        self.refresh()
        held = self.hosts['h1'].held
        known = orders.KnownFile(
            held.path(fakes.key_of(BASE)),
            held.path(views.Key(views.MANIFESTS, fakes.key_of(BASE).id)))
        self.assertEqual([known, known], self.bases())

    def test_what_was_just_copied_is_not_read_to_be_sure_of_it(self):
        self.hosts['h2'].put(BASE)
        self.hosts['h3'].put(PATCH, views.PATCHES)
        self.refresh()
        copied, there = self.bases()
        self.assertIsInstance(copied, orders.KnownFile)
        self.assertIsInstance(there, orders.RemotePart)

    def test_built_in_both_modes(self):
        self.hosts['h2'].put(BASE)
        self.hosts['h3'].put(PATCH, views.PATCHES)
        self.refresh()
        for mode in building.MODES:
            served = self.serve(mode)
            self.assertEqual('build', served.way)
            self.assertEqual((0, len(BASE) + len(PATCH)),
                             (served.wan_bytes, served.lan_bytes))

    def test_built_with_the_patch_over_the_wan(self):
        self.hosts['h1'].put(BASE)
        self.assert_only_the_patch_crosses()

    def test_a_dead_peer_costs_a_fallback(self):
        self.hosts['h2'].put(TARGET)
        self.refresh()
        self.network.down.add('http://h2')
        served = self.serve()
        self.assertEqual(('repository', 1), (served.way, served.fallbacks))

    def test_a_peer_with_another_key_costs_a_fallback(self):
        self.hosts['h2'].put(TARGET)
        self.refresh()
        self.network.refusing.add('http://h2')
        self.assertEqual('repository', self.serve().way)

    def test_damage_at_a_peer_costs_a_fallback(self):
        self.hosts['h2'].put(TARGET)
        self.refresh()
        key = fakes.key_of(TARGET)
        self.network.files['http://h2'][key] = b'garbage'
        self.assertEqual('repository', self.serve().way)
        self.assertEqual([('h2', key)],
                         list(self.hosts['h1'].state.suspects))

    def test_damage_here_is_quarantined(self):
        key = self.hosts['h1'].put(TARGET)
        self.hosts['h1'].held.path(key).write_bytes(b'garbage')
        served = self.serve()
        self.assertEqual(('repository', 1), (served.way, served.fallbacks))
        self.assertNotIn(key, self.hosts['h1'].held)

    def test_a_damaged_patch_here_is_quarantined(self):
        held = self.hosts['h1']
        held.put(BASE)
        for mode in building.MODES:
            patch_key = held.put(PATCH, views.PATCHES)
            held.held.path(patch_key).write_bytes(b'gar\nbage')
            self.assertEqual(('build', 1, len(PATCH)), self.brief(mode))
            self.assertNotIn(patch_key, held.held)
            self.network.claims.clear()
            del self.network.files['http://h1'][patch_key]

    def brief(self, mode):
        served = self.serve(mode)
        return served.way, served.fallbacks, served.wan_bytes

    def test_an_object_that_cannot_be_read_is_passed_over_and_stays(self):
        key = self.hosts['h1'].put(TARGET)
        held = self.hosts['h1'].held
        held.path(key).unlink()
        held.path(key).mkdir()
        self.assertEqual(('repository', 1),
                         self.brief(building.ON_THE_FLY)[:2])
        self.assertIn(key, held)

    def test_the_wan_down_and_a_dearer_way_left(self):
        self.hosts['h1'].put(BASE)
        self.hosts['h1'].put(PATCH, views.PATCHES)
        self.hosts['h1'].builder.manifest(fakes.content_id(TARGET),
                                          self.hosts['h1'].new_throttle())
        self.network.down.add('http://repo')
        self.assertEqual('build', self.serve().way)

    def test_content_by_its_id(self):
        server, wanted = self.server(), fakes.content_id(TARGET)
        self.assertTrue(server.deliver_content(wanted, self.output))
        self.assertEqual(TARGET, self.output.read_bytes())

    def test_content_that_is_not_needed_any_more(self):
        gone = threading.Event()
        gone.set()
        self.assertRaises(
            exceptions.Cancelled, self.server().deliver_content,
            fakes.content_id(TARGET), self.output, gone)
        self.assertFalse(self.output.exists())

    def test_a_client_that_leaves_late_gets_no_success(self):
        gone = threading.Event()
        copy = files.copy_to

        def copy_and_leave(source, target):
            copy(source, target)
            gone.set()

        # Copied, since no rename can bring it there.
        self.patch(outputs.LocalOutput, 'can_take', lambda *_args: False)
        self.patch(files, 'copy_to', copy_and_leave)
        self.assertRaises(
            exceptions.Cancelled, self.server().deliver_content,
            fakes.content_id(TARGET), self.output, gone)
        self.assertEqual(([], False), (self.records(), self.output.exists()))

    def test_content_that_is_removed_again_and_again(self):
        def remove(source, target):
            raise FileNotFoundError(2, 'removed', str(source))

        self.patch(outputs.LocalOutput, 'can_take', lambda *_args: False)
        self.patch(files, 'copy_to', remove)
        error = self.assertRaises(exceptions.ServiceUnavailable, self.serve)
        self.assertIn('cache_capacity', str(error))
        self.assertEqual(3, len([
            key for _name, _url, key in self.network.fetches
            if key == fakes.key_of(TARGET)]))

    def test_content_that_may_not_be_served(self):
        host, wanted = self.hosts['h1'], fakes.content_id(TARGET)
        host.view = dataclasses.replace(host.view, images=tuple(
            dataclasses.replace(image, status=views.DEACTIVATED)
            for image in host.view.images))
        for content_id in (wanted, 'f' * 64, None):
            self.assertFalse(host.server.deliver_content(content_id,
                                                         self.output))
        self.assertFalse(self.output.exists())

    def test_unknown_mode(self):
        image = self.hosts['h1'].view.image('target')
        error = self.assertRaises(
            exceptions.InvalidInput, self.server().deliver, image,
            self.output, 'fast')
        self.assertIn(building.ON_THE_FLY, str(error))

    def test_missing_image(self):
        error = self.assertRaises(exceptions.NotFound,
                                  self.hosts['h1'].view.image, 'nope')
        self.assertIn('nope', str(error))

    def test_nobody_has_it(self):
        self.output.write_bytes(b'old')
        key = fakes.key_of(TARGET)
        for gone in (key, self.patch_keys[0]):
            del self.network.files['http://repo'][gone]
        error = self.assertRaises(exceptions.ObjectMissing, self.serve)
        self.assertIn(key.id, str(error))
        [record] = self.records()
        self.assertEqual(str(error), record.error)
        self.assertEqual((serve.WAY_FAILED, 'h1'), (record.way, record.host))
        self.assertEqual(b'old', self.output.read_bytes())

    def test_useless_outputs_are_refused_first(self):
        image = self.hosts['h1'].view.image('target')
        for path in (self.directory / 'none' / 'disk', self.directory):
            error = self.assertRaises(
                exceptions.InvalidInput, self.server().deliver, image,
                outputs.LocalOutput(path), building.ON_THE_FLY)
            self.assertIn(str(path), str(error))
        self.assertEqual([], self.network.fetches)

    def test_full_disk_drops_what_is_unwanted_and_tries_again(self):
        held = self.hosts['h1'].held
        unwanted = self.hosts['h1'].put(b'unwanted')
        plane = self.hosts['h1'].plane
        fetch = plane.fetch

        def fetch_when_room(url, order, *rest):
            if order.key.kind == views.IMAGES \
                    and held.path(unwanted).exists():
                raise exceptions.NoSpace('full')
            return fetch(url, order, *rest)

        plane.fetch = fetch_when_room
        self.assertEqual('repository', self.serve().way)
        self.assertNotIn(unwanted, held)

    def test_full_disk_for_good(self):
        def fetch(url, order, *rest):
            raise exceptions.NoSpace('full')

        self.hosts['h1'].plane.fetch = fetch
        self.assertRaises(exceptions.NoSpace, self.serve)
        self.assertFalse(self.output.exists())

    def test_sixteen_at_once_make_it_once(self):
        plane = self.hosts['h1'].plane
        server = self.server()
        self.hosts['h1'].builder.manifest(fakes.content_id(TARGET),
                                          self.hosts['h1'].new_throttle())
        plane.started.clear()
        plane.hold_fetches.clear()
        image = self.hosts['h1'].view.image('target')
        results = []

        def request(number):
            output = self.directory / f'disk{number}'
            results.append((server.deliver(
                image, outputs.LocalOutput(output), building.ON_THE_FLY),
                output.read_bytes()))

        threads = [threading.Thread(target=request, args=(n,))
                   for n in range(16)]
        for thread in threads:
            thread.start()
        self.addCleanup(plane.hold_fetches.set)
        flight = self.flight_of(fakes.key_of(TARGET), 16)
        self.assertEqual(16, flight.members)
        plane.hold_fetches.set()
        for thread in threads:
            thread.join()
        self.assertEqual([TARGET] * 16, [content for _, content in results])
        self.assertEqual(len(TARGET), sum(r.wan_bytes for r, _ in results))
        self.assertEqual([], list(
            (self.hosts['h1'].held.root / holdings.STAGING).iterdir()))

    def flight_of(self, key, count):
        pause = threading.Event()
        for _ in range(500):
            flight = self.hosts['h1'].flights._flights.get(key)
            if flight is not None and flight.members == count:
                break
            pause.wait(0.01)
        return flight

    def test_a_request_for_what_another_one_needs_as_base(self):
        self.hosts['h2'].put(BASE)
        self.refresh()
        host, server = self.hosts['h1'], self.server()
        for content in (BASE, TARGET):
            host.builder.manifest(fakes.content_id(content),
                                  host.new_throttle())
        host.plane.started.clear()
        host.plane.hold_fetches.clear()
        self.addCleanup(host.plane.hold_fetches.set)
        paths = [self.directory / 'target', self.directory / 'base']
        threads = [threading.Thread(target=server.deliver, args=(
            host.view.image(path.name), outputs.LocalOutput(path),
            building.FETCH_AND_PATCH)) for path in paths]
        threads[0].start()
        self.assertTrue(host.plane.started.wait(waiting.SECONDS))
        threads[1].start()
        self.flight_of(fakes.key_of(BASE), 2)
        host.plane.hold_fetches.set()
        for thread in threads:
            thread.join()
        self.assertEqual([TARGET, BASE], [p.read_bytes() for p in paths])
        self.assertEqual([], list(
            (host.held.root / holdings.STAGING).iterdir()))

    def test_lent_after_the_wan(self):
        self.serve()
        self.assertEqual(fakes.key_of(TARGET),
                         self.hosts['h1'].plane.lent[-1][0])
        self.output = self.directory / 'other'
        self.assertEqual(len(TARGET), self.serve(name='h2').lan_bytes)

    def test_leftovers_of_a_crash_are_removed(self):
        pending = serve.PendingOutputs(self.directory / 'outputs')
        leftover = self.directory / '.disk.0123456789ab.part'
        other = self.directory / '.other.0123456789ab.part'
        with pending.noted(self.output):
            leftover.write_bytes(b'half')
            other.write_bytes(b'half')
            serve.PendingOutputs(self.directory / 'outputs').clean(
                outputs.LocalOutput)
        self.assertFalse(leftover.exists())
        self.assertTrue(other.exists())
