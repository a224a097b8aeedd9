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
import types
from unittest import mock

from tests.unit.cinder import needs  # Before Cinder, which may be missing.

from cinder.db import api as db
from cinder import exception
from cinder.volume import volume_types

from diffcache_openstack.cinder import capabilities
from diffcache_openstack.cinder import connections
from diffcache_openstack.cinder import driver
from diffcache_openstack.cinder import holds
from diffcache_openstack.cinder import reading
from diffcache_openstack.cinder import type_checks
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import volume_specs

KEY = volume_specs.PREFIX
CONTEXT = mock.Mock()


class ChecksTest(needs.CinderTest):
    """Types of a database that this keeps."""

    def setUp(self):
        super().setUp()
        self.qos = {}
        self.extra = {}
        self.consumer = 'front-end'
        self.stored = []
        for name in ('volume_type_create', 'qos_specs_create',
                     'volume_type_extra_specs_update_or_create',
                     'qos_specs_update', 'qos_specs_associate'):
            self.assertTrue(callable(getattr(db, name)))
            self.patch(db, name, lambda _context, *arguments, name=name,
                       projects=(): self.stored.append(name))
        self.patch(volume_types, 'provision_filter_on_size',
                   lambda _context, _type, _size: self.stored.append('used'))
        self.patch(db, 'volume_type_extra_specs_get',
                   lambda _context, _id: dict(self.extra))
        self.patch(db, 'volume_type_qos_specs_get',
                   lambda _context, _id: {'qos_specs': self.specs()})
        self.patch(db, 'qos_specs_get', lambda _context, _id: self.specs())
        self.patch(db, 'qos_specs_associations_get',
                   lambda _context, _id: [{'id': 't1'}])
        type_checks.install()
        type_checks.install()

    def specs(self):
        return {'specs': dict(self.qos), 'consumer': self.consumer}

    def works(self):
        """Each way to store specs of a type, or to use one."""
        return (
            lambda specs: db.volume_type_create(
                CONTEXT, {'extra_specs': specs}, projects=[]),
            lambda specs: db.volume_type_extra_specs_update_or_create(
                CONTEXT, 't1', specs),
            lambda specs: db.qos_specs_create(
                CONTEXT, {'specs': specs, 'consumer': 'both'}),
            lambda specs: db.qos_specs_update(
                CONTEXT, 'q1', {'specs': specs}))

    def refused(self, work, *arguments):
        self.stored.clear()
        error = self.assertRaises(exception.InvalidInput, work, *arguments)
        self.assertEqual((400, []), (error.code, self.stored))
        return str(error)


class TestChecks(ChecksTest):

    def test_what_is_not_known_is_refused_with_what_is(self):
        for work in self.works():
            for specs in ({KEY: 'write-bakc'}, {f'{KEY}:mim': '2GiB'},
                          {KEY: 'write-through', f'{KEY}:min': 'much'},
                          {KEY: 'off', f'{KEY}:sla': 'fast'}):
                text = self.refused(work, specs)
                self.assertIn([*specs][-1], text)
                self.assertIn('write-around', text)

    def test_what_is_known_and_what_is_of_others(self):
        for work in self.works():
            self.stored.clear()
            work({KEY: 'write-back', f'{KEY}:min': '2GiB', 'multi': 'x',
                  'read_iops_sec': '7'})
            work({})
            self.assertEqual(2, len(self.stored))

    def test_a_key_in_both_has_one_value(self):
        self.qos = {KEY: 'write-back'}
        _, extra, *_ = self.works()
        extra({KEY: 'write-back'})
        self.assertIn('write-through', self.refused(
            extra, {KEY: 'write-through'}))
        self.extra = {KEY: 'write-around'}
        self.refused(self.works()[-1], {KEY: 'write-back'})
        self.refused(db.qos_specs_associate, CONTEXT, 'q1', 't1')

    def test_specs_that_reach_no_host(self):
        self.refused(db.qos_specs_create, CONTEXT, {
            'specs': {KEY: 'write-back'}, 'consumer': 'back-end'})
        self.consumer = 'back-end'
        self.refused(self.works()[-1], {KEY: 'write-back'})
        db.qos_specs_update(CONTEXT, 'q1', {'specs': {'a': 'b'}})

    def test_several_servers_of_a_volume(self):
        multiattach = {'multiattach': volume_specs.IS_TRUE}
        for specs in ({KEY: 'write-through'}, {'cacheable': '<is> True'}):
            self.refused(self.works()[0], {**specs, **multiattach})
            self.extra = specs
            self.refused(self.works()[1], multiattach)

    def test_a_type_is_checked_when_it_is_used(self):
        volume_types.provision_filter_on_size(CONTEXT, {'id': 't1'}, 1)
        volume_types.provision_filter_on_size(CONTEXT, None, 1)
        self.assertEqual(['used'] * 2, self.stored)
        self.extra = {KEY: 'write-bakc'}
        self.refused(volume_types.provision_filter_on_size, CONTEXT,
                     {'id': 't1'}, 1)


