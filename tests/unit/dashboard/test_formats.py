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
"""Values as pages show them."""

from tests.unit.dashboard import needs

from django.utils import timezone

from diffcache_openstack.dashboard import formats


class FormatsTest(needs.PageTest):

    def test_seconds(self):
        for count, text in ((None, '-'), (0, '0 s'), (0.00512, '5.1 ms'),
                            (2e-7, '< 0.1 ms'),
                            (-0.02, '-0.02 s'), (33.254, '33.25 s'),
                            (1234567.0, '1234567 s')):
            self.assertEqual(text, formats.seconds(count))

    def test_duration(self):
        for count, text in ((None, '-'), (90, '90 s'), (5400, '1.5 h'),
                            (-7200, '-2.0 h')):
            self.assertEqual(text, formats.duration(count))

    def test_blocks(self):
        self.assertEqual('-', formats.blocks(None))
        self.assertEqual('1.0 MB', formats.blocks(256))

    def test_share(self):
        self.assertEqual('25%', formats.share(1, 4))
        self.assertEqual('0%', formats.share(0, 4))
        self.assertEqual('-', formats.share(1, 0))

    def test_instants_are_in_the_time_zone_of_the_user(self):
        with timezone.override('Asia/Tokyo'):
            self.assertEqual('2026-11-24 03:00:00',
                             formats.instant('2026-11-23T18:00:00.12Z'))

    def test_no_instant(self):
        self.assertEqual('-', formats.instant(None))
        self.assertEqual('-', formats.instant('soon'))
