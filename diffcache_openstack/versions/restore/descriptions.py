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

A description names packs, indexes and maps in one of two ways:

* by open descriptors. A process that inherits them can read the version to its
  end, also after it was deleted or its packs were pruned;
* by paths, in a file, for processes that do not inherit. There is no such file
  for a store with a key.
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
from typing import NamedTuple

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries

# Beside those of the description.
_OTHER_DESCRIPTORS = 256


@dataclasses.dataclass(frozen=True)
class Described:
    """A version that can be read, by this process and those that it starts.

    :ivar path: of the description
    :ivar descriptors: what it needs, which is closed with it
    """

    version: entries.Version
    path: pathlib.Path
    descriptors: contextlib.ExitStack

    def close(self) -> None:
        """Close the descriptors; processes that inherited them keep theirs."""
        self.descriptors.close()


def describe(access: store_reader.StoreReader, name: str) -> Described:
    """Open what a version is read from.

    :raises NotFound: the version does not exist
    :raises InvalidInput: the store has no files on this host
    :raises IntegrityError: the store is damaged
    """
    if not _has_files(access):
        raise exceptions.InvalidInput(
            'The store has no files on this host, which a version is read'
            ' from while it is used: restore the version instead.')
    while True:
        head = access.head()
        version = head.find(name)
        try:
            needed = _Needed.of(access, head, version)
            _allow_descriptors(needed.files() + _OTHER_DESCRIPTORS)
            with contextlib.ExitStack() as stack:
                path = _to_memory(_document(
                    access, head, version, needed,
                    functools.partial(_opened, stack=stack)), stack)
                return Described(version, path, stack.pop_all())
        except (exceptions.Busy, FileNotFoundError) as exc:
            if access.head().number == head.number:
                raise exceptions.IntegrityError(
                    f'Version {version.id} cannot be read: {exc}; verify the'
                    f' store.') from exc
            # A prune has rewritten packs under other names.


def write(access: store_reader.StoreReader, name: str, output: pathlib.Path
          ) -> bool:
    """Write a description with paths to a file.

    :returns: False if the store has a key, or no files on this host
    :raises NotFound: the version does not exist
    :raises IntegrityError: the store is damaged
    :raises Busy: the store was pruned meanwhile; the same call may succeed
    """
    if access.key is not None or not _has_files(access):
        return False
    head = access.head()
    version = head.find(name)
    files.write_json(output, _document(
        access, head, version, _Needed.of(access, head, version), str))
    return True


def _has_files(access: store_reader.StoreReader) -> bool:
    return access.store.local_path(blob_names.MARKER) is not None


class _Needed(NamedTuple):
    """What a version needs of a store, by number."""

    packs: dict[int, entries.Pack]
    maps: dict[int, entries.Blob]

    @classmethod
    def of(cls, access: store_reader.StoreReader, head: catalogue.Catalogue,
           version: entries.Version) -> '_Needed':
        with access.opened(head) as opened:
            live, [known] = opened.live([version.root])
            if not known:
                raise exceptions.IntegrityError(
                    f'Version {version.id} needs a map that is damaged or '
                    f'missing: verify the store.')
            return cls({number: head.packs[number] for number in live.packs()
                        if number in head.packs},
                       {number: head.maps[number] for number in live.maps()
                        if number in head.maps})

    def files(self) -> int:
        """Return how many files they are: a pack has an index, too."""
        return 2 * len(self.packs) + len(self.maps)


def _document(access: store_reader.StoreReader, head: catalogue.Catalogue,
              version: entries.Version, needed: _Needed,
              named: Callable[[pathlib.Path], str]) -> dict[str, Any]:
    """Describe a version; see ``native/daemon/src/sources/version.rs``.

    :param named: returns what the description has for a path
    """
    def place(blob: str) -> str:
        path = access.local_path(blob)
        if path is None:
            raise exceptions.InvalidInput(
                'The version was saved to a store without files on a host, and'
                ' copied: restore it instead.')
        return named(path)

    return {
        'size': version.size, 'root': version.root,
        'block_size': head.block_size, 'key_number': head.key_number,
        'keys': _keys(access, head),
        'packs': [{'id': number, 'key': pack.key, 'check': pack.check,
                   'index': place(pack.index), 'data': place(pack.blob)}
                  for number, pack in needed.packs.items()],
        'maps': [{'id': number, 'check': blob.check,
                  'path': place(blob.blob)}
                 for number, blob in needed.maps.items()]}


def _keys(access: store_reader.StoreReader, head: catalogue.Catalogue
          ) -> dict[int, str]:
    if access.key is None:
        return {}
    keys = {head.key_number: access.key.hex()}
    if head.key_number > 1:
        # Loads cryptography, which other stores do not need.
        from diffcache_openstack.versions.store.keys import key_chain
        keys |= {number: former.hex() for number, former
                 in key_chain.former_keys(head, access.key)}
    return keys


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
    """Let this process and those that it starts have this many descriptors.

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
