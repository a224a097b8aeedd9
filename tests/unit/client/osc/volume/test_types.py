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
"""The options of volume types for the SSD cache."""

import argparse
import contextlib
import io
import json
import types
from unittest import mock

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions as sdk_exceptions
from openstackclient.volume.v3 import volume_type
from osc_lib import exceptions
import requests

from diffcache_openstack.client.osc.volume import types as volume_types
from tests import base


class Cinder:
    """Volume types and QoS specs, as Cinder answers the SDK of each series."""

    def __init__(self):
        self.specs = {}
        self.associations = {}
        self.in_use = []
        # Of the type "database"; there is the type "web", too.
        self.extra_specs = {}

    def find_type(self, name, ignore_missing=True):
        assert not ignore_missing
        if name == 'web':
            return types.SimpleNamespace(id=name, name=name, extra_specs={})
        if name != 'database':
            raise sdk_exceptions.NotFoundException(f'No Type for {name}')
        return types.SimpleNamespace(id='t1', name=name,
                                     extra_specs=self.extra_specs)

    def volumes(self, all_projects=False):
        assert all_projects
        return iter(self.in_use)

    def get(self, path, params=None):
        match path.split('/')[2:], params or {}:
            case [], {'marker': _}:
                return answer({'qos_specs': []})
            case [], {}:
                return answer({'qos_specs': [
                    vars(each) for each in self.specs.values()]})
            case [specs, 'associations'], _:
                if specs not in self.associations:
                    return answer(status=404)
                return answer({'qos_associations': [
                    {'id': each, 'name': {'t1': 'database'}.get(each, each),
                     'association_type': 'volume_types'}
                    for each in self.associations[specs]]})
            case [specs, 'associate'], {'vol_type_id': volume_type}:
                self.associations[specs].append(volume_type)
                return answer(status=202)

    def post(self, path, json):
        assert path == '/qos-specs'
        wanted = dict(json['qos_specs'])
        return answer({'qos_specs': vars(self.create_qos_spec(
            wanted.pop('name'), wanted.pop('consumer'), **wanted))})

    def create_qos_spec(self, name, consumer, **specs):
        assert f'q-{name}' not in self.specs
        found = types.SimpleNamespace(id=f'q-{name}', name=name,
                                      consumer=consumer, specs=specs)
        self.specs[found.id] = found
        self.associations[found.id] = []
        return found

    def put(self, path, json):
        specs = self.specs[path.removeprefix('/qos-specs/')].specs
        specs.update(json['qos_specs'])
        return answer({'qos_specs': specs})

    def delete(self, path):
        specs = path.removeprefix('/qos-specs/')
        assert not self.associations.pop(specs)
        del self.specs[specs]
        return answer(status=202)


def answer(document=None, status=200):
    """Return an answer of Cinder."""
    made = requests.Response()
    made.status_code = status
    if document is not None:
        made.headers['Content-Type'] = 'application/json'
        made._content = json.dumps(document).encode()
    else:
        made._content = b''
    return made


class Service:
    """The API of the service, with volumes in caches of hosts."""

    def __init__(self):
        self.hosts = {}
        self.errors = {}
        self.calls = []

    def volume_caches(self):
        return iter([types.SimpleNamespace(id=volume, host=host)
                     for volume, host in self.hosts.items()])

    def follow_volume_type(self, volume, specs):
        self.calls.append((volume, specs))
        if self.hosts[volume] in self.errors:
            code = self.errors[self.hosts[volume]]
            raise sdk_exceptions.HttpException(
                f'no {code}', response=None, http_status=code)


class HookTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cinder = Cinder()
        self.app = types.SimpleNamespace(
            client_manager=types.SimpleNamespace(
                sdk_connection=types.SimpleNamespace(
                    block_storage=self.cinder), diffcache=Service()))

    def run_hook(self, kind, command, *words, code=0):
        hook = kind(types.SimpleNamespace(app=self.app))
        command = command(self.app, None, cmd_name=None)
        # As the client does: both have to agree on names of options.
        parser = hook.get_parser(command.get_parser('volume type'))
        return hook.after(hook.before(parser.parse_args(list(words))), code)

    def create(self, *words, code=0):
        return self.run_hook(volume_types.VolumeTypeCreate,
                             volume_type.CreateVolumeType, *words, code=code)

    def set(self, *words):
        return self.run_hook(volume_types.VolumeTypeSet,
                             volume_type.SetVolumeType, *words)


class TestVolumeTypes(HookTest):

    def test_specs_are_created_and_changed(self):
        # What the command shows, and not an exit code.
        shown = (('id', 'name'), ('t1', 'database'))
        self.assertEqual(shown, self.create(
            'database', '--ssd-cache', 'write-through', '--ssd-cache-min',
            '2GiB', '--ssd-cache-sla', 'hit=0.9', code=shown))
        [specs] = self.cinder.specs.values()
        self.assertEqual(('ssd-cache-database', 'front-end', ['t1']), (
            specs.name, specs.consumer, self.cinder.associations[specs.id]))
        self.assertEqual({
            'diffcache:ssd_cache': 'write-through',
            'diffcache:ssd_cache:min': '2GiB',
            'diffcache:ssd_cache:sla': 'hit=0.9'}, specs.specs)
        self.set('database', '--ssd-cache-max', '9GiB', '--ssd-cache-weight',
                 '2', '--ssd-cache-priority', '3', '--ssd-cache-admission',
                 '15')
        self.assertEqual(('9GiB', '2', '3', '15', '2GiB'), tuple(
            specs.specs[f'diffcache:ssd_cache:{key}']
            for key in ('max', 'weight', 'priority', 'admission', 'min')))
        self.set('database', '--ssd-cache', 'off')
        self.assertEqual('off', specs.specs['diffcache:ssd_cache'])
        self.assertEqual(1, len(self.cinder.specs))

    def test_write_back_says_what_it_means(self):
        err = self.enterContext(mock.patch('sys.stderr', io.StringIO()))
        self.create('database', '--ssd-cache', 'write-back')
        for word in ('snapshots', 'lost', 'live migration'):
            self.assertIn(word, err.getvalue().lower())
        [specs] = self.cinder.specs.values()
        self.assertEqual('write-back', specs.specs['diffcache:ssd_cache'])
        err.truncate(0)
        self.set('database', '--ssd-cache', 'write-through')
        self.assertNotIn('snapshots', err.getvalue())

    def test_specs_of_others_stay(self):
        other = self.cinder.create_qos_spec('other', 'front-end')
        self.cinder.associations[other.id].append('t2')
        gone = self.cinder.create_qos_spec('gone', 'front-end')
        del self.cinder.associations[gone.id]
        self.set('database', '--ssd-cache', 'write-around')
        self.assertEqual({}, other.specs)
        self.assertEqual(3, len(self.cinder.specs))

    def test_specs_that_a_deleted_type_has_left(self):
        self.create('database', '--ssd-cache', 'write-through',
                    '--ssd-cache-min', '2GiB')
        self.cinder.associations['q-ssd-cache-database'].clear()
        self.create('database', '--ssd-cache', 'write-around')
        [specs] = self.cinder.specs.values()
        self.assertEqual({'diffcache:ssd_cache': 'write-around'}, specs.specs)
        self.assertEqual(['t1'], self.cinder.associations[specs.id])

    def test_specs_of_a_type_that_had_the_name(self):
        self.create('database', '--ssd-cache', 'write-through')
        self.cinder.associations['q-ssd-cache-database'] = ['t2']
        self.create('database', '--ssd-cache', 'write-around')
        self.assertEqual(
            [('ssd-cache-database', ['t2']),
             ('ssd-cache-database-t1', ['t1'])],
            [(each.name, self.cinder.associations[each.id])
             for each in self.cinder.specs.values()])

    def test_a_type_that_is_renamed(self):
        self.set('old', '--name', 'database', '--ssd-cache', 'off')
        self.assertEqual(1, len(self.cinder.specs))

    def test_specs_that_reach_no_host(self):
        specs = self.cinder.create_qos_spec('slow', 'back-end')
        self.cinder.associations[specs.id].append('t1')
        error = self.assertRaises(exceptions.CommandError, self.set,
                                  'database', '--ssd-cache', 'off')
        self.assertIn('back-end', str(error))
        self.assertEqual({}, specs.specs)

    def test_nothing_is_written_without_options_or_after_a_failure(self):
        self.assertEqual(0, self.create('database'))
        self.assertEqual(1, self.create('database', '--ssd-cache', 'off',
                                        code=1))
        self.assertEqual({}, self.cinder.specs)

    def test_values_that_cannot_be_used(self):
        for words in (('--ssd-cache', 'fast'),
                      ('--ssd-cache-min', 'much'),
                      ('--ssd-cache-weight', '0'),
                      ('--ssd-cache-priority', 'nan'),
                      ('--ssd-cache-weight', 'x'),
                      ('--ssd-cache-sla', 'fast'),
                      ('--ssd-cache-admission', '16')):
            self.assertRaises(SystemExit, self.set, 'database', *words)

    def test_a_type_that_is_missing(self):
        self.assertRaises(exceptions.CommandError, self.set, 'none',
                          '--ssd-cache', 'off')

    def test_options_are_understood_on_the_host(self):
        parser = argparse.ArgumentParser()
        hook = volume_types.VolumeTypeSet(None)
        hook.get_parser(parser)
        found = parser.parse_args(['--ssd-cache-sla', 'latency=2ms'])
        self.assertEqual({'diffcache:ssd_cache:sla': 'latency=2ms'},
                         volume_types._specs(found))


