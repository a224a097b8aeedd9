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
"""What this host holds: files, their accounting, and who is using them.

The filesystem is the only truth. Under the root lie ``images/<id>``,
``patches/<id>``, ``manifests/<id>`` and ``recipes/<id>``, the layout that the
data plane serves; a file appears there by rename once it is whole. What a
start finds is what is held; without its seal it is read before it is used.
Hidden files there are transfers that were cut off and may be resumed.

Images and patches count against the capacity with the bytes they take on
disk; manifests (1/2000 of their image), recipes (which have a limit of
their own) and the staging area do not.

What other services of the host keep, and this host borrows, is read here like
what is held; see :mod:`.borrowed_files`. It is neither counted nor deleted.

An object is sealed when it arrives; see :mod:`.seals`. What has its seal is
delivered without being read.

The usage count of the paper's section III-B is the sum of local leases and
of the data plane's open transfers to peers: what has either is never
evicted.
"""

import collections
import contextlib
import dataclasses
import fcntl
import functools
import logging
import os
import pathlib
import re
import shutil
import threading
import time
import typing

from diffcache_openstack.agent.state import borrowed_files
from diffcache_openstack.agent.state import identities
from diffcache_openstack.agent.state import seals
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories
from diffcache_openstack.sites import views

if typing.TYPE_CHECKING:
    from diffcache_openstack.agent.data_plane import inspector as inspectors

LOG = logging.getLogger(__name__)

STAGING = 'staging'
QUARANTINE = 'quarantine'
# Objects that may not be served at present: peers cannot read them there.
WITHDRAWN = 'withdrawn'
# Damaged objects kept for the operator to look at; older ones are deleted.
QUARANTINE_KEPT = 2
_ID = re.compile(r'^[0-9a-f]{64}$')
_PART = re.compile(r'^\.(?P<id>[0-9a-f]{64})\.part')
_BLOCK = 512
# What says that a file is not the object. Other errors say nothing of it.
_DAMAGED = (exceptions.IntegrityError, exceptions.FormatError,
            exceptions.InvalidInput)


class Pace(typing.NamedTuple):
    """How a scrub reads.

    :ivar rate: bytes per second at most
    :ivar progress: called with bytes done and in all; ends the reading by
        raising
    """

    rate: int
    progress: typing.Callable[[int, int], None]


class OpenObject(typing.NamedTuple):
    """A held object's file, open for reading.

    :ivar is_intact: whether it may be used without reading it first
    """

    fd: int
    is_intact: bool

    @property
    def path(self) -> pathlib.Path:
        """The path of the open file."""
        return directories.descriptor_path(self.fd)


@dataclasses.dataclass(frozen=True)
class PlacedObject:
    """An object the plan places here; a lower priority number comes first."""

    key: views.Key
    priority: float


def disk_bytes(path: pathlib.Path) -> int:
    """Return the bytes that a file takes on disk, without its holes."""
    status = path.stat()
    return min(status.st_size, status.st_blocks * _BLOCK)


