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
"""Changes of several writers to one catalogue.

A writer changes the catalogue that it read, while others commit theirs. Its
changes are then applied to the last one: what it added, replaced and removed.
Two saves only add, under numbers that none else has, so that they never
conflict. Where one writer removed or rewrote packs or maps, the versions that
the other has added may refer to blocks that are gone: they have to be checked.
"""

import dataclasses
from typing import Any

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries

_KEYS = ('key_check', 'key_number', 'key_id', 'former_keys')
_NEXT = ('next_pack', 'next_map', 'next_version')


def rebase(mine: catalogue.Catalogue, last: catalogue.Catalogue
           ) -> list[entries.Version]:
    """Apply the changes of a writer to the last catalogue, in place.

    :param mine: has what it was read as in ``before``
    :returns: versions that may refer to blocks that are gone
    :raises Conflict: both changed the same; nothing is changed then
    """
    before = mine.before
    assert before is not None
    if mine.block_size != last.block_size:
        raise exceptions.Conflict(
            f'Another writer created the store, with blocks of '
            f'{last.block_size} bytes.')
    merged = last.copy()
    for name in ('packs', 'maps'):
        _merge(name, _changes(getattr(mine, name), getattr(before, name)),
               getattr(before, name), getattr(merged, name))
    _merge('versions', _changes(mine.versions, before.versions),
           before.versions, merged.versions)
    _merge_additions(mine, before, last, merged)
    _merge_hooks(mine, before, merged)
    _merge_keys(mine, before, merged)
    for name in _NEXT:
        setattr(merged, name, max(getattr(mine, name), getattr(last, name)))
    doubtful = _doubtful(mine, before, last)
    for field in dataclasses.fields(mine):
        setattr(mine, field.name, getattr(merged, field.name))
    mine.before = last.copy()
    return doubtful


def _changes(table: Any, before: Any) -> dict[Any, Any]:
    """Return the records that differ from those before; None: removed."""
    numbers = (table.differences(before)
               if hasattr(table, 'differences') else
               {key for key in table.keys() | before.keys()
                if table.get(key) != before.get(key)})
    return {number: table.get(number) for number in sorted(numbers)}


def _merge(name: str, changes: dict[Any, Any], before: Any, merged: Any
           ) -> None:
    """Apply changes of records that no other writer changed.

    :raises Conflict: another writer did
    """
    for key, record in changes.items():
        now = merged.get(key)
        if record is None:
            # A deleted version goes, whatever was noted of it meanwhile.
            if name != 'versions' and now not in (None, before.get(key)):
                raise _conflict(name, key)
            merged.pop(key, None)
        elif now in (before.get(key), record):
            merged[key] = record
        else:
            raise _conflict(name, key)


def _merge_additions(mine: catalogue.Catalogue, before: catalogue.Catalogue,
                     last: catalogue.Catalogue, merged: catalogue.Catalogue
                     ) -> None:
    """Apply changes of what any writer may add: of equal ones, one stays."""
    needed = {version.base.id for version in last.versions.values()
              if version.base and version.id not in before.versions}
    for name in ('bases', 'manifests'):
        old, now = getattr(before, name), getattr(merged, name)
        for key, record in _changes(getattr(mine, name), old).items():
            if now.get(key) != old.get(key) or key in needed:
                continue
            if record is not None:
                now[key] = record
            else:
                now.pop(key, None)


def _merge_hooks(mine: catalogue.Catalogue, before: catalogue.Catalogue,
                 merged: catalogue.Catalogue) -> None:
    """Apply changes of files of hooks, whose numbers are only an order."""
    changes = _changes(mine.hooks, before.hooks)
    for number in changes.keys() & before.hooks.keys():
        if merged.hooks.get(number) == before.hooks[number]:
            del merged.hooks[number]
    for record in changes.values():
        if record is not None:
            merged.hooks[max(merged.hooks, default=0) + 1] = record


def _merge_keys(mine: catalogue.Catalogue, before: catalogue.Catalogue,
                merged: catalogue.Catalogue) -> None:
    changed = [name for name in _KEYS
               if getattr(mine, name) != getattr(before, name)]
    for name in changed:
        if getattr(merged, name) != getattr(before, name):
            raise _conflict('keys', name)
        setattr(merged, name, getattr(mine, name))


def _doubtful(mine: catalogue.Catalogue, before: catalogue.Catalogue,
              last: catalogue.Catalogue) -> list[entries.Version]:
    """Return versions that one added while the other removed blocks."""
    found: list[entries.Version] = []
    for added, other in ((mine, last), (last, mine)):
        if _has_lost(other, before):
            found += [version for name, version in added.versions.items()
                      if name not in before.versions]
    return found


def _has_lost(head: catalogue.Catalogue, before: catalogue.Catalogue) -> bool:
    """Return whether packs or maps are gone, or not as they were."""
    try:
        return (any(number in before.packs for number
                    in head.packs.differences(before.packs))
                or any(number in before.maps for number
                       in head.maps.differences(before.maps)))
    except exceptions.NotFound:
        # A segment of the former catalogue is gone, so that is unknown.
        return True


def lost(head: catalogue.Catalogue, last: catalogue.Catalogue) -> bool:
    """Return whether blocks that a writer may read of a catalogue are gone.

    :param last: the last catalogue
    """
    before = head.before or head
    return last.digest != before.digest and _has_lost(last, before)


def _conflict(name: str, key: Any) -> exceptions.Conflict:
    return exceptions.Conflict(
        f'Another writer changed {name} {key} of the store meanwhile.')
