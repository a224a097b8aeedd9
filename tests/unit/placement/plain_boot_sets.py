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
"""The choice of boot sets in the plainest way, to compare the quick one with.

Every choice looks at all sets and hosts, and every figure is computed from
all that was chosen.
"""

import numpy as np

from diffcache_openstack.placement import boot_sets
from diffcache_openstack.placement import instances


def choose(of, share):
    """Return (set, host) by host, with what each saves, and all that is saved.

    Hosts count from 1, as in what boot_sets.choose returns.
    """
    most = boot_sets.steps_of(share)
    best = _Plain(of, of.rooms(most))
    best.pin(of.pinned)
    pins = list(best.chosen)
    best.fill()
    for steps in range(most - 1, 0, -1) if best.was_full else ():
        tried = _Plain(of, of.rooms(steps))
        for place in pins:
            tried.take(*place)
        tried.fill()
        if tried.saved_s > best.saved_s:
            best = tried
    return best.described(), best.saved_s


class _Plain:

    def __init__(self, of, rooms):
        self.of = of
        self.left, self.bytes = rooms.copy(), instances.to_bytes(of.sizes)
        self.chosen = []
        self.saved_s, self.was_full = 0.0, False

    def pin(self, places):
        for number, host in dict.fromkeys(places):
            if self.of.barred[number, host - 1]:
                continue
            if self.has_room(number)[host - 1]:
                self.take(number, host - 1)
            else:
                self.was_full = True

    def fill(self):
        while True:
            best = None
            for number in range(len(self.of.sizes)):
                densities = self.densities(number)
                fits = self.has_room(number)
                self.was_full |= bool(np.any(~fits & (densities > 0)))
                densities = np.where(fits, densities, -np.inf)
                column = int(np.argmax(densities))
                if densities[column] > (best[0] if best else 0.0):
                    best = densities[column], number, column
            if best is None:
                return
            self.take(*best[1:])

    def take(self, number, column):
        self.saved_s += float(self.gains(number)[column])
        self.left[column] -= self.bytes[number]
        self.chosen.append((number, column))

    def has_room(self, number):
        return self.bytes[number] <= self.left

    def densities(self, number):
        """Seconds by day and MB; below 0 where the set may not be."""
        densities = self.gains(number) / self.of.sizes[number]
        densities[self.of.barred[number]] = -np.inf
        densities[[column for each, column in self.chosen
                   if each == number]] = -np.inf
        return densities

    def gains(self, number):
        waits = self.waits(number, self.chosen)
        own = self.of.rates[number] * waits
        near = self.of.rates[number] * np.maximum(
            0.0, waits - self.of.near[number])
        sums = np.bincount(self.of.sites, weights=near)
        return own + sums[self.of.sites] - near

    def waits(self, number, chosen):
        """What boots wait for a set's chunks, shape (K,)."""
        columns = [column for each, column in chosen if each == number]
        waits = self.of.waits[number].astype(float)
        for column in columns:
            waits = np.where(self.of.sites == self.of.sites[column],
                             np.minimum(waits, self.of.near[number]), waits)
        waits[columns] = 0.0
        return waits

    def described(self):
        """Choices by host, those that save most per MB first."""
        found = []
        for number, column in self.chosen:
            others = [each for each in self.chosen
                      if each != (number, column)]
            without = self.waits(number, others)
            loss = self.of.rates[number] @ np.maximum(
                0.0, without - self.waits(number, self.chosen))
            found.append((number, column + 1, float(without[column]),
                          float(loss)))
        return sorted(found, key=lambda each: (
            each[1], -each[3] / self.of.sizes[each[0]], each[0]))
