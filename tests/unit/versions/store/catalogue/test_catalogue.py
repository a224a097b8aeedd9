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
"""Heads of stores."""

import copy
import hashlib
import json
from unittest import mock
import zlib

import hypothesis
from hypothesis import strategies as st

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.keys import key_ids
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

_MAGIC = b'DCVHEAD1'


_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 1 << 65),
              st.floats(), st.text(max_size=5), st.sampled_from(
                  ('raw', 'qcow2', '0' * 64, 'zz', '../x'))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
        st.text(max_size=4), inner, max_size=3)), max_leaves=4)


def _replace_one(fields, data):
    """Replace, drop or add one value somewhere below a head's fields."""
    place = fields
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys))) if keys else None
        if key is None:
            return
        if (isinstance(place[key], (dict, list)) and place[key]
                and data.draw(st.integers(0, 3))):
            place = place[key]
            continue
        if data.draw(st.integers(0, 5)) == 0:
            del place[key]
        else:
            place[key] = data.draw(_VALUES)
        return


class TestFormats(fixture.VersionsTestCase):

    def fields(self):
        """A head of this release, as JSON has it."""
        body = self.access.head().encode()[len(_MAGIC):-32]
        return json.loads(zlib.decompress(body))

    def decode(self, fields):
        body = _MAGIC + zlib.compress(json.dumps(fields).encode())
        return catalogue.Catalogue.decode(
            body + hashlib.sha256(body).digest(), 'head')

    def test_a_head_of_another_format_is_refused(self):
        self.save()
        error = self.assertRaises(exceptions.FormatError, self.decode,
                                  self.fields() | {'format': 2})
        self.assertIn('head has format 2', str(error))

    def test_what_is_no_head_is_refused(self):
        self.save()
        fields = self.fields()
        for wrong in ({}, [], 'x', {'format': 1}, fields | {'packs': 3},
                      fields | {'packs': {'x': {}}},
                      fields | {'versions': [1]},
                      fields | {'maps': {'1': {'other': 1}}}):
            self.assertRaises(exceptions.FormatError, self.decode, wrong)

    def test_forged_numbers_are_refused(self):
        """Numbers that native code does not take were no errors of a head."""
        self.save()
        fields = self.fields()
        [version] = fields['versions'].values()
        [pack] = fields['packs'].values()
        records = [(fields, name) for name in (
            'number', 'block_size', 'next_pack', 'next_map', 'next_version')]
        records += [(version, name) for name in (
            'number', 'size', 'bytes_stored', 'blocks_changed', 'seconds')]
        records += [(pack, name) for name in (
            'generation', 'origin', 'blocks', 'data_bytes', 'level', 'blob')]
        records += [(version['root'], part) for part in range(3)]
        for record, name in records:
            value = record[name]
            for forged in (-1, 1 << 70, 1 << 64, None, [], {}, True):
                if name == 'seconds' and type(forged) is int:
                    continue
                record[name] = forged
                self.assertRaises(exceptions.FormatError, self.decode, fields)
            record[name] = value
        again = fields['versions'] | {'2': version}
        self.assertRaises(exceptions.FormatError, len, self.decode(
            fields | {'versions': again}).versions)
        for number in (str(1 << 32), '-1'):
            self.assertRaises(exceptions.FormatError, self.decode,
                              fields | {'packs': {number: pack}})
        version['size'] = (1 << 44) + 1
        self.assertRaises(exceptions.FormatError, self.decode, fields)

    @hypothesis.settings(max_examples=400)
    @hypothesis.given(st.data())
    def test_a_forged_head_is_refused_or_can_be_used(self, data):
        """Whatever a value of it is replaced by, no other error comes."""
        if self._fields is None:
            image = self.write_file('image', bytes(5000))
            self.save(self.write_file('on-base', bytes(9000)), base=image)
            self.save(series='b')
            self._fields = self.fields()
        fields = copy.deepcopy(self._fields)
        for _ in range(data.draw(st.integers(1, 3))):
            _replace_one(fields, data)
        try:
            head = self.decode(fields)
        except exceptions.FormatError:
            return
        for use in (head.blobs, head.bytes_stored, head.encode):
            use()
        for version in head.versions.values():
            self.assertIn(version, head.of_series(version.series))
            head.disk_format_of(version.series)
            version.summary()

    @hypothesis.settings(max_examples=200)
    @hypothesis.given(st.integers(0, 1 << 20), st.integers(0, 7))
    def test_a_damaged_head_is_refused(self, at, bit):
        if self._fields is None:
            self.save()
            self._fields = self.access.head().encode()
        damaged = bytearray(self._fields)
        damaged[at % len(damaged)] ^= 1 << bit
        for found in (damaged, self._fields[:at % len(self._fields)]):
            self.assertRaises(
                (exceptions.FormatError, exceptions.IntegrityError),
                catalogue.Catalogue.decode, bytes(found), 'head')

    _fields = None

    def test_a_head_that_becomes_absurdly_long_is_refused(self):
        self.save()
        fields = self.fields() | {'store_id': 'x' * 100_000}
        self.decode(fields)
        with mock.patch.object(catalogue, 'MOST_BYTES', 50_000):
            self.assertRaises(exceptions.FormatError, self.decode, fields)

    def test_none_is_written_that_would_be(self):
        self.save()
        head = self.access.head()
        with mock.patch.object(catalogue, 'MOST_BYTES', 500):
            self.assertRaises(exceptions.PermanentError, head.encode)
        self.assertEqual(1, len(self.access.head().versions))


