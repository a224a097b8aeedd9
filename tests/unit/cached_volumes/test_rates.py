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
"""Limits of volumes, as their types say them."""

from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.common import exceptions
from tests import base


class TestRates(base.TestCase):

    def test_limits_are_read_as_nova_reads_them(self):
        found = rates.parse({
            'read_bytes_sec': '1000', 'read_bytes_sec_max': 2000,
            'total_iops_sec': '0', 'size_iops_sec': '65536',
            'total_iops_sec_max_length': 'x', 'diffcache:ssd_cache': 'off'})
        self.assertEqual({'read_bytes_sec': 1000, 'read_bytes_sec_max': 2000,
                          'size_iops_sec': 65536}, found)
        self.assertEqual(
            ['read_bytes_sec=1000', 'read_bytes_sec_max=2000',
             'size_iops_sec=65536'], rates.lines(found))

    def test_what_cannot_be_enforced_is_named(self):
        for name, value in (('total_iops_sec', 'fast'),
                            ('total_iops_sec', '-1'),
                            ('total_iops_sec', '1.5'),
                            ('total_iops_sec', str(10 ** 15 + 1)),
                            ('write_iops_sec_max', '9'),
                            ('read_iops_sec_max', '6')):
            error = self.assertRaises(exceptions.InvalidInput, rates.parse,
                                      {'read_iops_sec': '7', name: value})
            self.assertIn(f'{name}={value}', str(error))
        for odd in ({'iops': 1}, {'read_iops_sec': 0},
                    {'read_iops_sec': True}, {'read_iops_sec': '1'}):
            self.assertRaises(exceptions.InvalidInput, rates.check, odd)

    def test_limits_of_each_gb(self):
        self.assertTrue(rates.depend_on_size({'read_iops_sec_per_gb': '5'}))
        self.assertFalse(rates.depend_on_size({'read_iops_sec': '5'}))
        self.assertTrue(rates.is_limit('read_iops_sec_per_gb_min'))
        self.assertFalse(rates.is_limit('diffcache:ssd_cache'))
