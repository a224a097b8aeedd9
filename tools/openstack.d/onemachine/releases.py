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
"""The series of OpenStack, and what differs between them here.

A series is dropped by deleting its line, and its file of constraints.
"""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Series:
    """One series.

    :ivar name: such as 2025.1
    :ivar upgrade_to: the series that follows, of those with long support if
        it has that; none here follows the latest
    :ivar eventlet_api: whether eventlet runs Nova's API, conductor and
        scheduler
    :ivar eventlet_compute: whether eventlet runs nova-compute
    :ivar own_glance: whether Glance can run as a program of its own, which
        eventlet does
    """

    name: str
    upgrade_to: str | None = None
    eventlet_api: bool = False
    eventlet_compute: bool = False
    own_glance: bool = False

    @property
    def constraints(self) -> pathlib.Path:
        """The versions of its packages."""
        return (pathlib.Path(__file__).parents[1] / 'series'
                / f'{self.name}.txt')


ALL = {one.name: one for one in (
    Series('2025.1', '2026.1', True, True, True),
    Series('2025.2', '2026.1', True, True, True),
    Series('2026.1', '2026.2', False, True, True),
    Series('2026.2'),
)}
LATEST = max(ALL)
