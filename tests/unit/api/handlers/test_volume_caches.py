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
from unittest import mock

from diffcache_openstack.common import exceptions
from tests.unit.api import base
from tests.unit.conductor import fakes
from tests.unit import volume_reports as reports

PATH = f'/v1/volume-caches/{reports.VOLUME}'
ROUTES = ('/v1/volume-caches', PATH, f'{PATH}/curve', '/v1/ssd-caches',
          '/v1/ssd-caches/h1')


class VolumesTest(base.ApiTest):
    """A volume of a project on h1, and another project's on h2."""

    def setUp(self):
        super().setUp()
        self.nova.volumes = {reports.VOLUME: 'running',
                             reports.OTHER_VOLUME: 'foreign'}
        self.report('h1', reports.volume())
        self.report('h2', reports.volume(reports.OTHER_VOLUME, curve=None,
                                         mode='write-around'))

    def report(self, host, *volumes, **values):
        self.api.report_volume_caches(self.ctxt, host,
                                      reports.cache(**values), volumes)

    def ids(self, query='', **arguments):
        return [each['id'] for each in self.get(
            f'/v1/volume-caches{query}', **arguments)['volume_caches']]


class TestVolumes(VolumesTest):

    def test_show(self):
        found = self.get(PATH)['volume_cache']
        self.assertEqual(
            ('running', base.PROJECT, 'h1', 'write-through', 100, 4500, 1500,
             'hit=0.9', 2), tuple(found[name] for name in (
                 'server_id', 'project_id', 'host', 'mode', 'limit', 'hits',
                 'misses', 'sla', 'generation')))
        self.assertIn('75.0% hits', found['explain'][1])
        self.assertNotIn('curve', found)

    def test_owners_see_theirs_and_no_hosts(self):
        self.assertEqual([reports.VOLUME], self.ids(user='member'))
        self.assertEqual([reports.OTHER_VOLUME], self.ids(user='other'))
        self.assertIsNone(self.get(PATH, user='reader')['volume_cache'][
            'host'])
        self.get(f'{PATH}/curve', user='reader')

    def test_operators_see_all(self):
        self.assertEqual([reports.VOLUME, reports.OTHER_VOLUME], self.ids())

    def test_filters_and_parts(self):
        for query, found in (('?host=h1', [reports.VOLUME]),
                             ('?server_id=foreign', [reports.OTHER_VOLUME]),
                             ('?mode=write-around', [reports.OTHER_VOLUME]),
                             (f'?project_id={base.PROJECT}',
                              [reports.VOLUME]),
                             ('?limit=1', [reports.VOLUME]),
                             (f'?marker={reports.VOLUME}',
                              [reports.OTHER_VOLUME]), ('?host=hub', [])):
            self.assertEqual(found, self.ids(query), query)

    def test_hosts_are_no_filter_of_owners(self):
        self.refused(403, 'GET', '/v1/volume-caches?host=h1', user='member')

    def test_curve(self):
        found = self.get(f'{PATH}/curve')['curve']
        self.assertEqual((1000, 120, [50, 100, 120], [500, 750, 880]), tuple(
            found[name] for name in ('references', 'distinct', 'sizes',
                                     'hits')))
        error = self.refused(
            404, 'GET', f'/v1/volume-caches/{reports.OTHER_VOLUME}/curve')
        self.assertIn('No epoch', error['detail'])

    def test_others_volumes_are_unknown(self):
        for path in (PATH, f'{PATH}/curve'):
            self.refused(404, 'GET', path, user='other')
        self.refused(404, 'GET', f'/v1/volume-caches/{base.unknown_id()}')


