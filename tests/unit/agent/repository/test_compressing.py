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
"""The compressed forms that a repository makes, with the native core."""

import os
import threading
from unittest import mock
import uuid

from diffcache_openstack.agent.data_plane import inspector
from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import compressing
from diffcache_openstack.agent.repository import records
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests import base

CONTENT = b'option = default\n' * 60000


class Conductor:
    """Takes every registration, unless it is dead."""

    def __init__(self):
        self.compressed_sizes = {}
        self.dead = False

    def find_unregistered(self, images, patches):
        return images, patches

    def register_image(self, record):
        if self.dead:
            raise exceptions.ServiceUnavailable('no answer')
        self.compressed_sizes[record.id] = record.compressed_size


class CompressingTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.tools = image_tools.ImageTools()
        self.open()

    def open(self):
        self.held = holdings.Holdings(
            self.directory / 'objects', None, inspector.NativeInspector(),
            lambda kind, object_id: 0)
        self.held.scan()
        self.conductor = Conductor()
        self.repository = catalogue.Repository(
            host_state.HostState('repo', self.held, None),
            self.directory / 'state', self.tools, self.conductor)
        self.compressing = self.parts()

    def parts(self, level=3):
        return compressing.Compressing(self.repository, self.held, self.tools,
                                       level, 60)

    def add(self, content=CONTENT):
        path = self.write_file(uuid.uuid4().hex, content)
        return self.repository.register(path, str(uuid.uuid4()), 'image')

    def key(self, record, kind=views.COMPRESSED):
        return views.Key(kind, record.content_id)

    def test_each_content_is_compressed_once(self):
        one, same = self.add(), self.add()
        self.assertEqual(one.content_id, same.content_id)
        self.assertEqual(1, self.compressing.make_missing())
        self.assertEqual(0, self.compressing.make_missing())
        path = self.held.path(self.key(one))
        self.assertGreater(len(CONTENT) / 20, path.stat().st_size)
        self.assertTrue(self.held.verify(self.key(one)))
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_the_conductor_learns_what_crosses(self):
        one, same = self.add(), self.add()
        self.assertEqual({one.id: 0, same.id: 0},
                         self.conductor.compressed_sizes)
        self.compressing.make_missing()
        size = self.held.path(self.key(one)).stat().st_size
        self.assertEqual({one.id: size, same.id: size},
                         self.conductor.compressed_sizes)

    def test_what_could_not_be_reported_is_with_all_images(self):
        record = self.add()
        self.conductor.dead = True
        self.assertEqual(1, self.compressing.make_missing())
        self.assertEqual(0, self.conductor.compressed_sizes[record.id])
        self.conductor.dead = False
        self.repository.announce()
        self.assertEqual(self.held.path(self.key(record)).stat().st_size,
                         self.conductor.compressed_sizes[record.id])

    def test_small_images_come_first(self):
        large, small = self.add(), self.add(CONTENT[:70000])
        self.assertEqual(
            [small.content_id, large.content_id],
            [image.content_id for image in self.repository.uncompressed()])

    def test_a_restart_finds_the_form(self):
        record = self.add()
        self.compressing.make_missing()
        self.open()
        self.assertIn(self.key(record), self.held)
        self.assertEqual([], self.repository.uncompressed())

    def test_a_damaged_form_is_made_again(self):
        record = self.add()
        self.compressing.make_missing()
        path = self.held.path(self.key(record))
        path.write_bytes(b'damaged' + path.read_bytes()[7:])
        self.open()
        self.assertNotIn(self.key(record), self.held)
        self.assertEqual(1, self.compressing.make_missing())
        self.assertTrue(self.held.verify(self.key(record)))

    def test_withdrawn_images_are_not_served_in_either_form(self):
        record = self.add()
        self.compressing.make_missing()
        for status in (views.DEACTIVATED, views.ACTIVE):
            self.repository.put(records.ImageRecord(**{
                **vars(record), 'status': status}))
            active = status == views.ACTIVE
            self.assertEqual(active, self.held.path(
                self.key(record)).exists())
            self.assertEqual(active, self.key(record) in self.held)
        self.repository.put(records.ImageRecord(**{
            **vars(record), 'status': views.DELETED}))
        self.assertEqual(frozenset(), self.held.keys())
        self.assertEqual([], os.listdir(self.held.root / 'withdrawn'))

    def test_an_image_withdrawn_meanwhile_gets_no_form(self):
        record = self.add()
        compress = self.tools.compress

        def withdraw(*args):
            self.repository.put(records.ImageRecord(**{
                **vars(record), 'status': views.DELETED}))
            return compress(*args)

        self.patch(self.tools, 'compress', withdraw)
        self.compressing.make_missing()
        self.assertEqual(frozenset(), self.held.keys())
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_a_damaged_image_is_no_longer_served(self):
        record, other = self.add(), self.add(CONTENT[::-1])
        path = self.held.path(self.key(record, views.IMAGES))
        path.write_bytes(b'X' + CONTENT[1:])
        self.assertEqual(1, self.compressing.make_missing())
        self.assertNotIn(self.key(record, views.IMAGES), self.held)
        self.assertIn(self.key(other), self.held)

    def test_a_full_disk_is_tried_again(self):
        record = self.add()

        def full(*_args):
            raise exceptions.NoSpace('the disk is full')

        with mock.patch.object(self.tools, 'compress', full):
            self.assertEqual(0, self.compressing.make_missing())
        self.assertEqual(1, self.compressing.make_missing())
        self.assertIn(self.key(record), self.held)

    def test_runs_in_the_background_when_an_image_is_added(self):
        done = threading.Event()
        added = self.held.added

        def note(key):
            added(key)
            if key.kind == views.COMPRESSED:
                done.set()

        self.patch(self.held, 'added', note)
        self.repository.subscribe(self.compressing.wake)
        self.compressing.start()
        self.addCleanup(self.compressing.stop)
        record = self.add()
        self.assertTrue(done.wait(60))
        self.assertIn(self.key(record), self.held)

    def test_level_0_makes_none(self):
        parts = self.parts(level=0)
        parts.start()
        self.addCleanup(parts.stop)
        self.assertFalse(parts._thread.is_alive())
