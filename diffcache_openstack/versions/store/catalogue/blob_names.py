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
"""Names of the blobs of a version store: see the reference of its format."""

import re
from typing import Iterable

_HEAD = re.compile(r'head-(\d{10})')
POINTERS = ('latest-0', 'latest-1')
# Created after the first catalogue and never changed: a store that has it is
# not empty, even if both pointers are gone.
MARKER = 'store-id'
# Written before the first catalogue; see
# :mod:`diffcache_openstack.versions.store.keys.key_ids`.
KEY_BLOBS = ('key-0', 'key-1')
# Of a copy of another store; see
# :mod:`diffcache_openstack.versions.store.copies.replication`.
COPIED = ('copied-0', 'copied-1')
_NUMBERED = re.compile(r'(pack|index|map|manifest|hooks|records)-\d{8,}-'
                       r'[a-z0-9]+'
                       r'|base-[a-z0-9]+-[a-z0-9]+'
                       r'|next-\d{10,}-[0-9a-f]+')


def of_head(number: int) -> str:
    """Return the name of the blob that a catalogue is in."""
    return f'head-{number:010d}'


def head_number(name: str) -> int | None:
    """Return the number of the catalogue in a blob; None for others."""
    match = _HEAD.fullmatch(name)
    return int(match[1]) if match else None


def is_bookkeeping(name: str) -> bool:
    """Return whether a blob is no part of any version."""
    return (name.startswith('head-')
            or name in (*POINTERS, *KEY_BLOBS, *COPIED, MARKER))


def is_own(name: str) -> bool:
    """Return whether a version store may have named a blob so."""
    return (_NUMBERED.fullmatch(name) is not None
            or is_bookkeeping(name))


def foreign(names: Iterable[str]) -> list[str]:
    """Return the names that no version store gives, sorted."""
    return sorted(name for name in names if not is_own(name))
