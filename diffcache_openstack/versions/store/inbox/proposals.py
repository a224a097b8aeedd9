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
"""What a proposal, a catalogue that a host puts, may change."""

import re
from typing import Callable
from typing import Iterator

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.catalogue import catalogue

_BLOB = re.compile(
    r'(pack|index|map|base|manifest|hooks)-[0-9a-f]{8,16}-[0-9a-f]{8}')
# That one proposal takes: of many disks of 16 TiB that are saved at once.
_MOST_NUMBERS = 1 << 24


def added(head: catalogue.Catalogue, proposal: catalogue.Catalogue
          ) -> dict[str, int]:
    """Return the blobs that a proposal adds to the head, and their bytes.

    :raises IntegrityError: it does anything else
    """
    def fail(what: str) -> None:
        raise exceptions.IntegrityError(
            f'Catalogue {proposal.number} cannot be accepted: {what}')

    if proposal.number != head.number + 1:
        fail('its number does not follow that of the last one.')
    if head.number and _constants(head) != _constants(proposal):
        fail('it is one of another store, or has another key.')
    for name in ('versions', 'packs', 'maps', 'bases', 'manifests', 'hooks'):
        old, new = getattr(head, name), getattr(proposal, name)
        for key, record in old.items():
            if key not in new:
                fail(f'it drops {name[:-1]} {key}.')
            if record != new[key]:
                fail(f'it changes {name[:-1]} {key}.')
    for old, new in zip(head.tables(), proposal.tables()):
        if old.segments != new.segments:
            fail('it has other segments of records.')
    _refuse_numbers(head, proposal, fail)
    _refuse_versions(head, proposal, fail)
    return _blobs(head, proposal, fail)


def _refuse_numbers(head: catalogue.Catalogue, proposal: catalogue.Catalogue,
                    fail: Callable[[str], None]) -> None:
    """Refuse numbers that the next writers would be given, or too many."""
    for name, table in (('pack', proposal.packs), ('map', proposal.maps),
                        ('version', proposal.versions.table)):
        end = getattr(proposal, f'next_{name}')
        if not 0 <= end - getattr(head, f'next_{name}') <= _MOST_NUMBERS:
            fail(f'its next_{name} is lower, or leaves too few numbers.')
        for number in table:
            if number >= end:
                fail(f'it adds {name} {number}, and its next_{name} is {end}.')


def _refuse_versions(head: catalogue.Catalogue, proposal: catalogue.Catalogue,
                     fail: Callable[[str], None]) -> None:
    """Refuse what would have others take content for that of a version."""
    new = proposal.versions.keys() - head.versions.keys()
    for version_id in sorted(proposal.manifests.keys()
                             - head.manifests.keys() - new):
        # Whether it is that of the version's content is not known here. Of its
        # own versions a host determines the content anyway.
        fail(f'it adds a manifest of version {version_id:.80}, which it '
             f'does not add.')
    versions = [proposal.versions[version_id] for version_id in sorted(new)]
    used = {version.base.id for version in versions if version.base}
    for base_id in sorted(proposal.bases.keys() - head.bases.keys() - used):
        # Each is compared with its image, which has to be read for it.
        fail(f'it adds an index of base image {base_id:.80}, which no version '
             f'that it adds has.')
    known = {snapshot for version in head.versions.values()
             for snapshot in version.snapshots}
    for version in versions:
        if not known.isdisjoint(version.snapshots):
            # The next save of that disk would read only what changed since.
            fail(f'it adds version {version.id:.80} with a snapshot of '
                 f'another version.')


def _blobs(head: catalogue.Catalogue, proposal: catalogue.Catalogue,
           fail: Callable[[str], None]) -> dict[str, int]:
    """Return new blobs and their bytes, each of one record."""
    found: dict[str, int] = {}
    for name, size in _records(head, proposal):
        if not _BLOB.fullmatch(name):
            fail(f'it names the blob {name!r:.80}.')
        if name in found:
            fail(f'it names the blob {name!r:.80} twice.')
        found[name] = size
    if there := sorted(found.keys() & head.blobs()):
        fail(f'it names the blob {there[0]!r:.80} twice.')
    return found


def _records(head: catalogue.Catalogue, proposal: catalogue.Catalogue
             ) -> Iterator[tuple[str, int]]:
    for number in proposal.packs.keys() - head.packs.keys():
        pack = proposal.packs[number]
        yield pack.blob, pack.data_bytes
        yield pack.index, pack.index_bytes
    for name in ('maps', 'bases', 'manifests', 'hooks'):
        old, new = getattr(head, name), getattr(proposal, name)
        for key in new.keys() - old.keys():
            yield new[key].blob, new[key].bytes


def _constants(head: catalogue.Catalogue) -> tuple:
    return (head.store_id, head.block_size, head.key_check, head.key_number,
            head.key_id, head.former_keys)
