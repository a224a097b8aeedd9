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
"""How much may wait in the inbox of a store of versions.

Hosts ask before they put a blob there. What another host's process puts past
these limits, the maintenance host removes:
:mod:`diffcache_openstack.versions.store.inbox.acceptance`.
"""

import collections.abc
import contextlib
import dataclasses
import math
import os
import pathlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import units

# Of a file, as ``st_blocks`` counts them.
_BLOCK = 512

# After this many blobs, those that were accepted are dropped from the record.
_DROP_EVERY = 512

# By project: the bytes of each blob, by name.
Blobs = dict[str, dict[str, int]]


@dataclasses.dataclass(frozen=True)
class InboxLimits:
    """Most bytes that wait to be accepted.

    :param total: of all hosts
    :param host: of this one
    """

    total: float = math.inf
    host: float = math.inf


class InboxRoom:
    """Counts what waits in an inbox, and refuses what exceeds its limits.

    Several threads and processes may have one each of the same inbox.

    :param directory: that the inbox has, if it is one of files; what other
        hosts put into an object store is not known
    :param record: file with the blobs that this host has put and that were
        not accepted when it was written; None to count none
    :param is_waiting: whether the inbox of a project still has a blob
    """

    def __init__(self, limits: InboxLimits, directory: pathlib.Path | None,
                 record: pathlib.Path | None,
                 is_waiting: collections.abc.Callable[[str, str], bool]
                 ) -> None:
        self._limits = limits
        self._directory = directory
        self._record = record
        self._is_waiting = is_waiting

    def check(self) -> None:
        """Check that there is room, before a disk is read in vain.

        :raises Busy: there is none until something is accepted
        """
        try:
            if not self._fits(self._known(), 1):
                self._drop_accepted()
            self._refuse_beyond(self._known(), 1)
        except exceptions.NoSpace as error:
            raise exceptions.Busy(str(error)) from error

    def admit(self, project: str, name: str, size: int) -> None:
        """Count a blob that is about to be put.

        :param size: bytes
        :raises NoSpace: it would exceed a limit; the message names the option
        """
        known = self._known()
        if (not self._fits(known, size)
                or (sum(map(len, known.values())) + 1) % _DROP_EVERY == 0):
            self._drop_accepted()
        with self._locked():
            known = self._known()
            self._refuse_beyond(known, size)
            if self._limits.host < math.inf:
                known.setdefault(project, {})[name] = size
                self._write(known)

    def forget(self, project: str, name: str) -> None:
        """Count a blob no longer, which was removed."""
        self._drop([(project, name)])

    def _fits(self, known: Blobs, size: int) -> bool:
        return _total(known) + size <= self._limits.host

    def _refuse_beyond(self, known: Blobs, size: int) -> None:
        _refuse_beyond(_total(known), size, self._limits.host,
                       'of this host', 'inbox_host_limit')
        if self._directory is not None and self._limits.total < math.inf:
            _refuse_beyond(_used(self._directory), size, self._limits.total,
                           'of all hosts', 'inbox_limit')

    def _drop_accepted(self) -> None:
        """Drop the blobs that the inbox has no more.

        It is asked before the record is locked: it may be slow.
        """
        self._drop([(project, name) for project, blobs
                    in self._known().items() for name in blobs
                    if not self._is_waiting(project, name)])

    def _drop(self, gone: list[tuple[str, str]]) -> None:
        if not gone:
            return
        with self._locked():
            known = self._known()
            for project, name in gone:
                known.get(project, {}).pop(name, None)
            self._write({project: blobs for project, blobs in known.items()
                         if blobs})

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return (contextlib.nullcontext() if self._record is None
                else files.locked(self._record))

    def _known(self) -> Blobs:
        found = None if self._record is None else files.read_json(self._record)
        return found if isinstance(found, dict) else {}

    def _write(self, known: Blobs) -> None:
        if self._record is not None:
            files.write_json(self._record, known, durable=False)


class ProjectRoom:
    """The room for what one project's versions put into an inbox."""

    def __init__(self, room: InboxRoom, project: str) -> None:
        self._room = room
        self._project = project

    def admit(self, name: str, size: int) -> None:
        """See :meth:`InboxRoom.admit`."""
        self._room.admit(self._project, name, size)

    def forget(self, name: str) -> None:
        """See :meth:`InboxRoom.forget`."""
        self._room.forget(self._project, name)


def _total(known: Blobs) -> int:
    return sum(sum(blobs.values()) for blobs in known.values())


def _used(directory: pathlib.Path) -> int:
    """Return the bytes of a disk that the blobs below a directory take."""
    total = 0
    for path, directories, names in os.walk(directory):
        # What begins with a dot is of saves that have put nothing yet.
        directories[:] = _visible(directories)
        for name in _visible(names):
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * _BLOCK
            except FileNotFoundError:
                continue  # Accepted meanwhile.
    return total


def _visible(names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith('.')]


def _refuse_beyond(used: int, more: int, most: float, whose: str,
                   option: str) -> None:
    if used + more > most:
        raise exceptions.NoSpace(
            f'The inbox has {units.format_size(used)} {whose} that no'
            f' maintenance host has accepted yet, and'
            f' {units.format_size(more)} more would exceed [versions] {option}'
            f' ({units.format_size(int(most))}): wait until they are accepted,'
            f' or raise the option on all hosts.')
