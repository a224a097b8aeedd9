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

import os
import stat

from diffcache_openstack.agent.state import directory
from diffcache_openstack.common import exceptions
from tests import base


class TestDirectory(base.TestCase):

    def setUp(self):
        super().setUp()
        self.addCleanup(os.umask, os.umask(0))
        self.state = self.directory / 'state'

    def modes(self):
        return {str(path.relative_to(self.state)): stat.S_IMODE(
            path.stat().st_mode) for path in self.state.rglob('*')}

    def test_a_new_directory_is_the_agents(self):
        for umask in (0, 0o077):
            os.umask(umask)
            self.state = self.directory / f'new-{umask}' / 'state'
            self.check_new()

    def check_new(self):
        with directory.used_by_one(self.state):
            for path in (self.state, self.state.parent):
                self.assertEqual(0o711, stat.S_IMODE(path.stat().st_mode))
            for name, mode in self.modes().items():
                self.assertEqual(0o600 if name == 'lock' else 0o700, mode)

    def test_what_an_earlier_release_left_is_corrected(self):
        for name in ('objects/images/x', 'patches/y', 'plan.json'):
            self.write_file(f'state/{name}', b'').chmod(0o644)
        # Of another service, which others may have to read.
        other = self.write_file('state/nova.json', b'')
        other.chmod(0o644)
        with directory.used_by_one(self.state):
            found = self.modes()
        self.assertEqual(0o644, found.pop('nova.json'))
        self.assertEqual({0o600, 0o700}, set(found.values()))
        self.assertEqual(0o600, found['objects/images/x'])
        self.assertEqual(0o700, found['patches'])

    def test_one_agent_uses_it_at_a_time(self):
        other = directory.used_by_one(self.state)
        with directory.used_by_one(self.state):
            self.assertRaises(exceptions.Conflict, other.__enter__)
