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
"""Fields of forms."""

from tests.unit.dashboard import needs

from horizon import forms

from diffcache_openstack.dashboard import fields


class RateFieldTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.field = fields.RateField(label='Rate')

    def test_rates(self):
        for text, rate in (('', None), ('1', 1), ('50MB', 50_000_000),
                           ('1TB', 10 ** 12)):
            self.assertEqual(rate, self.field.clean(text))

    def test_refused(self):
        for text, reason in (('fast', 'fast'), ('0', 'between 1 B and 1 TB'),
                             ('1.1TB', 'between 1 B and 1 TB')):
            with self.assertRaisesRegex(forms.ValidationError, reason):
                self.field.clean(text)
