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
import queue
import threading

from diffcache_openstack.agent.state import verifications
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

CONTENT = b'content of an image'
OTHER = b'content of another image'
WAIT_SECONDS = 60


class Gate:
    """Inspects when it is told to; notes how many do at the same time."""

    def __init__(self, inner):
        self.inner = inner
        self.begun, self.proceed = queue.Queue(), queue.Queue()
        self.running = self.most = 0

    def deep(self, key, path, manifest):
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.put(key)
        self.proceed.get(timeout=WAIT_SECONDS)
        self.running -= 1
        self.inner.deep(key, path, manifest)


class VerificationsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.host = fakes.Host(self.directory, fakes.Network(), 'h1', 10 ** 6)
        self.keys = [self.host.put(each) for each in (CONTENT, OTHER)]
        self.held = self.host.held
        self.gate = self.held.inspector = Gate(self.held.inspector)
        self.damaged = threading.Event()
        self.verifications = verifications.Verifications(
            self.held, self.damaged.set)

    def begun(self):
        return self.gate.begun.get(timeout=WAIT_SECONDS)

    def finish(self):
        """Have a verification end, and wait for the thread."""
        self.gate.proceed.put(None)
        for thread in threading.enumerate():
            if thread.name == 'verification':
                thread.join(WAIT_SECONDS)

    def test_many_requests_of_an_object_are_one(self):
        for _ in range(40):
            self.verifications.request(self.keys[0])
        self.begun()
        self.finish()
        self.assertTrue(self.gate.begun.empty())

    def test_objects_are_verified_one_at_a_time(self):
        for key in self.keys:
            self.verifications.request(key)
        self.gate.proceed.put(None)
        self.assertEqual(self.keys, [self.begun(), self.begun()])
        self.finish()
        self.assertEqual(1, self.gate.most)

    def test_what_was_found_sound_is_not_read_again_for_a_while(self):
        key = self.keys[0]
        for _ in range(3):
            self.verifications.request(key)
            self.finish()
        self.assertEqual(key, self.begun())
        self.assertTrue(self.gate.begun.empty())
        self.assertFalse(self.damaged.is_set())

    def test_a_file_that_changed_is_read_again(self):
        key = self.keys[0]
        self.verifications.request(key)
        self.finish()
        self.held.path(key).write_bytes(b'damaged')
        self.verifications.request(key)
        self.finish()
        self.assertTrue(self.damaged.wait(WAIT_SECONDS))
        self.assertNotIn(key, self.held)

    def test_what_is_not_held_is_not_looked_for(self):
        self.verifications.request(views.Key(views.IMAGES, '0' * 64))
        self.assertTrue(self.gate.begun.empty())
