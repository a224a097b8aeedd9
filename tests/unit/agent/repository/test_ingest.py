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

import hashlib
import threading
from unittest import mock

from diffcache_openstack.agent.repository import absent_images
from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import image_limits
from diffcache_openstack.agent.repository import ingest
from diffcache_openstack.agent.repository import ingest_queue
from diffcache_openstack.agent.repository import patch_making
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes
from tests.unit.agent.repository import image_services
from tests.unit.agent.repository import repositories


class IngestTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.patch(ingest_queue, 'FIRST_RETRY', 0.01)
        self.held = holdings.Holdings(
            self.directory / 'objects', None, fakes.Inspector(),
            lambda kind, object_id: 0)
        self.held.scan()
        self.catalogue = repositories.Catalogue()
        self.tools = image_services.Tools()
        self.repository = self.new_repository()
        self.source = image_services.Source()
        self.ingest = self.new_ingest()

    def new_repository(self):
        return catalogue.Repository(
            host_state.HostState('repo', self.held, None),
            self.directory / 'state', self.tools, self.catalogue)

    def make_patches(self):
        patch_making.PatchMaker(
            self.repository, self.held, self.tools, self.catalogue,
            patch_making.PatchOptions(3, 2.0, lambda: True, 60)
        ).make_missing()

    def new_ingest(self, workers=1, **limits):
        """Ingest with limits that no image of these tests reaches."""
        return ingest.Ingest(
            self.source, self.repository, self.held, self.tools,
            image_limits.ImageLimits(**{
                'disk_size': 1 << 30, 'expansion': 50.0,
                'seconds': image_services.SECONDS,
                **limits}), workers, image_services.LEVEL)

    def look(self, name='image'):
        self.ingest.look_at(name)
        return self.repository.find(name)

    def delete(self, name='image'):
        """Delete an image of the service, which reports that."""
        del self.source.about[name]
        self.ingest.deleted(name)
        return self.look(name)

    def image(self, data=image_services.RAW):
        return fakes.key_of(data)

    def test_members_of_a_shared_image(self):
        self.source.put('image', image_services.RAW, visibility='shared',
                        members=['a'])
        self.assertEqual(['a'], self.look().members)
        self.source.change('image', members=['a', 'b'])
        self.assertEqual(['a', 'b'], self.look().members)
        # The conductor is not told again when nothing changed.
        told = self.catalogue.images['image']
        self.look()
        self.assertIs(told, self.catalogue.images['image'])
        self.source.change('image', visibility='private', members=[])
        self.assertEqual([], self.look().members)

    def test_raw(self):
        self.source.put('image', image_services.RAW)
        record = self.look()
        self.assertEqual(
            ('Image', 'raw', len(image_services.RAW), 'project', 'private',
             'active', None),
            (record.name, record.disk_format, record.file_size, record.owner,
             record.visibility, record.status, record.form_id))
        self.assertEqual(hashlib.sha512(image_services.RAW).hexdigest(),
                         record.os_hash_value)
        self.assertEqual(image_services.RAW,
                         self.held.path(self.image()).read_bytes())
        self.assertEqual(record, self.catalogue.images['image'])

    def test_qcow2_becomes_content_and_recipe(self):
        self.source.put('image', image_services.QCOW2, disk_format='qcow2')
        record = self.look()
        self.assertEqual(fakes.content_id(image_services.RAW),
                         record.content_id)
        self.assertEqual((len(image_services.QCOW2), 'qcow2', len(b'recipe')),
                         (record.file_size, record.disk_format,
                          record.form_size))
        recipe = views.Key(views.RECIPES, record.form_id)
        self.assertEqual(b'recipe', self.held.path(recipe).read_bytes())

    def test_a_stop_ends_what_takes_long_when_an_image_is_added(self):
        """The next process adds it."""
        self.source.put('image', image_services.QCOW2, disk_format='qcow2')
        for step in ('sign', 'to_raw', 'compress', 'make_recipe',
                     'check_recipe'):
            with self.subTest(step):
                self.check_stop_in(step)
        self.assertIsNotNone(self.look())

    def check_stop_in(self, step):
        """Stop while one of the native core's calls takes long."""
        begun = threading.Event()

        def take_long(*args):
            begun.set()
            while True:
                args[-1](1, 2)

        with mock.patch.object(self.tools, step, take_long):
            self.ingest = self.new_ingest()
            self.ingest.start()
            self.assertTrue(begun.wait(60))
            self.repository.interrupt()
            self.ingest.stop()
        self.assertFalse(any(thread.is_alive()
                             for thread in self.ingest._threads))
        self.assertEqual({}, self.ingest.refused)
        self.assertNothing()
        self.repository = self.new_repository()
        self.ingest = self.new_ingest()

    def test_a_stop_ends_a_download(self):
        self.source.put('image', image_services.RAW)
        pieces = iter(int, 1)
        self.source.download = lambda image_id: (b'' for _ in pieces)
        self.ingest.start()
        self.repository.interrupt()
        self.ingest.stop()
        self.assertFalse(any(thread.is_alive()
                             for thread in self.ingest._threads))
        self.assertNothing()

    def test_what_cannot_be_used_leaves_nothing(self):
        for data, changes in (
                (image_services.RAW, {'disk_format': 'vmdk'}),
                (image_services.RAW, {'container_format': 'ova'}),
                (image_services.RAW, {'disk_format': 'qcow2'}),
                (b'EVIL', {'disk_format': 'qcow2'}),
                (image_services.RAW, {'os_hash_value': None}),
                (image_services.RAW, {'os_hash_algo': 'rot13'})):
            self.source.put('image', data, **changes)
            error = self.assertRaises(exceptions.InvalidInput, self.look)
            self.assertTrue(str(error))
        self.assertNothing()

    def assertNothing(self):
        self.assertEqual([], self.repository.images())
        self.assertEqual(frozenset(), self.held.keys())
        self.assertEqual([], list((self.held.root / 'staging').iterdir()))

    def test_a_file_with_another_hash(self):
        self.source.put('image', image_services.RAW)
        self.source.files['image'] = image_services.OTHER
        error = self.assertRaises(exceptions.IntegrityError, self.look)
        self.assertIn('image', str(error))
        self.assertNothing()

    def test_not_there_yet(self):
        for status in ('queued', 'saving', 'importing', 'killed'):
            self.source.put('image', image_services.RAW, status=status)
            self.assertIsNone(self.look())

    def test_deactivated_before_it_was_known(self):
        self.source.put('image', image_services.RAW, status='deactivated')
        self.assertIsNone(self.look())

    def test_metadata_follow(self):
        self.source.put('image', image_services.RAW)
        self.look()
        self.source.change('image', name='New', visibility='public')
        self.source.files.clear()
        record = self.look()
        self.assertEqual(('New', 'public'), (record.name, record.visibility))
        self.assertEqual(record, self.catalogue.images['image'])

    def test_deactivated_and_back(self):
        self.source.put('image', image_services.RAW)
        self.look()
        self.source.change('image', status='deactivated')
        self.assertEqual('deactivated', self.look().status)
        self.assertNotIn(self.image(), self.held)
        self.assertFalse(self.held.path(self.image()).exists())
        self.source.change('image', status='active')
        self.assertEqual('active', self.look().status)
        self.assertTrue(self.held.verify(self.image()))

    def test_deleted(self):
        self.source.put('image', image_services.QCOW2, disk_format='qcow2')
        self.look()
        self.assertIsNone(self.delete())
        self.assertEqual('deleted', self.catalogue.images['image'].status)
        self.assertEqual(frozenset(), self.held.keys())

    def test_deleted_while_deactivated(self):
        self.source.put('image', image_services.RAW)
        self.look()
        self.source.change('image', status='deactivated')
        self.look()
        self.delete()
        withdrawn = self.held.root / holdings.WITHDRAWN
        self.assertEqual([], list(withdrawn.iterdir()))

    def test_a_deletion_the_conductor_does_not_hear(self):
        self.source.put('image', image_services.RAW)
        self.look()
        self.catalogue.dead = True
        self.assertEqual('deleted', self.delete().status)
        self.catalogue.dead = False
        self.repository.announce()
        self.assertEqual('deleted', self.catalogue.images['image'].status)
        self.assertIsNone(self.repository.find('image'))

    def test_content_that_another_image_has_too(self):
        self.source.put('image', image_services.RAW)
        self.source.put('twin', image_services.RAW)
        self.source.put('packed', image_services.QCOW2, disk_format='qcow2')
        for name in ('image', 'twin', 'packed'):
            self.look(name)
        recipe = views.Key(views.RECIPES,
                           self.repository.find('packed').form_id)
        self.source.change('packed', status='deactivated')
        self.look('packed')
        self.assertIn(self.image(), self.held)
        self.assertNotIn(recipe, self.held)
        self.source.change('twin', status='deactivated')
        self.look('twin')
        self.assertIn(self.image(), self.held)
        self.delete()
        # The last that may be served is gone; two may come back.
        self.assertNotIn(self.image(), self.held)
        self.source.change('packed', status='active')
        self.look('packed')
        self.assertIn(self.image(), self.held)
        self.assertIn(recipe, self.held)

    def test_patches_go_and_come_with_their_images(self):
        self.source.put('image', image_services.RAW)
        self.source.put('other', image_services.OTHER)
        self.look('image')
        self.look('other')
        self.make_patches()
        self.assertEqual(2, len(self.repository.patches()))
        self.source.change('other', status='deactivated')
        self.look('other')
        self.assertEqual([], self.repository.patches())
        self.source.change('other', status='active')
        self.look('other')
        self.assertEqual(2, len(self.repository.patches()))
        self.delete('other')
        self.assertEqual([], [key for key in self.held.keys()
                              if key.kind == views.PATCHES])

    def test_other_data_under_the_same_id(self):
        self.source.put('image', image_services.RAW)
        self.look()
        self.source.put('image', image_services.OTHER)
        self.assertRaises(exceptions.Conflict, self.look)

    def test_reconciliation_finds_what_was_missed(self):
        for name in ('stays', 'goes', 'sleeps'):
            self.source.put(name, image_services.RAW + name.encode())
            self.look(name)
        local = self.write_file('local.raw', image_services.OTHER)
        self.repository.register(local, 'local', 'local')
        self.source.put('new', image_services.RAW + b'new')
        del self.source.about['goes']
        self.source.change('sleeps', status='deactivated')
        self.run_until(lambda: self.repository.find('new'))
        self.assertIsNone(self.repository.find('goes'))
        self.assertEqual('deactivated', self.repository.find('sleeps').status)
        # What was not taken from the service is not its business.
        self.assertEqual('active', self.repository.find('local').status)

    def test_an_image_is_added_while_the_service_lists_its_images(self):
        """It was withdrawn for ever."""
        listed = self.source.images()
        self.source.put('new', image_services.RAW)

        def add_meanwhile():
            self.look('new')
            return listed

        self.source.images = add_meanwhile
        self.ingest.reconcile()
        self.assertEqual('active', self.repository.find('new').status)

    def entries(self):
        return self.ingest.report()['queue']

    def handle_all(self):
        """Handle what is due, as a worker does."""
        while any(not entry['retry_in_s'] for entry in self.entries()):
            entry = self.ingest._queue.take()
            self.ingest._process(entry)
            self.ingest._queue.finish(entry)

    def test_an_image_that_only_a_list_lacks_stays(self):
        """A list is no proof: the image itself is asked for."""
        self.source.put('image', image_services.RAW, visibility='public')
        self.look()
        self.source.images = lambda: []
        self.handle_all()
        self.assertEqual('active', self.repository.find('image').status)
        self.assertEqual(['image'], self.catalogue.registered)
        self.assertEqual({}, self.ingest.report()['refused'])

    def test_a_service_user_that_loses_its_role_withdraws_nothing(self):
        for name in 'abc':
            self.source.put(name, image_services.RAW)
            self.look(name)
        self.source.about.clear()
        # A change that is reported finds nothing, too.
        self.ingest.changed('b')
        self.handle_all()
        self.assertEqual(['active'] * 3, [
            record.status for record in self.repository.images()])
        self.assertEqual({'a', 'b', 'c'},
                         self.ingest.report()['refused'].keys())

    def test_images_of_a_small_service_that_were_deleted_unreported(self):
        for name in 'abc':
            self.source.put(name, image_services.RAW)
            self.look(name)
        now = [0.0]
        self.ingest._absent = absent_images.AbsentImages(lambda: now[0])
        del self.source.about['a'], self.source.about['b']
        self.handle_all()
        self.assertEqual(3, len(self.repository.images()))
        now[0] = 4 * 86400.0
        self.ingest._queue.add(ingest_queue.LISTING)
        self.handle_all()
        self.assertEqual(['c'], [record.id
                                 for record in self.repository.images()])
        self.assertEqual({}, self.ingest.report()['refused'])

    def test_all_images_are_listed_again_after_hours(self):
        self.run_until(lambda: True)
        done = threading.Event()
        for _ in range(6000):
            if any(entry.get('retry_in_s') for entry in self.entries()):
                break
            done.wait(0.01)
        [entry] = self.entries()
        self.assertEqual(ingest_queue.LISTING, entry['image'])
        self.assertLessEqual(entry['retry_in_s'], 6 * 3600)

    def test_damaged_content_is_fetched_again(self):
        """It was lost until the image was deleted."""
        self.source.put('image', image_services.QCOW2, disk_format='qcow2')
        record = self.look()
        for kind, name in ((views.IMAGES, record.content_id),
                           (views.MANIFESTS, record.content_id),
                           (views.RECIPES, record.form_id)):
            self.held.quarantine(views.Key(kind, name), 'a bad disk')
            self.assertFalse(self.repository.is_whole(record))
            self.assertEqual(record, self.look())
            self.assertTrue(self.repository.is_whole(record))
            self.assertTrue(self.held.verify(self.image()))

    def test_damage_is_noticed_at_once(self):
        self.held.on_quarantine(self.ingest.replace)
        self.source.put('image', image_services.RAW)
        self.look()
        self.handle_all()
        self.held.quarantine(self.image(), 'a bad disk')
        self.handle_all()
        self.assertTrue(self.held.verify(self.image()))

    def test_what_is_deactivated_is_not_fetched_again(self):
        self.source.put('image', image_services.RAW)
        self.look()
        self.source.change('image', status='deactivated')
        self.look()
        self.source.download = None
        self.assertEqual('deactivated', self.look().status)

    def test_what_is_kept_is_on_the_disk_before_it_has_its_name(self):
        """A power cut left names of files without their data."""
        synced, moved = [], []
        sync, move = files.sync, files.move
        self.patch(files, 'sync', lambda path: synced.append(path)
                   or sync(path))
        self.patch(files, 'move', lambda path, *args, **options: moved.append(
            path) or move(path, *args, **options))
        self.source.put('image', image_services.QCOW2, disk_format='qcow2')
        self.source.put('other', image_services.OTHER)
        self.look()
        self.look('other')
        self.make_patches()
        objects = {path for path in moved if path.parent.name == 'staging'}
        self.assertEqual(9, len(objects))
        self.assertEqual(set(), objects - set(synced))

    def test_a_list_does_not_fetch_refused_images_again(self):
        self.source.put('image', image_services.RAW)
        self.source.files['image'] = image_services.OTHER
        self.assertRaises(exceptions.IntegrityError, self.look)
        self.ingest.refused['image'] = 'wrong hash'
        self.source.download = None
        self.handle_all()
        self.assertIn('image', self.ingest.refused)

    def run_until(self, ready):
        """Run it until something is so, which its changes are."""
        seen = threading.Event()
        register = self.catalogue.register_image

        def noticed(record):
            register(record)
            if ready():
                seen.set()

        self.catalogue.register_image = noticed
        self.ingest.start()
        self.addCleanup(self.ingest.stop)
        self.assertTrue(ready() or seen.wait(image_services.SECONDS))

    def test_a_service_that_is_late_is_asked_again_soon(self):
        # Longer than this test would wait, for an image of its own.
        self.patch(ingest_queue, 'FIRST_RETRY', 10.0 * image_services.SECONDS)
        self.patch(ingest_queue, 'LAST_SERVICE_RETRY', 0.01)
        self.source.put('image', image_services.RAW)
        self.source.dead = True
        failed = self.source.images

        def come_up():
            self.source.dead, self.source.images = False, failed
            raise exceptions.ServiceUnavailable('no Glance')

        self.source.images = come_up
        self.run_until(lambda: self.repository.find('image'))
        self.assertIs(failed, self.source.images)

    def test_told_of_a_new_image(self):
        self.source.put('first', image_services.RAW)
        self.run_until(lambda: self.repository.find('first'))
        self.source.put('image', image_services.OTHER)
        self.source.changed('image')
        self.assertTrue(self.wait_for('image'))

    def wait_for(self, name):
        done = threading.Event()
        for _ in range(6000):
            if self.repository.find(name):
                return True
            done.wait(0.01)
        return False

    def test_a_service_that_is_down_is_asked_again(self):
        self.source.dead = True
        self.source.put('image', image_services.RAW)
        asked = threading.Event()
        images = self.source.images

        def noted():
            asked.set()
            return images()

        self.source.images = noted
        self.ingest.start()
        self.addCleanup(self.ingest.stop)
        self.assertTrue(asked.wait(image_services.SECONDS))
        self.source.dead = False
        self.assertTrue(self.wait_for('image'))

    def test_what_is_refused_is_told_and_not_tried_again(self):
        self.source.put('bad', image_services.RAW, disk_format='vmdk')
        self.source.put('good', image_services.RAW + b'long' * 100)
        self.run_until(lambda: self.repository.find('good'))
        self.assertIn('vmdk', self.ingest.refused['bad'])

    def test_an_image_that_takes_long_does_not_keep_others_waiting(self):
        """One thread added one image after the other."""
        self.ingest = self.new_ingest(workers=2)
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        to_raw = self.tools.to_raw

        def slow(image, output, progress=None):
            assert go_on.wait(image_services.SECONDS)
            return to_raw(image, output, progress)

        self.tools.to_raw = slow
        self.source.put('bomb', image_services.QCOW2, disk_format='qcow2')
        self.source.put('good', image_services.OTHER)
        self.run_until(lambda: self.repository.find('good'))
        self.assertIsNone(self.repository.find('bomb'))
        self.assertIn({'image': 'bomb', 'state': 'active'},
                      self.ingest.report()['queue'])
        go_on.set()
        self.assertTrue(self.wait_for('bomb'))

    # -- images that hosts need before they are registered

    def add_slowly(self, meanwhile):
        """Call a function while the recipe of an image is made."""
        made = self.tools.make_recipe

        def make_recipe(*arguments):
            meanwhile()
            return made(*arguments)

        self.tools.make_recipe = make_recipe
        self.source.put('image', image_services.QCOW2, disk_format='qcow2')

    def test_unpacking_is_timed_for_hosts_that_would_do_it(self):
        noted = []
        self.ingest.arriving.note_unpacked = \
            lambda *figures: noted.append(figures)
        self.source.put('image', image_services.QCOW2, disk_format='qcow2')
        self.source.put('raw', image_services.OTHER)
        self.look()
        self.look('raw')
        [(size, seconds)] = noted
        self.assertEqual(len(image_services.QCOW2), size)
        self.assertGreaterEqual(seconds, 0)

    def wait_at_repository(self, name='image'):
        # A link so slow that it is worth to wait for a minute.
        return self.ingest.arriving.wait(name, len(image_services.QCOW2), 1e-6)

    def test_hosts_can_read_an_image_before_its_recipe_is_made(self):
        seen = []
        self.add_slowly(lambda: seen.append((
            self.wait_at_repository(), self.held.keys(),
            self.repository.find('image'), self.ingest.report()['arriving'])))
        self.look()
        [(image, keys, known, report)] = seen
        self.assertEqual(('image', fakes.content_id(image_services.RAW),
                          'active', None),
                         (image.id, image.content_id, image.status,
                          image.form_id))
        self.assertLessEqual({
            views.Key(kind, image.content_id)
            for kind in (views.IMAGES, views.COMPRESSED)}, keys)
        self.assertIsNone(known)
        self.assertEqual([{'image': 'image', 'readable': True}], report)
        # The one that is registered is given out from then on.
        self.assertIsNotNone(self.wait_at_repository().form_id)
        self.assertEqual([], self.ingest.report()['arriving'])

    def test_an_image_that_a_host_waits_for_is_compressed_less(self):
        self.source.put('image', image_services.RAW)
        for done, levels in ((10, [6, 3]), (90, [6])):
            self.tools.levels.clear()
            self.tools.done = done
            answers = iter([False, True])
            self.ingest.arriving.is_awaited = lambda _image: next(answers)
            self.look()
            self.assertEqual(levels, self.tools.levels)
            self.delete()
            self.source.put('image', image_services.RAW)
        self.tools.levels.clear()
        self.ingest.arriving.is_awaited = lambda _image: True
        self.look()
        self.assertEqual([3], self.tools.levels)

    def fail(self):
        raise exceptions.NoSpace('no room for the recipe')

    def test_what_was_served_of_an_image_that_cannot_be_added(self):
        self.add_slowly(self.fail)
        self.assertRaises(exceptions.NoSpace, self.look)
        self.assertNothing()
        self.assertIsNone(self.ingest.arriving._readable.get('image'))

    def test_content_that_another_image_has_stays(self):
        self.source.put('twin', image_services.RAW)
        self.look('twin')
        self.add_slowly(self.fail)
        self.assertRaises(exceptions.NoSpace, self.look)
        self.assertTrue(self.held.verify(self.image()))

    def test_content_that_another_image_is_being_added_with(self):
        """One that failed deleted the content of one that was added."""
        def twin_fails():
            about = {'id': 'twin', 'name': 'Twin'}
            content = self.held.staging('twin')
            content.write_bytes(image_services.RAW)
            with self.repository.serving(content, about):
                pass

        self.add_slowly(twin_fails)
        self.look()
        self.assertTrue(self.held.verify(self.image()))

    def test_content_of_a_deactivated_image_is_unreadable_again(self):
        self.source.put('twin', image_services.RAW)
        self.look('twin')
        self.source.change('twin', status='deactivated')
        self.look('twin')
        self.add_slowly(self.fail)
        self.assertRaises(exceptions.NoSpace, self.look)
        self.assertNotIn(self.image(), self.held)
        self.source.change('twin', status='active')
        self.look('twin')
        self.assertTrue(self.held.verify(self.image()))

    def test_a_twin_that_is_deleted_while_the_image_is_added(self):
        self.source.put('twin', image_services.RAW)
        self.look('twin')

        def delete_twin():
            self.delete('twin')

        self.add_slowly(delete_twin)
        self.assertRaises(exceptions.RetryableError, self.look)
        self.tools.make_recipe = image_services.Tools().make_recipe
        self.look()
        self.assertTrue(self.held.verify(self.image()))

    def test_a_waiting_host_has_an_image_added(self):
        """The notification of the image service may be late."""
        self.ingest.start()
        self.addCleanup(self.ingest.stop)
        self.source.put('image', image_services.RAW)
        self.assertEqual('image', self.wait_at_repository().id)

    def test_images_that_no_host_waits_for(self):
        self.source.put('packed', image_services.RAW, disk_format='vmdk')
        self.source.put('queued', image_services.RAW, status='queued')
        self.source.put('image', image_services.RAW)
        self.look()
        self.source.change('image', status='deactivated')
        self.look()
        for name in ('packed', 'queued', 'image', 'nothing'):
            self.assertIsNone(self.wait_at_repository(name))
        self.assertEqual([ingest_queue.LISTING], [
            each['image'] for each in self.ingest.report()['queue']])

    def test_an_image_beyond_the_limits_is_refused_before_it_is_unpacked(self):
        self.ingest = self.new_ingest(disk_size=len(image_services.RAW) - 1)
        self.source.put('bomb', image_services.QCOW2, disk_format='qcow2')
        self.tools.to_raw = None
        error = self.assertRaises(exceptions.InvalidInput, self.look, 'bomb')
        self.assertIn('largest_image', str(error))
        self.assertNothing()

    def test_a_file_longer_than_glance_states_is_not_stored(self):
        self.source.put('image', image_services.RAW,
                        size=len(image_services.RAW) - 1)
        error = self.assertRaises(exceptions.IntegrityError, self.look)
        self.assertIn('states', str(error))
        self.assertNothing()

    def test_lack_of_space_is_reported_until_there_is_some(self):
        self.patch(ingest_queue, 'FIRST_RETRY', image_services.SECONDS)
        full = [True]
        to_raw = self.tools.to_raw

        def unpack(image, output, progress=None):
            if full[0]:
                raise exceptions.NoSpace('no space left')
            return to_raw(image, output, progress)

        self.tools.to_raw = unpack
        self.source.put('large', image_services.QCOW2, disk_format='qcow2')
        self.source.put('good', image_services.OTHER * 10)
        self.run_until(lambda: self.repository.find('good'))
        [waiting] = [each for each in self.ingest.report()['queue']
                     if each['image'] == 'large']
        self.assertEqual(('large', 'waiting_for_space', 1, 'no space left'), (
            waiting['image'], waiting['state'], waiting['attempts'],
            waiting['error']))
        full[0] = False
        self.source.changed('large')
        self.assertTrue(self.wait_for('large'))
