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
"""Volumes of this host's servers, each in its partition of the SSD cache."""

import collections.abc
import dataclasses
import logging
import os
import pathlib
import threading
import typing

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.ssdcache.engines import base as engines
from diffcache_openstack.ssdcache import server
from diffcache_openstack.ssdcache.sizing import base as sizing
from diffcache_openstack.ssdcache.sizing import rules

LOG = logging.getLogger(__name__)

# A curve without references: sizes follow weights alone.
_NO_CURVE = _native.HitCurve(0, 0, [])


@dataclasses.dataclass(frozen=True)
class Wanted:
    """How a volume is to be cached.

    :ivar origin: path of its block device or file
    :ivar mode: what the cache does with reads and writes
    :ivar min: blocks that its partition has at least
    :ivar max: blocks that its partition has at most; none for any number
    :ivar weight: its share of what the least sizes leave
    :ivar sequential: bytes in sequence after which requests are not cached;
        none for the host's option
    """

    origin: str
    mode: str
    min: int = 0
    max: int | None = None
    weight: float = 1.0
    sequential: int | None = None


def parse(document: dict[str, typing.Any]) -> Wanted:
    """Return how a volume is to be cached, from a request.

    :raises InvalidInput: a field is missing, unknown, or of another type
    """
    number = (int, float)
    kinds: dict[str, typing.Any] = {
        'origin': str, 'mode': str, 'min': int, 'max': (int, type(None)),
        'weight': number, 'sequential': (int, type(None))}
    for key, value in document.items():
        if key not in kinds or isinstance(value, bool) \
                or not isinstance(value, kinds[key]):
            raise exceptions.InvalidInput(
                f'A volume in the SSD cache has no {key!r} that is'
                f' {str(value)[:100]!r}.')
        if isinstance(value, number) and not 0 <= value <= server.MAX_BYTES:
            raise exceptions.InvalidInput(f'{key} {value} is out of range.')
    if not document.get('origin') or document.get('mode') not in server.MODES:
        raise exceptions.InvalidInput(
            f'A volume in the SSD cache has an origin, and a mode of'
            f' {", ".join(server.MODES)}.')
    return Wanted(**document)


@dataclasses.dataclass(frozen=True)
class Options:
    """The host's options.

    :ivar origins: directories that volumes' origins have to be in
    :ivar sequential: of volumes that do not have a number of their own
    :ivar reconnect_delay: seconds for which guests wait for the cache
    """

    origins: tuple[str, ...] = ('/dev',)
    sequential: int = 0
    reconnect_delay: int = 600


