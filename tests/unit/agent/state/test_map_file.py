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
import json
from unittest import mock

from diffcache_openstack.agent.state import map_file
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.sites import map_state
from tests import base
from tests.unit.db import database


def a_map(*numbers, generation=1):
    return objects.SiteMap(
        site='edge', generation=generation,
        images=[database.image(number) for number in numbers],
        links=objects.Links(local=4.0, peer=2.0, repo=1.0))


class MapFileTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'map.json'
        self.changes = self.directory / 'map.json.changes'
        self.file = map_file.MapFile(self.path)
        self.file.replace(a_map(1))
        self.state = map_state.MapState(a_map(1))

    def append(self, *numbers):
        for number in numbers:
            change = objects.MapChange(
                site='edge', previous=self.state.generation,
                generation=self.state.generation + 1,
                images=[database.image(number)])
            self.assertTrue(self.state.apply(change))
            change.digest = self.state.digest
            self.file.append(change, self.state)

    def loaded(self):
        """Ids of the images of the file."""
        state = map_file.MapFile(self.path).load(lambda image: True)
        return [image.id for image in state.view().images]

    def test_nothing_stored(self):
        self.path.unlink()
        self.assertIsNone(self.file.load(lambda image: True))

    def test_another_format_is_refused(self):
        document = json.loads(self.path.read_text())
        for number in (0, 2, '1', None):
            self.path.write_text(json.dumps({**document, 'format': number}))
            error = self.assertRaises(exceptions.FormatError, self.loaded)
            self.assertIn(str(self.path), str(error))
            self.assertIn(f'format {number}', str(error))

    def test_changes_are_kept_until_the_map_is_written(self):
        self.append(2, 3)
        self.assertEqual(2, len(self.changes.read_bytes().splitlines()))
        self.assertEqual(['t1', 't2', 't3'], self.loaded())
        self.assertFalse(self.changes.exists())
        self.assertEqual(['t1', 't2', 't3'], self.loaded())

    def test_a_change_that_was_not_written_whole_is_dropped(self):
        self.append(2, 3)
        whole = self.changes.read_bytes()
        first = whole.index(b'\n') + 1
        for length in (first + 1, len(whole) - 10, first, 5, 0):
            self.file.replace(a_map(1))
            self.changes.write_bytes(whole[:length])
            self.assertEqual(['t1', 't2'] if length >= first else ['t1'],
                             self.loaded())

    def test_changes_of_an_older_map_are_skipped(self):
        self.append(2, 3)
        older = self.changes.read_bytes()
        self.file.replace(a_map(7, 8, generation=9))
        self.changes.write_bytes(older)
        self.assertEqual(['t7', 't8'], self.loaded())

    def test_a_change_that_leads_elsewhere_is_not_used(self):
        self.append(2, 3)
        # Another map of the same generation.
        self.path.write_text('{}')
        files_map = a_map(5)
        kept = self.changes.read_bytes()
        self.file.replace(files_map)
        self.changes.write_bytes(kept)
        self.assertEqual(['t5'], self.loaded())
        self.assertFalse(self.changes.exists())

    def test_many_changes_become_a_map(self):
        with mock.patch.object(map_file, '_FEW', 100):
            self.append(2, 3, 4, 5)
        self.assertLess(len(self.changes.read_bytes()
                            if self.changes.exists() else b''),
                        self.path.stat().st_size)
        self.assertEqual([f't{n}' for n in range(1, 6)], self.loaded())

    def test_a_full_disk_costs_the_change_only(self):
        with mock.patch.object(map_file.os, 'write',
                               side_effect=OSError(28, 'No space left')):
            self.append(2)
        self.append(3)
        self.assertEqual(['t1'], self.loaded())