class TestChanges(VolumesTest):

    def setUp(self):
        super().setUp()
        self.cached = reports.cached(self, reports.VOLUME)
        fakes.listen_for_volumes(self, 'h1', self.cached)

    def patch_volume(self, **values):
        return self.call('PATCH', PATH, {'volume_cache': values})

    def test_settings(self):
        status, body, _headers = self.patch_volume(
            generation=0, max=90, weight=2.5, sla='hit=0.5',
            mode='write-around', admission=3)
        self.assertEqual(200, status, body)
        found = body['volume_cache']
        self.assertEqual((90, 90, 2.5, 'hit=0.5', 'write-around', 3, 1), tuple(
            found[name] for name in ('limit', 'max', 'weight', 'sla', 'mode',
                                     'admission', 'generation')))
        status, body, _headers = self.patch_volume(generation=1, max=None)
        self.assertIsNone(body['volume_cache']['max'])
        self.assertEqual('running', body['volume_cache']['server_id'])

    def test_a_generation_that_is_old(self):
        self.patch_volume(generation=0, max=90)
        error = self.refused(409, 'PATCH', PATH, {'volume_cache': {
            'generation': 0, 'max': 80}})
        self.assertEqual('diffcache.concurrent_update', error['code'])

    def test_values_that_cannot_be_used(self):
        for values in ({'max': -1}, {'weight': 0}, {'mode': 'fast'},
                       {'sla': 'fast'}, {'colour': 'red'},
                       {'admission': 0}, {'admission': 16},
                       {'min': 5, 'max': 4}):
            self.refused(400, 'PATCH', PATH, {'volume_cache': {
                'generation': 0, **values}})
        self.refused(400, 'PATCH', PATH, {'volume_cache': {'max': 1}})
        self.refused(400, 'POST', f'{PATH}/actions', {'action': 'eat'})

    def put_specs(self, specs):
        return self.call('PUT', f'{PATH}/specs', {
            'volume_cache': {'specs': specs}})

    def test_a_type_that_was_changed(self):
        key = 'diffcache:ssd_cache'
        status, body, _headers = self.put_specs({
            key: 'write-around', f'{key}:max': '400KiB',
            f'{key}:admission': '2', 'read_iops_sec': '7'})
        self.assertEqual(200, status, body)
        found = body['volume_cache']
        self.assertEqual(('write-around', 100, 100, 2, 0), tuple(
            found[name] for name in ('mode', 'max', 'limit', 'admission',
                                     'generation')))
        self.assertEqual(['read_iops_sec=7'], found['rates'])
        for specs in ({}, {key: 'off'}):
            status, body, _headers = self.put_specs(specs)
            self.assertEqual(('pass-through', 0), tuple(
                body['volume_cache'][name] for name in ('mode', 'limit')))

    def test_specs_that_cannot_be_used(self):
        for specs in ({'diffcache:ssd_cache': 'fast'}, {'a': 1}, None, [],
                      {'diffcache:ssd_cache': 'write-through',
                       'diffcache:ssd_cache:colour': 'red'}):
            self.refused(400, 'PUT', f'{PATH}/specs', {
                'volume_cache': {'specs': specs}})
        self.refused(400, 'PUT', f'{PATH}/specs', {})

    def test_actions(self):
        for action in ('flush', 'invalidate', 'accept-loss'):
            status, body, _headers = self.call(
                'POST', f'{PATH}/actions', {'action': action})
            self.assertEqual(200, status, body)
            self.assertEqual(reports.VOLUME, body['volume_cache']['id'])
        self.assertEqual(
            [('flush', reports.VOLUME), ('invalidate', reports.VOLUME),
             ('accept-loss', reports.VOLUME)],
            self.cached._engine.actions)

    def test_rights(self):
        changes = (('PUT', f'{PATH}/specs',
                    {'volume_cache': {'specs': {}}}),
                   ('PATCH', PATH, {'volume_cache': {'generation': 0}}),
                   ('POST', f'{PATH}/actions', {'action': 'flush'}),
                   ('POST', f'{PATH}/actions', {'action': 'accept-loss'}))
        for method, path, body in changes:
            status, _body, _headers = self.call(method, path, body, user=None)
            self.assertEqual(401, status)
            for user in ('member', 'reader', 'other'):
                self.refused(403, method, path, body, user=user)

    def test_a_volume_that_the_host_does_not_have(self):
        self.cached.detach(reports.VOLUME)
        self.refused(404, 'PATCH', PATH, {'volume_cache': {
            'generation': 0, 'max': 9}})

    def test_a_server_that_was_migrated_since_the_last_report(self):
        self.cached.detach(reports.VOLUME)
        self.nova.change('running', host='h2')
        fakes.listen_for_volumes(self, 'h2',
                                 reports.cached(self, reports.VOLUME))
        status, body, _headers = self.patch_volume(generation=0, max=90)
        self.assertEqual(200, status, body)
        found = body['volume_cache']
        self.assertEqual(('h2', 90, 'running'), tuple(
            found[name] for name in ('host', 'max', 'server_id')))
        # What the host reports that it has left does not remove it.
        self.report('h1')
        for path, change in (
                ('specs', {'volume_cache': {'specs': {}}}),
                ('actions', {'action': 'flush'})):
            status, body, _headers = self.call(
                'PUT' if path == 'specs' else 'POST', f'{PATH}/{path}', change)
            self.assertEqual((200, 'h2'),
                             (status, body['volume_cache']['host']))

    def test_a_server_that_is_between_two_hosts(self):
        self.cached.detach(reports.VOLUME)
        self.nova.change('running', task='migrating')
        error = self.refused(409, 'PATCH', PATH, {'volume_cache': {
            'generation': 0, 'max': 9}})
        for word in ('host h1', 'server running', 'migrating', 'Repeat'):
            self.assertIn(word, error['detail'])

    def test_a_server_that_nova_does_not_find(self):
        self.cached.detach(reports.VOLUME)
        body = {'volume_cache': {'generation': 0, 'max': 9}}
        with mock.patch.object(self.nova, 'get', side_effect=(
                exceptions.ServiceUnavailable('Nova does not answer'))):
            error = self.refused(503, 'PATCH', PATH, body)
        for word in ('host h1', 'server running', 'Nova does not answer'):
            self.assertIn(word, error['detail'])
        del self.nova.servers['running']
        self.refused(404, 'PATCH', PATH, body)

    def test_the_other_host_does_not_have_it_either(self):
        self.cached.detach(reports.VOLUME)
        self.nova.change('running', host='h2')
        fakes.listen_for_volumes(self, 'h2', reports.cached(self))
        self.refused(404, 'PATCH', PATH, {'volume_cache': {
            'generation': 0, 'max': 9}})

    def test_a_host_without_a_cache(self):
        fakes.listen_for_volumes(self, 'h2', None)
        self.refused(
            404, 'POST', f'/v1/volume-caches/{reports.OTHER_VOLUME}/actions',
            {'action': 'flush'})