class Holdings:
    """The objects of one host.

    :param root: the data plane's root
    :param capacity: bytes that images and patches may take; None for the
        repository, which keeps all it is given
    :param inspector: checks objects
    :param readers: open transfers of an object to peers
    :param borrowed: files of other services
    :param always_read: whether an object is read each time before it is
        delivered
    """

    def __init__(self, root: pathlib.Path, capacity: int | None,
                 inspector: 'inspectors.NativeInspector',
                 readers: typing.Callable[[str, str], int],
                 borrowed: borrowed_files.Borrowed
                 = borrowed_files.NothingBorrowed(),
                 always_read: bool = False) -> None:
        self.root = root
        self.capacity = capacity
        self.inspector = inspector
        self._readers = readers
        self.borrowed = borrowed
        self._always_read = always_read
        self.seals = seals.Seals(root.parent)
        self._on_quarantine: typing.Callable[[views.Key], object] | None = None
        self._lock = threading.RLock()
        self._held: dict[views.Key, int] = {}
        self._leases: collections.Counter = collections.Counter()
        # By each that brings the object; it takes the room of one.
        self._reserved: dict[views.Key, list[int]] = {}
        self._last_used: dict[views.Key, float] = {}
        self._wanted: dict[views.Key, float] = {}
        for name in (*views.KINDS, STAGING, QUARANTINE, WITHDRAWN):
            (root / name).mkdir(parents=True, exist_ok=True)

    # -- looking

    def scan(self) -> None:
        """Read the objects from the disk; call it first.

        What cannot be what its name says goes to quarantine. Leftovers of
        outputs that were being made are removed; transfers that were cut
        off stay if the object is still wanted.
        """
        with self._lock:
            self._held.clear()
            for kind in views.KINDS:
                for path in sorted((self.root / kind).iterdir()):
                    if _ID.match(path.name):
                        self._admit(views.Key(kind, path.name), path)
                    elif not _PART.match(path.name):
                        self._remove_stray(path)
        for path in (self.root / STAGING).iterdir():
            self._remove_stray(path)

    def keys(self) -> frozenset[views.Key]:
        """Return all objects that are held and usable."""
        with self._lock:
            return frozenset(self._held)

    def sizes(self) -> dict[views.Key, int]:
        """Return all objects that are held, with their bytes on disk."""
        with self._lock:
            return dict(self._held)

    def __contains__(self, key: views.Key) -> bool:
        with self._lock:
            return key in self._held

    def readable(self) -> frozenset[views.Key]:
        """Return all objects that are held or borrowed."""
        return self.keys() | self.borrowed.keys()

    def is_borrowed(self, key: views.Key) -> bool:
        """Return whether an object is borrowed and not held."""
        return key not in self and key in self.borrowed.keys()

    def used(self) -> int:
        """Return bytes that count against the capacity."""
        with self._lock:
            return sum(size for key, size in self._held.items()
                       if key.kind not in views.UNPLANNED)

    def path(self, key: views.Key) -> pathlib.Path:
        """Return the path of an object, whether it exists or not."""
        return self.root / key.kind / key.id

    def manifest(self, content_id: str) -> pathlib.Path:
        """Return the path of an image's manifest, existing or not."""
        return self.root / views.MANIFESTS / content_id

    def staging(self, name: str) -> pathlib.Path:
        """Return a path for work that a restart may delete."""
        return self.root / STAGING / name

    # -- using

    @contextlib.contextmanager
    def lease(self, key: views.Key) -> typing.Iterator[pathlib.Path]:
        """Use an object: it is not evicted until the block ends.

        What is read of a borrowed one is to be verified.

        :raises ObjectMissing: it is neither held nor borrowed (any more)
        """
        with self._lock:
            if key in self._held and not files.is_there(self.path(key)):
                del self._held[key]
            held = key in self._held
            if held:
                self._leases[key] += 1
                self._last_used[key] = time.time()
                self.seals.note_use(key)
        if not held:
            with self.borrowed.lease(key) as path:
                yield path
            return
        try:
            yield self.path(key)
        finally:
            with self._lock:
                self._leases[key] -= 1

    @contextlib.contextmanager
    def opened(self, key: views.Key) -> typing.Iterator[OpenObject]:
        """Use an object that is held, by its open file.

        :raises ObjectMissing: it is not held (any more)
        """
        if key not in self:
            raise exceptions.ObjectMissing(f'This host does not hold {key}.')
        with self.lease(key) as path:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError as error:
                raise exceptions.ObjectMissing(
                    f'This host no longer holds {key}.') from error
            try:
                yield OpenObject(fd, not self._always_read
                                 and self.seals.is_intact(key, fd))
            finally:
                os.close(fd)

    def is_sound(self, key: views.Key) -> bool:
        """Return whether a borrowed file may be copied without reading it."""
        return not self._always_read and self.borrowed.is_sound(key)

    def is_intact(self, key: views.Key) -> bool:
        """Return whether an object is held, and may be used unread."""
        try:
            with self.opened(key) as found:
                return found.is_intact
        except exceptions.ObjectMissing:
            return False

    def note_built(self, base: views.Key, path: pathlib.Path) -> None:
        """Note a file that may share unread blocks with a held base."""
        if base in self:
            self.seals.note_delivered(base, path, path.stat().st_ino)

    def save_seals(self) -> None:
        """Record which objects are known to be right."""
        self.seals.save(self.path)

    def note_delivered(self, key: views.Key, output: pathlib.Path,
                       status: os.stat_result) -> None:
        """Note that a copy of an object was given to another service."""
        self.borrowed.note_delivered(key, status)
        if key in self:
            self.seals.note_delivered(key, output, status.st_ino)

    def in_use(self, key: views.Key) -> bool:
        """Return whether the usage count is above zero."""
        with self._lock:
            return (self._leases[key] > 0
                    or self._readers(key.kind, key.id) > 0)

    # -- changing

    def want(self, wanted: list[PlacedObject]) -> None:
        """Set the objects of the plan; all others may be evicted."""
        with self._lock:
            self._wanted = {item.key: item.priority for item in wanted}
            self._drop_abandoned_parts()

    def wants(self, key: views.Key) -> bool:
        """Return whether the plan places the object here."""
        with self._lock:
            return key in self._wanted

    @contextlib.contextmanager
    def room_for(self, key: views.Key, size: int) -> typing.Iterator[None]:
        """Set bytes aside while an object is brought to its place.

        Evicts what the plan no longer places, least valuable first, but only
        as much as it takes, and nothing that is in use.

        :raises NoSpace: the capacity does not allow it now
        """
        counts = key.kind not in views.UNPLANNED and self.capacity is not None
        if counts:
            with self._lock:
                self._evict_until(size, key)
                self._reserved.setdefault(key, []).append(size)
        try:
            yield
        finally:
            if counts:
                with self._lock:
                    self._reserved[key].remove(size)
                    if not self._reserved[key]:
                        del self._reserved[key]

    def adopt(self, key: views.Key, path: pathlib.Path, size: int) -> bool:
        """Cache an object that was built for a request, if there is room.

        Objects that a plan places, or that are in use, do not give way to it.

        :param path: a verified file on the filesystem of the root; it is
            renamed
        :param size: bytes that it takes
        :returns: whether it is held from now on; False for a repository,
            which is given what it holds
        """
        with self._lock:
            if self.capacity is None or key in self._held \
                    or key in self._reserved:
                return False
            try:
                with self.room_for(key, size):
                    os.replace(path, self.path(key))
                    self.added(key)
            except exceptions.NoSpace as error:
                LOG.debug('Not caching: %s', error)
                return False
            return True

    def take(self, key: views.Key, path: pathlib.Path) -> None:
        """Hold an object whose room was set aside, unless it is held already.

        :param path: a verified file on the filesystem of the root; it is
            renamed
        """
        with self._lock:
            if key not in self._held:
                os.replace(path, self.path(key))
                self.added(key)

    def spare(self) -> int:
        """Return the bytes that are neither used nor reserved."""
        with self._lock:
            if self.capacity is None:
                return 0
            return self.capacity - self.used() - sum(
                map(max, self._reserved.values()))

    def makes_room(self, size: int) -> bool:
        """Return whether this many bytes fit, after evictions if needed."""
        with self._lock:
            return self.spare() + sum(
                self._held[key] for key in self._victims()) >= size

    def added(self, key: views.Key) -> None:
        """Account for a verified object whose file has just got its name."""
        with self._lock:
            self.seals.seal(key, self.path(key))
            self._account(key)

    def room_for_recipe(self, size: int, capacity: int,
                        wanted: typing.Collection[views.Key]) -> bool:
        """Make room for a recipe, by evicting other recipes if need be.

        :param capacity: bytes that all recipes may take
        :param wanted: recipes that stay
        :returns: whether there is room
        """
        with self._lock:
            recipes = {key: taken for key, taken in self._held.items()
                       if key.kind == views.RECIPES}
            used = sum(recipes.values())
            for key in sorted(recipes, key=lambda key: self._last_used.get(
                    key, 0.0)):
                if used + size <= capacity:
                    break
                if key not in wanted and not self.in_use(key):
                    used -= recipes[key]
                    self._drop(key, 'room is needed for other recipes')
            return used + size <= capacity

    def free_disk(self) -> bool:
        """Free space on a full filesystem: delete all unwanted objects.

        :returns: whether anything was dropped
        """
        with self._lock:
            victims = self._victims()
            for key in victims:
                self._drop(key, 'the filesystem is full')
        return any([self.borrowed.drop_removed(), bool(victims)])

    def verify(self, key: views.Key) -> bool:
        """Read the object and quarantine it if it is damaged.

        A borrowed one is no longer used then. An object that cannot be read
        now stays: the error may be one of the process or of a moment.

        :returns: whether it is held or borrowed, and was found sound
        """
        return self._verified(key, self.inspector.deep)

    def scrub(self, key: views.Key, pace: Pace) -> bool:
        """Do as :meth:`verify`, slowly.

        :raises Exception: what the progress of the pace raised
        """
        return self._verified(key, functools.partial(
            self.inspector.slowly, pace=pace))

    def _verified(self, key: views.Key, read: typing.Callable) -> bool:
        try:
            if self.is_borrowed(key):
                with self.lease(key) as path:
                    read(key, path, self.manifest(key.id))
            else:
                with self.opened(key) as found:
                    self.read(key, found, read)
        except exceptions.ObjectMissing:
            return False
        except _DAMAGED as error:
            self.quarantine(key, str(error))
            return False
        except exceptions.Cancelled:
            raise
        except (exceptions.DiffCacheError, OSError) as error:
            LOG.error('Could not verify %s, which stays in service: %s', key,
                      error)
            return False
        return True

    def read(self, key: views.Key, found: OpenObject,
             read: typing.Callable | None = None) -> None:
        """Read a held object, and seal it if it is right.

        :param read: of the inspector; ``deep`` by default
        :raises DiffCacheError: as the inspector raises it
        :raises OSError: as the inspector raises it
        """
        began, before = time.time(), identities.settle(found.fd)
        (read or self.inspector.deep)(key, found.path, self.manifest(key.id))
        if before is not None and before == identities.Identity.of(found.fd):
            self.seals.renew(key, before, began)

    def quarantine(self, key: views.Key, reason: str) -> None:
        """Stop serving a damaged object at once."""
        if self.is_borrowed(key):
            self.borrowed.drop(key, reason)
            return
        with self._lock:
            self._held.pop(key, None)
            path = self.path(key)
            outputs = self.seals.condemn(key)
            LOG.error('Object %s is damaged and no longer served: %s; %s', key,
                      reason, seals.name_some(outputs))
            aside = self.root / QUARANTINE / f'{key.kind}-{key.id}'
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, aside)
                os.utime(aside)
            kept = sorted((self.root / QUARANTINE).iterdir(),
                          key=lambda p: p.stat().st_mtime)
            for old in kept[:-QUARANTINE_KEPT]:
                self._remove_stray(old)
        if self._on_quarantine is not None:
            self._on_quarantine(key)

    def on_quarantine(self, call: typing.Callable[[views.Key], object]
                      ) -> None:
        """Have a function called with each object that is damaged."""
        self._on_quarantine = call

    def drop(self, key: views.Key, reason: str) -> None:
        """Delete an object, also if the plan places it or it is in use.

        Who is reading it reads it to its end.
        """
        with self._lock:
            self._drop(key, reason)
            self._aside(key).unlink(missing_ok=True)
            for part in self.path(key).parent.glob(f'.{key.id}.part*'):
                self._remove_stray(part)
        self.borrowed.drop(key, reason)

    def release(self, key: views.Key) -> bool:
        """Drop an object that the plan does not want and that is not in use.

        :returns: whether it was held
        """
        with self._lock:
            if key not in self._victims():
                return False
            self._drop(key, 'it is no longer wanted')
            return True

    def set_aside(self, key: views.Key) -> None:
        """Keep an object but make it unreadable."""
        with self._lock:
            self._held.pop(key, None)
            self.seals.drop(key)
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.path(key), self._aside(key))

    def bring_back(self, key: views.Key) -> None:
        """Make an object readable again that was set aside."""
        with self._lock, contextlib.suppress(FileNotFoundError):
            os.replace(self._aside(key), self.path(key))
            self._account(key)

    # -- inside; the lock is held

    def _account(self, key: views.Key) -> None:
        """Count an object with what was set aside for it.

        A filesystem that shares blocks may show more for minutes, until it has
        trimmed what it reserved.
        """
        taken = disk_bytes(self.path(key))
        self._held[key] = min(taken, max(self._reserved.get(key, [taken])))
        self._last_used[key] = time.time()

    def _aside(self, key: views.Key) -> pathlib.Path:
        return self.root / WITHDRAWN / f'{key.kind}-{key.id}'

    def _admit(self, key: views.Key, path: pathlib.Path) -> None:
        try:
            self.inspector.quick(key, path, self.manifest(key.id))
        except _DAMAGED as error:
            self.quarantine(key, str(error))
            return
        except (exceptions.DiffCacheError, OSError) as error:
            LOG.error('Could not read %s, which is not served until the next'
                      ' start: %s', key, error)
            return
        self._held[key] = disk_bytes(path)
        self._last_used[key] = path.stat().st_atime

    def _evict_until(self, size: int, key: views.Key) -> None:
        free = self.spare() + max(self._reserved.get(key, [0]))
        chosen = []
        for victim in self._victims():
            if free >= size:
                break
            if victim != key:
                free += self._held[victim]
                chosen.append(victim)
        if free < size:
            raise exceptions.NoSpace(
                f'{key} takes {size} bytes and the cache has {free} left of '
                f'{self.capacity}; it waits until what is in use is '
                f'released, or raise [agent] cache_capacity.')
        for victim in chosen:
            self._drop(victim, f'room is needed for {key}')

    def _victims(self) -> list[views.Key]:
        """List unwanted and unused objects, least valuable first.

        What was used longest ago is worth least; patches go after images
        of the same age, because they cost less room for what they save.
        """
        unwanted = [key for key in self._held
                    if key.kind not in views.UNPLANNED
                    and key not in self._wanted and not self.in_use(key)]
        return sorted(unwanted, key=lambda key: (
            self._last_used.get(key, 0.0), key.kind == views.PATCHES))

    def _drop(self, key: views.Key, reason: str) -> None:
        LOG.info('Deleting %s: %s', key, reason)
        self._held.pop(key, None)
        self.seals.drop(key)
        self.path(key).unlink(missing_ok=True)

    def _drop_abandoned_parts(self) -> None:
        for kind in views.KINDS:
            for path in (self.root / kind).glob('.*.part*'):
                match = _PART.match(path.name)
                if match is None:
                    continue
                key = views.Key(kind, match['id'])
                if key not in self._wanted and key not in self._reserved \
                        and not _is_written(path):
                    self._remove_stray(path)

    @staticmethod
    def _remove_stray(path: pathlib.Path) -> None:
        LOG.info('Removing the leftover %s', path)
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _is_written(part: pathlib.Path) -> bool:
    """Return whether a transfer has a part now: it locks what it writes.

    Manifests and recipes have no room set aside that would tell.
    """
    try:
        descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
