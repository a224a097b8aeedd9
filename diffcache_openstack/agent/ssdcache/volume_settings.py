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
"""How volumes are to be cached: what their types say, and what was set."""

import collections.abc
import dataclasses
import logging
import pathlib
import threading
import typing

from diffcache_openstack.agent.ssdcache import volume_holds
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import rates as volume_rates
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.objects import volume_cache
from diffcache_openstack.objects import volume_specs

LOG = logging.getLogger(__name__)

# Volumes whose settings are kept; the oldest are forgotten.
_MOST_OVERRIDES = 1000
# Of a volume that another program attached, or Nova without saying why.
BY_HAND = 'nothing asked for vhost-user'
_NUMBER = (int, float)
_NONE = type(None)


@dataclasses.dataclass(frozen=True)
class VolumeSettings:
    """How a volume is to be cached.

    :ivar origin: path of its block device or file, or an image of Ceph
    :ivar mode: what the cache does with reads and writes
    :ivar min: blocks that its partition has at least
    :ivar max: blocks that its partition has at most; none for any number
    :ivar weight: value of its hits, or its share
    :ivar sequential: bytes in sequence after which requests are not cached;
        none for the host's option
    :ivar priority: with the policy ``priority``, the highest is first; none
        for the weight
    :ivar sla: what it is to reach, such as ``hit=0.9``
    :ivar admission: a block is cached at this reference to it; none for the
        host's option
    :ivar attachment: ID of its attachment, which a hard reboot leaves as it
        is; none if it is unknown
    :ivar holdable: whether Cinder holds it before it reads it; without that
        it is not cached in write-back
    :ivar nbd_reason: why its server reaches it by NBD; none for vhost-user
    :ivar rates: what it may do per second
    """

    origin: str
    mode: str
    min: int = 0
    max: int | None = None
    weight: float = 1.0
    sequential: int | None = None
    priority: float | None = None
    sla: str | None = None
    admission: int | None = None
    attachment: str | None = None
    holdable: bool = True
    nbd_reason: str | None = BY_HAND
    rates: volume_rates.Rates = dataclasses.field(default_factory=dict)

    @property
    def is_written_elsewhere(self) -> bool:
        """Whether another host may write to it, during a live migration.

        It was attached so that nothing is cached, which no type says.
        """
        return bool(self.origin) and self.mode == volume_specs.PASS_THROUGH

    @property
    def bounds(self) -> tuple[int, int | None, float]:
        """What decides its size without its curve."""
        return self.min, self.max, self.weight

    @property
    def target(self) -> choices.Target | None:
        """What it is to reach."""
        return None if self.sla is None else choices.parse_target(self.sla)


@dataclasses.dataclass(frozen=True)
class TypeSettings:
    """What the type of a volume says since it was changed.

    Cinder keeps what it said before with the attachment, and a hard reboot
    brings that again.

    :ivar attachment: that of the volume when its type was changed
    :ivar rates: none for those that it was attached with, which depend on
        its size
    """

    mode: str
    min: int
    max: int | None
    weight: float
    priority: float | None
    sla: str | None
    sequential: int | None
    admission: int | None
    attachment: str | None = None
    rates: volume_rates.Rates | None = None

    def concerns(self, wanted: VolumeSettings) -> bool:
        """Return whether a volume is still attached as it was."""
        return self.attachment == wanted.attachment

    def apply(self, wanted: VolumeSettings) -> VolumeSettings:
        """Return how a volume of this type is to be cached."""
        if not self.concerns(wanted):
            return wanted
        found = dataclasses.asdict(self)
        if self.rates is None:
            del found['rates']
        if wanted.is_written_elsewhere:
            del found['mode']
        return dataclasses.replace(wanted, **found)


