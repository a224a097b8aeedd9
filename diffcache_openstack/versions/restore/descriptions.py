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
"""Descriptions by which diffcached reads a version from its store.

A description names packs, indexes and maps. By descriptors that are open:
whoever inherits them reads the version to the end, though it is deleted or
its packs are pruned meanwhile. Or by their paths, for processes that live on
when this one ends; that is a file, so there is none for a store with a key.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import resource
from typing import Any
from typing import Callable

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.store import catalogue
from diffcache_openstack.versions.store import store_access

# Beside those of the description.
_OTHER_DESCRIPTORS = 256


@dataclasses.dataclass(frozen=True)
class Described:
    """A version that can be read, by this process and those that it starts.

    :ivar path: of the description
    :ivar descriptors: what it needs, which is closed with it
    """

    version: catalogue.Version
    path: pathlib.Path
    descriptors: contextlib.ExitStack

    def close(self) -> None:
        """Close the descriptors; processes that inherited them go on."""
        self.descriptors.close()


def describe(access: store_access.StoreAccess, name: str) -> Described:
    """Open what a version is read from.

    :raises NotFound: the version does not exist
    :raises InvalidInput: the store has no files on this host
    :raises IntegrityError: the store is damaged
    """
    while True:
        head = access.head()
        version = head.find(name)
        try:
            with contextlib.ExitStack() as stack:
                described = _Description(access, head, functools.partial(
                    _opened, stack=stack))
                path = _to_memory(described.document(version), stack)
                return Described(version, path, stack.pop_all())
        except (exceptions.Busy, FileNotFoundError) as exc:
            if access.head().number == head.number:
                raise exceptions.IntegrityError(
                    f'Version {version.id} cannot be read: {exc}; verify the'
                    f' store.') from exc
            # A prune has rewritten packs under other names.


def write(access: store_access.StoreAccess, name: str, output: pathlib.Path
          ) -> bool:
    """Write a description with paths to a file.

    :returns: False if the store has a key, or no files on this host
    :raises NotFound: the version does not exist
    :raises IntegrityError: the store is damaged
    """
    head = access.head()
    version = head.find(name)
    if access.key is not None:
        return False
    try:
        document = _Description(access, head, str).document(version)
    except _NoFiles:
        return False
    files.write_json(output, document)
    return True


class _NoFiles(exceptions.InvalidInput):
    """The store keeps no files on this host."""


class _Description:
    """Describes versions of a catalogue.

    :param named: returns what a description has for a path
    """

    def __init__(self, access: store_access.StoreAccess,
                 head: catalogue.Catalogue,
                 named: Callable[[pathlib.Path], str]) -> None:
        self._access = access
        self._head = head
        self._named = named

    def document(self, version: catalogue.Version) -> dict[str, Any]:
        """Describe a version; see ``native/daemon/src/version.rs``."""
        head = self._head
        packs, maps = self._needed(version)
        _allow_descriptors(2 * len(packs) + len(maps) + _OTHER_DESCRIPTORS)
        return {
            'size': version.size, 'root': version.root,
            'block_size': head.block_size, 'key_number': head.key_number,
            'keys': self._keys(),
            'packs': [{
                'id': number, 'key': pack.key, 'check': pack.check,
                'index': self._place(pack.index),
                'data': self._place(pack.blob)}
                for number, pack in packs.items()],
            'maps': [{'id': number, 'check': blob.check,
                      'path': self._place(blob.blob)}
                     for number, blob in maps.items()]}

    def _needed(self, version: catalogue.Version
                ) -> tuple[dict[int, catalogue.Pack],
                           dict[int, catalogue.Blob]]:
        """Return the packs and the maps that a version needs."""
        with self._access.opened(self._head) as opened:
            live = opened.live([version.root])
            packs = {number: pack for number, pack in self._head.packs.items()
                     if opened.need(number, live)[0]}
            maps = {number: blob for number, blob in self._head.maps.items()
                    if opened.need_map(number, live)[0]}
        return packs, maps

    def _keys(self) -> dict[int, str]:
        key, head = self._access.key, self._head
        if key is None:
            return {}
        keys = {head.key_number: key.hex()}
        if head.key_number > 1:
            # Loads cryptography, which other stores do not need.
            from diffcache_openstack.versions.store import key_chain
            keys |= {number: former.hex() for number, former
                     in key_chain.former_keys(head, key)}
        return keys

    def _place(self, blob: str) -> str:
        path = self._access.store.local_path(blob)
        if path is None:
            raise _NoFiles(
                'The store has no files on this host, which a version is read'
                ' from while it is used: restore the version instead.')
        return self._named(path)


def _opened(path: pathlib.Path, stack: contextlib.ExitStack) -> str:
    return _inherited(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), stack)


def _inherited(descriptor: int, stack: contextlib.ExitStack) -> str:
    stack.callback(os.close, descriptor)
    os.set_inheritable(descriptor, True)
    return f'/proc/self/fd/{descriptor}'


def _to_memory(document: dict[str, Any], stack: contextlib.ExitStack
               ) -> pathlib.Path:
    memory = os.memfd_create('diffcache-version')
    path = _inherited(memory, stack)
    with open(memory, 'wb', closefd=False) as stream:
        stream.write(json.dumps(document).encode())
    return pathlib.Path(path)


def _allow_descriptors(count: int) -> None:
    """Let this process and those that it starts have so many descriptors.

    :raises InvalidInput: the system allows fewer
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or count <= soft:
        return
    if hard != resource.RLIM_INFINITY and count > hard:
        raise exceptions.InvalidInput(
            f'The version needs {count} open files, and {hard} are allowed:'
            f' raise that limit (ulimit -n), or restore the version.')
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
