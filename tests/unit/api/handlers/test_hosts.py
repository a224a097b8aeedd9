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
"""Hosts over the API."""

import dataclasses

from diffcache_openstack.api import app
from diffcache_openstack.api import policy
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.sites import pending_images
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests.unit.api import base
from tests.unit.db import database


class TestList(base.ApiTest):

    def names(self, query=''):
        return [host['name']
                for host in self.get(f'/v1/hosts{query}')['hosts']]

    def test_by_name(self):
        self.assertEqual(['h1', 'h2', 'hub'], self.names())

    def test_filters(self):
        self.assertEqual(['h1', 'h2'], self.names('?site=edge'))
        self.assertEqual(['hub'], self.names('?role=repository'))
        self.assertEqual([], self.names('?alive=false'))
        self.assertEqual(['h1'],
                         self.names(f'?holds={database.content(1)}'))

    def test_in_parts(self):
        path, found = '/v1/hosts?limit=2&alive=true', []
        while path:
            answer = self.get(path)
            found.append([host['name'] for host in answer['hosts']])
            links = answer.get('hosts_links')
            path = links[0]['href'] if links else None
        self.assertEqual([['h1', 'h2'], ['hub']], found)

    def test_part_is_no_larger_than_allowed(self):
        self.conf.set_override('max_limit', 1, 'api')
        self.assertEqual(['h1'], self.names('?limit=1000'))

    def test_fill(self):
        host = self.get('/v1/hosts')['hosts'][0]
        self.assertEqual({'objects': 2, 'bytes': 55}, host['held'])
        self.assertEqual(0, host['plan']['objects'])

    def test_fill_of_a_plan(self):
        plan = self.api.plan_now(self.ctxt, database.SITE)
        hosts = {host['name']: host['plan']
                 for host in self.get('/v1/hosts')['hosts']}
        for name in ('h1', 'h2'):
            items = [item for item in plan.items if item.host == name]
            held = [item for item in items if name == 'h1' and item.id in (
                database.content(1), database.patch(1, 2).id)]
            self.assertEqual(
                {'objects': len(items), 'bytes': sum(i.bytes for i in items),
                 'held_objects': len(held),
                 'held_bytes': sum(i.bytes for i in held)}, hosts[name])


class TestShow(base.ApiTest):

    def test_links(self):
        host = self.get('/v1/hosts/h1')['host']
        self.assertEqual(self.conf.planner.repository_bandwidth,
                         host['links']['repo'])

    def report(self, **values):
        self.api.report_network(self.ctxt, 'h1', objects.HostNetwork(
            **values))

    def test_what_it_reported_of_its_links_is_shown(self):
        counts = {'transfers': 3, 'failures': 1, 'bytes': 10 ** 9}
        names = ('fill', 'measured', 'repositories', 'clients')

        def show(host):
            found = self.get(f'/v1/hosts/{host}')['host']
            return [found[name] for name in names]

        self.assertEqual([None, None, [], []], show('h1'))
        self.report(
            fill_rate=2000000, fill_windows=['mon-fri 22:00-06:00'],
            peer_mbps=900.0, repositories=[
                objects.RepositoryStanding(name='hub', mbps=18.5, **counts),
                objects.RepositoryStanding(
                    name='hub2', answers=False, reason='gone',
                    since=database.at(0), **counts)])
        hub = {'answers': True, 'since': None, 'reason': None, 'mbps': 18.5,
               **counts}
        self.assertEqual([
            {'max_rate': 2000000, 'windows': ['mon-fri 22:00-06:00'],
             'seconds_per_day': 8 * 3600 * 5 / 7},
            {'peer': 900.0, 'repo': 18.5},
            [{'name': 'hub', **hub},
             {'name': 'hub2', 'answers': False, 'mbps': None,
              'reason': 'gone', 'since': '2026-01-01T12:00:00Z', **counts}],
            []], show('h1'))
        self.assertEqual([None, None, [], [{'host': 'h1', **hub}]],
                         show('hub'))

    def test_measured_links_are_those_of_routes_if_options_say_so(self):
        def seconds():
            return self.get('/v1/lookups?host=h1&image_id=t3')['lookup'][
                'ways'][-1]['seconds']

        usual = seconds()
        measured = {'peer_mbps': 125.0, 'repositories': [
            objects.RepositoryStanding(name='hub', mbps=2.5)]}
        self.report(**measured)
        self.assertEqual(usual, seconds())
        self.assertEqual(
            20.0, self.get('/v1/hosts/h1')['host']['links']['repo'])
        self.conf.set_override('measured_bandwidths', True, 'planner')
        self.assertEqual({'local': 4000.0, 'peer': 125.0, 'repo': 2.5},
                         self.get('/v1/hosts/h1')['host']['links'])
        self.assertEqual({'local': 4000.0, 'peer': 1000.0, 'repo': 20.0},
                         self.get('/v1/hosts/h2')['host']['links'])
        measured['repositories'][0].mbps = 5.0
        self.report(**measured)
        self.assertAlmostEqual(160.0, seconds())

    def test_objects(self):
        found = self.get('/v1/hosts/h1/objects')['objects']
        self.assertEqual(
            [(database.content(1), 'images', ['t1']),
             (database.patch(1, 2).id, 'patches', [])],
            [(entry['id'], entry['kind'], entry['images'])
             for entry in found])
        found = self.get('/v1/hosts/h1/objects?kind=patches')['objects']
        self.assertEqual(1, len(found))
        [found] = self.get('/v1/hosts/h1/objects?limit=1&marker='
                           + database.content(1))['objects']
        self.assertEqual(objects.PATCHES, found['kind'])