@dataclasses.dataclass(frozen=True)
class Overrides:
    """Settings of a volume in place of what its type says; none: the type's.

    :ivar limit: blocks that its partition has, whatever is requested
    :ivar generation: changes at each change of them
    """

    limit: int | None = None
    min: int | None = None
    max: int | None = None
    weight: float | None = None
    priority: float | None = None
    mode: str | None = None
    sla: str | None = None
    admission: int | None = None
    generation: int = 0

    def apply(self, wanted: VolumeSettings) -> VolumeSettings:
        """Return how a volume is to be cached with these settings.

        :param wanted: what its type says
        """
        found = {name: value for name in (
            'min', 'max', 'weight', 'priority', 'mode', 'sla', 'admission')
            if (value := getattr(self, name)) is not None}
        if self.limit is not None:
            found |= {'min': self.limit, 'max': self.limit}
        return dataclasses.replace(wanted, **found)

    def changed(self, fields: dict[str, typing.Any]) -> 'Overrides':
        """Return others, with new values of some fields.

        :raises InvalidInput: a field is unknown, or its value out of range
        """
        blocks, number, text = (int, _NONE), (*_NUMBER, _NONE), (str, _NONE)
        _check(fields, {'limit': blocks, 'min': blocks, 'max': blocks,
                        'weight': number, 'priority': number, 'mode': text,
                        'sla': text, 'admission': blocks})
        if fields.get('mode') not in (None, *volume_cache.MODES):
            raise exceptions.InvalidInput(
                f'The mode of a volume is one of'
                f' {", ".join(volume_cache.MODES)}.')
        found = dataclasses.replace(self, **fields,
                                    generation=self.generation + 1)
        if found.min is not None and found.max is not None \
                and found.min > found.max:
            raise exceptions.InvalidInput(
                f'min, {found.min} blocks, is larger than max, {found.max}'
                f' blocks.')
        return found


@dataclasses.dataclass(frozen=True)
class Leave:
    """A volume that is not cached in write-back, as its server may leave.

    :ivar until: seconds since 1970; none until it is given back
    """

    until: float | None = None

    def lasts(self, now: float) -> bool:
        """Return whether the volume has to wait."""
        return self.until is None or now < self.until


def settled(wanted: VolumeSettings, of_type: TypeSettings | None,
            overrides: Overrides) -> VolumeSettings:
    """Return how a volume is to be cached.

    :param wanted: what its type said when it was attached
    :param of_type: what it says since it was changed, if it was
    :param overrides: what an operator has set for this volume
    """
    found = overrides.apply(of_type.apply(wanted) if of_type else wanted)
    if wanted.is_written_elsewhere:
        return dataclasses.replace(found, mode=wanted.mode)
    return found


def parse(document: dict[str, typing.Any]) -> VolumeSettings:
    """Return how a volume is to be cached, from a request.

    :raises InvalidInput: a field is missing, unknown, or of another type
    """
    _check(document, {
        'origin': str, 'mode': str, 'min': int, 'max': (int, _NONE),
        'weight': _NUMBER, 'sequential': (int, _NONE),
        'priority': (*_NUMBER, _NONE), 'sla': (str, _NONE),
        'admission': (int, _NONE), 'attachment': (str, _NONE),
        'holdable': bool, 'nbd_reason': (str, _NONE), 'rates': dict})
    volume_rates.check(document.get('rates', {}))
    if not document.get('origin') or document.get('mode') not in choices.MODES:
        raise exceptions.InvalidInput(
            f'A volume in the SSD cache has an origin, and a mode of'
            f' {", ".join(choices.MODES)}.')
    return VolumeSettings(**document)


def _check(document: dict[str, typing.Any], kinds: dict[str, typing.Any]
           ) -> None:
    """Refuse a document with other fields, or values out of range.

    :raises InvalidInput: the message names the field
    """
    for key, value in document.items():
        if key not in kinds or not isinstance(value, kinds[key]) \
                or isinstance(value, bool) and kinds[key] is not bool:
            raise exceptions.InvalidInput(
                f'A volume in the SSD cache has no {key!r} that is'
                f' {str(value)[:100]!r}.')
        if isinstance(value, _NUMBER) and not 0 <= value <= choices.MAX_BYTES:
            raise exceptions.InvalidInput(f'{key} {value} is out of range.')
    for key in ('weight', 'priority'):
        if document.get(key) == 0:
            raise exceptions.InvalidInput(f'{key} has to be above 0.')
    admission = document.get('admission')
    if admission is not None and not 1 <= admission <= choices.MAX_ADMISSION:
        raise exceptions.InvalidInput(
            f'admission {admission} is not from 1 to'
            f' {choices.MAX_ADMISSION}.')
    if document.get('sla') is not None:
        choices.parse_target(document['sla'])


