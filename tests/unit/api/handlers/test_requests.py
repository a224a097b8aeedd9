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
"""The history of requests, forecasts and reports over the API."""

from diffcache_openstack.db import catalogue
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests.unit.api import base
from tests.unit.db import database


class TestHistory(base.ApiTest):

    def started(self, query=''):
        found = self.get(f'/v1/requests{query}')['requests']
        return [entry['started_at'][17:19] for entry in found]

    def test_latest_first(self):
        self.assertEqual(['02', '01', '00'], self.started())

    def test_in_parts(self):
        answer = self.get('/v1/requests?limit=2')
        self.assertEqual(2, len(answer['requests']))
        answer = self.get(answer['requests_links'][0]['href'])
        self.assertEqual(1, len(answer['requests']))

    def test_filters(self):
        second = base.asked(1).strftime('%Y-%m-%dT%H:%M:%S')
        for query, count in (
                ('host=h1', 3), ('host=h2', 0), ('way=build', 3),
                ('image_id=t1', 0), ('failed=true', 0),
                ('failed=false', 3), ('site=edge', 3),
                (f'since={second}Z', 2),
                (f'until={second}%2B00:00', 1)):
            self.assertEqual(count, len(self.started(f'?{query}')), query)

    def test_unknown_marker(self):
        self.refused(400, 'GET', '/v1/requests?marker=none')

    def test_malformed_time(self):
        self.refused(400, 'GET', '/v1/requests?since=yesterday')

    def test_times_before_the_first_year_and_after_the_last(self):
        for text in ('0001-01-01T00:00:00%2B14:00',
                     '9999-12-31T23:59:59-14:00'):
            self.refused(400, 'GET', f'/v1/requests?since={text}')


class TestForecast(base.ApiTest):

    def test_what_was_asked_for_is_expected(self):
        self.write(history.put_requests, [database.request(
            7, image_id='t2', started_at=versioned.now())])
        answer = self.get('/v1/sites/edge/forecast?limit=1')
        [entry] = answer['forecast']
        self.assertEqual(('h1', ['t2']), (entry['host'],
                                          entry['images']))

    def test_unknown_site(self):
        self.refused(404, 'GET', '/v1/sites/none/forecast')


class TestSites(base.ApiTest):

    def test_list(self):
        found = self.get('/v1/sites')['sites']
        self.assertEqual([('centre', 1), ('edge', 2)], [
            (site['name'], site['hosts']['alive']) for site in found])

    def test_report_of_a_site_without_plan(self):
        report = self.get('/v1/sites/edge/report?days=3650')['report']
        self.assertIsNone(report['plan'])
        self.assertEqual(
            [('build', 3, 0, 1.5, 15)],
            [(way['way'], way['requests'], way['failed'], way['mean_s'],
              way['wan_bytes']) for way in report['requests']])
        self.assertEqual(300 * base.test_agents.MB, report['whole_bytes'])
        self.write(catalogue.put_image, database.image(
            2, family='t1', data_size=100 * base.test_agents.MB,
            compressed_size=40 * base.test_agents.MB), database.at(0))
        report = self.get('/v1/sites/edge/report?days=3650')['report']
        self.assertEqual(120 * base.test_agents.MB, report['whole_bytes'])
        self.assertEqual({'objects': 1, 'bytes': 50},
                         report['held']['images'])

    def rates(self):
        return self.get('/v1/sites/edge/report')['report']['repository_mbps']

    def test_rates_from_repositories(self):
        self.assertEqual({'assumed': 20.0, 'measured': None}, self.rates())
        for host, mbps in ('h1', 2.5), ('h2', 18.5):
            self.api.report_network(self.ctxt, host, objects.HostNetwork(
                repositories=[objects.RepositoryStanding(
                    name='hub', mbps=mbps)]))
        self.assertEqual({'assumed': 20.0, 'measured': 18.5}, self.rates())
        self.conf.set_override('measured_bandwidths', True, 'planner')
        self.assertEqual({'assumed': 2.5, 'measured': 18.5}, self.rates())

    def test_rates_are_those_of_all_hosts_of_the_site(self):
        now = versioned.now()
        for number in range(3, 33):
            self.write(host_rows.put_host, database.host(f'h{number}'), now)
        self.conf.set_override('measured_bandwidths', True, 'planner')
        for host, mbps in ('h32', 5.0), ('hub', 1.0):
            self.api.report_network(self.ctxt, host, objects.HostNetwork(
                repositories=[objects.RepositoryStanding(
                    name='hub', mbps=mbps)]))
        self.assertEqual(5.0, self.rates()['assumed'])

    def test_site_without_compute_hosts_has_no_rates(self):
        report = self.get('/v1/sites/centre/report')['report']
        self.assertEqual({'assumed': None, 'measured': None},
                         report['repository_mbps'])

    def test_boots_and_downloads_cross_no_link_without_a_cache(self):
        """Regression: a boot beside its request counted the image twice."""
        before = self.get('/v1/sites/edge/report?days=3650')['report']
        now = versioned.now()
        self.write(history.put_boot, database.request(21, started_at=now))
        self.write(history.put_request, database.request(
            22, started_at=now, way=history.DOWNLOAD))
        report = self.get('/v1/sites/edge/report?days=3650')['report']
        self.assertEqual({'nova', 'glance', 'build'},
                         {way['way'] for way in report['requests']})
        self.assertEqual(before['whole_bytes'], report['whole_bytes'])

    def test_report_of_a_plan(self):
        plan = self.api.plan_now(self.ctxt, database.SITE)
        report = self.get('/v1/sites/edge/report')['report']
        self.assertEqual((plan.generation, len(plan.items)), (
            report['plan']['generation'], report['plan']['objects']))