class TestSpecs(ChecksTest):

    def of(self):
        return connections.specs_of(
            types.SimpleNamespace(id='v1', volume_type_id='t1'))

    def test_hosts_are_told_what_extra_specs_say(self):
        self.qos = {KEY: 'write-back', 'read_iops_sec': '7'}
        self.extra = {f'{KEY}:min': '2GiB', 'cacheable': '<is> True'}
        self.assertEqual({KEY: 'write-back', f'{KEY}:min': '2GiB'}, self.of())

    def test_the_word_of_cinder(self):
        self.extra = {'cacheable': '<is> True'}
        self.assertEqual({KEY: 'write-through'}, self.of())

    def test_what_the_back_end_consumes(self):
        self.qos, self.consumer = {KEY: 'write-back'}, 'back-end'
        self.assertEqual({}, self.of())

    def test_what_cannot_be_used_is_not_cached(self):
        self.qos, self.extra = {KEY: 'write-back'}, {KEY: 'off'}
        with self.assertLogs(connections.LOG, 'WARNING'):
            self.assertEqual({}, self.of())


class Backend:

    def __init__(self, **stats):
        self.stats = stats
        self.capabilities = {}
        self.retyped = []

    def get_volume_stats(self, refresh=False):
        return self.stats

    def init_capabilities(self):
        self.capabilities = {'vendor_prefix': 'acme',
                             'properties': {'acme:tier': {}}}

    def _set_property(self, properties, entry, title, description, type,
                      **more):
        properties[entry] = {'type': type, **more}

    def retype(self, context, volume, new_type, diff, host):
        self.retyped.append(diff)
        return False, None


class TestCapabilities(ChecksTest):

    def stats(self, **stats):
        return driver.wrapped(Backend)(**stats).get_volume_stats(True)

    def test_schedulers_see_it_in_each_pool(self):
        found = self.stats(storage_protocol='ceph', pools=[
            {'pool_name': 'a'}, {'pool_name': 'b', 'cacheable': False}])
        self.assertEqual([True, True, False], [
            each['cacheable'] for each in (found, *found['pools'])])
        self.assertTrue(all(each[capabilities.SSD_CACHE]
                            for each in (found, *found['pools'])))

    def test_a_backend_without_pools_or_figures(self):
        self.assertTrue(self.stats(a=1)['cacheable'])
        self.assertEqual({}, self.stats())

    def test_keys_are_beside_the_properties_of_the_vendor(self):
        made = driver.wrapped(Backend)()
        made.init_capabilities()
        self.assertEqual('acme', made.capabilities['vendor_prefix'])
        properties = made.capabilities['properties']
        self.assertIn('acme:tier', properties)
        self.assertEqual(
            {KEY, *(f'{KEY}:{key}' for key in volume_specs._KEYS)},
            set(properties) - {'acme:tier'})
        self.assertEqual([*volume_specs.MODES, 'off'],
                         properties[KEY]['enum'])


class TestRetype(ChecksTest):

    def setUp(self):
        super().setUp()
        self.conductor = mock.Mock()
        self.patch(reading, 'HOLDS', holds.Holds(self.conductor))
        self.patch(type_checks, 'of_type', lambda _context, type_id: (
            {KEY: 'write-back'}, {f'{KEY}:weight': type_id}))

    def retype(self, host='h@b#p', **diff):
        made = driver.wrapped(Backend)()
        volume = types.SimpleNamespace(
            id='v1', host='h@b#p', volume_attachment=[types.SimpleNamespace(
                attached_host='h1', connector={'host': 'h1'},
                connection_info={volume_specs.MARK: {'held': True}})])
        return made.retype(None, volume, {'id': '2'}, {
            'extra_specs': {}, 'qos_specs': {}, 'encryption': {}, **diff},
            {'host': host}), made.retyped

    def test_a_change_of_the_cache_alone_does_not_concern_the_backend(self):
        for diff in (
                {'extra_specs': {KEY: (None, 'write-back'),
                                 'tier': ('a', 'a')}},
                {'extra_specs': {'cacheable': ('<is> True', None)}},
                {'qos_specs': {KEY: ('off', 'write-back'),
                               'consumer': (None, 'front-end')}}):
            self.assertEqual((True, []), self.retype(**diff))

    def test_what_else_changes_does(self):
        ours = {KEY: ('off', 'write-back')}
        for diff in (
                {'extra_specs': {**ours, 'tier': ('a', 'b')}},
                {'qos_specs': {**ours, 'read_iops_sec': ('1', '2')}},
                {'extra_specs': ours, 'encryption': {'cipher': ('a', 'b')}},
                {'qos_specs': {'consumer': ('both', 'front-end')}}, {}):
            (found, _), [_] = self.retype(**diff)
            self.assertFalse(found)
        (found, _), [_] = self.retype('h@b#other', extra_specs=ours)
        self.assertFalse(found)
        self.conductor.follow_type.assert_not_called()

    def test_volumes_in_use_follow_their_new_type(self):
        for error in (None, exceptions.NotFound('not cached'),
                      exceptions.ServiceUnavailable('down')):
            self.conductor.follow_type.side_effect = error
            self.assertTrue(self.retype(
                extra_specs={KEY: (None, 'write-back')})[0])
        _context, host, volume, settings = \
            self.conductor.follow_type.call_args.args
        self.assertEqual(('h1', 'v1', 'write-back', 2.0), (
            host, volume, settings['mode'], settings['weight']))

    def test_a_type_that_cannot_be_used_changes_nothing(self):
        self.patch(type_checks, 'of_type',
                   lambda *_type: ({KEY: 'fast'}, {}))
        with self.assertLogs(connections.LOG, 'WARNING'):
            self.assertTrue(self.retype(
                extra_specs={KEY: (None, 'fast')})[0])
        self.conductor.follow_type.assert_not_called()