class SettingsStore:
    """Keeps what volumes want over restarts of the agent.

    :param path: file of what types say; settings are in one beside it
    :ivar holds: of operations of Cinder
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._overrides_path = path.with_name(f'{path.stem}_overrides.json')
        self._types_path = path.with_name(f'{path.stem}_types.json')
        self._leaves_path = path.with_name(f'{path.stem}_leaves.json')
        self.holds = volume_holds.Holds(
            path.with_name(f'{path.stem}_holds.json'))
        # Of changes of the files.
        self._lock = threading.Lock()

    def wanted(self) -> dict[str, VolumeSettings]:
        """Return what the types of volumes say, as it was kept."""
        return self._read(self._path, VolumeSettings)

    def settled(self, name: str, wanted: VolumeSettings) -> VolumeSettings:
        """Return the settings of a volume, as far as they are allowed now."""
        return self.allowed(name, self.changed(name, wanted))

    def changed(self, name: str, wanted: VolumeSettings) -> VolumeSettings:
        """Return the settings of a volume, with what was changed since."""
        return settled(wanted, self.of_type(name), self.overrides(name))

    def allowed(self, name: str, wanted: VolumeSettings) -> VolumeSettings:
        """Return settings without write-back, if it has to be left for now."""
        if wanted.mode == volume_specs.WRITE_BACK \
                and (name in self.leaves() or self.holds.is_held(name)):
            return dataclasses.replace(wanted,
                                       mode=volume_specs.WRITE_THROUGH)
        return wanted

    def leaves(self) -> dict[str, Leave]:
        """Return the volumes whose servers may leave this host."""
        return self._read(self._leaves_path, Leave)

    def keep_leave(self, name: str, leave: Leave) -> None:
        """Keep a volume out of write-back, also over a restart."""
        with self._lock:
            self._write(self._leaves_path, {**self.leaves(), name: leave})

    def end_leave(self, name: str) -> None:
        """Let a volume be in write-back again."""
        with self._lock:
            found = self.leaves()
            if found.pop(name, None) is not None:
                self._write(self._leaves_path, found)

    def keep_wanted(self, name: str, wanted: VolumeSettings) -> None:
        """Keep what the type of a volume says."""
        with self._lock:
            self._write(self._path, {**self.wanted(), name: wanted})

    def keep_only(self, names: collections.abc.Container[str]) -> None:
        """Forget what the types of other volumes say."""
        with self._lock:
            self._write(self._path, {
                name: each for name, each in self.wanted().items()
                if name in names})

    def overrides(self, name: str) -> Overrides:
        """Return the settings of a volume."""
        found = self._read(self._overrides_path, Overrides)
        return found.get(name, Overrides())

    def keep_overrides(self, name: str, overrides: Overrides) -> None:
        """Keep the settings of a volume, also while it is detached."""
        with self._lock:
            found = self._read(self._overrides_path, Overrides)
            self._write(self._overrides_path, _with(found, name, overrides))

    def of_type(self, name: str) -> TypeSettings | None:
        """Return what the type of a volume says since it was changed."""
        return self._read(self._types_path, TypeSettings).get(name)

    def forget_of_type(self, name: str) -> None:
        """Forget what the type of a volume said."""
        with self._lock:
            found = self._read(self._types_path, TypeSettings)
            if found.pop(name, None) is not None:
                self._write(self._types_path, found)

    def keep_of_type(self, name: str, settings: TypeSettings) -> None:
        """Keep what the type of a volume says, also while it is detached."""
        with self._lock:
            found = self._read(self._types_path, TypeSettings)
            self._write(self._types_path, _with(found, name, settings))

    @staticmethod
    def _read(path: pathlib.Path, kind: type) -> dict[str, typing.Any]:
        try:
            document = files.read_json(path) or {}
            return {name: kind(**fields)
                    for name, fields in document.items()}
        except (OSError, TypeError, AttributeError) as error:
            LOG.warning('Could not read %s, volumes keep their sizes: %s',
                        path, error)
            return {}

    @staticmethod
    def _write(path: pathlib.Path,
               found: collections.abc.Mapping[str, typing.Any]) -> None:
        files.write_json(path, {name: dataclasses.asdict(each)
                                for name, each in found.items()})


def _with(found: dict[str, typing.Any], name: str, value: typing.Any
          ) -> dict[str, typing.Any]:
    """Return the latest values of volumes, with that of one."""
    found.pop(name, None)
    return dict([*found.items(), (name, value)][-_MOST_OVERRIDES:])