class TestCaches(VolumesTest):

    def test_list_and_show(self):
        found = self.get('/v1/ssd-caches')['ssd_caches']
        self.assertEqual([('h1', 'ok', 1024, 1), ('h2', 'ok', 1024, 1)], [
            (each['host'], each['state'], each['capacity'], each['volumes'])
            for each in found])
        self.assertEqual(['h2'], [each['host'] for each in self.get(
            '/v1/ssd-caches?marker=h1')['ssd_caches']])
        found = self.get('/v1/ssd-caches/h1')['ssd_cache']
        [decision] = found['decisions']
        self.assertTrue(decision['changed'])
        self.assertEqual(['412 blocks move to other volumes'],
                         decision['explain'])

    def test_hosts_without_one(self):
        for host in ('hub', 'none'):
            self.refused(404, 'GET', f'/v1/ssd-caches/{host}')


class TestRights(VolumesTest):

    def test_without_a_token(self):
        for path in ROUTES:
            status, _body, _headers = self.call('GET', path, user=None)
            self.assertEqual(401, status, path)

    def test_hosts_caches_are_for_operators(self):
        for path in ROUTES[3:]:
            for user in ('member', 'reader', 'other'):
                self.refused(403, 'GET', path, user=user)


class TestReports(VolumesTest):

    def test_volumes_that_are_gone(self):
        self.report('h1')
        self.assertEqual([reports.OTHER_VOLUME], self.ids())
        self.assertEqual(0, self.get('/v1/ssd-caches/h1')['ssd_cache'][
            'volumes'])

    def test_a_cache_that_does_not_answer(self):
        self.api.report_volume_caches(
            self.ctxt, 'h1', reports.cache(state='unreachable', capacity=0),
            None)
        self.assertEqual('unreachable', self.get('/v1/ssd-caches/h1')[
            'ssd_cache']['state'])
        self.assertEqual([reports.VOLUME], self.ids('?host=h1'))

    def test_a_server_that_migrates_is_on_one_host(self):
        # Both hosts have it; Nova says that the server is on h1 yet.
        other = reports.volume(reports.OTHER_VOLUME)
        self.report('h2', other, reports.volume(limit=5))
        self.assertEqual(('h1', 100), self.place())
        self.nova.change('running', host='h2')
        self.report('h2', other, reports.volume(limit=6))
        self.assertEqual(('h2', 6), self.place())
        # The source reports it until the volume is detached there.
        self.report('h1', reports.volume())
        self.assertEqual(('h2', 6), self.place())
        self.report('h1')
        self.assertEqual(('h2', 6), self.place())

    def place(self):
        found = self.get(PATH)['volume_cache']
        return found['host'], found['limit']

    def test_while_nova_does_not_answer_only_operators_see_new_volumes(self):
        self.nova.volumes = None
        third = base.unknown_id()
        self.report('h1', reports.volume(), reports.volume(third))
        self.assertEqual([reports.VOLUME], self.ids(user='member'))
        self.assertIn(third, self.ids())
        self.nova.volumes = {reports.VOLUME: 'running', third: 'stopped'}
        self.report('h1', reports.volume(), reports.volume(third))
        self.assertIn(third, self.ids(user='member'))

    def test_nova_is_asked_about_new_volumes_only(self):
        self.nova.volumes = None
        self.report('h1', reports.volume(limit=7))
        self.assertEqual(('h1', 7), self.place())
