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
"""Where the agent writes for others, and whose files it leaves alone."""

import os
import stat

from diffcache_openstack.agent.local import delivery
from diffcache_openstack.common import exceptions
from tests import base


class OutputsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.outputs = delivery.Outputs([str(self.directory / 'instances')])
        self.foreign = self.write_file('etc/shadow', b'secret')
        self.foreign.chmod(0o600)
        self.output = self.directory / 'instances' / 'disk'
        self.output.parent.mkdir()

    def test_handed_over(self):
        self.output.write_bytes(b'image')
        self.output.chmod(0o600)
        self.outputs.hand_over(self.output)
        self.assertEqual(0o644, stat.S_IMODE(self.output.stat().st_mode))

    def test_stays_ours_without_the_right_to_give_it_away(self):
        def refuse(fd, uid, gid):
            raise PermissionError

        self.output.write_bytes(b'image')
        self.patch(delivery.os, 'fchown', refuse)
        self.patch(delivery.pathlib.Path, 'stat',
                   lambda path: os.stat_result([0o755] + [7] * 9))
        self.outputs.hand_over(self.output)
        self.assertEqual(0o644, stat.S_IMODE(os.stat(self.output).st_mode))

    def test_links_to_files_of_others_are_not_followed(self):
        for link in (os.symlink, os.link):
            link(self.foreign, self.output)
            self.assertRaises(exceptions.Conflict, self.outputs.hand_over,
                              self.output)
            self.assertEqual(0o600,
                             stat.S_IMODE(self.foreign.stat().st_mode))
            self.output.unlink()

    def test_what_is_gone_or_no_file_is_refused(self):
        self.assertRaises(exceptions.Conflict, self.outputs.hand_over,
                          self.output)
        os.mkfifo(self.output)
        self.assertRaises(exceptions.Conflict, self.outputs.hand_over,
                          self.output)

    def test_only_below_the_directories(self):
        self.assertEqual(self.output, self.outputs.check(str(self.output)))
        os.symlink(self.foreign.parent, self.output.with_name('out'))
        for path in (self.foreign, self.output.with_name('out') / 'x',
                     self.output.parent / '..' / 'x', 'disk',
                     self.output.parent / '..'):
            self.assertRaises(exceptions.InvalidInput, self.outputs.check,
                              str(path))
