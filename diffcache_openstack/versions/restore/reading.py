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
"""Reading versions at any place, without restoring them."""

import contextlib
import logging
import os
import pathlib
import threading

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue

LOG = logging.getLogger(__name__)


class VersionReader:
    """Reads a version, from any thread.

    What was pruned or rewritten meanwhile is found again, and what is damaged
    in a copy of the store, if it has one; a version that was deleted can be
    read until its packs are pruned.

    :param name: the id of the version
    :param base: its base image, if it has one; it stays open
    :raises NotFound: the version does not exist
    """

    def __init__(self, access: store_reader.StoreReader, name: str,
                 base: pathlib.Path | None = None) -> None:
        self._access = access
        self._name = name
        self._lock = threading.Lock()
        with contextlib.ExitStack() as stack:
            self._base: pathlib.Path | None = None
            if base is not None:
                descriptor = os.open(base, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                self._base = pathlib.Path(f'/proc/self/fd/{descriptor}')
            self._opened = _Opened(access, name, self._base)
            self.size = self._opened.version.size
            self._stack = stack.pop_all()

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the version; fewer only at its end.

        :raises IntegrityError: the store is damaged
        :raises NotFound: the version was deleted
        :raises ServiceUnavailable: the store does not answer
        """
        length = min(length, self.size - offset)
        if length <= 0:
            return b''
        opened = self._opened
        try:
            return opened.read(offset, length)
        except (exceptions.IntegrityError, exceptions.ObjectMissing,
                FileNotFoundError) as exc:
            return self._reopened(opened, exc).read(offset, length)

    def close(self) -> None:
        """Close the base image, and the store's files."""
        self._opened.close()
        self._stack.close()

    def _reopened(self, failed: '_Opened', error: Exception) -> '_Opened':
        """Open the store's present state, unless it is the one that failed.

        :raises Exception: ``error``, if it is
        """
        with self._lock:
            if self._opened is failed:
                head = self._access.head()
                if head.number == failed.number and not failed.distrust(
                        self._access, error):
                    raise error
                LOG.info('Version %s is read from the next state of its'
                         ' store: %s', self._name, error)
                self._opened = _Opened(self._access, self._name, self._base)
                failed.close()
            return self._opened


class _Opened:
    """A version in one state of its store."""

    def __init__(self, access: store_reader.StoreReader, name: str,
                 base: pathlib.Path | None) -> None:
        head: catalogue.Catalogue = access.head()
        self.number = head.number
        self._head = head
        self.version = head.find(name)
        self._content = _native.Content(self.version.root, self.version.size,
                                        base)
        with contextlib.ExitStack() as stack:
            self._blocks = stack.enter_context(access.opened(head))
            self._stack = stack.pop_all()

    def read(self, offset: int, length: int) -> bytes:
        with native_errors.translated():
            return self._blocks.read(self._content, offset, length)

    def distrust(self, access: store_reader.StoreReader, error: Exception
                 ) -> bool:
        """Return whether what an error names is read from a copy next time."""
        return access.distrust(self._head, self._blocks, error)

    def close(self) -> None:
        self._stack.close()
