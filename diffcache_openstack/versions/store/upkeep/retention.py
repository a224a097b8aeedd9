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
"""Retention: the versions of a series to keep."""

import dataclasses
import datetime
from typing import Callable
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.catalogue import entries

_PERIODS: dict[str, Callable[[datetime.datetime], tuple[int, ...]]] = {
    'hourly': lambda at: (at.year, at.month, at.day, at.hour),
    'daily': lambda at: (at.year, at.month, at.day),
    'weekly': lambda at: tuple(at.isocalendar()[:2]),
    'monthly': lambda at: (at.year, at.month),
}


@dataclasses.dataclass(frozen=True)
class Policy:
    """How many versions of a series to keep.

    The last ones, and the last of each of the given numbers of hours, days,
    weeks and months that have any.
    """

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0

    def __post_init__(self) -> None:
        if min(dataclasses.astuple(self)) < 0:
            raise exceptions.InvalidInput(
                'A policy cannot keep a negative number of versions.')

    @property
    def keeps_all(self) -> bool:
        """Whether the policy sets no limit, so that no version is dropped."""
        return not any(dataclasses.astuple(self))


def dropped(versions: Sequence[entries.Version], policy: Policy
            ) -> list[entries.Version]:
    """Return the versions of a series that a policy drops, oldest first.

    The newest version is always kept. A version may be kept for several
    reasons; each period keeps its newest version.
    """
    if policy.keeps_all or not versions:
        return []
    newest_first = sorted(versions, key=lambda version: -version.number)
    kept = {version.id for version in newest_first[:max(1, policy.last)]}
    for name, period_of in _PERIODS.items():
        kept |= _newest_of_periods(newest_first, period_of,
                                   getattr(policy, name))
    return [version for version in reversed(newest_first)
            if version.id not in kept]


def _newest_of_periods(
        newest_first: Sequence[entries.Version],
        period_of: Callable[[datetime.datetime], tuple[int, ...]],
        count: int) -> set[str]:
    seen: dict[tuple[int, ...], str] = {}
    for version in newest_first:
        made = datetime.datetime.fromisoformat(version.created_at)
        period = period_of(made)
        if len(seen) == count and period not in seen:
            break
        seen.setdefault(period, version.id)
    return set(seen.values()) if count else set()
