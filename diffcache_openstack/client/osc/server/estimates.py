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
"""What a version policy costs, judged by the versions that there are."""

import collections
import collections.abc
import dataclasses
import datetime
import statistics

from diffcache_openstack.client.resources import version

_DAY = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What servers' latest versions and restores cost; None where none tell.

    :ivar versions: how many it is judged by
    :ivar bytes_per_day: added to the store, by all servers with two versions
    :ivar save_seconds: that a save took, on average
    :ivar pause_ms: for which a save paused the guest, on average
    :ivar restore_seconds: that a restore took, on average
    """

    versions: int
    bytes_per_day: int | None
    save_seconds: float | None
    pause_ms: float | None
    restore_seconds: float | None


def estimate(versions: collections.abc.Iterable[version.ServerVersion],
             restores: collections.abc.Iterable[version.VersionTask]
             ) -> Estimate:
    """Judge what a policy costs.

    What is stored in a day depends little on how often a server is saved: less
    often stores less, as blocks that are written twice are stored once.

    :param versions: complete ones of all servers of the policy
    :param restores: of them, done
    """
    by_server = collections.defaultdict(list)
    for each in versions:
        by_server[each.server_id].append(each)
    found = [each for saved in by_server.values() for each in saved]
    rates = [rate for saved in by_server.values()
             if (rate := _rate(saved)) is not None]
    return Estimate(
        len(found), round(sum(rates)) if rates else None,
        _mean(each.seconds for each in found),
        _mean(each.pause_ms for each in found),
        _mean((each.result or {}).get('seconds') for each in restores))


def _rate(saved):
    """Return the bytes that a server adds in a day; None if nothing tells."""
    first, *later = sorted(saved, key=lambda each: each.created_at)
    if not later:
        return None
    days = (_time(later[-1]) - _time(first)) / _DAY
    return sum(each.bytes_stored for each in later) / days if days else None


def _time(saved):
    return datetime.datetime.fromisoformat(saved.created_at)


def _mean(values):
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
