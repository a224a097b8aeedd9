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
"""``diffcache-manage bundle``, without the objects of bundles."""

import json

from diffcache_openstack.agent.bundles import packing
from diffcache_openstack.agent.bundles import taking
from diffcache_openstack.common import keys
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.db import senders
from diffcache_openstack.objects import versioned
from tests import host_key_files
from tests.unit.cmd.manage import base
from tests.unit.db import database


class TestBundles(base.FilledTest):

    def setUp(self):
        super().setUp()
        key = self.directory / 'shared.key'
        keys.create_key(key)
        self.disk = self.directory / 'disk'
        with open(self.config, 'a') as config:
            config.write(f'[agent]\nsite = {database.SITE}\n'
                         f'state_dir = {self.directory / "state"}\n'
                         f'[data_plane]\nkey_file = {key}\n')

    def create(self, *words):
        return self.run_words('bundle', 'create', '--output', str(self.disk),
                              '-f', 'json', *words)

    def test_what_a_repository_lacks_makes_it_fail(self):
        found = self.create('--site', database.SITE)
        self.assertEqual(1, found.code)
        self.assertEqual({packing.HELD, packing.ABSENT},
                         {row['State'] for row in found.json})

    def test_a_site_without_a_host_has_to_be_named_as_new(self):
        self.assert_fails(1, 'ship', 'bundle', 'create', '--site', 'ship',
                          '--output', str(self.disk))
        found = self.create('--site', 'ship', '--new-site')
        self.assertEqual([packing.ABSENT] * 2,
                         [row['State'] for row in found.json])

    def test_applied_without_objects(self):
        self.create('--site', database.SITE)
        found = self.run_words('bundle', 'apply', str(self.disk), '-f',
                               'json')
        self.assertEqual((0, []), (found.code, found.json))

    def test_the_newest_list_of_revoked_keys_is_carried(self):
        given = host_key_files.Keys(self.directory / 'keys')
        with open(self.config, 'a') as config:
            config.write('[messaging]\n' + ''.join(
                f'{name} = {value}\n' for name, value in given.options(
                    'repository', 'hub').items()))
        words = '--site', database.SITE
        self.database.write(senders.revoke, 'h7', versioned.now())
        self.assert_fails(1, 'Start the agent', 'bundle', 'create',
                          '--output', str(self.disk), *words)
        document = revocations.sign(
            given.key('controller', 'c'),
            self.database.read(senders.newer_list, 0))
        state = self.directory / 'state'
        state.mkdir()
        path = state / taking.REVOKED_KEYS
        path.write_text(json.dumps(document))
        self.create(*words)
        path.unlink()
        applied = self.run_words('bundle', 'apply', str(self.disk))
        self.assertEqual((0, document),
                         (applied.code, json.loads(path.read_text())))

    def test_pieces_that_are_missing_make_it_fail(self):
        self.create('--site', database.SITE)
        key = packing.views.Key(packing.views.MANIFESTS, '0' * 64)
        self.patch(taking._Taking, 'all', lambda _self, placed: iter(
            [packing.Entry(key, 1, taking.INCOMPLETE)]))
        self.assertEqual(1, self.run_words('bundle', 'apply',
                                           str(self.disk)).code)

    def test_a_key_is_needed(self):
        self.config.write_text(self.config.read_text().replace(
            'key_file =', '#'))
        self.assert_fails(1, '[data_plane] key_file', 'bundle', 'create',
                          '--site', database.SITE, '--output', 'x')