class TestHoldings(base.ApiTest):

    PATH = '/v1/holdings'

    def setUp(self):
        super().setUp()
        when = versioned.now()
        # Names have full stops, as the IDs do.
        self.write(host_rows.put_host, database.host('h1.rack'), when)
        for name, kinds in (('h1.rack', (objects.MANIFESTS,
                                         objects.IMAGES)),
                            ('hub', (objects.IMAGES,))):
            self.write(held_rows.put_holdings, name, [
                database.holding(2, kind=kind) for kind in kinds], when)

    def ids(self, query=''):
        return [each['id']
                for each in self.get(f'{self.PATH}{query}')['holdings']]

    def test_by_host_kind_and_object(self):
        one, two = database.content(1), database.content(2)
        patch = database.patch(1, 2).id
        self.assertEqual([
            {'id': f'{host}.{kind}.{object_id}', 'host': host, 'site': site,
             'kind': kind, 'object_id': object_id, 'bytes': size,
             'images': images} for host, site, kind, object_id, size,
            images in (
                ('h1', 'edge', 'images', one, 50, ['t1']),
                ('h1', 'edge', 'patches', patch, 5, []),
                ('h1.rack', 'edge', 'images', two, 50, ['t2']),
                ('h1.rack', 'edge', 'manifests', two, 50, ['t2']),
                ('hub', 'centre', 'images', two, 50, ['t2']))],
            self.get(self.PATH)['holdings'])

    def test_filters(self):
        everything = self.ids()
        self.assertEqual(everything[:4], self.ids('?site=edge'))
        self.assertEqual([everything[2]], self.ids(
            f'?site=edge&kind=images&marker={everything[1]}'))
        self.assertEqual([], self.ids('?site=nowhere'))

    def test_parts_are_the_whole_whatever_their_size(self):
        everything = self.ids()
        for limit in range(1, 7):
            path, found = f'{self.PATH}?limit={limit}', []
            while path:
                answer = self.get(path)
                self.assertLessEqual(len(answer['holdings']), limit)
                found += [each['id'] for each in answer['holdings']]
                [link] = answer.get('holdings_links', [{'href': None}])
                path = link['href']
            self.assertEqual(everything, found)

    def test_a_part_begins_after_what_is_gone(self):
        first, *rest = self.ids()
        self.write(held_rows.put_holdings, 'h1', [objects.Holding(
            kind=objects.PATCHES, id=database.patch(1, 2).id, bytes=5)],
            versioned.now())
        self.assertEqual(rest, self.ids(f'?marker={first}'))
        self.write(host_rows.remove_host, 'h1')
        self.assertEqual(rest[1:], self.ids(f'?marker={first}'))

    def test_marker_of_the_longest_id(self):
        marker = f'{"h" * 255}.images.{database.content(1)}'
        self.assertEqual(['hub'], [each.split('.')[0] for each in
                                   self.ids(f'?marker={marker}')])

    def test_what_a_plan_does_not_place(self):
        self.api.plan_now(self.ctxt, database.SITE)
        [plan] = self.get('/v1/plans?state=current')['plans']
        plan = self.get(f'/v1/plans/{plan["id"]}')['plan']
        placed = {f'{item["host"]}.{item["kind"]}.{item["id"]}'
                  for item in plan['items']}
        held = [each for each in self.ids('?site=edge')
                if '.manifests.' not in each]
        self.assertTrue(placed & set(held))
        found = self.ids(f'?not_in_plan={plan["id"]}')
        self.assertTrue(found)
        self.assertEqual([each for each in held if each not in placed],
                         found)

    def test_a_plan_is_of_its_hosts(self):
        self.api.plan_now(self.ctxt, database.SITE)
        [plan] = self.get('/v1/plans?state=current')['plans']
        path = f'?not_in_plan={plan["id"]}'
        before = self.ids(path)
        when = versioned.now()
        self.write(host_rows.put_host, database.host('late'), when)
        self.write(held_rows.put_holdings, 'late', [database.holding(3)], when)
        self.assertEqual(before, self.ids(path))

    def test_refusals(self):
        for query in ('?kind=cows', '?limit=0', '?limit=x', '?colour=red',
                      '?not_in_plan=x', '?site=', '?site=a&site=b',
                      '?marker=h1', '?marker=h1.images'):
            self.refused(400, 'GET', self.PATH + query)
        error = self.refused(
            404, 'GET', f'{self.PATH}?not_in_plan={base.unknown_id()}')
        self.assertIn('image cache plan list', error['detail'])

    def test_rights_are_those_of_the_listing_of_a_host(self):
        for path in (self.PATH, '/v1/hosts/h1/objects'):
            self.assertEqual(401, self.call('GET', path, user=None)[0])
            for user in ('member', 'reader', 'other', 'nobody'):
                error = self.refused(403, 'GET', path, user=user)
                self.assertIn('diffcache:hosts:show', error['detail'])
            for user in ('admin', 'service', 'auditor'):
                self.get(path, user=user)

    def test_a_plan_needs_the_right_to_see_it(self):
        path = self.write_file('policy.yaml',
                               b'"diffcache:plans:show": "role:dancer"\n')
        self.conf.set_override('policy_file', str(path), 'oslo_policy')
        self.client = base.werkzeug_test.Client(app.build(
            self.conf, dataclasses.replace(
                self.services, enforcer=policy.Enforcer(self.conf))))
        self.get(self.PATH)
        error = self.refused(
            403, 'GET', f'{self.PATH}?not_in_plan={base.unknown_id()}')
        self.assertIn('diffcache:plans:show', error['detail'])


