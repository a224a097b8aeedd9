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
"""Restores of versions whose records state disks of 16 TiB."""

import dataclasses
import subprocess
import sys

from diffcache_openstack.versions.store.catalogue import entries
from tests.unit.versions import fixture

_LARGEST = 1 << 44
_MOST_MB = 64
# Prints how much more memory the process had at most, in MB.
_RESTORE = '''
import pathlib, resource, sys
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.store.access import store_access
store, version, output, base, backed = sys.argv[1:]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
restoring.restore(
    store_access.StoreAccess(file.FileStore(pathlib.Path(store))), version,
    restoring.Output(pathlib.Path(output), 'qcow2', backed == 'True'),
    pathlib.Path(base))
print(peak() - before)
'''


class TestForgedSizes(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.base = self.write_file('base', self.blocks_of(256))
        self.version = self.save(base=self.base)

    def restore(self, backed, **forged):
        """Restore a forged version; return the memory taken, and the file."""
        head = self.access.head()
        head.versions[self.version.id] = dataclasses.replace(
            self.version, size=_LARGEST, **forged)
        self.access.commit(head)
        output = self.directory / 'restored'
        output.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, '-c', _RESTORE, str(self.directory / 'store'),
             self.version.id, str(output), str(self.base), str(backed)],
            check=True, capture_output=True, text=True)
        return int(done.stdout), output

    def test_a_stated_size_takes_no_memory(self):
        for backed in (True, False):
            taken, output = self.restore(backed)
            self.assertLess(taken, _MOST_MB)
            self.assertLess(output.stat().st_size, 16 << 20)

    def test_zeroes_behind_the_base_take_no_tables(self):
        for backed in (True, False):
            taken, output = self.restore(backed, root=entries.ZERO_ROOT)
            self.assertLess(taken, _MOST_MB)
            self.assertLess(output.stat().st_size, 1 << 20)
