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
"""What volumes may do per second, as their types say it to QEMU.

The SSD cache enforces it, see ``native/ssdcache/src/rates.rs``.
"""

import collections.abc

from diffcache_openstack.common import exceptions

# Names of limits, and their values above 0.
Rates = collections.abc.Mapping[str, int]

_RATES = tuple(f'{what}_{unit}_sec' for unit in ('bytes', 'iops')
               for what in ('total', 'read', 'write'))
# Of bytes that a request of several counts as.
_SIZE = 'size_iops_sec'
NAMES = (*_RATES, *(f'{rate}_max' for rate in _RATES), _SIZE)
# QEMU's.
_MOST = 10 ** 15
# Cinder computes limits from these and the size of the volume.
_OF_SIZE = frozenset(f'{rate}{suffix}' for rate in _RATES
                     for suffix in ('_per_gb', '_per_gb_min'))


def parse(specs: collections.abc.Mapping[str, str]) -> dict[str, int]:
    """Return the limits in QoS specs, of which others are ignored.

    :raises InvalidInput: one cannot be enforced; the message names it
    """
    found = {}
    for name in NAMES:
        text = str(specs.get(name, 0))
        if not (text.isascii() and text.isdigit()):
            raise exceptions.InvalidInput(f'{name}={text} is not a number')
        if int(text):
            found[name] = int(text)
    check(found)
    return found


def is_limit(key: str) -> bool:
    """Return whether a key of QoS specs concerns limits."""
    return key in NAMES or key in _OF_SIZE


def depend_on_size(specs: collections.abc.Iterable[str]) -> bool:
    """Return whether limits in QoS specs are those of each GB."""
    return not _OF_SIZE.isdisjoint(specs)


def check(rates: Rates) -> None:
    """Check limits.

    :raises InvalidInput: one is unknown, or cannot be enforced
    """
    for name, value in rates.items():
        if name not in NAMES:
            raise exceptions.InvalidInput(f'There is no limit {name!r}.')
        if type(value) is not int or not 0 < value <= _MOST:
            raise exceptions.InvalidInput(
                f'{name}={value} is not from 1 to {_MOST}')
    for rate in _RATES:
        burst = f'{rate}_max'
        if burst in rates and rates[burst] < rates.get(rate, _MOST + 1):
            raise exceptions.InvalidInput(
                f'{burst}={rates[burst]} is below {rate}, or without it')


def lines(rates: Rates) -> list[str]:
    """Return limits as people read them."""
    return [f'{name}={rates[name]}' for name in NAMES if name in rates]
