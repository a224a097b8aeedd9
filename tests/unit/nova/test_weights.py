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
"""Which hosts the scheduler prefers."""

from unittest import mock

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

from nova import objects
from nova.scheduler import host_manager
from nova.scheduler import weights as nova_weights

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import boot_modes
from diffcache_openstack.nova import costs
from diffcache_openstack.nova import weights
from diffcache_openstack.remote_calls import conductor_costs_api

IMAGE = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'
PATH = 'diffcache_openstack.nova.weights.'


class Client(conductor_costs_api.CostsAPI):
    """Calls a function in place of the conductor."""

    def __init__(self, answer):
        self._answer, self._client = answer, self

    def call(self, ctxt, method, hosts, **key):
        return self._answer(method, *key.values(), hosts)


class WeigherTest(needs.NovaTest):
    """Has a weigher, and a conductor that knows of two hosts."""

    def setUp(self):
        super().setUp()
        self.asked, self.methods, self.unknown_methods = [], [], set()
        self.answer = {'far': 100.0, 'near': 1.0}
        self.weigher = weights.BuildCostWeigher()
        self.weigher._costs_here = self.costs_here

    def costs_here(self, method):
        """Costs as the weigher has them, of this conductor."""
        def ask(key, hosts):
            return method(Client(self.answer_call), None, key, hosts)
        return costs.Costs(ask, 60.0, 0.0, 0.0)

    def answer_call(self, method, key, hosts):
        self.methods.append(method)
        if method in self.unknown_methods:
            raise exceptions.InvalidInput(f'There is no method {method}.')
        self.asked.append((key, hosts))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def state(self, name, **metadata):
        state = host_manager.HostState(name, name, None)
        state.aggregates = [objects.Aggregate(id=1, metadata=metadata)]
        return state

    def spec(self, **fields):
        return objects.RequestSpec(**{
            'image': objects.ImageMeta(id=IMAGE), 'is_bfv': False, **fields})

    def order(self, spec, *states):
        """Hosts by weight, and their weights, as Nova would have them."""
        weighed = nova_weights.HostWeightHandler().get_weighed_objects(
            [self.weigher], list(states), spec)
        return ([one.obj.host for one in weighed],
                [one.weight for one in weighed])


class TestDefaults(WeigherTest):
    """Beside all of Nova's own weighers, each with its default."""

    SERVERS = 8

    def setUp(self):
        super().setUp()
        handler = nova_weights.HostWeightHandler()
        self.weighers = [kind() for kind in handler.get_matching_classes(
            ['nova.scheduler.weights.all_weighers'])]
        self.states = [self.roomy(name) for name in ('far', 'near')]

    def roomy(self, name):
        """A host with room for many servers."""
        state = self.state(name)
        state.free_ram_mb = state.total_usable_ram_mb = 64 << 10
        state.free_disk_mb = 1 << 20
        state.vcpus_total, state.vcpus_used = 64, 0
        state.cpu_allocation_ratio = 1.0
        state.hypervisor_version = 1
        state.instances = {}
        return state

    def place(self):
        """The host that one more server is put on, and takes its share."""
        spec = self.spec(scheduler_hints={}, instance_group=None)
        best = nova_weights.HostWeightHandler().get_weighed_objects(
            [*self.weighers, self.weigher], self.states, spec)[0].obj
        self.fill(best)
        return best

    @staticmethod
    def fill(state, servers=1):
        """Have a host run servers that each take a 32nd of it."""
        state.free_ram_mb -= servers * (2 << 10)
        state.free_disk_mb -= servers * (32 << 10)
        state.vcpus_used += servers * 2

    def placed_in_turn(self):
        """How many servers go to each host, if none is being built then."""
        hosts = [self.place().host for _ in range(self.SERVERS)]
        return hosts.count('far'), hosts.count('near')

    def placed_at_once(self):
        """The same for servers that are all being built at the end."""
        hosts = []
        for _ in range(self.SERVERS):
            state = self.place()
            state.num_io_ops += 1
            hosts.append(state.host)
        return hosts.count('far'), hosts.count('near')

    def test_what_saves_much_outweighs_a_build_and_being_fuller(self):
        self.answer = {'far': 100.0, 'near': 10.0}
        near = self.states[1]
        near.num_io_ops += 1
        self.fill(near, 4)
        self.assertIs(near, self.place())

    def test_equal_costs_spread_servers(self):
        self.answer = {'far': 100.0, 'near': 100.0}
        self.assertEqual((4, 4), self.placed_in_turn())
        self.assertEqual((4, 4), self.placed_at_once())

    def test_costs_that_differ_little_spread_servers(self):
        for far, near in ((100.0, 80.0), (2.0, 0.0), (0.5, 0.1)):
            self.answer = {'far': far, 'near': near}
            for placed, fewest in ((self.placed_at_once, 3),
                                   (self.placed_in_turn, 2)):
                self.states = [self.roomy(name) for name in ('far', 'near')]
                self.assertGreaterEqual(min(placed()), fewest, (far, near))

    def test_the_cheapest_of_equals_is_first(self):
        self.answer = {'far': 0.5, 'near': 0.1}
        self.assertEqual('near', self.place().host)


