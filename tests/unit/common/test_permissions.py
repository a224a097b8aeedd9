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

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import permissions
from tests import base


class TestModes(base.TestCase):

    def setUp(self):
        super().setUp()
        self.addCleanup(os.umask, os.umask(0))

    def mode_of(self, name):
        return stat.S_IMODE((self.directory / name).lstat().st_mode)

    def test_new_directories_are_private_whatever_the_umask(self):
        path = self.directory / 'above' / 'tree'
        self.assertEqual(permissions.PRIVATE,
                         permissions.create_directory(path))
        self.assertEqual(0o700, self.mode_of('above/tree'))

    def test_trees_are_corrected(self):
        self.write_file('tree/inner/open', b'')
        self.write_file('tree/closed', b'').chmod(0o400)
        outside = self.write_file('outside', b'')
        outside.chmod(0o644)
        (self.directory / 'tree' / 'link').symlink_to(outside)
        for name in ('tree', 'tree/inner', 'tree/inner/open'):
            (self.directory / name).chmod(0o777)
        permissions.create_directory(self.directory / 'tree')
        self.assertEqual(
            [0o700, 0o700, 0o600, 0o400, 0o644],
            [self.mode_of(name) for name in (
                'tree', 'tree/inner', 'tree/inner/open', 'tree/closed',
                'outside')])

    def test_a_set_group_id_directory_is_shared_with_its_group(self):
        tree = self.directory / 'tree'
        self.write_file('tree/open', b'').chmod(0o666)
        tree.chmod(0o2777)
        self.assertEqual(permissions.SHARED,
                         permissions.create_directory(tree))
        self.assertEqual([0o2770, 0o660],
                         [self.mode_of('tree'), self.mode_of('tree/open')])

    def check(self, mode, group):
        path = self.write_file('key', b'')
        path.chmod(mode)
        with open(path, 'rb') as stream:
            permissions.check_secret(stream, path, group)

    def test_secrets_are_this_users_alone(self):
        for mode in (0o600, 0o400):
            self.check(mode, group=False)
        for mode in (0o640, 0o604, 0o602, 0o620):
            self.assertRaises(exceptions.InvalidInput, self.check, mode,
                              False)

    def test_the_group_may_read_where_that_is_allowed(self):
        self.check(0o640, group=True)
        for mode in (0o660, 0o644, 0o641):
            self.assertRaises(exceptions.InvalidInput, self.check, mode, True)

    def test_secrets_of_other_users_are_refused(self):
        self.patch(permissions.os, 'geteuid', lambda: os.getuid() + 1)
        if os.getuid() == 0:
            # What root owns is as good as this user's own.
            self.check(0o600, group=False)
            os.chown(self.write_file('key', b''), 4242, -1)
        error = self.assertRaises(exceptions.InvalidInput, self.check, 0o600,
                                  False)
        self.assertIn('chown', str(error))
