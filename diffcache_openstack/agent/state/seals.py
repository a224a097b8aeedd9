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
"""What is known of held objects: when each was last read and found right.

An object is hashed when it arrives. From then on it is trusted as long as its
identity is the one that was recorded; see :mod:`.identities`. The record is
written later, after the object itself: an object of which a crash took the
record is read before it is used. What was delivered from an object since its
last good reading is noted, to be named if it is found damaged.
"""

import collections
import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import threading
import time
import typing

from diffcache_openstack.agent.state import identities
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# Only the agent can read an object; no user can write to it.
_SEALED = 0o400
# Outputs that the log names of a damaged object; its list has all of them.
_MOST_NAMED = 20


@dataclasses.dataclass(frozen=True)
class Seal:
    """An object's file as it was when it was found right.

    :param read_at: when that reading began, seconds since 1970
    """

    identity: identities.Identity
    read_at: float


class Damage(typing.NamedTuple):
    """An object that was found damaged.

    :param outputs: what was delivered from it since its last good reading
    :param record: file that has the list until an operator removes it
    """

    key: views.Key
    outputs: list[str]
    record: pathlib.Path


class Seals:
    """The seals of one host's objects, and what was delivered from them.

    :param state: directory of the records
    """

    def __init__(self, state: pathlib.Path) -> None:
        self._path = state / 'seals.json'
        self._deliveries = state / 'deliveries'
        self._damaged = state / 'damaged'
        for directory in (self._deliveries, self._damaged):
            directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._seals = self._load()
        self._unsaved: set[views.Key] = set()
        self._uses: collections.Counter[views.Key] = collections.Counter()

    # -- seals

    def seal(self, key: views.Key, path: pathlib.Path) -> None:
        """Seal a verified object whose file has just got its name."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(fd, _SEALED)
            self.renew(key, identities.Identity.of(fd), time.time())
        finally:
            os.close(fd)

    def renew(self, key: views.Key, identity: identities.Identity,
              read_at: float) -> None:
        """Note a good reading of an object.

        :param identity: of its file before and after the reading
        :param read_at: when the reading began, seconds since 1970
        """
        with self._lock:
            self._seals[key] = Seal(identity, read_at)
            self._unsaved.add(key)
            del self._uses[key]
            self._forget_deliveries(key, read_at)

    def is_intact(self, key: views.Key, fd: int) -> bool:
        """Return whether an object's file is as it was when it was right.

        :param fd: of the object's open file
        """
        with self._lock:
            seal = self._seals.get(key)
        return seal is not None \
            and seal.identity == identities.Identity.of(fd)

    def last_read(self, key: views.Key) -> float | None:
        """Return when an object was last found right; None if unknown."""
        with self._lock:
            seal = self._seals.get(key)
        return None if seal is None else seal.read_at

    def drop(self, key: views.Key) -> None:
        """Forget an object that is no longer held."""
        with self._lock:
            if self._seals.pop(key, None) is not None:
                self._unsaved.add(key)
            del self._uses[key]
            self._delivery_record(key).unlink(missing_ok=True)

    def save(self, path_of: typing.Callable[[views.Key], pathlib.Path]
             ) -> None:
        """Write the record, after the objects that it newly vouches for.

        Their data has to survive a power cut as their times do.

        :param path_of: returns the path of an object
        """
        with self._lock:
            unsaved, self._unsaved = self._unsaved, set()
            seals = dict(self._seals)
        if not unsaved:
            return
        for key in unsaved & seals.keys():
            with contextlib.suppress(FileNotFoundError):
                try:
                    files.sync(path_of(key))
                except OSError as error:
                    self._doubt(key, path_of(key), seals.pop(key), error)
        try:
            files.write_json(self._path, {
                '/'.join(key): [*seal.identity, seal.read_at]
                for key, seal in seals.items()})
        except (OSError, exceptions.NoSpace) as error:
            with self._lock:
                self._unsaved |= unsaved
            LOG.warning('Could not record which objects were verified in %s,'
                        ' will retry; they are read again after a crash: %s',
                        self._path, error)

    def _doubt(self, key: views.Key, path: pathlib.Path, seal: Seal,
               reason: OSError) -> None:
        """Have an object read again whose bytes may not be on the disk.

        The kernel says so once, and takes its copy for what is there.
        """
        with self._lock:
            if self._seals.get(key) == seal:
                del self._seals[key]
        LOG.warning('Object %s of %s is read again before it is used, as it'
                    ' could not be written: %s', key.id, key.kind, reason)
        # Without its seal it is read again in any case.
        with contextlib.suppress(OSError):
            files.forget_cached(path)

    def _load(self) -> dict[views.Key, Seal]:
        document = files.read_json(self._path)
        try:
            return {
                views.Key(*name.split('/')): Seal(
                    identities.Identity(*map(int, values[:-1])),
                    float(values[-1]))
                for name, values in (document or {}).items()}
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            LOG.warning('Ignoring the damaged record %s, all objects are read'
                        ' before they are used: %s', self._path, error)
            return {}

    # -- use

    def note_use(self, key: views.Key) -> None:
        """Count a use of an object since its last good reading."""
        with self._lock:
            self._uses[key] += 1

    def uses(self, key: views.Key) -> int:
        """Return the uses of an object since its last good reading."""
        with self._lock:
            return self._uses[key]

    def note_delivered(self, key: views.Key, output: pathlib.Path,
                       inode: int) -> None:
        """Note a copy of an object that is handed to another service.

        :param inode: of the copy, which may be renamed
        """
        line = json.dumps([time.time(), str(output), inode]) + '\n'
        with self._lock, open(self._delivery_record(key), 'a',
                              encoding='utf-8') as record:
            record.write(line)

    def condemn(self, key: views.Key) -> list[str]:
        """Forget a damaged object; return what was delivered from it.

        That is since its last good reading. The list is kept as well, for the
        operator. Images that were built from a damaged one may have its
        damage, so that all of them lose their seals.
        """
        with self._lock:
            entries = self._delivered(key)
            if key.kind == views.IMAGES:
                doubtful = {each for each in self._seals
                            if each.kind == views.IMAGES}
                for each in doubtful:
                    del self._seals[each]
                self._unsaved |= doubtful
        self.drop(key)
        outputs = [f'{path} (inode {inode})' for _when, path, inode in entries]
        if outputs:
            files.write_json(self._damaged / f'{key.kind}-{key.id}.json',
                             {'outputs': outputs})
        return outputs

    def damages(self) -> list[Damage]:
        """Return the damaged objects whose list no operator has removed."""
        found = []
        for path in sorted(self._damaged.glob('*.json')):
            kind, _, object_id = path.stem.partition('-')
            document = files.read_json(path) or {}
            found.append(Damage(views.Key(kind, object_id),
                                document.get('outputs', []), path))
        return found

    # -- inside; the lock is held

    def _delivery_record(self, key: views.Key) -> pathlib.Path:
        return self._deliveries / f'{key.kind}-{key.id}'

    def _delivered(self, key: views.Key) -> list[list]:
        try:
            text = self._delivery_record(key).read_text(encoding='utf-8')
        except FileNotFoundError:
            return []
        entries = []
        for line in text.splitlines():
            # A crash may have cut off the last one.
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return entries

    def _forget_deliveries(self, key: views.Key, before: float) -> None:
        record = self._delivery_record(key)
        kept = [entry for entry in self._delivered(key) if entry[0] >= before]
        if not kept:
            record.unlink(missing_ok=True)
            return
        with files.replacing(record, durable=False) as part:
            part.write_text(''.join(f'{json.dumps(entry)}\n'
                                    for entry in kept), encoding='utf-8')


def name_some(outputs: typing.Sequence[str]) -> str:
    """Return outputs in words, the first of them by name."""
    if not outputs:
        return 'nothing was delivered from it since it was last read'
    more = len(outputs) - _MOST_NAMED
    return ('delivered from it since it was last read: '
            + ', '.join(outputs[:_MOST_NAMED])
            + (f' and {more} more' if more > 0 else ''))
