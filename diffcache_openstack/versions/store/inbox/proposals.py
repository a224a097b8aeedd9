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

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.catalogue import catalogue

_BLOB = re.compile(
    r'(pack|index|map|base|manifest|hooks)-[0-9a-f]{8,16}-[0-9a-f]{8}')
# That one proposal takes: of many disks of 16 TiB that are saved at once.
_MOST_NUMBERS = 1 << 24


def refuse_changes(head: catalogue.Catalogue,
                   proposal: catalogue.Catalogue) -> None:
    """Refuse a proposal that does anything but add to the head.

    :raises IntegrityError: it does
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
    for version_id in sorted(proposal.manifests.keys()
                             - head.manifests.keys()):
        # Whether it is that of the version's content is not known here. Of its
        # own versions a host determines the content anyway.
        if version_id not in proposal.versions.keys() - head.versions.keys():
            fail(f'it adds a manifest of version {version_id:.80}, which it '
                 f'does not add.')
    used = {version.base.id for version_id, version
            in proposal.versions.items()
            if version.base and version_id not in head.versions}
    for base_id in sorted(proposal.bases.keys() - head.bases.keys() - used):
        # Each is compared with its image, which has to be read for it.
        fail(f'it adds an index of base image {base_id:.80}, which no version '
             f'that it adds has.')
    for old, new in zip(head.tables(), proposal.tables()):
        if old.segments != new.segments:
            fail('it has other segments of records.')
    for name in ('next_pack', 'next_map', 'next_version'):
        more = getattr(proposal, name) - getattr(head, name)
        if not 0 <= more <= _MOST_NUMBERS:
            fail(f'its {name} is lower, or leaves too few numbers.')
    for blob in proposal.blobs() - head.blobs():
        if not _BLOB.fullmatch(blob):
            fail(f'it names the blob {blob!r:.80}.')


def _constants(head: catalogue.Catalogue) -> tuple:
    return (head.store_id, head.block_size, head.key_check, head.key_number,
            head.key_id, head.former_keys)
