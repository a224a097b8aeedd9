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
"""Ends of epochs, regular and early."""

import dataclasses
from unittest import mock

from diffcache_openstack import _native
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import engines
from diffcache_openstack.ssdcache import epochs
from tests.unit.agent.ssdcache import test_cached_volumes


class TestEpochs(test_cached_volumes.VolumesTest):

    def request(self, name, references, blocks):
        """Let a volume have been requested evenly, in an epoch."""
        steps = [(size, references * size // blocks)
                 for size in range(1, blocks + 1)]
        self.engine.epochs[name] = engines.Epoch(
            120.0, _native.HitCurve(references, blocks, steps))

    def attach_two(self, **fields):
        self.volumes.attach('a', self.wanted('a', **fields))
        self.volumes.attach('b', self.wanted('b'))

    def test_sizes_follow_curves(self):
        self.attach_two()
        self.request('a', 10000, 100)
        self.request('b', 10000, 5000)
        self.volumes.end_epoch()
        self.assertEqual({'a': 100, 'b': 900}, self.limits())
        status = self.volumes.status()
        [decision] = status['decisions']
        self.assertEqual(
            ('latency', True, {'a': 500, 'b': 500}, {'a': 100, 'b': 900}),
            tuple(decision[name] for name in ('policy', 'changed', 'before',
                                              'sizes')))
        self.assertIn('400 blocks move', decision['explain'][0])
        self.assertIn('a: 100 of 100 blocks', decision['explain'][1])
        self.assertEqual(('latency', 120), (status['policy'],
                                            status['epoch']))

    def test_decisions_not_to_act_are_explained(self):
        self.attach_two()
        self.engine.epochs = {'a': engines.Epoch(
            120.0, _native.HitCurve(0, 0, []))}
        self.volumes.end_epoch()
        self.assertEqual({'a': 500, 'b': 500}, self.limits())
        [decision] = self.volumes.status()['decisions']
        self.assertFalse(decision['changed'])
        self.assertIn('sizes stay', decision['explain'][0])

    def test_minimum_maximum_weight_and_target(self):
        self.attach_two(sla='hit=0.5')
        self.request('a', 10000, 1000)
        self.request('b', 20000, 1000)
        self.volumes.end_epoch()
        self.assertEqual({'a': 500, 'b': 500}, self.limits())
        self.volumes.attach('a', self.wanted('a', max=300))
        self.volumes.end_epoch()
        self.assertLessEqual(self.limits()['a'], 300)
        self.volumes.attach('a', self.wanted('a', min=200))
        for _epoch in range(3):
            self.volumes.end_epoch()
        self.assertEqual({'a': 200, 'b': 800}, self.limits())
        self.volumes.attach('a', self.wanted('a', weight=100.0))
        for _epoch in range(3):
            self.volumes.end_epoch()
        self.assertGreater(self.limits()['a'], 980)

    def test_latencies_of_volumes_are_their_own(self):
        self.attach_two()
        self.request('a', 10000, 1000)
        self.request('b', 10000, 1000)
        for name, us in (('a', 5000.0), ('b', 200.0)):
            self.engine.epochs[name] = dataclasses.replace(
                self.engine.epochs[name],
                hit=engines.Requests(100, 100.0),
                miss=engines.Requests(100, us))
        self.volumes.end_epoch()
        self.assertEqual({'a': 1000, 'b': 0}, self.limits())
        [decision] = self.volumes.status()['decisions']
        self.assertIn('a: a hit takes 100 us, a miss 5000 us',
                      decision['explain'])
        found = self.volumes.curve('a')
        self.assertEqual((10000, 1000, 100.0, 5000.0), tuple(
            found[name] for name in ('references', 'distinct', 'hit_us',
                                     'miss_us')))
        self.assertEqual([1000, 10000], found['hits'][-1])

    def test_a_cache_that_seems_slower_than_the_volume(self):
        self.attach_two()
        self.request('a', 10000, 100)
        self.request('b', 10000, 5000)
        for name in 'ab':
            self.engine.epochs[name] = dataclasses.replace(
                self.engine.epochs[name], hit=engines.Requests(100, 90.0),
                miss=engines.Requests(100, 50.0))
        self.volumes.end_epoch()
        self.assertEqual({'a': 100, 'b': 900}, self.limits())

    def test_priority(self):
        self.volumes = self.new('priority')
        self.volumes.attach('a', self.wanted('a', weight=9.0))
        self.volumes.attach('b', self.wanted('b', priority=10.0))
        self.request('a', 10000, 800)
        self.request('b', 700, 700)
        for _epoch in range(2):
            self.volumes.end_epoch()
        self.assertEqual({'a': 300, 'b': 700}, self.limits())

    def test_static_sizes_stay(self):
        self.volumes = self.new('static')
        self.attach_two(weight=3.0)
        self.request('a', 10000, 100)
        self.request('b', 10000, 5000)
        self.volumes.end_epoch()
        self.assertEqual({'a': 750, 'b': 250}, self.limits())

    def test_what_was_learnt_stays_when_volumes_come_and_go(self):
        self.attach_two()
        self.request('a', 10000, 100)
        self.request('b', 10000, 5000)
        self.volumes.end_epoch()
        self.volumes.attach('c', self.wanted('c'))
        limits = self.limits()
        self.assertEqual(1000, sum(limits.values()))
        self.assertEqual(333, limits['c'])
        self.assertAlmostEqual(67, limits['a'], delta=1)
        self.volumes.detach('c')
        self.assertAlmostEqual(100, self.limits()['a'], delta=2)
        self.assertEqual(1000, sum(self.limits().values()))

    def test_an_engine_that_follows_no_requests(self):
        self.attach_two()
        self.volumes.end_epoch()
        self.assertEqual(({'a': 500, 'b': 500}, []), (
            self.limits(), self.volumes.status()['decisions']))
        self.assertIsNone(self.volumes.curve('a'))

    def test_a_cache_that_does_not_run(self):
        self.attach_two()
        self.engine.error = control.CacheUnreachable('gone')
        self.assertRaises(control.CacheUnreachable, self.volumes.end_epoch)

    def test_an_unknown_policy(self):
        error = self.assertRaises(exceptions.InvalidInput, self.new, 'best')
        self.assertIn('there is no best', str(error))


class TestEarlyEnds(test_cached_volumes.VolumesTest):
    """Epochs that end before their time."""

    def setUp(self):
        super().setUp()
        self.served = {'a': (0, 0), 'b': (0, 0)}
        self.begin()

    def begin(self):
        for name in 'ab':
            self.volumes.attach(name, self.wanted(name))
            self.engine.epochs[name] = self.epoch(
                120.0, 90_000 if name == 'a' else 10_000, 500)
        self.volumes.end_epoch()
        self.fill()
        self.assertEqual({'a': 500, 'b': 500}, self.limits())
        self.look()

    def epoch(self, seconds, hits, blocks):
        return engines.Epoch(seconds, _native.HitCurve(
            100_000, blocks, [(blocks, hits)]))

    def fill(self):
        for name in 'ab':
            self.engine.fill(name)

    def look(self, **hits):
        """Have each volume serve 1000 references, of which some hit."""
        for name, more in {'a': 900, 'b': 100, **hits}.items():
            before, misses = self.served[name]
            self.served[name] = before + more, misses + 1000 - more
            self.engine.serve(name, hits=before + more,
                              misses=misses + 1000 - more)
        return self.volumes.end_epoch_early()

    def decisions(self):
        return self.volumes.status()['decisions']

    def test_none_ends_early_without_a_departure(self):
        for _look in range(12):
            self.assertFalse(self.look())
        self.assertEqual(1, len(self.decisions()))

    def test_sizes_follow_at_once_and_it_is_explained(self):
        self.assertFalse(self.look(a=100, b=900))
        self.engine.epochs['a'] = self.epoch(10.0, 100_000, 100)
        self.engine.epochs['b'] = self.epoch(10.0, 50_000, 900)
        revision = self.volumes.revision
        self.assertTrue(self.look(a=100, b=900))
        self.assertEqual({'a': 100, 'b': 900}, self.limits())
        self.assertNotEqual(revision, self.volumes.revision)
        last, _first = self.decisions()
        self.assertIn('a: the epoch ended early, since 10.0% of its last 1000'
                      ' references hit, and 90.0% were expected',
                      last['explain'])

    def test_a_partition_that_fills_ends_none(self):
        self.engine.set_limit('a', 400)
        self.engine.set_limit('b', 600)
        for _look in range(4):
            self.assertFalse(self.look(b=0))

    def test_a_slow_device_ends_none(self):
        plain = self.engine.volumes

        def slow():
            return {name: dataclasses.replace(state, state='pass-through')
                    for name, state in plain().items()}
        self.look()
        with mock.patch.object(self.engine, 'volumes', slow):
            for _look in range(4):
                self.assertFalse(self.look(a=0))
        self.assertFalse(self.look(a=0))

    def test_sequences_that_bypass_the_cache_end_none(self):
        hits = misses = bypassed = 0
        for _look in range(4):
            hits, misses, bypassed = hits + 900, misses + 5100, bypassed + 5000
            self.engine.serve('a', hits=hits, misses=misses,
                              bypassed=bypassed)
            self.assertFalse(self.volumes.end_epoch_early())

    def test_while_sizes_may_not_change_none_ends(self):
        for rules in (volume_sizes.SizeRules('static'),
                      volume_sizes.SizeRules(changes=epochs.Rules(warm_up=9))):
            self.volumes = cached_volumes.CachedVolumes(
                self.engine,
                cached_volumes.CacheOptions((str(self.directory), )),
                self.path, rules)
            self.volumes.end_epoch()
            self.fill()
            for _look in range(4):
                self.assertFalse(self.look(a=0))

    def test_without_curves_none_ends(self):
        self.engine.epochs.clear()
        self.volumes.end_epoch()
        revision = self.volumes.revision
        for _look in range(4):
            self.assertFalse(self.look(a=100))
        self.assertEqual(revision, self.volumes.revision)

    def test_an_early_end_that_failed_is_tried_again(self):
        self.look(a=100)
        with mock.patch.object(self.engine, 'end_epoch',
                               side_effect=control.CacheUnreachable('no')):
            self.assertRaises(control.CacheUnreachable, self.look, a=100)
        self.assertTrue(self.look(a=100))

    def test_a_volume_of_another_host_after_a_short_epoch(self):
        self.engine.epochs = {'a': self.epoch(10.0, 90_000, 500)}
        self.volumes.end_epoch()
        found = self.volumes._sizes._as_long(self.epoch(120.0, 90_000, 500))
        self.assertEqual((10.0, 7500), (found.seconds, found.curve.hits(500)))
