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
"""Traces in tests: what would be sent is kept."""

import fixtures
from osprofiler import notifier

from diffcache_openstack.common.telemetry import tracing

KEY = 'a-key-of-tests'


class Traces(fixtures.Fixture):
    """Has this process trace, and keeps the starts and ends of spans.

    :ivar payloads: as osprofiler's drivers get them
    """

    def _setUp(self):
        self.payloads = []
        self.addCleanup(notifier.set, notifier.get())
        notifier.set(self.payloads.append)
        self.addCleanup(tracing.stop)
        tracing._keys = (KEY,)

    def one(self, name: str, event: str = 'start') -> dict:
        """Return the start or end of the one span with a name."""
        [found] = [payload for payload in self.payloads
                   if payload['name'] == f'{name}-{event}']
        return found
