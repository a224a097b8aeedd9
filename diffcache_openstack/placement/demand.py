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
"""Request rates from history.

A request counts less the older it is, by half per half-life. A trend is the
ratio of a short half-life's rate to a long one's, within limits, so that what
is on the rise is held before it is common. A template that has been requested
little or never takes part of its rate from its family, the templates it
shares patches with. Precache jobs are demand too.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Arrival:
    """One request of the history: when, which template, at which host."""

    time_s: float
    template: int
    host: int


@dataclasses.dataclass(frozen=True)
class Job:
    """A precache job: this many requests to expect at each of some hosts."""

    template: int
    hosts: tuple[int, ...]
    requests: float = 1.0


@dataclasses.dataclass(frozen=True)
class Model:
    """Parameters of the forecast.

    :param half_life_s: after which a request counts half
    :param short_share: the short half-life as a share of the long one
    :param trend_limit: most that a trend multiplies or divides a rate by
    :param family_weight: requests' worth of belief in the family's mean
    :param host_weight: requests' worth of belief that hosts request alike
    :param period_s: rates are requests per this many seconds
    """

    half_life_s: float = 7 * 86400.0
    short_share: float = 0.25
    trend_limit: float = 2.0
    family_weight: float = 1.0
    host_weight: float = 2.0
    period_s: float = 86400.0


def rates(history: list[Arrival], now_s: float, shape: tuple[int, int],
          model: Model = Model(), families: np.ndarray | None = None,
          jobs: tuple[Job, ...] = ()) -> np.ndarray:
    """Forecast the requests per period, shape (N, K).

    :param history: requests in any order; those after ``now_s`` are ignored
    :param shape: N templates and K hosts
    :param families: a number per template; equal numbers are one family
    :param jobs: precache jobs still to be honoured
    """
    counts = decayed(history, now_s, shape, model.half_life_s)
    totals = counts.sum(axis=1)
    short = decayed(history, now_s, shape,
                    model.half_life_s * model.short_share).sum(axis=1)
    level = _with_family(totals, families, model.family_weight)
    level *= _trend(totals, short, model)
    # Events at a steady rate leave rate * half-life / ln 2 behind.
    per_period = model.period_s * np.log(2.0) / model.half_life_s
    expected = _spread(level, counts, model.host_weight) * per_period
    for job in jobs:
        for host in job.hosts:
            expected[job.template, host - 1] += job.requests
    return expected


def decayed(history: list[Arrival], now_s: float, shape: tuple[int, int],
            half_life_s: float) -> np.ndarray:
    """Count requests weighted by age, shape (N, K)."""
    counts = np.zeros(shape)
    seen = [r for r in history if r.time_s <= now_s]
    if seen:
        ages = now_s - np.array([r.time_s for r in seen])
        at = (np.array([r.template for r in seen]),
              np.array([r.host for r in seen]) - 1)
        np.add.at(counts, at, 0.5 ** (ages / half_life_s))
    return counts


def families(templates: int, patch_base: np.ndarray,
             patch_target: np.ndarray) -> np.ndarray:
    """Number the families, templates that patches connect, shape (N,)."""
    family = np.arange(templates)
    while True:
        lower = family.copy()
        np.minimum.at(lower, patch_target, family[patch_base])
        np.minimum.at(lower, patch_base, family[patch_target])
        lower = lower[lower]
        if np.array_equal(lower, family):
            return family
        family = lower


def _with_family(totals, family, weight) -> np.ndarray:
    """Draw each total towards the mean of its family."""
    if family is None or weight <= 0:
        return totals.copy()
    _, index = np.unique(family, return_inverse=True)
    mean = np.bincount(index, totals) / np.bincount(index)
    # A template with much history of its own keeps it; a new one has the
    # family's mean.
    own = totals / (totals + weight)
    return own * totals + (1.0 - own) * mean[index]


def _trend(totals, short, model) -> np.ndarray:
    """Compute the factor by which demand is rising or falling."""
    # Half a request of belief in no trend keeps single requests quiet.
    long_level = totals * model.short_share + 0.5
    factor = (short + 0.5) / long_level
    return np.clip(factor, 1.0 / model.trend_limit, model.trend_limit)


def _spread(level, counts, weight) -> np.ndarray:
    """Compute hosts' shares: own counts, drawn towards all hosts' mean."""
    everywhere = counts.sum(axis=0) + 1.0
    prior = max(weight, 1e-6) * everywhere / everywhere.sum()
    shares = counts + prior
    return level[:, None] * shares / shares.sum(axis=1, keepdims=True)