class TestWeigher(WeigherTest):

    def setUp(self):
        super().setUp()
        self.set('build_cost_weight_multiplier', 1.0, 'diffcache')

    def test_cheapest_first_for_one_question(self):
        self.assertEqual(
            (['near', 'far', 'unknown'], [0.99, 0.0, 0.0]),
            self.order(self.spec(), *map(
                self.state, ('far', 'unknown', 'near'))))
        self.assertEqual([(IMAGE, ['far', 'near', 'unknown'])], self.asked)

    def test_differences_that_nobody_notices_hardly_count(self):
        self.answer = {'far': 0.2, 'near': 0.1}
        _, found = self.order(self.spec(), self.state('far'),
                              self.state('near'))
        self.assertAlmostEqual(0.01, found[0])

    def test_the_multiplier(self):
        self.set('build_cost_weight_multiplier', -2.0, 'diffcache')
        names, found = self.order(self.spec(), self.state('far'),
                                  self.state('near'))
        self.assertEqual((['far', 'near'], [0.0, -1.98]), (names, found))

    def test_the_multiplier_of_an_aggregate(self):
        _, found = self.order(
            self.spec(), self.state('far'),
            self.state('near', build_cost_weight_multiplier='3'))
        self.assertAlmostEqual(2.97, found[0])

    def test_nobody_is_asked_if_nobody_cares(self):
        self.set('build_cost_weight_multiplier', 0.0, 'diffcache')
        self.order(self.spec(), self.state('far'), self.state('near'))
        self.assertEqual([], self.asked)

    def test_the_hint_raises_the_multiplier(self):
        for value in ('true', 'True', 'yes', '1'):
            spec = self.spec(scheduler_hints={weights.PREFER_HINT: [value]})
            _, found = self.order(spec, self.state('far'),
                                  self.state('near'))
            self.assertAlmostEqual(99.0, found[0])
        for hints in ({weights.PREFER_HINT: ['false']}, {}, None,
                      {weights.PREFER_HINT: ['nonsense']}):
            _, found = self.order(self.spec(scheduler_hints=hints),
                                  self.state('far'), self.state('near'))
            self.assertAlmostEqual(0.99, found[0])

    def test_the_hint_makes_small_savings_count(self):
        self.answer = {'far': 0.2, 'near': 0.1, 'here': 0.0}
        spec = self.spec(scheduler_hints={weights.PREFER_HINT: ['true']})
        names, found = self.order(spec, *map(
            self.state, ('far', 'near', 'here')))
        self.assertEqual(['here', 'near', 'far'], names)
        for expected, weight in zip((100.0, 50.0, 0.0), found, strict=True):
            self.assertAlmostEqual(expected, weight)

    def test_the_hint_beats_what_nova_weighs_by_default(self):
        # The two great ones keep from hosts that failed and from other cells.
        great = ('build_failure', 'cross_cell_move')
        most = sum(
            abs(value) for name, value in needs.CONF.filter_scheduler.items()
            if name.endswith('_weight_multiplier')
            and not name.startswith(great))
        most += abs(needs.CONF.metrics.weight_multiplier)
        self.assertEqual(9.0, most)
        factor = needs.CONF.diffcache.prefer_cached_factor
        self.assertGreater(factor * 0.1, most)
        self.assertLess(
            factor, needs.CONF.filter_scheduler
            .build_failure_weight_multiplier)

    def test_an_image_that_costs_nothing_anywhere(self):
        self.answer = {'far': 0.0, 'near': 0.0}
        spec = self.spec(scheduler_hints={weights.PREFER_HINT: ['true']})
        _, found = self.order(spec, self.state('far'), self.state('near'))
        self.assertEqual([0.0, 0.0], found)

    def test_servers_without_an_image(self):
        for spec in (self.spec(is_bfv=True), self.spec(image=None),
                     self.spec(image=objects.ImageMeta()),
                     objects.RequestSpec(), None):
            _, found = self.order(spec, self.state('far'),
                                  self.state('near'))
            self.assertEqual([0.0, 0.0], found)
        self.assertEqual([], self.asked)

    def test_without_a_conductor_all_weigh_the_same(self):
        self.answer = exceptions.ServiceUnavailable('no conductor')
        names, found = self.order(self.spec(), self.state('far'),
                                  self.state('near'))
        self.assertEqual([0.0, 0.0], found)

    def test_an_image_that_is_unknown(self):
        self.answer = {}
        _, found = self.order(self.spec(), self.state('far'),
                              self.state('near'))
        self.assertEqual([0.0, 0.0], found)