class TestCheck(HookTest):

    def check(self):
        command = volume_types.CheckType(self.app, None, cmd_name=None)
        _columns, rows = command.take_action(
            command.get_parser('x').parse_args(['database']))
        return list(rows)

    def refused(self):
        return str(self.assertRaises(exceptions.CommandError, self.check))

    def test_what_a_type_says_and_where(self):
        self.assertEqual([], self.check())
        self.create('database', '--ssd-cache', 'write-back')
        self.cinder.extra_specs = {'diffcache:ssd_cache:min': '2GiB',
                                   'cacheable': '<is> True', 'other': 'x'}
        self.assertEqual([
            ('diffcache:ssd_cache', 'write-back', 'QoS specs'),
            ('cacheable', '<is> True', 'extra specs'),
            ('diffcache:ssd_cache:min', '2GiB', 'extra specs')],
            self.check())

    def test_what_cannot_be_used(self):
        self.cinder.extra_specs = {'diffcache:ssd_cache:mn': '2GiB'}
        self.assertIn('diffcache:ssd_cache:mn: there is no such key',
                      self.refused())
        self.cinder.extra_specs = {'diffcache:ssd_cache': 'write-back'}
        self.create('database', '--ssd-cache', 'write-through')
        self.assertIn('remove one', self.refused())
        self.cinder.extra_specs = {}
        [specs] = self.cinder.specs.values()
        specs.consumer = 'back-end'
        self.assertIn('reach no host', self.refused())


