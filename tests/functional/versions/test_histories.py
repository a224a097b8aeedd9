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
"""Random histories of a version store.

``DIFFCACHE_HISTORIES_SECONDS`` has them run for longer: 600 in
``tools/test all``, 3600 for a thorough look. ``DIFFCACHE_HISTORIES_SEED``
begins with another seed.
"""

import os
import time

from tests import base
from tests.functional.versions import histories


_SECONDS = float(os.environ.get('DIFFCACHE_HISTORIES_SECONDS', '0'))


class TestHistories(base.TestCase):

    TIMEOUT_SCALING_FACTOR = 2 + int(_SECONDS / 300)

    def test_what_a_store_has_is_what_was_saved(self):
        seed = int(os.environ.get('DIFFCACHE_HISTORIES_SEED', '1'))
        ends = time.monotonic() + _SECONDS
        histories.run_one(self.directory, seed, steps=15)
        while time.monotonic() < ends:
            seed += 1
            histories.run_one(self.directory, seed)