class TestLazyBoots(WeigherTest):
    """Servers that boot lazily need what their boot reads."""

    def asked_for(self, **fields):
        self.methods.clear()
        self.order(self.spec(**fields), self.state('far'), self.state('near'))
        return self.methods

    def flavor(self, **extra_specs):
        return objects.Flavor(extra_specs={
            f'diffcache:{key}': value for key, value in extra_specs.items()})

    def test_hint_flavor_and_option_in_this_order(self):
        hints = {boot_modes.KEY: ['lazy']}
        self.assertEqual(['build_costs'], self.asked_for())
        self.assertEqual(['build_costs'],
                         self.asked_for(flavor=objects.Flavor()))
        self.assertEqual(['lazy_costs'],
                         self.asked_for(scheduler_hints=hints))
        self.assertEqual(['lazy_costs'], self.asked_for(
            flavor=self.flavor(boot_mode='lazy')))
        self.assertEqual(['lazy_costs'], self.asked_for(
            scheduler_hints=hints, flavor=self.flavor(boot_mode='full')))
        self.set('boot_mode', 'lazy', 'diffcache')
        self.assertEqual(['lazy_costs'], self.asked_for())
        self.assertEqual(['build_costs'], self.asked_for(
            flavor=self.flavor(boot_mode='full')))
        self.assertEqual(['lazy_costs'], self.asked_for(
            scheduler_hints={boot_modes.KEY: ['nonsense']}))

    def test_the_host_with_the_boot_set_is_first(self):
        self.set('boot_mode', 'lazy', 'diffcache')
        self.answer = {'far': 40.0, 'set': 0.4}
        names, found = self.order(self.spec(), self.state('far'),
                                  self.state('set'))
        self.assertEqual(['set', 'far'], names)
        self.assertAlmostEqual(2 * 0.99, found[0])

    def test_an_older_conductor_is_asked_for_the_whole_image(self):
        self.unknown_methods.add('lazy_costs')
        self.set('boot_mode', 'lazy', 'diffcache')
        names, _found = self.order(self.spec(), self.state('far'),
                                   self.state('near'))
        self.assertEqual(['near', 'far'], names)
        self.assertEqual(['lazy_costs', 'build_costs'], self.methods)

    def test_costs_of_both_kinds_are_apart(self):
        weigher = weights.BuildCostWeigher()
        lazy = weigher._costs_here(weights.lazy_costs)
        self.assertIsNot(lazy, weigher._costs_here(weigher.method))
        self.assertIs(lazy, weigher._costs_here(weights.lazy_costs))


