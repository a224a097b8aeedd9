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
"""Hits of caches by formulas, to compare with what is simulated and served.

A volume is an array with the requests to each of its blocks in a unit of
time; requests are independent of those before.
"""

import math

import numpy


def normal(deviation, blocks, rate=1.0):
    """Return the rates of blocks around the middle of a volume."""
    middle = (blocks - 1) / 2
    found = numpy.exp(-((numpy.arange(blocks) - middle) / deviation) ** 2 / 2)
    return found * (rate / found.sum())


def uniform(blocks, rate=1.0):
    """Return the rates of blocks of which each is as likely as any other."""
    return numpy.full(blocks, rate / blocks)


def lru(volumes, capacity):
    """Return the hit ratios of volumes that share an LRU cache.

    Che's approximation: a block is cached if it was requested within a time
    that is the same for all, and for which the cache is full (Che, Tung and
    Wang, IEEE JSAC 2002).
    """
    if sum(map(numpy.count_nonzero, volumes)) <= capacity:
        return [1.0 for _volume in volumes]
    low, high = 0.0, 1.0

    def cached(time):
        return sum(float(-numpy.expm1(-time * rates).sum())
                   for rates in volumes)
    while cached(high) < capacity:
        low, high = high, 2 * high
    for _round in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if cached(middle) < capacity \
            else (low, middle)
    return [float((rates * -numpy.expm1(-high * rates)).sum() / rates.sum())
            for rates in volumes]


def best(volumes, capacity):
    """Return the hit ratios if the blocks with most requests are cached.

    No cache that does not know the future has more hits in all.
    """
    rates = numpy.concatenate(volumes)
    owners = numpy.repeat(numpy.arange(len(volumes)),
                          [len(volume) for volume in volumes])
    top = numpy.argpartition(-rates, min(capacity, len(rates) - 1))[:capacity]
    hits = numpy.bincount(owners[top], rates[top], minlength=len(volumes))
    return [float(hit / volume.sum()) for hit, volume in zip(hits, volumes)]


def requests_for(rates, distinct):
    """Return how many requests are to so many different blocks."""
    low, high = 0.0, 64.0 * distinct
    while high - low > 1:
        middle = (low + high) / 2
        found = -numpy.expm1(-middle * rates / rates.sum()).sum()
        low, high = (middle, high) if found < distinct else (low, middle)
    return math.ceil(high)
