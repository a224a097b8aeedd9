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
"""A clock that tests move."""

import datetime
from unittest import mock

from diffcache_openstack.objects import versioned

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Clock:
    """What the conductor takes for the time, during a test."""

    def __init__(self, test):
        self.now = START
        patch = mock.patch.object(versioned, 'now', lambda: self.now)
        patch.start()
        test.addCleanup(patch.stop)

    def wait(self, **values):
        """Let time pass."""
        self.now += datetime.timedelta(**values)
