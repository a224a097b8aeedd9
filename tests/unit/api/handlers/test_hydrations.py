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
"""Routes of hydrations, and what hosts report of them."""

from diffcache_openstack.common import exceptions
from tests.unit.api import base
from tests.unit import arriving
from tests.unit.conductor import fakes
from tests.unit.db import database

PATH = '/v1/hydrations/running'
OTHER_CONTENT = 'd' * 64
ROUTES = ('/v1/hydrations', PATH)


class HydrationsTest(base.ApiTest):
    """A server of the project on h1, and another project's on h2."""

    def setUp(self):
        super().setUp()
        self.report('h1', arriving.hydration('running'))
        self.report('h2', arriving.hydration('foreign', image_id='t2'))

    def report(self, host, *found):
        self.services.lazy.report_hydrations(self.ctxt, host, found)

    def ids(self, query='', **arguments):
        return [each['server_id'] for each in self.get(
            f'/v1/hydrations{query}', **arguments)['hydrations']]


class TestHydrations(HydrationsTest):

    def test_show(self):
        found = self.get(PATH)['hydration']
        self.assertEqual(
            (base.PROJECT, 'h1', 't1', 'arriving', 25.0, 8, 2, 'idle', False,
             0, None), tuple(found[name] for name in (
                 'project_id', 'host', 'image_id', 'state', 'percent',
                 'chunks', 'present', 'mode', 'paused', 'generation',
                 'deadline_at')))
        self.assertEqual('http://hub:8797', found['sources'][0]['url'])
        # It is the same for all images of one content.
        self.assertNotIn('content_id', found)

    def test_owners_see_theirs_and_no_hosts(self):
        self.assertEqual(['running'], self.ids(user='member'))
        self.assertEqual(['foreign'], self.ids(user='other'))
        found = self.get(PATH, user='reader')['hydration']
        self.assertEqual((None, None, 25.0), tuple(
            found[name] for name in ('host', 'sources', 'percent')))

    def test_operators_see_all(self):
        self.assertEqual(['foreign', 'running'], self.ids())

    def test_filters_and_parts(self):
        self.report('h2', arriving.hydration('foreign', image_id='t2',
                                             state='complete'))
        for query, found in (('?host=h1', ['running']),
                             ('?image_id=t2', ['foreign']),
                             ('?state=complete', ['foreign']),
                             (f'?project_id={base.PROJECT}', ['running']),
                             ('?limit=1', ['foreign']),
                             ('?marker=foreign', ['running']),
                             ('?host=hub', [])):
            self.assertEqual(found, self.ids(query), query)

    def test_hosts_are_no_filter_of_owners(self):
        error = self.refused(403, 'GET', '/v1/hydrations?host=h1',
                             user='member')
        self.assertEqual('diffcache.forbidden', error['code'])

    def test_others_hydrations_are_unknown(self):
        for path, user in ((PATH, 'other'), (
                f'/v1/hydrations/{base.unknown_id()}', 'member')):
            error = self.refused(404, 'GET', path, user=user)
            self.assertEqual('diffcache.not_found', error['code'])

    def test_percent(self):
        for values, percent in (({'present': 8}, 99.9), ({'present': 0}, 0.0),
                                ({'chunks': 0, 'present': 0}, 0.0),
                                ({'chunks': 3, 'present': 1}, 33.3),
                                ({'state': 'complete'}, 100.0),
                                ({'state': 'unknown'}, None)):
            self.report('h1', arriving.hydration('running', **values))
            self.assertEqual(percent, self.get(PATH)['hydration']['percent'])


