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
"""From past requests to expected demand.

The estimator is a sum in which a request counts half after each half-life.
For requests that arrive at a steady rate the sum settles at rate times
half-life divided by the logarithm of two, which gives the rate back.
"""

import collections.abc
import datetime
import math

from diffcache_openstack.db import history

SECONDS_PER_DAY = 86400.0
# Older requests than so many half-lives count less than a thousandth.
HORIZON_HALF_LIVES = 10


def horizon(now: datetime.datetime, half_life: float) -> datetime.datetime:
    """The instant before which requests no longer matter.

    :param half_life: seconds
    """
    return now - datetime.timedelta(seconds=HORIZON_HALF_LIVES * half_life)


def daily_rates(demand: collections.abc.Iterable[history.Demand],
                now: datetime.datetime, half_life: float
                ) -> dict[tuple[str, str], float]:
    """Expected requests per day by (host, content).

    :param half_life: seconds
    """
    per_request = SECONDS_PER_DAY * math.log(2) / half_life
    rates: dict[tuple[str, str], float] = {}
    for request in demand:
        # A host's clock may be ahead of ours.
        age = max(0.0, (now - request.started_at).total_seconds())
        key = (request.host, request.content_id)
        rates[key] = rates.get(key, 0.0) + per_request * 2 ** -(
            age / half_life)
    return rates
