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
import pathlib
import uuid

from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views
from tests import base
from tests import traces
from tests.unit.agent import fakes

CONTENT = b'target'
KEY = fakes.key_of(CONTENT)


class TransfersTest(base.TestCase):
    """What the data plane is given, from what the site map says.

    What it does with that is tested in the tests of the data plane, and
    in Rust.
    """

    def setUp(self):
        super().setUp()
        self.network = fakes.Network()
        self.hosts = {name: fakes.Host(self.directory, self.network, name)
                      for name in ('repo', 'h1', 'h2', 'h3')}
        self.host = self.hosts['h1']
        self.transfers = self.host.transfers
        self.see()

    def see(self, **changes):
        """Give the host a map in which some hosts are different."""
        site = fakes.site_view(list(self.hosts.values()), {'t': CONTENT}, [])
        self.host.view = dataclasses.replace(site, hosts=tuple(
            dataclasses.replace(host, **changes.get(host.name, {}))
            for host in site.hosts))

    def target(self, **options):
        return site_transfers.TransferTarget(KEY, self.directory / 'out',
                                             **options)

    def test_the_link_depends_on_the_host(self):
        for host, link in (('h2', orders.Link.LAN),
                           ('repo', orders.Link.WAN)):
            self.assertEqual(orders.HostSource(
                orders.Host(host, f'http://{host}'), link),
                self.transfers.source(host))

    def test_parts_are_read_in_place(self):
        part = routes.Part(KEY, 'h2')
        self.assertEqual(orders.RemotePart(
            orders.Host('h2', 'http://h2'), KEY,
            self.host.view.max_size_of(KEY)), self.transfers.part(part))
        path = pathlib.Path('/some/file')
        self.assertEqual(path, self.transfers.part(path))

    def test_no_object_is_longer_than_the_catalogue_says(self):
        view = self.host.view
        size = view.content(KEY.id).size
        self.assertEqual(size, view.max_size_of(KEY))
        manifest = view.max_size_of(views.Key(views.MANIFESTS, KEY.id))
        self.assertLess(32 * size / 65536, manifest)
        self.assertLess(manifest, 34 * size / 65536 + 5000)
        self.assertIsNone(view.max_size_of(views.Key(views.PATCHES, 'x')))

    def test_hosts_that_are_left_alone_are_avoided(self):
        self.host.plane.down.add('h3')
        self.host.plane.alone.add('h2')
        self.assertEqual({'h2', 'h3'}, self.transfers.avoided())
        # They are not forgiven with those that did not answer.
        self.transfers.plane.clear_unreachable()
        self.assertEqual({'h2'}, self.transfers.avoided())

    def test_a_single_repository_is_not_left_alone(self):
        self.host.plane.alone.add('repo')
        self.assertEqual(frozenset(), self.transfers.avoided())
        self.host.plane.down.add('repo')
        self.assertEqual({'repo'}, self.transfers.avoided())

    def test_a_repository_is_left_alone_as_long_as_there_is_another(self):
        self.see(h2={'role': views.REPOSITORY_ROLE})
        self.assertTrue(self.transfers.is_repository('h2'))
        self.host.plane.alone.add('repo')
        self.assertEqual({'repo'}, self.transfers.avoided())
        self.host.plane.down.add('h2')
        self.assertEqual({'h2'}, self.transfers.avoided())

    def test_the_data_plane_knows_the_repositories(self):
        self.see(h2={'role': views.REPOSITORY_ROLE},
                 h3={'role': views.REPOSITORY_ROLE, 'url': ''})
        self.transfers.offer(KEY)
        self.assertEqual({'h2', 'repo'}, {
            host.name for host in self.host.plane.known_repositories})

    def test_slow_links_have_low_rates(self):
        rates = site_transfers.min_rates(views.Links(400, 200, 10), 16384)
        self.assertEqual((16384, 1250), rates)
        # 64 kbit/s
        _, wan = site_transfers.min_rates(views.Links(400, 200, .064), 16384)
        self.assertEqual(8, wan)
        self.transfers.offer(KEY)
        links = self.host.view.links
        self.assertEqual(site_transfers.min_rates(links, 16384),
                         self.host.plane.min_rates)

    def test_slow_links_of_a_host_or_a_repository_have_low_rates(self):
        """Transfers over them were given up, time and again."""
        self.see(h2={'role': views.REPOSITORY_ROLE})
        for links, expected in (
                (views.Links(400, 200, 10), (16384, 1250)),
                (views.Links(400, 200, 10, (
                    views.HostLinks('h1', .008, .064),)), (10, 8)),
                (views.Links(400, 200, 10, (
                    views.HostLinks('h3', .008, .064),)), (16384, 1250)),
                (views.Links(400, 200, 10, (), (
                    ('h2', .064), ('of another site', .001))), (16384, 8))):
            self.host.view = dataclasses.replace(self.host.view, links=links)
            self.transfers.offer(KEY)
            self.assertEqual(expected, self.host.plane.min_rates)

    def test_a_host_without_an_address(self):
        self.see(h2={'url': ''})
        for name in ('h2', 'unheard-of'):
            error = self.assertRaises(exceptions.PeerUnavailable,
                                      self.transfers.source, name)
            self.assertIn(name, str(error))

    def test_live_hosts_of_the_site_may_coordinate(self):
        self.see(h2={'alive': False}, h3={'url': ''})
        self.transfers.offer(KEY)
        self.assertEqual([orders.Host('h1', 'http://h1')],
                         self.host.plane.site)

    def test_the_newest_map_counts_whatever_is_ordered(self):
        self.network.files['http://repo'][KEY] = CONTENT
        for number, call in enumerate((
                lambda: self.transfers.offer(KEY),
                lambda: self.transfers.expecting(KEY).__enter__(),
                lambda: self.transfers.deliver(
                    self.target(), [self.transfers.source('repo')],
                    self.host.new_throttle()))):
            self.see(h2={'url': f'http://h2:{number}'})
            call()
            self.assertIn(orders.Host('h2', f'http://h2:{number}'),
                          self.host.plane.site)

    def test_an_order_has_its_throttle(self):
        sent = []

        def deliver(order, *rest):
            sent.append((order, *rest))
            return orders.Delivery(None)

        self.patch(self.host.plane, 'deliver', deliver)
        fill = throttles.FillThrottle(fakes.Handle(), 1000, lambda: True)
        request = throttles.Throttle(fakes.Handle(), durable=False)
        for limits in (fill, request):
            self.transfers.deliver(self.target(), [], limits)
        self.transfers.deliver(
            self.target(durable=True, in_place=True), [], request)
        self.assertEqual(
            [(orders.JobClass.FILL, 1000, True, False),
             (orders.JobClass.REQUEST, None, False, False),
             (orders.JobClass.REQUEST, None, True, True)],
            [(order.job_class, order.rate, order.durable, order.in_place)
             for order, *_ in sent])
        self.assertEqual([fill.handle, fill.note], list(sent[0][1:]))
        self.assertEqual([None] * 3, [order.trace for order, *_ in sent])

    def test_an_order_is_a_step_of_its_trace(self):
        collected = self.useFixture(traces.Traces())
        part = orders.RemotePart(orders.Host('h1', 'http://h1:1'),
                                 views.Key(views.IMAGES, '1' * 64))
        peer = orders.HostSource(part.host, orders.Link.LAN)
        repository = orders.HostSource(orders.Host('r', 'http://r:1'),
                                       orders.Link.WAN)
        sources = [peer, repository, orders.BuildSource(
            part, self.directory / 'patch')]
        sent = []
        begun = tracing.Origin(str(uuid.uuid4()), str(uuid.uuid4()),
                               traces.KEY)
        for number, described in ((0, 'peer:h1'), (1, 'repository:r'),
                                  (2, 'build:h1+own'), (None, 'none')):
            def deliver(order, *_rest, source=number):
                sent.append(order)
                return orders.Delivery(source, 7, 8)

            self.patch(self.host.plane, 'deliver', deliver)
            with tracing.continued(begun):
                self.transfers.deliver(self.target(), sources,
                                       throttles.Throttle(fakes.Handle()))
            span = collected.one('fetch')
            self.assertEqual(begun[:2], (span['base_id'], span['parent_id']))
            self.assertEqual((begun.base_id, span['trace_id']),
                             tracing.open_ticket(sent[-1].trace)[:2])
            self.assertEqual(
                f'source={described} wan_bytes=7 lan_bytes=8 failures=0',
                collected.one('fetch', 'stop')['info']['function']['result'])
            collected.payloads.clear()
