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
"""Heads of stores, as this and former formats have them."""

import hashlib
import json
import zlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import upkeep
from tests.unit.versions import fixture

_MAGIC = b'DCVHEAD1'


class TestFormats(fixture.VersionsTestCase):

    def fields(self):
        """A head of this release, as JSON has it."""
        body = self.repo.head().encode()[len(_MAGIC):-32]
        return json.loads(zlib.decompress(body))

    def decode(self, fields):
        body = _MAGIC + zlib.compress(json.dumps(fields).encode())
        return heads.Head.decode(body + hashlib.sha256(body).digest(), 'head')

    def test_a_head_of_the_first_format_is_read(self):
        version = self.save()
        fields = self.fields() | {'format': 1}
        for each in fields['versions']:
            for name in ('frozen_ms', 'quiesced', 'token'):
                del each[name]
        for pack in fields['packs'].values():
            del pack['level']
        head = self.decode(fields)
        self.assertEqual({0}, {pack.level for pack in head.packs.values()})
        found = head.versions[version.id]
        self.assertEqual((version.root, 0.0, False, None), (
            found.root, found.frozen_ms, found.quiesced, found.token))

    def test_a_head_of_a_later_format_is_refused(self):
        self.save()
        self.assertRaises(exceptions.FormatError, self.decode,
                          self.fields() | {'format': 4})


class TestKeyIds(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.repo.store
        with self.store.lock():
            heads.keep_key_id(self.store, 'an-id')

    def damage(self, name):
        data = bytearray(self.store.read(name))
        data[0] ^= 1
        self.store.replace(name, bytes(data))

    def test_is_kept_when_others_clean_up(self):
        self.save()
        self.assertEqual('an-id', heads.read_key_id(self.store))
        self.assertTrue(upkeep.verify(self.repo).intact)

    def test_another_is_not_put_in_its_place(self):
        with self.store.lock():
            self.assertRaises(exceptions.Conflict, heads.keep_key_id,
                              self.store, 'another')
        self.assertEqual('an-id', heads.read_key_id(self.store))

    def test_one_copy_will_do(self):
        self.save()
        for name in ('key-0', 'key-1'):
            self.damage(name)
            self.assertEqual('an-id', heads.read_key_id(self.store))
            [damage] = upkeep.verify(self.repo).damage
            self.assertEqual(name, damage.object)
            self.damage(name)
            data = self.store.read(name)
            self.store.delete(name)
            self.assertEqual('an-id', heads.read_key_id(self.store))
            self.store.create(name, data)

    def test_both_copies_damaged(self):
        for name in ('key-0', 'key-1'):
            self.damage(name)
        # Nothing is sealed yet: whoever wrote it was killed.
        self.assertIsNone(heads.read_key_id(self.store))
        self.save()
        self.assertRaises(exceptions.IntegrityError, heads.read_key_id,
                          self.store)
