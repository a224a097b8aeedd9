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
"""Which of metadata, flavor, image and option decides."""

import types

from diffcache_openstack.nova import boot_modes
from tests import base


def server(metadata=(), extra_specs=()):
    return types.SimpleNamespace(
        uuid='u', metadata=dict(metadata),
        flavor=types.SimpleNamespace(extra_specs=dict(extra_specs)))


class TestLabel(base.TestCase):

    def label(self, metadata=(), name='m1.small'):
        return boot_modes.label(types.SimpleNamespace(
            metadata=dict(metadata), flavor=types.SimpleNamespace(name=name)))

    def test_the_chosen_one_or_the_flavor(self):
        self.assertEqual('m1.small', self.label())
        self.assertEqual('web', self.label({boot_modes.PROFILE_KEY: 'web'}))
        self.assertEqual('', boot_modes.label(
            types.SimpleNamespace(metadata=None, flavor=None)))

    def test_what_a_label_cannot_have(self):
        self.assertEqual('a_b _c', self.label(name='a/b \xe4c'))
        self.assertEqual(128, len(self.label(name='x' * 200)))


class TestChoose(base.TestCase):

    def test_the_most_particular_decides(self):
        lazy, full = ({boot_modes.KEY: mode} for mode in ('lazy', 'full'))
        image = {boot_modes.PROPERTY: 'lazy'}
        for instance, properties, default, mode in (
                (server(), {}, 'full', 'full'),
                (server(), {}, 'lazy', 'lazy'),
                (server(), image, 'full', 'lazy'),
                (server(extra_specs=full), image, 'lazy', 'full'),
                (server(lazy, full), {}, 'full', 'lazy'),
                (server(full, lazy), image, 'lazy', 'full')):
            self.assertEqual(mode, boot_modes.choose(
                instance, properties, default))

    def test_other_values_are_passed_over(self):
        wrong = server({boot_modes.KEY: 'quick'}, {boot_modes.KEY: 'lazy'})
        self.assertEqual('lazy', boot_modes.choose(wrong, {}, 'full'))
        self.assertEqual('full', boot_modes.choose(
            server(), {boot_modes.PROPERTY: 'LAZY'}, 'full'))

    def test_what_boots_nothing_waits(self):
        self.assertEqual('full', boot_modes.choose(
            None, {boot_modes.PROPERTY: 'lazy'}, 'lazy'))


class TestHydration(base.TestCase):

    def hydration(self, **metadata):
        return boot_modes.hydration(server({
            f'diffcache:{name}': value for name, value in metadata.items()}))

    def test_what_is_given(self):
        self.assertEqual({}, self.hydration())
        self.assertEqual({'hydrate_by': 60},
                         self.hydration(hydrate_by='60'))
        self.assertEqual({'hydrate_by': 60, 'hydrate_rate': 5},
                         self.hydration(hydrate_by='60', hydrate_rate='5'))

    def test_what_cannot_be_used_is_ignored(self):
        for value in ('0', '-1', '1.5', 'soon', '', '9' * 15, '9' * 30):
            self.assertEqual({}, self.hydration(hydrate_by=value), value)