class TestRoom(WeigherTest):
    """One host's SSD cache has room for a server's volumes."""

    SERVER = 'ff699c0e-7edd-4e37-8b44-ab1614889f7a'

    def setUp(self):
        super().setUp()
        self.weigher = weights.SsdRoomWeigher()
        self.weigher._costs_here = self.costs_here
        self.answer = {'roomy': 1.0, 'full': 0.25}

    def order_of(self, spec, **metadata):
        return self.order(spec, self.state('none'), self.state('full'),
                          self.state('roomy', **metadata))

    def test_room_first_and_hosts_without_a_cache_last(self):
        self.assertEqual(
            (['roomy', 'full', 'none'], [1.0, 0.25, 0.0]),
            self.order_of(self.spec(instance_uuid=self.SERVER)))
        self.assertEqual([(self.SERVER, ['full', 'none', 'roomy'])],
                         self.asked)

    def test_boot_from_a_volume_is_no_exception(self):
        _, found = self.order_of(self.spec(instance_uuid=self.SERVER,
                                           is_bfv=True))
        self.assertEqual([1.0, 0.25, 0.0], found)

    def test_servers_without_cached_volumes(self):
        self.answer = {}
        names, found = self.order_of(self.spec(instance_uuid=self.SERVER))
        self.assertEqual([0.0, 0.0, 0.0], found)

    def test_without_a_conductor_all_weigh_the_same(self):
        self.answer = exceptions.ServiceUnavailable('no conductor')
        _, found = self.order_of(self.spec(instance_uuid=self.SERVER))
        self.assertEqual([0.0, 0.0, 0.0], found)

    def test_the_multiplier(self):
        self.set('ssd_room_weight_multiplier', 3.0, 'diffcache')
        spec = self.spec(instance_uuid=self.SERVER)
        self.assertEqual([3.0, 0.75, 0.0], self.order_of(spec)[1])
        self.assertEqual([5.0, 0.75, 0.0], self.order_of(
            spec, ssd_room_weight_multiplier='5')[1])

    def test_one_host_alone_weighs_the_same(self):
        spec = self.spec(instance_uuid=self.SERVER)
        self.assertEqual(
            [1.0, 0.25, 0.0],
            [self.weigher._weigh_object(self.state(name), spec)
             for name in ('roomy', 'full', 'none')])

    def test_nobody_is_asked_for_nothing(self):
        for spec in (None, objects.RequestSpec()):
            self.assertEqual([0.0, 0.0, 0.0], self.order_of(spec)[1])
        self.set('ssd_room_weight_multiplier', 0.0, 'diffcache')
        self.order_of(self.spec(instance_uuid=self.SERVER))
        self.assertEqual([], self.asked)


class TestConfigured(needs.NovaTest):

    def test_nova_loads_it_by_its_option(self):
        handler = nova_weights.HostWeightHandler()
        for kind in (weights.BuildCostWeigher, weights.SsdRoomWeigher):
            self.assertEqual([kind], handler.get_matching_classes(
                [PATH + kind.__name__]))

    def test_a_broker_that_is_down_costs_a_bounded_time(self):
        # Nobody listens at port 1 of the loopback device.
        self.set('transport_url', 'rabbit://u:p@127.0.0.1:1/', 'diffcache')
        self.set('cost_timeout', 20.0, 'diffcache')
        weigher = weights.BuildCostWeigher()
        with mock.patch.object(costs.LOG, 'warning') as warning:
            for _ in range(3):
                found = weigher._costs_here(weigher.method)
                self.assertEqual({}, found.of(IMAGE, ['h']))
        self.assertEqual(1, warning.call_count)
        self.assertIn('127.0.0.1:1', str(warning.call_args))

    def test_another_process_has_connections_of_its_own(self):
        weigher = weights.BuildCostWeigher()
        first = weigher._costs_here(weigher.method)
        self.assertIs(first, weigher._costs_here(weigher.method))
        with mock.patch('os.getpid', return_value=-1):
            self.assertIsNot(first, weigher._costs_here(weigher.method))
