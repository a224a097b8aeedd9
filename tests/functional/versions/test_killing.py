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
"""Writers that are killed lose nothing."""

import unittest

from tests import base
from tests.functional.versions import killing
from tests.unit.versions import fixture


class TestKilling(base.TestCase):

    def kill_forty(self, disk_format: str) -> tuple[int, int]:
        """Kill writers; return how many, and how many versions they saved.

        Each version is compared with what was saved.
        """
        counts = killing.kill_often(self.directory, 40, 1, disk_format)
        return (sum(count for what, count in counts.items()
                    if what.endswith('killed')), counts['versions completed'])

    def test_forty_killed_writers_lose_nothing(self):
        killed, completed = self.kill_forty('raw')
        self.assertGreaterEqual(killed, 40)
        self.assertGreater(completed, 0)

    @unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
    def test_nor_do_those_of_qcow2_disks(self):
        killed, completed = self.kill_forty('qcow2')
        self.assertGreaterEqual(killed, 40)
        self.assertGreater(completed, 0)
