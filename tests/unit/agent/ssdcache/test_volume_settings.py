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

from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.common import exceptions
from tests import base


class TestParse(base.TestCase):

    LEAST = {'origin': '/dev/a', 'mode': 'write-through'}

    def test_fields(self):
        self.assertEqual(volume_settings.VolumeSettings('/dev/a',
                                                        'write-through'),
                         volume_settings.parse(self.LEAST))
        full = {'origin': '/dev/a', 'mode': 'write-around', 'min': 1,
                'max': 2, 'weight': 2.5, 'sequential': 3, 'priority': 4,
                'sla': 'latency=2ms', 'admission': 15,
                'attachment': 'x', 'rates': {'total_iops_sec': 5}}
        self.assertEqual(volume_settings.VolumeSettings(**full),
                         volume_settings.parse(full))

    def test_what_is_refused(self):
        for fields in ({'origin': ''}, {'origin': None}, {'origin': 1},
                       {'mode': 'fast'}, {'mode': None}, {'min': -1},
                       {'min': True}, {'min': '1'}, {'max': 1 << 63},
                       {'weight': float('nan')}, {'weight': -1.0},
                       {'sequential': 1.5},
                       {'weight': 0}, {'priority': '1'}, {'sla': 'good'},
                       {'admission': 0}, {'admission': 16},
                       {'admission': True}, {'attachment': 1}, {'more': 1},
                       {'rates': {'iops': 1}}, {'rates': None}):
            self.assertRaises(exceptions.InvalidInput, volume_settings.parse,
                              {**self.LEAST, **fields})

    def test_targets(self):
        full = volume_settings.VolumeSettings('/dev/a', 'write-through',
                                              sla='latency=2ms')
        self.assertEqual(2000.0, full.target.latency_us)
        self.assertIsNone(volume_settings.VolumeSettings(
            '/dev/a', 'write-through').target)


class TestStore(base.TestCase):

    def test_the_oldest_settings_are_forgotten(self):
        self.enterContext(mock.patch.object(volume_settings, '_MOST_OVERRIDES',
                                            3))
        store = volume_settings.SettingsStore(self.directory / 'x.json')
        for number in range(6):
            store.keep_overrides(f'v{number % 5}',
                                 volume_settings.Overrides(min=number))
        self.assertEqual((None, 5, 4), tuple(
            store.overrides(f'v{number}').min for number in (1, 0, 4)))
