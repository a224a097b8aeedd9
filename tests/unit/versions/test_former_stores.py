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
"""Stores that former releases wrote are read, restored and continued.

Each archive has two stores, in the clear and sealed, of one format of the
catalogue. Their versions were saved incrementally, by alpha 0.5 and by 'auto',
the first one was deleted and its pack rewritten by a prune; others have a base
image. Beside it are the versions' ids and the checksums of their disks.
"""

import hashlib
import json
import pathlib
import shutil

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.restore import rollback
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store import store_access
from diffcache_openstack.versions.store import upkeep
from tests import base

_DATA = pathlib.Path(__file__).parent / 'data'
_BLOCK = 4096


class StoredFormat:
    """What holds for a stored format; mix in with its number."""

    format: int

    def setUp(self):
        super().setUp()
        name = f'stores-format-{self.format}'
        self.expected = json.loads((_DATA / f'{name}.json').read_text())
        shutil.unpack_archive(_DATA / f'{name}.tar.gz', self.directory)

    def stores(self):
        """Each store, the versions in it, and their base image."""
        for name, store in self.expected.items():
            key = bytes.fromhex(store['key']) if store['key'] else None
            directory = self.directory / name
            yield (store_access.StoreAccess(
                file.FileStore(directory / 'store'), key),
                store['versions'], directory / 'base')

    def restored(self, access, version_id, base_image):
        path = self.directory / 'restored'
        version = access.head().find(version_id)
        restoring.restore(access, version_id,
                          restoring.Output(path, 'raw'),
                          base_image if version.base else None)
        return path

    def assert_restored(self, access, versions, base_image):
        for version in versions:
            content = self.restored(access, version['id'],
                                    base_image).read_bytes()
            self.assertEqual(version['sha256'],
                             hashlib.sha256(content).hexdigest())

    def test_all_versions_are_restored(self):
        for access, versions, base_image in self.stores():
            self.assertEqual([version['id'] for version in versions],
                             list(access.head().versions))
            self.assertEqual(self.format, access.head().format)
            self.assertTrue(upkeep.verify(access).intact)
            self.assert_restored(access, versions, base_image)

    def test_series_are_continued(self):
        for access, versions, base_image in self.stores():
            for alpha in (0.0, 0.5, 'auto'):
                disk = self.restored(access, versions[2]['id'], base_image)
                with open(disk, 'r+b') as stream:
                    stream.seek(7 * _BLOCK)
                    stream.write(str(alpha).encode())
                expected = disk.read_bytes()
                version = saving.save(access, save_request.SaveRequest(
                    disk, 'disk', versions[2]['id'], alpha, group_blocks=8))
                self.assertEqual(1, version.blocks_changed)
                again = self.restored(access, version.id, base_image)
                self.assertEqual(expected, again.read_bytes())
            self.assert_restored(access, versions, base_image)

    def test_base_images_are_recognised(self):
        for access, versions, base_image in self.stores():
            disk = self.write_file('overlay', base_image.read_bytes())
            version = saving.save(access, save_request.SaveRequest(
                disk, 'overlay', base=base_image))
            # All of it is the base image's again.
            self.assertEqual((1, 0), (version.blocks_changed,
                                      version.blocks_stored))
            head = access.head()
            with access.opened(head) as opened:
                live, _known = opened.live([version.root])
                self.assertEqual({0}, {opened.need(number, live)[0]
                                       for number in head.packs})

    def test_disks_are_rolled_back_and_packs_rewritten(self):
        for access, versions, base_image in self.stores():
            disk = self.restored(access, versions[2]['id'], base_image)
            rollback.roll_back(access, versions[0]['id'],
                               save_request.SaveRequest(disk, 'disk'))
            self.assertEqual(versions[0]['sha256'], hashlib.sha256(
                disk.read_bytes()).hexdigest())
            upkeep.delete(access, [versions[1]['id']])
            upkeep.prune(access, rule=upkeep.PruneRule(0.05))
            self.assertTrue(upkeep.verify(access).intact)
            self.assert_restored(access, [versions[0], *versions[2:]],
                                 base_image)


class TestFormat3(StoredFormat, base.TestCase):

    format = 3


class TestFormat4(StoredFormat, base.TestCase):

    format = 4
