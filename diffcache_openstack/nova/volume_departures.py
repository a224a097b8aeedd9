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
"""Volumes that leave the SSD cache of their host, with all that was written.
"""

import collections.abc
import contextlib
import logging
import threading
import time
import typing

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import connections
from nova import exception as nova_exception

LOG = logging.getLogger(__name__)

# A volume is drained as long as it has fewer dirty blocks after this time.
_DRAIN_S = 30.0


class Departures:
    """Has volumes leave, and says which may not yet.

    :param client: of this host's agent
    :param notes: of volumes in write-back
    """

    def __init__(self, client: local_client.LocalClient,
                 notes: write_back_notes.Notes) -> None:
        self.client = client
        self._notes = notes
        self._within = threading.local()
        self._leaving: set[str] = set()
        self._leaving_lock = threading.Lock()

    @contextlib.contextmanager
    def reconnecting(self) -> collections.abc.Iterator[None]:
        """Disconnect volumes within that are then connected again.

        The cache keeps those that it holds since the host was started: it
        can write their blocks back only when they are connected.
        """
        self._within.reconnecting = True
        try:
            yield
        finally:
            self._within.reconnecting = False

    @contextlib.contextmanager
    def leaving_behind(self, connected: collections.abc.Iterable[
            connections.Connection]) -> collections.abc.Iterator[None]:
        """Disconnect volumes within from the host, and not from the cache."""
        self._within.behind = {connections.volume_id(each)
                               for each in connected}
        try:
            yield
        finally:
            self._within.behind = set()

    def _stays_held(self, volume_id: str) -> bool:
        """Return whether a volume is held until it is connected again."""
        if not getattr(self._within, 'reconnecting', False):
            return False
        found = self._shown(volume_id)
        return found is not None and found.get('state') == choices.HELD

    def is_noted(self, connection: connections.Connection) -> bool:
        """Return whether the cache may have newer blocks than a volume."""
        return self._has_note(connections.volume_id(connection))

    def _has_note(self, volume_id: str) -> bool:
        try:
            return self._notes.has(volume_id)
        except OSError as error:
            LOG.warning('Could not find out whether volume %s is in'
                        ' write-back: %s', volume_id, error)
            return True

    def leave(self, connection: connections.Connection) -> None:
        """Detach a volume from the cache.

        A cache that does not answer loses nothing, unless the volume is in
        write-back: otherwise it has all that was written.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        volume_id = connections.volume_id(connection)
        if volume_id in getattr(self._within, 'behind', ()) \
                or self._stays_held(volume_id):
            return
        try:
            if self.is_noted(connection):
                self._drain(volume_id)
            for name in {volume_id, connections.cached_as(connection)}:
                self.client.detach_volume(name)
        except exceptions.DiffCacheError as error:
            if self.is_noted(connection):
                raise nova_exception.VolumeDetachFailed(
                    volume_id=volume_id, reason=self._unsaved(
                        volume_id, error)) from error
            LOG.warning('Could not detach volume %s from the SSD cache, which'
                        ' keeps it open until it is attached again: %s',
                        volume_id, error)

    def end_guest(self, exports: collections.abc.Set[str]) -> None:
        """Have the cache forget what a server that ended has lost.

        It expects to have lost what it had not flushed.

        :param exports: that it used
        """
        if not exports:
            return
        try:
            for name, volume in self.client.ssd_cache()['volumes'].items():
                if volume['export'] in exports and volume['losses']:
                    self.client.end_volume_guest(name)
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not tell the SSD cache that a server ended;'
                        ' flushes of its volumes fail if their storage lost'
                        ' something: %s', error)

    def forget(self, connection: connections.Connection) -> None:
        """Detach a volume whose server runs on another host since.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        volume_id = connections.volume_id(connection)
        try:
            self.client.forget_volume(volume_id)
        except exceptions.DiffCacheError as error:
            raise nova_exception.VolumeDetachFailed(
                volume_id=volume_id, reason=self._unsaved(
                    volume_id, error)) from error

    def refuse_unsaved(self, connection: connections.Connection,
                       reason: typing.Any) -> None:
        """Refuse to use a volume without the blocks that it lacks.

        :raises VolumeAttachFailed: the cache may have some
        """
        if self.is_noted(connection):
            volume_id = connections.volume_id(connection)
            raise nova_exception.VolumeAttachFailed(
                volume_id=volume_id,
                reason=self._unsaved(volume_id, reason))

    def _unsaved(self, volume_id: str, reason: typing.Any) -> str:
        dirty = self._dirty(volume_id)
        count = 'an unknown number of' if dirty is None else dirty
        return (f'it is cached in write-back, and {count} blocks that it lacks'
                f' are in the SSD cache of this host: {reason} Repeat this'
                f' when the cache runs and the storage can be written.')

    def _dirty(self, volume_id: str) -> int | None:
        """Return the blocks that a volume lacks; None if it is unknown."""
        found = self._shown(volume_id)
        return None if found is None else found['dirty']

    def _shown(self, volume_id: str) -> dict[str, typing.Any] | None:
        """Return what the cache has of a volume; None if it is unknown."""
        try:
            return self.client.ssd_cache()['volumes'].get(volume_id)
        except exceptions.DiffCacheError:
            return None

    def _drain(self, volume_id: str) -> None:
        """Write a volume's dirty blocks back, however many they are.

        :raises Busy: they do not become fewer
        """
        before = None
        while True:
            try:
                self.client.drain_volume(volume_id, _DRAIN_S, leaves=True)
                return
            except exceptions.NotFound:
                return  # It is not attached.
            except exceptions.Busy:
                left = self._dirty(volume_id)
                if left is None or before is not None and left >= before:
                    raise
                before = left

    def stay_out(self, connection: connections.Connection) -> None:
        """Keep a volume out of write-back until it is attached again.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        volume_id = connections.volume_id(connection)
        try:
            self._drain(volume_id)
        except exceptions.DiffCacheError as error:
            if self.is_noted(connection):
                raise nova_exception.VolumeDetachFailed(
                    volume_id=volume_id, reason=self._unsaved(
                        volume_id, error)) from error
            LOG.warning('Could not keep volume %s out of write-back: %s',
                        volume_id, error)

    def prepare(self, volume_ids: collections.abc.Iterable[str],
                leaves: bool) -> None:
        """Write back what a server's volumes lack, before it is migrated.

        Without the agent, servers whose volumes lack nothing can leave.

        :param leaves: it is migrated now, and not only checked
        :raises RetryableError: it takes longer than some seconds, or the
            cache does not answer
        :raises Conflict: a volume cannot be written
        :raises NotFound: the cache has lost a volume that was in write-back
        """
        end = time.monotonic() + _DRAIN_S
        for volume_id in volume_ids:
            try:
                self.client.drain_volume(
                    volume_id, max(0.0, end - time.monotonic()), leaves)
            except exceptions.DiffCacheError as error:
                if self._has_note(volume_id):
                    raise
                if isinstance(error, exceptions.NotFound):
                    continue  # It is not attached.
                LOG.warning('Do not have volume %s cached in write-back'
                            ' before its server was migrated: %s', volume_id,
                            error)

    def give_back(self, volume_ids: collections.abc.Iterable[str]) -> None:
        """Let volumes be in write-back again, as their server stays."""
        for volume_id in volume_ids:
            try:
                self.client.give_volume_back(volume_id)
            except exceptions.NotFound:
                pass
            except exceptions.DiffCacheError as error:
                LOG.warning('Volume %s stays in write-through until it is'
                            ' attached again: %s', volume_id, error)

    @contextlib.contextmanager
    def leaving(self, server_id: str) -> collections.abc.Iterator[None]:
        """Migrate a server within, from before libvirt begins."""
        with self._leaving_lock:
            self._leaving.add(server_id)
        try:
            yield
        finally:
            with self._leaving_lock:
                self._leaving.discard(server_id)

    @contextlib.contextmanager
    def staying(self, server_id: str) -> collections.abc.Iterator[bool]:
        """Tell whether a server stays; none begins to leave within."""
        with self._leaving_lock:
            yield server_id not in self._leaving