class TestPendingImages(base.ApiTest):

    PATH = '/v1/hosts/h1/pending-images'

    def report(self, *states):
        self.database.write(pending_images.put, 'h1', [
            objects.PendingImage(image_id=f't{number}', state=state,
                                 attempts=number, error='No space on /x',
                                 retry_at=versioned.now())
            for number, state in enumerate(states)])

    def test_images_that_wait(self):
        self.report('adding', 'waiting_for_space', 'refused')
        found = self.get(self.PATH)['pending_images']
        self.assertEqual(
            [('t0', 'adding', 0), ('t1', 'waiting_for_space', 1),
             ('t2', 'refused', 2)],
            [(each['image_id'], each['state'], each['attempts'])
             for each in found])
        [found] = self.get(f'{self.PATH}?state=waiting_for_space')[
            'pending_images']
        self.assertEqual('No space on /x', found['error'])
        self.assertIsNotNone(found['retry_at'])
        [found] = self.get(f'{self.PATH}?marker=t1')['pending_images']
        self.assertEqual('t2', found['image_id'])
        self.report()
        self.assertEqual([], self.get(self.PATH)['pending_images'])


class TestDelete(base.ApiTest):

    def test_is_forgotten(self):
        database.silence(self.database, 'h2')
        status, body, _headers = self.call('DELETE', '/v1/hosts/h2')
        self.assertEqual((204, None), (status, body))
        self.refused(404, 'GET', '/v1/hosts/h2')

    def test_one_that_is_alive_is_not(self):
        error = self.refused(409, 'DELETE', '/v1/hosts/h2')
        seen = self.get('/v1/hosts/h2')['host']['seen_at']
        for word in ('h2', seen[:16], 'diffcache-agent', 'host_timeout'):
            self.assertIn(word, error['detail'])
        self.get('/v1/hosts/h2')


class TestBootSets(base.ApiTest):

    PATH = '/v1/hosts/h1/boot-sets'

    def setUp(self):
        super().setUp()
        database.put_wanted(self.database, ['h1'], [boot_sets.PlannedSet(
            'h1', database.content(number), boot_sets.BootReads(
                f't{number}', 1 << 20, {0: (1, 5)}), requests=2.0,
            wait_seconds=3.0, from_peer=True, saved_seconds=6.0,
            pinned=number == 2) for number in (1, 2)], versioned.now())
        self.database.write(boot_sets.exchange, 'h1', [boot_sets.HeldSet(
            database.content(2), 7, 'failed', 'The disk is full.')], None,
            versioned.now())

    def test_sets_with_their_reasons(self):
        one, two = self.get(self.PATH)['boot_sets']
        self.assertEqual(
            ('t1', True, False, 1 << 20, 0, 'waiting', 2.0, 3.0, True, 6.0),
            tuple(one[name] for name in (
                'image_id', 'wanted', 'pinned', 'bytes', 'held_bytes',
                'state', 'requests', 'wait_seconds', 'from_peer',
                'saved_seconds')))
        self.assertEqual(('t2', True, 7, 'The disk is full.'), tuple(
            two[name] for name in ('image_id', 'pinned', 'held_bytes',
                                   'message')))
        self.assertEqual([two], self.get(f'{self.PATH}?state=failed')[
            'boot_sets'])
        self.assertEqual([two], self.get(
            f'{self.PATH}?marker={database.content(1)}')['boot_sets'])

    def test_operators_alone_see_them(self):
        error = self.refused(403, 'GET', self.PATH, user='member')
        self.assertEqual('diffcache.forbidden', error['code'])
