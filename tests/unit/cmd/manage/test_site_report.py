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
import unittest.mock

from diffcache_openstack.cmd.manage import report_page
from diffcache_openstack.cmd.manage import site_report
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import networks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import conductor_control_api
from tests import base as tests_base
from tests.unit.cmd.manage import base
from tests.unit.db import database

MB = 1000 ** 2
# Shares of the cost are no seconds.
WHAT_IF = {'saving': 0.9, 'saving_wan': 0.5,
           'before': {'cost_s': 4000.0, 'cost_wan_bytes': 4_000_000_000},
           'after': {'cost_s': 400.0, 'cost_wan_bytes': 2_000_000_000}}


def facts(**values):
    """Facts of a site with a host that saved 90 of 100 MB."""
    return {'site': 'edge', 'mbps': 8.0, 'unused_images': [], 'hosts': [
        {'name': 'h1', 'capacity': 10 ** 9, 'held_bytes': 5 * MB,
         'requests': 4, 'without_wan': 3, 'seconds': 20.0,
         'wan_bytes': 10 * MB, 'whole_bytes': 100 * MB,
         'plan_saves_s': 5.0}], **values}


class TestSummary(tests_base.TestCase):

    def test_savings(self):
        report = site_report.summary(facts(), 30, None)
        self.assertEqual({'bytes': 10 * MB, 'whole_bytes': 100 * MB,
                          'saved_bytes': 90 * MB}, report['wan'])
        # 100 MB at 8 Mbit/s take 100 s.
        self.assertEqual({'seconds': 20.0, 'whole_seconds': 100.0,
                          'saved_seconds': 80.0, 'repository_mbps': 8.0},
                         report['time'])
        self.assertNotIn('money', report)

    def test_no_time_without_a_measured_link(self):
        report = site_report.summary(facts(mbps=None), 30, None)
        self.assertIsNone(report['time']['saved_seconds'])
        self.assertIn('no host has measured',
                      site_report.WORDS['time'](report['time']))

    def test_money(self):
        report = site_report.summary(facts(), 30, 20.0)
        self.assertEqual({'price_per_gb': 20.0, 'saved': 1.8},
                         report['money'])

    def test_a_cache_that_serves_peers_is_of_benefit(self):
        host = {**facts()['hosts'][0], 'without_wan': 0}
        for saves, expected in ((5.0, []), (0.0, ['h1'])):
            report = site_report.summary(
                facts(hosts=[{**host, 'plan_saves_s': saves}]), 30, None)
            self.assertEqual(expected, report['hosts_without_benefit'])

    def test_a_host_without_cache_is_not_named(self):
        host = {**facts()['hosts'][0], 'without_wan': 0, 'capacity': 0,
                'plan_saves_s': 0.0}
        report = site_report.summary(facts(hosts=[host]), 30, None)
        self.assertEqual([], report['hosts_without_benefit'])

    def test_more_bytes_than_the_files_are_no_saving(self):
        host = {**facts()['hosts'][0], 'wan_bytes': 120 * MB}
        report = site_report.summary(facts(hosts=[host]), 30, None)
        self.assertEqual(-20 * MB, report['wan']['saved_bytes'])
        self.assertIn('-20.0 MB saved (-20%)',
                      site_report.WORDS['wan'](report['wan']))


class TestWords(tests_base.TestCase):

    def test_long_lists_are_cut(self):
        text = site_report.WORDS['hosts_without_benefit'](
            [f'h{number}' for number in range(12)])
        self.assertEqual('and 2 more', text.splitlines()[-1])
        self.assertEqual(11, len(text.splitlines()))

    def test_the_page_escapes_names(self):
        page = report_page.render({
            'site': '<b>edge', 'days': '30', 'unused_images': '<script>'})
        self.assertIn('Site &lt;b&gt;edge', page)
        self.assertIn('<p>&lt;script&gt;</p>', page)
        self.assertNotIn('<script>', page)


