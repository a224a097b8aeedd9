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
"""Limits of what waits in an inbox."""

import json
from unittest import mock

from diffcache_openstack.agent.versions import inbox_room
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from tests import base

BLOCK = 4096


class InboxRoomTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.inbox = self.directory / 'inbox'
        (self.inbox / 'p').mkdir(parents=True)
        self.waiting = set()

    def room(self, total=10 * BLOCK, host=4 * BLOCK, directory=True):
        return inbox_room.InboxRoom(
            inbox_room.InboxLimits(total, host),
            self.inbox if directory else None, self.directory / 'record',
            lambda *blob: blob in self.waiting)

    def put(self, room, name, blocks, project='p'):
        """Put a blob, as this host does."""
        room.admit(project, name, blocks * BLOCK)
        (self.inbox / project / name).write_bytes(bytes(blocks * BLOCK))
        self.waiting.add((project, name))

    def put_elsewhere(self, blocks):
        """Put a blob, as another host does."""
        (self.inbox / 'other').mkdir()
        (self.inbox / 'other' / 'x').write_bytes(b'x' * blocks * BLOCK)

    def refused(self, room, blocks):
        error = self.assertRaises(exceptions.NoSpace, self.put, room, 'more',
                                  blocks)
        self.assertIsInstance(error, exceptions.RetryableError)
        return str(error)

    def test_processes_that_admit_at_once_share_the_limit(self):
        """What another one has admitted meanwhile is counted."""
        locked = files.locked

        def after_another(path):
            self.patch(files, 'locked', locked)
            self.put(self.room(), 'b', 3)
            return locked(path)

        self.patch(files, 'locked', after_another)
        self.refused(self.room(), 2)
        self.assertEqual({'p': {'b': 3 * BLOCK}},
                         files.read_json(self.directory / 'record'))

    def test_a_host_has_its_share(self):
        room = self.room()
        self.put(room, 'a', 3)
        self.assertIn('[versions] inbox_host_limit', self.refused(room, 2))
        # Also of another project, and in the next process.
        (self.inbox / 'q').mkdir()
        self.put(self.room(), 'b', 1, project='q')
        self.assertIn('inbox_host_limit', self.refused(self.room(), 1))
        busy = self.assertRaises(exceptions.Busy, self.room().check)
        self.assertIn('inbox_host_limit', str(busy))

    def test_what_was_accepted_or_removed_does_not_count(self):
        room = self.room()
        self.put(room, 'a', 3)
        self.put(room, 'b', 1)
        self.waiting.remove(('p', 'a'))
        self.put(room, 'c', 3)
        self.refused(room, 1)
        room.forget('p', 'b')
        room.check()
        self.put(room, 'd', 1)
        self.assertIn('inbox_host_limit', self.refused(room, 1))

    def test_all_hosts_have_a_limit(self):
        self.put_elsewhere(9)
        room = self.room()
        self.assertIn('[versions] inbox_limit', self.refused(room, 2))
        room.check()
        self.put(room, 'a', 1)
        self.assertRaises(exceptions.Busy, room.check)

    def test_what_is_not_put_yet_does_not_count(self):
        staged = self.inbox / 'p' / '.writers' / 'staging-1'
        staged.mkdir(parents=True)
        (staged / 'pack').write_bytes(b'x' * 20 * BLOCK)
        self.put(self.room(), 'a', 1)
        self.put_elsewhere(20)
        self.assertIn('inbox_limit', self.refused(self.room(), 1))

    def test_no_limits(self):
        self.put_elsewhere(50)
        self.assertIn('inbox_host_limit', self.refused(self.room(), 50))
        room = self.room(total=float('inf'), host=float('inf'))
        self.put(room, 'a', 50)
        room.check()

    def test_what_was_accepted_is_not_recorded_forever(self):
        self.enterContext(mock.patch.object(inbox_room, '_DROP_EVERY', 8))
        record = self.directory / 'record'
        for host in (float('inf'), 1e9):
            room = self.room(total=float('inf'), host=host)
            for number in range(30):
                room.admit(f'p{number}', f'{number:05}', 1)
                if record.exists():
                    self.assertLess(len(json.loads(record.read_text())), 9)
        # What still waits is.
        room = self.room()
        self.put(room, 'a', 3)
        for number in range(30):
            room.admit('p', f'{number:05}', 1)
        self.refused(room, 2)

    def test_an_object_store_has_the_limit_of_the_host(self):
        self.put_elsewhere(50)
        room = self.room(directory=False)
        self.put(room, 'a', 4)
        self.assertIn('inbox_host_limit', self.refused(room, 1))