class CachedVolumes:
    """Attaches and detaches volumes, and divides the cache among them.

    :param engine: the cache
    :param options: of the host
    :param path: file where it is kept how volumes want to be cached
    """

    def __init__(self, engine: engines.Engine, options: Options,
                 path: pathlib.Path) -> None:
        self._engine = engine
        self._options = options
        self._path = path
        self._lock = threading.Lock()

    def status(self) -> dict[str, typing.Any]:
        """Return the cache's capacity and its volumes, in blocks.

        :raises RetryableError: the cache cannot be reached
        """
        return {'capacity': self._engine.capacity(), 'volumes': {
            name: dataclasses.asdict(state)
            for name, state in self._engine.volumes().items()}}

    def attach(self, name: str, wanted: Wanted) -> dict[str, typing.Any]:
        """Attach a volume, without cached blocks, and make room for it.

        One of this name is detached before: it may have been changed
        elsewhere since it was attached.

        :returns: ``export``, its name; ``socket``, where clients find it;
            ``reconnect_delay``, seconds for which they wait for the cache
        :raises InvalidInput: the origin is not where it may be
        :raises NoSpace: the least sizes of all volumes exceed the cache, or
            its device failed
        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: the cache does not take the volume
        """
        self._check_origin(wanted.origin)
        with self._lock:
            self._engine.detach(name)
            known = self._known()
            sizes = self._sizes({**known, name: wanted})
            self._lower(sizes)
            try:
                state = self._engine.attach(engines.Attachment(
                    name, wanted.origin, wanted.mode, sizes[name],
                    self._options.sequential if wanted.sequential is None
                    else wanted.sequential))
            except exceptions.DiffCacheError:
                self._resize_all(known)
                raise
            known[name] = wanted
            self._keep(known)
            self._resize_all(known)
        LOG.info('Attached volume %s (%s) to the SSD cache with up to %d'
                 ' blocks', name, wanted.origin, sizes[name])
        return {'export': state.export, 'socket': self._engine.socket,
                'reconnect_delay': self._options.reconnect_delay}

    def detach(self, name: str) -> None:
        """Detach a volume, if it is attached; others get its blocks.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: what was written cannot be made durable
        """
        with self._lock:
            self._engine.detach(name)
            known = self._known()
            known.pop(name, None)
            self._keep(known)
            self._resize_all(known)
        LOG.info('Detached volume %s from the SSD cache', name)

    def resize(self, name: str) -> None:
        """Give a volume the size that its origin has now.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: it is not attached, or became smaller
        """
        self._engine.resize(name)

    def set_mode(self, name: str, mode: str) -> None:
        """Change what the cache does with a volume's reads and writes.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: it is not attached, or there is no such mode
        """
        self._engine.set_mode(name, mode)

    def _check_origin(self, origin: str) -> None:
        if os.path.normpath(origin) == origin and any(
                origin.startswith(directory.rstrip('/') + '/')
                for directory in self._options.origins):
            return
        raise exceptions.InvalidInput(
            f'{origin!r} is in none of {", ".join(self._options.origins)};'
            ' see [ssd_cache] origins.')

    # -- sizes

    def _sizes(self, known: dict[str, Wanted]) -> dict[str, int]:
        """Return blocks for each volume, in proportion to weights.

        :raises NoSpace: they do not fit
        """
        capacity = self._engine.capacity()
        if not capacity:
            raise exceptions.NoSpace(
                'The device of the SSD cache failed; replace it, and start'
                ' the cache with --format.')
        cache = sizing.Cache(capacity)
        volumes = [sizing.Volume(
            name, _NO_CURVE, wanted.weight, wanted.min,
            capacity if wanted.max is None else min(wanted.max, capacity))
            for name, wanted in known.items()]
        try:
            sizing.check(volumes, cache)
        except sizing.SizingError as error:
            raise exceptions.NoSpace(f'SSD cache: {error}') from error
        return rules.StaticPolicy().size(volumes, cache).sizes

    def _lower(self, sizes: dict[str, int]) -> None:
        for name, state in self._engine.volumes().items():
            if name in sizes and sizes[name] < state.limit:
                self._engine.set_limit(name, sizes[name])

    def _raise(self, sizes: dict[str, int]) -> None:
        for name, state in self._engine.volumes().items():
            if name in sizes and sizes[name] > state.limit:
                self._engine.set_limit(name, sizes[name])

    def _resize_all(self, known: dict[str, Wanted]) -> None:
        """Divide the cache anew; volumes are served with any sizes."""
        try:
            sizes = self._sizes(known)
            self._lower(sizes)
            self._raise(sizes)
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not divide the SSD cache anew, volumes keep'
                        ' their sizes: %s', error)

    # -- what volumes want

    def _known(self) -> dict[str, Wanted]:
        """Return what the attached volumes want."""
        kept = self._read()
        found = {}
        for name, state in self._engine.volumes().items():
            # One that somebody else attached keeps what it has.
            found[name] = kept.get(name) or Wanted(
                '', state.mode, state.limit, state.limit)
        return found

    def _read(self) -> dict[str, Wanted]:
        try:
            document = files.read_json(self._path) or {}
            return {name: Wanted(**fields)
                    for name, fields in document.items()}
        except (OSError, TypeError, AttributeError) as error:
            LOG.warning('Could not read %s, volumes keep their sizes: %s',
                        self._path, error)
            return {}

    def _keep(self, known: collections.abc.Mapping[str, Wanted]) -> None:
        files.write_json(self._path, {
            name: dataclasses.asdict(wanted)
            for name, wanted in known.items() if wanted.origin})
