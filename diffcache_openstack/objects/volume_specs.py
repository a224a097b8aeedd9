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
"""What the specs of a volume type say about the SSD cache."""

import collections.abc
import dataclasses
import math
import typing

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import units

PREFIX = 'diffcache:ssd_cache'
# In the data of a connection that Cinder's driver of this suite made.
MARK = 'diffcache'
WRITE_THROUGH = 'write-through'
# The volume lacks what was written last, and so do Cinder's snapshots and
# backups. It leaves this mode before another host uses it.
WRITE_BACK = 'write-back'
MODES = (WRITE_THROUGH, 'write-around', WRITE_BACK)
# Nothing is read from the cache or added to it.
PASS_THROUGH = 'pass-through'
BLOCK = 4096
_KEYS = ('min', 'max', 'weight', 'priority', 'sla', 'sequential', 'admission',
         'required')
_BOOLEANS = {'true': True, 'yes': True, '1': True,
             'false': False, 'no': False, '0': False}


# Cinder's own extra spec for volumes that hosts may cache, in any mode.
CACHEABLE = 'cacheable'
MULTIATTACH = 'multiattach'
IS_TRUE = '<is> True'


class SpecsError(exceptions.InvalidInput):
    """Specs cannot be used; the message names the key."""


@dataclasses.dataclass(frozen=True)
class Specs:
    """How a volume is cached.

    :ivar mode: one of :data:`MODES`
    :ivar min: blocks that its partition has at least
    :ivar max: blocks that its partition has at most; none for any number
    :ivar weight: value of its hits beside those of others, or its share
    :ivar priority: with the host's policy ``priority``, the highest is first;
        none for the weight
    :ivar sla: what it is to reach, such as ``hit=0.9``; none for nothing
    :ivar sequential: bytes in sequence after which requests are not cached;
        none for what the host has
    :ivar admission: a block is cached at this reference to it; none for what
        the host has
    :ivar required: whether it is rather not attached than without the cache
    """

    mode: str
    min: int = 0
    max: int | None = None
    weight: float = 1.0
    priority: float | None = None
    sla: str | None = None
    sequential: int | None = None
    admission: int | None = None
    required: bool = False


def is_ours(key: str) -> bool:
    """Return whether a key of QoS specs or extra specs concerns the cache."""
    return key in (PREFIX, CACHEABLE) or key.startswith(f'{PREFIX}:')


def merged(qos_specs: collections.abc.Mapping[str, str],
           extra_specs: collections.abc.Mapping[str, str]) -> dict[str, str]:
    """Return what a volume type says of the cache, as QoS specs.

    Extra specs cannot change while volumes of the type exist, QoS specs can,
    and come first. ``cacheable='<is> True'`` alone is the default mode.

    :raises SpecsError: a key has different values in the two, or volumes of
        the type may be attached to several servers
    """
    ours = {key: value for key, value in qos_specs.items()
            if is_ours(key) and key != CACHEABLE}
    for key, value in extra_specs.items():
        if not is_ours(key) or key == CACHEABLE:
            continue
        if ours.setdefault(key, value) != value:
            raise SpecsError(
                f'{key} is {ours[key]} in the QoS specs and {value} in the'
                f' extra specs of the type; remove one')
    if extra_specs.get(CACHEABLE) == IS_TRUE:
        ours.setdefault(PREFIX, WRITE_THROUGH)
    if ours.get(PREFIX, 'off') != 'off' \
            and extra_specs.get(MULTIATTACH) == IS_TRUE:
        raise SpecsError(
            f'{PREFIX}={ours[PREFIX]}: volumes of a type with {MULTIATTACH}'
            f' are not cached; remove one')
    return ours


def parse(specs: collections.abc.Mapping[str, str]) -> Specs | None:
    """Return how a volume with these specs is cached; None: not at all.

    :param specs: QoS specs, or what :func:`merged` returns

    :raises SpecsError: a value cannot be used, or a key of ours is unknown
    """
    ours = {key.removeprefix(PREFIX).removeprefix(':'): str(value)
            for key, value in specs.items()
            if key == PREFIX or key.startswith(f'{PREFIX}:')}
    mode = ours.pop('', None)
    if mode is None or mode == 'off':
        return None
    if mode not in MODES:
        raise SpecsError(f'{PREFIX}={mode}: the mode is one of'
                         f' {", ".join(MODES)}, or off')
    for key in ours:
        if key not in _KEYS:
            raise SpecsError(f'{PREFIX}:{key}: there is no such key, but'
                             f' {", ".join(_KEYS)}')
    found = Specs(
        mode, _blocks(ours, 'min') or 0, _blocks(ours, 'max'),
        _above_zero(ours, 'weight') or 1.0, _above_zero(ours, 'priority'),
        _sla(ours), _bytes(ours, 'sequential'), _admission(ours),
        _required(ours))
    if found.max is not None and found.min > found.max:
        raise SpecsError(f'{PREFIX}:min is larger than {PREFIX}:max')
    return found


def check(specs: collections.abc.Mapping[str, str]) -> None:
    """Check specs, the keys of volumes that are not cached, too.

    :param specs: QoS specs, or what :func:`merged` returns
    :raises SpecsError: a value cannot be used, or a key of ours is unknown
    """
    parse({PREFIX: 'off', **specs})
    mode = specs.get(PREFIX, 'off')
    parse({**specs, PREFIX: WRITE_THROUGH if mode == 'off' else mode})


def settings(specs: Specs | None) -> dict[str, typing.Any]:
    """Return how volumes in use follow the QoS specs of their type.

    :param specs: None: such volumes are not cached. One that is in use stays
        in the cache, which does nothing for it, and gives its blocks to
        others
    """
    found = dataclasses.asdict(specs or Specs(PASS_THROUGH, max=0))
    # It is attached already.
    del found['required']
    return found


def _bytes(ours: dict[str, str], key: str) -> int | None:
    if key not in ours:
        return None
    try:
        found = units.parse_size(ours[key])
    except ValueError as error:
        raise SpecsError(f'{PREFIX}:{key}: {error}') from error
    if found > choices.MAX_BYTES:
        raise SpecsError(f'{PREFIX}:{key}: {ours[key]} is more than'
                         f' {choices.MAX_BYTES} bytes')
    return found


def _blocks(ours: dict[str, str], key: str) -> int | None:
    found = _bytes(ours, key)
    return None if found is None else min(found // BLOCK, choices.MAX_BLOCKS)


def _above_zero(ours: dict[str, str], key: str) -> float | None:
    if key not in ours:
        return None
    try:
        found = float(ours[key])
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise SpecsError(f'{PREFIX}:{key}: {ours[key]!r} is not a number'
                         ' above 0')
    return found


def _sla(ours: dict[str, str]) -> str | None:
    if 'sla' not in ours:
        return None
    try:
        choices.parse_target(ours['sla'])
    except exceptions.InvalidInput as error:
        raise SpecsError(f'{PREFIX}:sla: {error}') from error
    return ours['sla']


def _admission(ours: dict[str, str]) -> int | None:
    text = ours.get('admission')
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()
            and 1 <= int(text) <= choices.MAX_ADMISSION):
        raise SpecsError(f'{PREFIX}:admission: {text!r} is not a number from'
                         f' 1 to {choices.MAX_ADMISSION}')
    return int(text)


def _required(ours: dict[str, str]) -> bool:
    text = ours.get('required', 'false').lower()
    if text not in _BOOLEANS:
        raise SpecsError(f'{PREFIX}:required: {text!r} is neither true nor'
                         ' false')
    return _BOOLEANS[text]
