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
"""A store with a copy is destroyed, read from the copy, and rebuilt."""

import shutil
import tempfile
import uuid

from tests.functional.agent import servers

PROJECT = servers.PROJECT


@servers.NEEDS_LIBVIRT
class TestCopies(servers.ServersTestCase):

    def setUp(self):
        copy = tempfile.TemporaryDirectory(prefix='diffcache-copy-')
        self.addCleanup(copy.cleanup)
        self.options = {'versions': {'copy': f'file://{copy.name}'}}
        super().setUp()

    def maintain(self, kind):
        """What a task on the project's store came to."""
        task_id = str(uuid.uuid4())
        self.site.versions.maintain_store(self.site.context, PROJECT, task_id,
                                          kind)
        return self.done(task_id)

    def saved_after(self, *commands):
        """A version of what a guest has written, and its content."""
        self.power_on()
        self.writes(*commands)
        version = self.save()
        self.power_off()
        return version, self.raw().read_bytes()

    def assert_restored(self, version, content):
        self.restore(version)
        self.assertEqual(content, self.raw().read_bytes())

    def test_destroyed_restored_from_the_copy_rebuilt_and_saved_again(self):
        found = [self.saved_after(f'write -P {number} {number}M 1M')
                 for number in (1, 2, 3)]
        self.assertEqual(3, self.maintain('replicate')['versions_copied'])
        self.saved_after('write -P 4 4M 1M')
        shutil.rmtree(self.site.directory / 'store')
        for version, content in found:
            self.assert_restored(version, content)
        self.maintain('recover')
        # As the administrator's guide says: hosts have seen a later state.
        for path in self.site.directory.glob('*/versions/stores/*.json'):
            path.unlink()
        self.assertEqual(3, len(self.stored()))
        last = self.saved_after('write -P 5 5M 1M')
        self.assertEqual(1, self.maintain('replicate')['versions_copied'])
        self.assertIs(True, self.maintain('verify')['intact'])
        shutil.rmtree(self.site.directory / 'store')
        for version, content in (*found, last):
            self.assert_restored(version, content)
