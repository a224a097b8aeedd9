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
from hypothesis import given
from hypothesis import strategies

from diffcache_openstack.objects import volume_specs
from tests import base

CACHE = 'diffcache:ssd_cache'


class TestParse(base.TestCase):

    def test_types_that_are_not_cached(self):
        for specs in ({}, {'read_iops_sec': '5'}, {CACHE: 'off'},
                      {f'{CACHE}:min': '1GiB'}, {'diffcache:x': 'y'}):
            self.assertIsNone(volume_specs.parse(specs), specs)

    def test_all_keys(self):
        self.assertEqual(
            volume_specs.Specs('write-through'),
            volume_specs.parse({CACHE: 'write-through', 'other': 'x'}))
        self.assertEqual(volume_specs.Specs('write-back'),
                         volume_specs.parse({CACHE: 'write-back'}))
        self.assertEqual(
            volume_specs.Specs('write-around', 262144, 524288, 2.5, 3.0,
                               'hit=0.9', 1000000, 2, True),
            volume_specs.parse({
                CACHE: 'write-around', f'{CACHE}:min': '1GiB',
                f'{CACHE}:max': '2 GiB', f'{CACHE}:weight': '2.5',
                f'{CACHE}:priority': '3', f'{CACHE}:sla': 'hit=0.9',
                f'{CACHE}:sequential': '1MB', f'{CACHE}:admission': '2',
                f'{CACHE}:required': 'True'}))

    def test_what_is_refused(self):
        for key, value in (
                ('', 'pass-through'), ('', ''), ('', 'fast'), (':min', '-1'),
                (':min', 'much'), (':max', '1 PiB2'), (':weight', '0'),
                (':weight', 'nan'), (':weight', 'inf'), (':weight', 'x'),
                (':priority', '0'), (':sla', 'hit=2'), (':sla', 'good'),
                (':admission', '0'), (':admission', '16'),
                (':admission', '1.5'),
                (':sequential', '99999999 TiB'), (':required', 'maybe'),
                (':more', '1')):
            error = self.assertRaises(
                volume_specs.SpecsError, volume_specs.parse,
                {CACHE: 'write-through', f'{CACHE}{key}': value})
            self.assertIn(CACHE, str(error))
        self.assertRaises(
            volume_specs.SpecsError, volume_specs.parse,
            {CACHE: 'write-through', f'{CACHE}:min': '2GiB',
             f'{CACHE}:max': '1GiB'})

    def test_settings_of_volumes_in_use(self):
        found = volume_specs.settings(volume_specs.parse({
            CACHE: 'write-around', f'{CACHE}:max': '8KiB',
            f'{CACHE}:required': 'true'}))
        self.assertEqual({
            'mode': 'write-around', 'min': 0, 'max': 2, 'weight': 1.0,
            'priority': None, 'sla': None, 'sequential': None,
            'admission': None}, found)
        off = volume_specs.settings(None)
        self.assertEqual(('pass-through', 0), (off['mode'], off['max']))

    @given(strategies.dictionaries(
        strategies.sampled_from([CACHE, *(
            f'{CACHE}:{key}' for key in ('min', 'max', 'weight', 'required',
                                         'priority', 'sla', 'sequential',
                                         'admission', 'x'))]),
        strategies.text(max_size=12)))
    def test_any_text_is_understood_or_refused(self, specs):
        try:
            volume_specs.parse(specs)
        except volume_specs.SpecsError:
            pass
