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

from diffcache_openstack.agent.repository import absent_images
from tests import base

DAY = 86400.0


def public(count):
    """As many images that all projects see, of which some are missing."""
    return {chr(ord('a') + number): 'public' for number in range(count)}


class TestAbsentImages(base.TestCase):

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.absent = absent_images.AbsentImages(lambda: self.now)

    def test_what_the_service_reported(self):
        self.assertFalse(self.absent.is_gone('a'))
        self.absent.note_deleted('a')
        self.assertTrue(self.absent.is_gone('a'))
        self.absent.forget('a')
        self.assertFalse(self.absent.is_gone('a'))

    def test_few(self):
        for known, missing in ((1, {'a'}), (2, {'a'}),
                               (100, set('abcdefghij'))):
            self.assertEqual(missing, self.absent.update(missing,
                                                         public(known)))
            self.assertTrue(self.absent.is_gone('a'))
            self.assertEqual({}, self.absent.report())

    def test_many_only_after_days(self):
        for known, missing in ((2, {'a', 'b'}), (100, set('abcdefghijk'))):
            self.assertEqual(set(), self.absent.update(missing, public(known)))
            self.assertFalse(self.absent.is_gone('a'))
            self.assertEqual(missing, self.absent.report().keys())
        self.now = 2 * DAY
        self.assertEqual(set(), self.absent.update({'a', 'z'}, public(2)))
        self.now = 3 * DAY
        # Those that a list had meanwhile begin anew.
        self.assertEqual({'a'}, self.absent.update({'a', 'b', 'z'},
                                                   public(3)))
        self.assertEqual({'b', 'z'}, self.absent.report().keys())

    def test_all_that_only_administrators_see(self):
        # Regression: few as they were, they were withdrawn at once when the
        # user of [glance] lost its role.
        hidden = {'p': 'private', 's': 'shared'}
        known = public(100) | hidden
        self.assertEqual(set(), self.absent.update(hidden.keys(), known))
        self.assertEqual(hidden.keys(), self.absent.report().keys())
        self.assertEqual({'p'}, self.absent.update({'p'}, known))
        self.assertEqual(set(), self.absent.update(
            {'p'}, public(100) | {'p': 'private'}))

    def test_one_that_is_returned(self):
        self.absent.update({'a', 'b'}, public(2))
        self.absent.forget('a')
        self.assertEqual({'b'}, self.absent.report().keys())