class TestVolumesInUse(HookTest):
    """Volumes of a type that is changed."""

    def setUp(self):
        super().setUp()
        self.service = self.app.client_manager.diffcache
        self.said = self.enterContext(
            contextlib.redirect_stderr(io.StringIO()))

    def use(self, volume, host=None, volume_type='database',
            status='in-use'):
        self.cinder.in_use.append(types.SimpleNamespace(
            id=volume, volume_type=volume_type, status=status))
        if host:
            self.service.hosts[volume] = host

    def apply(self, name='database'):
        command = volume_types.ApplyType(self.app, None, cmd_name=None)
        return command.run(command.get_parser('x').parse_args([name]))

    def test_they_follow_all_specs(self):
        other = self.cinder.create_qos_spec('q', 'both', **{
            'diffcache:ssd_cache': 'write-through',
            'diffcache:ssd_cache_odd': 'x', 'read_iops_sec': '9'})
        self.cinder.associations[other.id].append('t1')
        # Specs may be those of several types.
        self.cinder.associations[other.id].append('web')
        self.use('a', 'h1')
        self.use('b', 'h2', volume_type='web')
        self.use('c', 'h2', volume_type='mail')
        self.use('d')
        self.use('e', 'h1', status='available')
        self.assertEqual(0, self.set('database', '--ssd-cache-max', '2GiB'))
        specs = {'diffcache:ssd_cache': 'write-through',
                 'diffcache:ssd_cache:max': '2GiB', 'read_iops_sec': '9'}
        self.assertEqual([('a', specs), ('b', specs)], self.service.calls)
        self.assertEqual(
            '2 volumes of type database in use changed.\n1 volume of type'
            ' database in use in no SSD cache: cached when attached again, or'
            ' when the server is live-migrated.\n', self.said.getvalue())

    def test_they_follow_extra_specs(self):
        self.cinder.extra_specs = {'diffcache:ssd_cache': 'write-back'}
        self.use('a', 'h1')
        self.assertEqual(0, self.set('database', '--ssd-cache-max', '2GiB'))
        self.assertEqual([('a', {'diffcache:ssd_cache': 'write-back',
                                 'diffcache:ssd_cache:max': '2GiB'})],
                         self.service.calls)

    def test_volumes_that_are_no_longer_cached(self):
        self.use('a', 'h1')
        self.use('b')
        self.assertEqual(0, self.set('database', '--ssd-cache', 'off'))
        self.assertEqual([('a', {'diffcache:ssd_cache': 'off'})],
                         self.service.calls)
        self.assertNotIn('no SSD cache', self.said.getvalue())
        self.cinder.specs.clear()
        self.assertEqual(0, self.apply())
        self.assertEqual(('a', {}), self.service.calls[-1])

    def test_half_of_the_hosts_do_not_answer(self):
        for number in range(12):
            self.use(f'v{number}', f'h{number % 4}')
        self.service.errors = {'h1': 503, 'h3': 503, 'h2': 409}
        error = self.assertRaises(
            exceptions.CommandError, self.set, 'database', '--ssd-cache',
            'write-around')
        text = str(error)
        for part in ('9 volumes of type database', 'h1: no 503: v1, v5, v9',
                     'h3: no 503: v3, v7, v11', 'h2: no 409: v2, v6, v10',
                     'openstack volume cache apply database'):
            self.assertIn(part, text)
        self.assertIn('3 volumes of type', self.said.getvalue())
        # A host that does not answer is asked once.
        self.assertEqual(3 + 3 + 1 + 1, len(self.service.calls))
        self.service.errors, self.service.calls = {}, []
        self.assertEqual(0, self.apply())
        self.assertEqual(12, len(self.service.calls))

    def test_specs_that_reach_no_host_any_more(self):
        self.set('database', '--ssd-cache', 'write-through')
        [specs] = self.cinder.specs.values()
        specs.consumer = 'back-end'
        self.use('a', 'h1')
        self.apply()
        self.assertEqual([('a', {})], self.service.calls)

    def test_a_new_type_has_no_volumes(self):
        self.use('a', 'h1')
        self.create('database', '--ssd-cache', 'write-through')
        self.assertEqual([], self.service.calls)

    def test_without_the_api(self):
        with mock.patch.object(self.service, 'volume_caches',
                               side_effect=ksa_exceptions.EndpointNotFound):
            self.assertEqual(0, self.set('database', '--ssd-cache', 'off'))
            self.assertRaises(exceptions.CommandError, self.apply)
        self.assertIn('no DiffCache API', self.said.getvalue())
