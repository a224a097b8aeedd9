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
"""Addresses, names and passwords follow from the state folder."""

import ipaddress

from onemachine import layout
from onemachine import releases

from tests import base


class TestLayout(base.TestCase):

    def setUp(self):
        super().setUp()
        self.layout = layout.Layout(self.directory, 3)

    def test_networks_do_not_overlap(self):
        networks = [ipaddress.ip_network(f'{self.layout.network(name)}.0/24')
                    for name in ('management', 'wan', 'lan')]
        self.assertEqual(3, len(set(networks)))
        for network in networks:
            self.assertTrue(network.is_private)

    def test_largest_number_fits_an_octet(self):
        for number in (0, layout._OPENSTACKS - 1):
            self.layout.__dict__['number'] = number
            address = ipaddress.ip_address(f'{self.layout.network("lan")}.1')
            self.assertTrue(address.is_private)

    def test_addresses_are_everybodys_own(self):
        hosts = self.layout.hosts
        self.assertEqual(['compute-1', 'compute-2', 'compute-3'], hosts)
        addresses = [self.layout.centre, self.layout.site,
                     self.layout.machine,
                     *(self.layout.management(host) for host in hosts)]
        self.assertEqual(len(addresses), len(set(addresses)))

    def test_names_of_interfaces_are_short_enough(self):
        self.assertLessEqual(len(f'{self.layout.prefix}-centre'), 15)

    def test_same_folder_same_networks(self):
        again = layout.Layout(self.directory, 1)
        self.assertEqual(self.layout.centre, again.centre)

    def test_the_suite_has_an_environment_of_its_own(self):
        old = layout.Layout(self.directory, series=releases.ALL['2025.1'])
        for one, name in ((self.layout, releases.LATEST), (old, '2025.1')):
            self.assertEqual(
                str(self.directory / f'openstack-{name}/bin/nova-compute'),
                one.program('nova-compute'))
            self.assertEqual(str(self.directory / 'venv/bin/diffcache-agent'),
                             one.suite_program('diffcache-agent'))

    def test_each_series_has_constraints(self):
        folder = releases.ALL[releases.LATEST].constraints.parent
        self.assertEqual(set(releases.ALL),
                         {path.stem for path in folder.glob('*.txt')})

    def test_passwords_last(self):
        first = self.layout.password('nova')
        again = layout.Layout(self.directory).password('nova')
        self.assertEqual(first, again)
        self.assertNotEqual(first, self.layout.password('glance'))
        mode = (self.layout.cache / 'passwords.json').stat().st_mode
        self.assertEqual(0o600, mode & 0o777)
