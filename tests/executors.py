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
"""Executors of oslo.messaging's servers that end as soon as they may."""

import fixtures
from futurist import _thread


class QuickExecutors(fixtures.Fixture):
    """Shorten what a stopped server waits for.

    An idle thread of its executor looks once a second whether it should end,
    which is most of the time of a test that needs a conductor.
    """

    def _setUp(self):
        self.useFixture(fixtures.MockPatchObject(
            _thread.ThreadWorker, 'MAX_IDLE_FOR', 0.05))
