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
"""Limits of precache jobs on the objects that they cause to be fetched.

A job's objects come one after another, however many a host fills at once, so
that each may use the whole of the job's rate and all of them use no more.
"""

import collections.abc
import dataclasses
import typing

from diffcache_openstack import _native
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.common import time_windows
from diffcache_openstack.sites import views


@dataclasses.dataclass(frozen=True)
class Share:
    """What a job allows.

    :param job: its id
    :param rate: bytes/s, None for no limit
    :param windows: when the WAN may be used for it; none for always
    """

    job: str
    rate: float | None = None
    windows: tuple[str, ...] = ()

    def is_open(self) -> bool:
        """Return whether the WAN may be used for the job now."""
        return time_windows.Windows(list(self.windows)).open_now()


Shares = collections.abc.Mapping[views.Key, Share]


def load(rows: collections.abc.Iterable[collections.abc.Sequence]
         ) -> dict[views.Key, Share]:
    """Parse shares that were sent or stored as lists of plain values.

    :param rows: kind, id, job, rate and windows of each object
    :raises InvalidInput: a window cannot be read
    """
    found = {}
    for kind, object_id, job, rate, texts in rows:
        for text in texts:
            time_windows.parse(text)
        found[views.Key(kind, object_id)] = Share(job, rate, tuple(texts))
    return found


def dump(shares: Shares) -> list[list[typing.Any]]:
    """Convert shares to lists of plain values, which :func:`load` reads."""
    return [[*key, share.job, share.rate, list(share.windows)]
            for key, share in shares.items()]


def is_taken(share: Share | None,
             working: collections.abc.Iterable[Share | None]) -> bool:
    """Return whether another object of a limited job is being fetched."""
    return share is not None and share.rate is not None and any(
        other is not None and other.job == share.job for other in working)


def least(first: float | None, second: float | None) -> float | None:
    """Return the smaller of two rates; None means no limit."""
    given = [rate for rate in (first, second) if rate is not None]
    return min(given, default=None)


class JobThrottle(throttles.FillThrottle):
    """The throttle of a fill, which may be one that a job limits.

    :param share: of the job; None if there is none
    """

    def __init__(self, handle: _native.Handle, rate: float | None,
                 may_run: collections.abc.Callable[[], bool],
                 share: Share | None) -> None:
        self.share = share
        if share is None:
            super().__init__(handle, rate, may_run)
            return
        is_open = share.is_open
        super().__init__(handle, least(rate, share.rate),
                         lambda: may_run() and is_open())
