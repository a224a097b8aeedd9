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
"""Pauses during which a repository that did not answer is not called."""

import collections.abc

SECONDS = 300.0


class Pauses:
    """Remembers which repositories gave no answer.

    :param clock: seconds, monotonic
    """

    def __init__(self, clock: collections.abc.Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def begin(self, repository: str) -> None:
        """Leave a repository alone for SECONDS."""
        self._until[repository] = self._clock() + SECONDS

    def __contains__(self, repository: str) -> bool:
        return self._clock() < self._until.get(repository, 0.0)
