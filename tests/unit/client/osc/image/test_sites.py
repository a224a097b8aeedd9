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
"""Sites, forecasts and requests, by commands over the API itself."""

import contextlib
import io

from osc_lib import exceptions

from diffcache_openstack.client.osc.image import lookups
from diffcache_openstack.client.osc.image import plans
from diffcache_openstack.client.osc.image import sites
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.lazy import profiles
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.objects import versioned
from tests.unit.client import cloud
from tests.unit.db import database


class TestSites(cloud.CommandTest):

    def test_list_report_forecast(self):
        rows = self.listed(sites.ListSites)
        self.assertEqual(['centre', 'edge'], [row['Name'] for row in rows])
        report = self.shown(sites.ShowReport, 'edge', '--days', '1')
        self.assertEqual(15, report['wan_bytes'])
        rows = self.listed(sites.ListForecast, 'edge', '--limit', '1')
        self.assertEqual([['t2']], [row['Images'] for row in rows])

    def test_the_only_site_need_not_be_named(self):
        # The repository's site has no compute host.
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            report = self.shown(sites.ShowReport)
            self.listed(sites.ListForecast)
            plan = self.shown(plans.CreatePlan, '--wait')
            self.take(plans.ApplyPlan, plan['id'])
            shown = self.shown(plans.ShowPlan)
        self.assertEqual('edge', report['site'])
        self.assertEqual((plan['id'], 'edge'), (shown['id'], shown['site']))
        self.assertEqual('Site: edge\n' * 4, err.getvalue())

    def test_one_of_several_sites_has_to_be_named(self):
        for number, site in enumerate(('north', 'edge', 'south')):
            self.database.write(host_rows.put_host, database.host(
                f'host-{number}', site=site), versioned.now())
        error = self.assertRaises(exceptions.CommandError, self.take,
                                  sites.ShowReport)
        self.assertIn('edge, north, south', str(error))
        self.assertEqual('north',
                         self.shown(sites.ShowReport, 'north')['site'])

    def test_a_site_without_a_plan(self):
        for words in ((), ('edge',), ('nowhere',)):
            error = self.assertRaises(exceptions.CommandError, self.take,
                                      plans.ShowPlan, *words)
            self.assertIn('neither the ID of a plan nor a site with a current'
                          ' plan', str(error))

    def test_no_site(self):
        self.database.write(host_rows.remove_host, 'h1')
        self.database.write(host_rows.remove_host, 'h2')
        error = self.assertRaises(exceptions.CommandError, self.take,
                                  sites.ShowReport)
        self.assertIn('No compute host has reported yet', str(error))

    def test_requests(self):
        self.assertEqual(3, len(self.listed(
            sites.ListRequests, '--image', 't2', '--way', 'build')))
        self.assertEqual([], self.listed(sites.ListRequests, '--failed'))
        # As known from notifications.
        for way in (history.BOOT, history.DOWNLOAD):
            self.assertEqual([], self.listed(
                sites.ListRequests, '--way', way))

    def test_lookup(self):
        ways = self.listed(lookups.Lookup, 'h1', 't2', '--limit', '2')
        self.assertEqual((2, 'build'), (len(ways), ways[0]['Way']))

    def test_lookup_of_what_a_lazy_boot_waits_for(self):
        group, when = 2 ** 20, versioned.now()
        self.database.write(profiles.report,
                            profiles.Subject('t1', '', 'a'), 'h2', (1, 1),
                            [[0, 1, 10]], when)
        self.database.write(boot_sets.exchange, 'h2', [], None, when)
        size = self.cloud.get_image('t1').size
        way = self.listed(lookups.Lookup, 'h2', 't1')[-1]
        self.assertEqual(('lazy boot', min(size, group), 0),
                         (way['Way'], way['WAN'], way['LAN']))
        self.assertIn('of which the host has 0 B', way['Detail'])
