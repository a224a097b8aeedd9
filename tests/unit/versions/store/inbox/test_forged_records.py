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
"""Records of proposals that no honest host writes."""

import dataclasses
import os
import threading

from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.inbox import acceptance
from diffcache_openstack.versions.store.indexes import manifests
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions.store.inbox import test_acceptance

_BASE = entries.Base('a' * 64, 'base', 4096)


class TestForgedRecords(test_acceptance.AcceptanceTest):
    """A host saves, and changes the catalogue that it proposes."""

    def setUp(self):
        super().setUp()
        self.first = self.save()
        self.accept()

    def forge(self, change):
        """Save, and have the proposal changed; return what comes of it."""
        self.write_blocks(self.disk, 1)
        saved = self.save()
        head = self.access.head()
        change(head, saved)
        self.inbox.replace(blob_names.of_head(head.number),
                           head.encode(self.key))
        return self.accept()

    def assert_refused(self, what, change):
        result = self.forge(change)
        self.assertEqual(([], 1), (result.versions, len(result.reasons)),
                         what)
        self.assertEqual([self.first.id], self.kept(), what)
        # Nothing of it is in the way of others.
        self.assertEqual(acceptance.Accepted(), self.accept(), what)

    def assert_saves_go_on(self):
        self.write_blocks(self.disk, 2)
        saved = self.save()
        self.assertEqual([saved.id], self.accept().versions)
        self.access = self.keeper
        self.assertEqual(self.disk.read_bytes(), self.content(saved))
        self.assertTrue(verification.verify(self.keeper).intact)

    def test_fields_of_versions(self):
        for name, value in (
                ('root', (300, 0, 0)), ('root', (3, 0, 0)),
                ('base', dataclasses.replace(_BASE, id={})),
                ('base', dataclasses.replace(_BASE, id=[])),
                ('base', dataclasses.replace(_BASE, name=5)),
                ('base', dataclasses.replace(_BASE, size=-1)),
                ('base', dataclasses.replace(_BASE, size='1')),
                ('created_at', 'never'), ('seconds', float('nan')),
                ('parent', []), ('token', {}), ('quiesced', 'yes'),
                ('disk_format', 'vmdk'),
                ('snapshots', (entries.Snapshot([], 'x'),)),
                ('snapshots', (entries.Snapshot('x', {}),))):
            def change(head, saved, name=name, value=value):
                head.versions.table[saved.number] = dataclasses.replace(
                    saved, **{name: value})

            self.assert_refused(f'{name}={value}', change)
        self.assert_saves_go_on()

    def test_sizes_that_are_not_those_of_blobs(self):
        """Sums of them are what quotas, reserves and databases get."""
        most = (1 << 63) - 1
        for table, fields in (('packs', {'blocks': 1 << 40}),
                              ('packs', {'data_bytes': most}),
                              ('packs', {'index_bytes': most}),
                              ('maps', {'bytes': most})):
            def change(head, _saved, table=table, fields=fields):
                records = getattr(head, table)
                number = max(records)
                records[number] = dataclasses.replace(records[number],
                                                      **fields)

            self.assert_refused(f'{table} {fields}', change)
        self.assert_saves_go_on()

    def test_numbers_that_the_next_writer_is_given(self):
        """Its proposal would seem to change what this one has."""
        for name in ('next_pack', 'next_map', 'next_version'):
            def change(head, _saved, name=name):
                setattr(head, name, getattr(self.keeper.head(), name))

            self.assert_refused(name, change)

        def far(head, _saved):
            head.packs[head.next_pack + 5] = head.packs[max(head.packs)]

        self.assert_refused('far', far)
        self.assert_saves_go_on()

    def test_blobs_of_several_records(self):
        def twice(head, _saved):
            head.packs[head.next_pack] = head.packs[max(head.packs)]
            head.next_pack += 1

        def part(head, _saved):
            number = max(head.maps)
            blob = head.maps[number]
            head.maps[number] = dataclasses.replace(
                blob, blob=f'{blob.blob}@0+{blob.bytes}')

        def accepted(head, _saved):
            head.maps[head.next_map] = head.maps[min(head.maps)]
            head.next_map += 1

        for change in (twice, part, accepted):
            self.assert_refused(change.__name__, change)
        self.assert_saves_go_on()

    def test_a_version_with_the_snapshot_of_another_one(self):
        """The next save would read only what changed since the snapshot."""
        kept = entries.Snapshot('dc-00000000-00000000', 'f' * 32)

        def change(head, saved, snapshot=kept):
            head.versions.table[saved.number] = dataclasses.replace(
                saved, snapshots=(snapshot,))

        [own] = self.forge(change).versions
        self.first, first = self.keeper.head().versions[own], self.first
        result = self.forge(change)
        self.assertIn('a snapshot of another version', result.reasons[0])
        self.assertEqual([first.id, own], self.kept())

    def test_a_version_that_is_its_own_ancestor(self):
        def change(head, saved):
            head.versions.table[saved.number] = dataclasses.replace(
                saved, parent=saved.id)

        [forged] = self.forge(change).versions
        head = self.keeper.head()
        found = []
        # A search without end would never let the test end.
        search = threading.Thread(daemon=True, target=lambda: found.append(
            manifests.known(head, head.versions[forged])))
        search.start()
        search.join(60)
        self.assertEqual([None], found)

    def test_files_that_cannot_be_removed_from_an_inbox(self):
        directory = self.directory / 'inbox'
        (directory / 'README').write_text('x')
        (directory / 'pack-00000009-00000000').mkdir()
        self.assertEqual([], self.accept().reasons)
        self.assert_saves_go_on()

    def test_a_blob_that_cannot_be_read(self):
        def change(head, _saved):
            pack = head.packs[max(head.packs)]
            path = self.directory / 'inbox' / pack.blob
            path.unlink()
            path.mkdir()
            head.packs[max(head.packs)] = dataclasses.replace(
                pack, data_bytes=os.stat(path).st_size)

        result = self.forge(change)
        self.assertIn('directory', result.reasons[0])
        self.assert_saves_go_on()
