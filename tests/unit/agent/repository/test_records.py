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

from diffcache_openstack.agent.repository import records
from tests import base


@dataclasses.dataclass(frozen=True)
class Link:
    id: str
    base: str
    target: str | None


class TestRecords(base.TestCase):
    def setUp(self):
        super().setUp()
        self.records = self.opened()

    def opened(self):
        return records.Records(self.directory / 'links', Link,
                               lambda link: (link.base, link.target))

    def found(self, *object_ids):
        return [[link.id for link in self.records.of(object_id)]
                for object_id in object_ids]

    def test_records_are_found_by_each_object(self):
        self.records.put(Link('1', 'a', 'b'))
        self.records.put(Link('2', 'b', 'b'))
        self.records.put(Link('3', 'b', None))
        self.assertEqual([['1'], ['1', '2', '3'], []],
                         self.found('a', 'b', 'c'))

    def test_replaced_and_removed_records_are_not_found(self):
        self.records.put(Link('1', 'a', 'b'))
        self.records.put(Link('1', 'a', 'c'))
        self.assertEqual([['1'], [], ['1']], self.found('a', 'b', 'c'))
        self.records.remove('1')
        self.records.remove('1')
        self.assertEqual([[], [], []], self.found('a', 'b', 'c'))
        self.assertEqual([], self.records.all())

    def test_records_are_found_after_a_restart(self):
        self.records.put(Link('x/1', 'a', 'b'))
        self.records = self.opened()
        self.assertEqual([['x/1'], ['x/1']], self.found('a', 'b'))
        self.assertEqual(Link('x/1', 'a', 'b'), self.records.get('x/1'))
