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
"""How far precache jobs for boot sets are."""

import types

from diffcache_openstack.conductor import boot_set_progress
from diffcache_openstack import objects
from diffcache_openstack.objects import boot_set
from diffcache_openstack.objects import precache
from tests import base
from tests.unit.db import database

CONTENT = database.content(1)


class TestView(base.TestCase):

    def progress(self, state=boot_set.READY, reports=True, alive=True,
                 content_id=CONTENT, size=8, held=()):
        host = database.host('h1', alive=alive, holdings=list(held))
        found = types.SimpleNamespace(state=state, held_bytes=5, wanted=True,
                                      message='why')
        view = boot_set_progress.SetProgress(
            {'h1': host}, {('h1', CONTENT): found},
            frozenset(['h1'] if reports else []))
        progress = view.progress(types.SimpleNamespace(
            host='h1', image_id='t1', content_id=content_id,
            bytes_total=size))
        return progress.state, progress.way, progress.bytes_done

    def test_states_of_the_set(self):
        for state, wanted in (
                (boot_set.READY, (precache.READY, 'boot_set', 8)),
                (boot_set.USED, (precache.READY, 'boot_set', 8)),
                (boot_set.FETCHING, (precache.FETCHING, None, 5)),
                (boot_set.WAITING, (precache.WAITING, None, 0)),
                (boot_set.FAILED, (precache.FAILED, None, 5))):
            self.assertEqual(wanted, self.progress(state), state)

    def test_a_host_that_is_down_keeps_what_it_had(self):
        self.assertEqual(precache.READY, self.progress(
            reports=False, alive=False)[0])

    def test_a_host_that_serves_no_images_any_more(self):
        self.assertEqual(precache.WAITING, self.progress(reports=False)[0])

    def test_the_image_is_better_than_its_set(self):
        held = objects.Holding(kind=objects.IMAGES, id=CONTENT, size=9)
        self.assertEqual((precache.READY, 'local', 8),
                         self.progress(boot_set.FAILED, held=[held]))

    def test_an_image_that_is_unknown(self):
        self.assertEqual(precache.FAILED, self.progress(content_id=None)[0])
        self.assertEqual(precache.WAITING, self.progress(
            boot_set.WAITING, size=0)[0])
