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
"""Content ids of base images: computed once, and none waits for another's."""

import threading
from unittest import mock

from diffcache_openstack import _native
from diffcache_openstack.agent.versions import bases
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from tests import base

SECONDS = 30


class BaseIdsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.ids = bases.BaseIds(self.directory / 'bases.json')
        self.computed = []
        self.slow = self.write_file('slow', b'1' * 4096)
        self.other = self.write_file('other', b'2' * 8192)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.addCleanup(self.go_on.set)
        self.patch(_native, 'qcow2_content_id', self.compute)

    def compute(self, image, progress):
        self.computed.append(image.name)
        if image == self.slow:
            self.begun.set()
            self.assertTrue(self.go_on.wait(SECONDS))
        return image.name * 2

    def start(self, found):
        thread = threading.Thread(target=lambda: found.append(
            self.ids.content_id(self.slow)), daemon=True)
        thread.start()
        return thread

    def test_a_slow_one_holds_no_other_up(self):
        """So that the shutdown of another project's server does not wait."""
        found = []
        thread = self.start(found)
        self.assertTrue(self.begun.wait(SECONDS))
        self.assertEqual('otherother', self.ids.content_id(self.other))
        self.assertEqual([], found)
        self.go_on.set()
        thread.join(SECONDS)
        self.assertEqual(['slowslow'], found)

    def test_one_that_several_need_is_computed_once(self):
        found = []
        threads = [self.start(found) for _each in range(3)]
        self.assertTrue(self.begun.wait(SECONDS))
        self.go_on.set()
        for thread in threads:
            thread.join(SECONDS)
        self.assertEqual((['slowslow'] * 3, ['slow']),
                         (found, self.computed))

    def test_one_that_fails_is_computed_by_the_next(self):
        def stop(_image, _progress):
            raise exceptions.Interrupted('stopped')

        self.go_on.set()
        with mock.patch.object(_native, 'qcow2_content_id', stop):
            self.assertRaises(exceptions.Interrupted, self.ids.content_id,
                              self.slow)
        self.assertEqual('slowslow', self.ids.content_id(self.slow))
        kept = files.read_json(self.directory / 'bases.json')
        self.assertEqual('slowslow', kept[str(self.slow)][-1])