class TestSiteReport(base.FilledTest):

    def setUp(self):
        super().setUp()
        now = versioned.now()
        write = self.database.write
        write(catalogue.put_image, database.image(
            1, data_size=4 * MB, file_size=2 * MB), now)
        write(history.put_requests, [
            database.request(11, started_at=now, wan_bytes=MB, seconds=1.0),
            database.request(12, started_at=now, seconds=2.0),
            database.request(13, started_at=now, error='failed',
                             wan_bytes=MB)])
        write(history.put_boot, database.request(
            14, image_id='t2', started_at=now))
        write(held_rows.put_holdings, 'h1', [
            database.holding(1, bytes=2 * MB), database.holding(2, bytes=MB)],
            now)

    def report(self, *words, **answer):
        """Run the command, with a conductor that estimates as given."""
        with unittest.mock.patch.object(
                conductor_control_api.ControlAPI, 'what_if',
                **(answer or {'return_value': WHAT_IF})):
            return self.run_words('site', 'report', 'edge', *words)

    def test_values(self):
        report = self.report('-f', 'json').json
        self.assertEqual({'count': 2, 'without_wan': 1}, report['requests'])
        self.assertEqual({'bytes': MB, 'whole_bytes': 4 * MB,
                          'saved_bytes': 3 * MB}, report['wan'])
        [host] = report['hosts']
        self.assertEqual(('h1', 3 * MB), (host['name'], host['held_bytes']))
        self.assertEqual(
            [{'change': '100 GB more cache on each host',
              'saves_s_per_day': 3600.0,
              'saves_wan_bytes_per_day': 2_000_000_000}], report['what_if'])

    def test_a_boot_is_use_of_an_image(self):
        self.assertEqual([], self.report('-f', 'json').json['unused_images'])

    def test_images_that_were_not_requested(self):
        self.database.write(catalogue.put_image, database.image(
            3, name='Old'), versioned.now())
        self.database.write(held_rows.put_holdings, 'h1', [
            database.holding(3, bytes=7)], versioned.now())
        self.assertEqual(
            [{'id': 't3', 'name': 'Old', 'hosts': 1, 'bytes': 7}],
            self.report('-f', 'json').json['unused_images'])

    def test_words(self):
        text = self.report('--price', '10', '--add-capacity', '1TB').out
        for part in ('2, of which 1 (50%) took nothing from the WAN',
                     '3.0 MB saved (75%)', '0.03 saved, at 10 for 1 GB',
                     '1.0 TB more cache on each host: 1.0 h and 2.0 GB'):
            self.assertIn(part, text)

    def test_page(self):
        path = self.directory / 'report.html'
        self.assertEqual(0, self.report('--page', str(path)).code)
        self.assertIn('<p>3.0 MB saved (75%)</p>', path.read_text())

    def test_without_a_conductor_the_rest_is_shown(self):
        result = self.report(
            '-f', 'json', side_effect=exceptions.ServiceUnavailable(
                'No conductor answered.'))
        self.assertEqual(0, result.code)
        self.assertEqual('No conductor answered.',
                         result.json['what_if'][0]['error'])

    def test_a_faster_link_is_estimated_where_one_was_measured(self):
        self.database.write(networks.put, 'h1', objects.HostNetwork(
            repositories=[objects.RepositoryStanding(
                name='hub', answers=True, mbps=20.0)]))
        estimates = self.report('-f', 'json').json['what_if']
        self.assertEqual('a link of 40 instead of 20 Mbit/s',
                         estimates[1]['change'])

    def test_refused(self):
        self.assert_fails(1, 'none', 'site', 'report', 'none')
        for words in (('--days', '0'), ('--price', '-1'),
                      ('--price', 'inf'), ('--add-capacity', 'much')):
            self.assert_fails(2, words[1], 'site', 'report', 'edge', *words)
