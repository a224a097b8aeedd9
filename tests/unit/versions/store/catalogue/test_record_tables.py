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

import dataclasses

import hypothesis
from hypothesis import strategies as st

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.store.catalogue import record_tables
from tests import base


@dataclasses.dataclass(frozen=True)
class Record:
    bytes: int


_STEPS = st.lists(st.tuples(st.sampled_from(('set', 'delete', 'pack')),
                            st.integers(0, 30)), max_size=60)


class TestRecordTable(base.TestCase):

    def setUp(self):
        super().setUp()
        self.patch(record_tables, 'SEGMENT_RECORDS', 4)
        self.blobs = {}

    def load(self, segment):
        fields = record_tables.decode(self.blobs[segment.blob], segment)
        return {int(number): Record(**each)
                for number, each in fields.items()}

    def put(self, records):
        data = record_tables.encode(records)
        name = f'records-{len(self.blobs):08d}-x'
        self.blobs[name] = data
        sizes = [record.bytes for record in records.values()]
        return record_tables.Segment(
            name, data[-32:].hex(), min(records), max(records), len(records),
            sum(sizes), max(sizes))

    def again(self, table):
        """A table as it is read from a catalogue."""
        return record_tables.RecordTable(table.changes(), table.segments,
                                         self.load)

    @hypothesis.given(_STEPS)
    def test_a_table_does_what_a_dictionary_does(self, steps):
        table, model = self.again(record_tables.RecordTable()), {}
        for step, (what, number) in enumerate(steps):
            if what == 'set':
                table[number] = model[number] = Record(step)
            elif what == 'pack':
                self.pack(table)
                self.assertEqual({}, table.changes())
            elif number in model:
                del table[number], model[number]
            else:
                self.assertRaises(KeyError, table.__delitem__, number)
            table = self.again(table)
            self.assertEqual(model, dict(table))
            self.assertEqual(sorted(model), list(table))
            self.assertEqual(len(model), len(table))
            for each in table.segments:
                self.assertLessEqual(each.records, 4)

    def pack(self, table):
        table.replace_segments([
            (segment or self.put(records), records)
            for segment, records in table.packed()])

    def test_a_lookup_reads_one_segment(self):
        table = self.again(record_tables.RecordTable(
            {number: Record(number) for number in range(20)}))
        self.pack(table)
        table = self.again(table)
        loads = []
        self.patch(table, '_load', lambda segment: (
            loads.append(segment.first), self.load(segment))[1])
        self.assertEqual(Record(9), table[9])
        self.assertEqual(Record(10), table[10])
        self.assertNotIn(20, table)
        self.assertEqual([8], loads)
        self.assertEqual((190, 19), table.totals(lambda each: each.bytes))

    def test_new_records_leave_full_segments_as_they_are(self):
        table = self.again(record_tables.RecordTable(
            {number: Record(number) for number in range(10)}))
        for first in (10, 20):
            before = {each.blob for each in table.segments}
            self.pack(table)
            # The last one had room.
            self.assertLessEqual(len(before - {
                each.blob for each in table.segments}), 1)
            for number in range(first, first + 10):
                table[number] = Record(number)
        self.assertEqual(30, len(table))

    def test_damaged_segments_are_found(self):
        segment = self.put({1: Record(5)})
        data = self.blobs[segment.blob]
        for at in range(len(data)):
            damaged = bytearray(data)
            damaged[at] ^= 1
            self.assertRaises(exceptions.IntegrityError, record_tables.decode,
                              bytes(damaged), segment)
        other = checksums.append(b'DCVRECS1 no records')
        self.assertRaises(exceptions.FormatError, record_tables.decode, other,
                          dataclasses.replace(segment,
                                              check=other[-32:].hex()))
