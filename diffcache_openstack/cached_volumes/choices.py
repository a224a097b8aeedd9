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
"""What a cached volume may be set to, and the state that Nova looks for."""

import dataclasses
import re

from diffcache_openstack.common import exceptions

MODES = ('write-through', 'write-back', 'write-around', 'pass-through')
MAX_BLOCKS = (1 << 32) - 1
MAX_BYTES = (1 << 63) - 1
# References to a block that are counted before it is cached.
MAX_ADMISSION = 15
# How guests reach volumes: through QEMU's block layer, or by their rings.
NBD, VHOST_USER = GUEST_PATHS = ('nbd', 'vhost-user')
# State of a volume whose dirty blocks the cache keeps, and does not write back
# before it is recovered: another host may have written to the volume since.
HELD = 'held'
_UNITS_US = {'us': 1.0, 'ms': 1e3, 's': 1e6}
_TARGET = re.compile(r'(hit|latency)[=:]([0-9]*\.?[0-9]+)(us|ms|s)?')


@dataclasses.dataclass(frozen=True)
class Target:
    """What a volume is to reach; one of the two is given.

    :ivar hit_ratio: from 0 to 1
    :ivar latency_us: mean microseconds of a reference
    """

    hit_ratio: float | None = None
    latency_us: float | None = None


def parse_target(text: str) -> Target:
    """Parse ``hit=0.9`` or ``latency=2ms``.

    A colon will do in place of the equals sign; latencies without a unit
    (``us``, ``ms`` or ``s``) are microseconds.

    :raises InvalidInput: it is neither, or out of range
    """
    match = _TARGET.fullmatch(text)
    if match:
        kind, number, unit = match[1], float(match[2]), match[3]
        if kind == 'hit' and 0 < number <= 1 and not unit:
            return Target(hit_ratio=number)
        if kind == 'latency' and number > 0:
            return Target(latency_us=number * _UNITS_US[unit or 'us'])
    raise exceptions.InvalidInput(
        f'{text!r} is neither a hit ratio above 0 up to 1, such as hit=0.9,'
        ' nor a latency, such as latency=2ms')
