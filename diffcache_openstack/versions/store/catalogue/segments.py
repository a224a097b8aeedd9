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
"""Moves records of catalogues to blobs: see :mod:`.record_tables`."""

import secrets
from typing import Mapping

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.catalogue import record_tables


def pack(store: base.BlobStore, head: catalogue.Catalogue) -> list[str]:
    """Move records of a catalogue to segments, if it has many.

    :returns: segments that are not needed once it is committed
    """
    if store.append_only:
        # What hosts add is accepted as it is, and must change nothing.
        return []
    before = names(head)
    for table in head.tables():
        if table.is_full():
            table.replace_segments([
                (segment or _put(store, head, records), records)
                for segment, records in table.packed()])
    return sorted(before - names(head))


def names(head: catalogue.Catalogue) -> set[str]:
    """Return the blobs of the segments of a catalogue."""
    return {name for table in head.tables()
            for segment in table.segments for name in segment.blobs}


def _put(store: base.BlobStore, head: catalogue.Catalogue,
         records: Mapping[int, entries.Pack] | Mapping[int, entries.Blob]
         | Mapping[int, entries.Version]) -> record_tables.Segment:
    data = record_tables.encode(records)
    name = f'records-{head.number:08d}-{secrets.token_hex(4)}'
    sizes = [entries.bytes_of(record) for record in records.values()]
    segment = record_tables.Segment(
        name, catalogue.digest_of(data), min(records), max(records),
        len(records), sum(sizes), max(sizes))
    for copy in segment.blobs:
        store.replace(copy, data)
    return segment


def damage(store: base.BlobStore, head: catalogue.Catalogue
           ) -> list[tuple[str, str]]:
    """Return the copies of segments that are damaged, and why."""
    found = []
    for table in head.tables():
        for segment in table.segments:
            for name in segment.blobs:
                try:
                    record_tables.decode(store.read(name), segment)
                except (exceptions.IntegrityError,
                        exceptions.NotFound) as exc:
                    found.append((name, f'{exc} Copy the other one over it.'))
    return found