class TestChanges(HydrationsTest):

    def setUp(self):
        super().setUp()
        self.host = arriving.Host(self.directory, arriving.status(),
                                  arriving.status(OTHER_CONTENT))
        self.host.boot('running')
        fakes.listen_for_hydrations(self, 'h1', self.host.hydrations)

    def patch_hydration(self, user='member', **values):
        status, body, _headers = self.call(
            'PATCH', PATH, {'hydration': values}, user=user)
        self.assertEqual(200, status, body)
        return body['hydration']

    def change_refused(self, status, user='member', **values):
        return self.refused(status, 'PATCH', PATH,
                            {'hydration': {'generation': 0, **values}},
                            user=user)

    def test_settings(self):
        found = self.patch_hydration(generation=0, deadline=600, rate=5000)
        self.assertEqual(('deadline', 5000, True, 1), tuple(
            found[name] for name in ('mode', 'rate', 'kept', 'generation')))
        self.assertIsNotNone(found['deadline_at'])
        found = self.patch_hydration(generation=1, paused=True, rate=None)
        self.assertEqual((True, 'deadline', None, 2), tuple(
            found[name] for name in ('paused', 'mode', 'rate',
                                     'generation')))
        self.assertEqual({'hydrate': 'none', 'rate': None},
                         self.host.daemon.changes[-1])
        self.assertEqual('idle', self.patch_hydration(
            generation=2, paused=False, deadline=None)['mode'])

    def test_servers_that_share_it_show_the_change(self):
        self.report('h1', arriving.hydration('running'),
                    arriving.hydration('stopped'))
        self.patch_hydration(generation=0, paused=True)
        self.assertTrue(self.get('/v1/hydrations/stopped')['hydration'][
            'paused'])
        self.assertFalse(self.get('/v1/hydrations/foreign')['hydration'][
            'paused'])

    def test_one_that_is_shared_with_another_project_is_for_administrators(
            self):
        self.nova.change('foreign', host='h1')
        self.report('h1', arriving.hydration('running'),
                    arriving.hydration('foreign'))
        self.change_refused(403, paused=True)
        self.assertTrue(self.patch_hydration(
            'admin', generation=0, paused=True)['paused'])

    def test_servers_of_other_images_do_not_share_it(self):
        self.nova.change('foreign', host='h1')
        self.report('h1', arriving.hydration('running'),
                    arriving.hydration('foreign', content_id=OTHER_CONTENT))
        self.assertTrue(self.patch_hydration(
            generation=0, paused=True)['paused'])

    def test_a_generation_that_is_old(self):
        self.patch_hydration(generation=0, rate=5)
        error = self.change_refused(409, rate=6)
        self.assertEqual('diffcache.concurrent_update', error['code'])

    def test_values_that_cannot_be_used(self):
        for values in ({'deadline': 0}, {'deadline': 10 ** 9},
                       {'deadline': 1.5}, {'rate': 0}, {'rate': 'fast'},
                       {'paused': None}, {'mode': 'idle'}):
            error = self.change_refused(400, **values)
            self.assertIn(next(iter(values)), error['detail'])
        error = self.refused(400, 'PATCH', PATH, {'hydration': {'rate': 1}})
        self.assertIn('generation', error['detail'])
        self.assertEqual([], self.host.daemon.changes)

    def test_an_image_that_is_whole(self):
        self.host.daemon.served[arriving.CONTENT]['complete'] = True
        self.change_refused(409, paused=True)
        self.assertEqual([], self.host.daemon.changes)

    def test_a_server_that_has_left_the_host(self):
        self.host.servers.remove('running')
        self.change_refused(404, paused=True)
        self.assertEqual([], self.host.daemon.changes)

    def test_a_host_without_diffcached(self):
        fakes.listen_for_hydrations(self, 'h2', None)
        error = self.refused(404, 'PATCH', '/v1/hydrations/foreign',
                             {'hydration': {'generation': 0, 'paused': True}})
        self.assertIn('[lazy] socket', error['detail'])

    def test_rights(self):
        status, _body, _headers = self.call(
            'PATCH', PATH, {'hydration': {'generation': 0}}, user=None)
        self.assertEqual(401, status)
        self.change_refused(403, user='reader')
        self.change_refused(404, user='other')
        self.assertEqual([], self.host.daemon.changes)


class TestRights(HydrationsTest):

    def test_without_a_token(self):
        for path in ROUTES:
            status, _body, _headers = self.call('GET', path, user=None)
            self.assertEqual(401, status, path)

    def test_without_rights(self):
        for path in ROUTES:
            error = self.refused(403, 'GET', path, user='nobody')
            self.assertIn('hydrations', error['detail'])


class TestReports(HydrationsTest):

    def place(self):
        found = self.get(PATH)['hydration']
        return found['host'], found['present']

    def test_servers_that_are_gone(self):
        self.report('h1')
        self.assertEqual(['foreign'], self.ids())

    def test_a_host_that_is_not_registered(self):
        self.assertRaises(exceptions.NotFound, self.report, 'h9')

    def test_a_server_that_migrates_is_on_one_host(self):
        other = arriving.hydration('foreign')
        self.report('h2', other, arriving.hydration('running', present=5))
        self.assertEqual(('h1', 2), self.place())
        self.nova.change('running', host='h2')
        self.report('h2', other, arriving.hydration('running', present=6))
        self.assertEqual(('h2', 6), self.place())
        self.report('h1', arriving.hydration('running'))
        self.assertEqual(('h2', 6), self.place())

    def test_what_a_host_says_of_others_servers_is_not_believed(self):
        self.report('h2', arriving.hydration('stopped'))
        self.assertEqual(['stopped'], self.ids('?host=h2'))
        self.refused(404, 'GET', '/v1/hydrations/stopped', user='member')

    def test_while_nova_does_not_answer_only_operators_see_new_servers(self):
        self.nova.silent = True
        found = (arriving.hydration('running', present=4),
                 arriving.hydration('stopped'))
        self.report('h1', *found)
        self.assertEqual(['running'], self.ids(user='member'))
        self.assertIn('stopped', self.ids())
        # What is known of others stays.
        self.assertEqual(('h1', 4), self.place())
        self.nova.silent = False
        self.report('h1', *found)
        self.assertEqual(['running', 'stopped'], self.ids(user='member'))

    def test_removing_a_host_removes_its_hydrations(self):
        database.silence(self.database, 'h1')
        self.call('DELETE', '/v1/hosts/h1')
        self.assertEqual(['foreign'], self.ids())