class Objects(file.FileStore):
    """Stands for an object store: nobody lists it, nothing is replaced."""

    dies = False

    def names(self):
        return None

    @property
    def atomic(self):
        return False

    def replace(self, name, data):
        self.delete(name)
        if self.dies:
            raise exceptions.Interrupted('killed')
        self.create(name, data)


class TestPointers(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.first = self.save()
        # So that the first heads are gone.
        for _ in range(5):
            self.access.commit(self.access.head())

    def flip(self, *names):
        for name in names:
            data = bytearray(self.store.read(name))
            data[-1] ^= 1
            self.store.replace(name, bytes(data))

    def test_two_damaged_ones_do_not_make_a_store_empty(self):
        self.write_blocks(self.disk, 1)
        second = self.save()
        content = self.disk.read_bytes()
        self.flip('latest-0', 'latest-1')
        self.write_blocks(self.disk, 2)
        third = self.save()
        self.assertEqual([self.first.id, second.id, third.id],
                         list(self.access.head().versions))
        self.assertEqual(content, self.content(second))
        # One of them is written anew with each change.
        self.assertEqual(1, len(verification.verify(self.access).damage))

    def test_two_missing_ones_neither(self):
        content = self.disk.read_bytes()
        self.store.delete('latest-0')
        self.store.delete('latest-1')
        second = self.save()
        self.assertEqual([self.first.id, second.id],
                         list(self.access.head().versions))
        self.assertEqual(content, self.content(self.first))

    def test_where_nobody_lists_two_damaged_ones_are_an_error(self):
        self.flip('latest-0', 'latest-1')
        access = store_access.StoreAccess(Objects(self.directory / 'store'))
        self.assertRaises(exceptions.IntegrityError, access.head_or_new)

    def test_writers_killed_while_they_move_them_leave_one(self):
        store = Objects(self.directory / 'store')
        access = store_access.StoreAccess(store)
        store.dies = True
        for _ in range(6):
            self.assertRaises(exceptions.Interrupted, access.commit,
                              access.head())
            self.assertEqual([self.first.id], list(access.head().versions))
        store.dies = False
        access.commit(access.head())
        self.assertEqual(13, access.head().number)


class TestKeyIds(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.access.store
        with self.store.lock():
            key_ids.write(self.store, 'an-id')

    def damage(self, name):
        data = bytearray(self.store.read(name))
        data[0] ^= 1
        self.store.replace(name, bytes(data))

    def test_is_kept_when_others_clean_up(self):
        self.save()
        self.assertEqual('an-id', key_ids.read(self.store))
        self.assertTrue(verification.verify(self.access).intact)

    def test_another_is_not_put_in_its_place(self):
        with self.store.lock():
            self.assertRaises(exceptions.Conflict, key_ids.write,
                              self.store, 'another')
        self.assertEqual('an-id', key_ids.read(self.store))

    def test_one_copy_will_do(self):
        self.save()
        for name in ('key-0', 'key-1'):
            self.damage(name)
            self.assertEqual('an-id', key_ids.read(self.store))
            [damage] = verification.verify(self.access).damage
            self.assertEqual(name, damage.object)
            self.damage(name)
            data = self.store.read(name)
            self.store.delete(name)
            self.assertEqual('an-id', key_ids.read(self.store))
            self.store.create(name, data)

    def test_both_copies_damaged(self):
        for name in ('key-0', 'key-1'):
            self.damage(name)
        # Nothing is sealed yet: whoever wrote it was killed.
        self.assertIsNone(key_ids.read(self.store))
        self.save()
        self.assertRaises(exceptions.IntegrityError, key_ids.read,
                          self.store)
