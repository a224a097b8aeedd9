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
import errno
import os
import pathlib
import stat
import time

from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import identities
from diffcache_openstack.agent.state import scrub
from diffcache_openstack.common import files
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

CONTENT, OTHER = b'content of an image', b'content of another one'
DAY = 86400.0


class Stop(Exception):
    """The reading is to end."""


class CountingInspector(fakes.Inspector):
    """Notes what it reads."""

    def __init__(self):
        self.read = []

    def deep(self, key, path, manifest):
        self.read.append(key)
        super().deep(key, path, manifest)


class SealsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        # Changes were long ago, unless a test says otherwise.
        self.patch(identities, '_TICK_NS', 0)
        self.start()

    def start(self, **options):
        """Start an agent; the one before was killed."""
        self.inspector = CountingInspector()
        self.held = holdings.Holdings(
            self.directory / 'objects', 10 ** 6, self.inspector,
            lambda _kind, _object_id: 0, **options)
        self.held.scan()

    def put(self, content=CONTENT):
        key = fakes.key_of(content)
        self.held.manifest(key.id).write_bytes(b'm')
        staged = self.held.staging(key.id)
        staged.write_bytes(content)
        self.assertTrue(self.held.adopt(key, staged, len(content)))
        return key

    def is_intact(self, key):
        with self.held.opened(key) as found:
            return found.is_intact

    def change(self, key, content):
        """Write to an object, whoever may do that."""
        path = self.held.path(key)
        path.chmod(0o600)
        path.write_bytes(content)

    def deliver(self, key, name):
        output = self.directory / name
        output.write_bytes(self.held.path(key).read_bytes())
        self.held.note_delivered(key, output, output.stat())
        return f'{output} (inode {output.stat().st_ino})'


class TestSeals(SealsTest):

    def test_what_arrives_is_sealed(self):
        key = self.put()
        self.assertTrue(self.is_intact(key))
        mode = stat.S_IMODE(self.held.path(key).stat().st_mode)
        self.assertEqual(0o400, mode)
        self.assertEqual([], self.inspector.read)

    def test_a_changed_file_is_read_first(self):
        key = self.put()
        self.change(key, CONTENT)
        self.assertFalse(self.is_intact(key))
        with self.held.opened(key) as found:
            self.held.read(key, found)
        self.assertTrue(self.is_intact(key))

    def test_a_file_put_in_its_place_is_read_first(self):
        key = self.put()
        other = self.directory / 'other'
        other.write_bytes(b'x' * len(CONTENT))
        os.replace(other, self.held.path(key))
        self.assertFalse(self.is_intact(key))
        self.assertFalse(self.held.verify(key))
        self.assertNotIn(key, self.held)

    def test_a_change_during_the_reading_is_not_sealed(self):
        key = self.put()
        path = self.held.path(key)

        def read(*_arguments):
            path.chmod(0o600)

        with self.held.opened(key) as found:
            self.held.read(key, found, read)
        self.assertFalse(self.is_intact(key))

    def test_a_restart_keeps_seals(self):
        key = self.put()
        self.held.save_seals()
        self.start()
        self.assertTrue(self.is_intact(key))

    def test_a_kill_between_arrival_and_record(self):
        """It is read before it is used, and sealed then."""
        saved = self.put()
        self.held.save_seals()
        key = self.put(OTHER)
        self.start()
        self.assertTrue(self.is_intact(saved))
        self.assertFalse(self.is_intact(key))
        self.assertTrue(self.held.verify(key))
        self.assertTrue(self.is_intact(key))

    def test_an_object_is_on_the_disk_before_its_record(self):
        key, order = self.put(), []
        self.patch(scrub.holdings.seals.files, 'sync', order.append)
        self.patch(scrub.holdings.seals.files, 'write_json',
                   lambda path, _document: order.append(path))
        self.held.save_seals()
        self.assertEqual([self.held.path(key), self.directory / 'seals.json'],
                         order)
        # There is nothing new.
        self.held.save_seals()
        self.assertEqual(2, len(order))

    def test_a_record_that_cannot_be_written_is_written_later(self):
        key = self.put()
        (self.directory / 'seals.json').mkdir()
        self.held.save_seals()
        (self.directory / 'seals.json').rmdir()
        self.held.save_seals()
        self.start()
        self.assertTrue(self.is_intact(key))

    def test_an_object_that_could_not_be_written_is_read_first(self):
        # Regression: the kernel reports a lost write once, so that the next
        # attempt recorded the object as sound.
        sound, lost = self.put(), self.put(OTHER)
        path, sync, forgotten = self.held.path(lost), files.sync, []

        def fail_once(written):
            if written == path and not forgotten:
                raise OSError(errno.EIO, 'lost')
            sync(written)

        self.patch(files, 'sync', fail_once)
        self.patch(files, 'forget_cached', forgotten.append)
        for _attempts in range(2):
            self.held.save_seals()
            self.assertFalse(self.is_intact(lost))
        self.assertEqual([path], forgotten)
        self.start()
        self.assertTrue(self.is_intact(sound))
        self.assertFalse(self.is_intact(lost))
        self.assertTrue(self.held.verify(lost))
        self.assertTrue(self.is_intact(lost))

    def test_one_that_cannot_be_opened_keeps_no_other_from_the_record(self):
        lost, sound = self.put(), self.put(OTHER)
        path, sync = self.held.path(lost), files.sync

        def fail(opened):
            if opened == path:
                raise OSError(errno.EMFILE, 'too many')
            sync(opened)

        self.patch(files, 'sync', fail)
        self.patch(files, 'forget_cached', fail)
        self.held.save_seals()
        self.start()
        self.assertTrue(self.is_intact(sound))
        self.assertFalse(self.is_intact(lost))

    def test_a_damaged_record_counts_for_nothing(self):
        for text in ('{', '[]', '{"images/ab": ["x"]}', '{"a": [1]}',
                     '{"images/ab": [1, 2, 3, 4, 5, null]}'):
            key = self.put(text.encode())
            (self.directory / 'seals.json').write_text(text)
            self.start()
            self.assertFalse(self.is_intact(key))

    def test_what_comes_back_is_read_first(self):
        key = self.put()
        self.held.set_aside(key)
        self.held.bring_back(key)
        self.assertFalse(self.is_intact(key))

    def test_a_site_that_trusts_no_seal(self):
        key = self.put()
        self.held.save_seals()
        self.start(always_read=True)
        self.assertFalse(self.is_intact(key))

    def test_what_just_changed_is_not_sealed(self):
        """A write within the same tick would not be seen."""
        key = self.put()
        self.change(key, CONTENT)
        self.patch(identities, '_TICK_NS', 10 ** 12)
        self.assertTrue(self.held.verify(key))
        self.assertFalse(self.is_intact(key))


class TestScrub(SealsTest):

    def setUp(self):
        super().setUp()
        self.now = time.time()
        self.patch(time, 'time', lambda: self.now)
        self.damaged = []
        self.scrub = self.new_scrub()

    def new_scrub(self):
        return scrub.Scrub(
            self.held, scrub.Schedule(10, 10 ** 9),
            lambda: self.damaged.append(self.held.keys()))

    def read(self):
        self.inspector.read.clear()
        self.scrub.work()
        return self.inspector.read

    def test_each_object_once_in_a_period(self):
        key = self.put()
        self.assertEqual([], self.read())
        self.now += 6 * DAY
        self.assertEqual([key], self.read())
        self.assertEqual([], self.read())

    def test_a_clock_that_was_put_back(self):
        key = self.put()
        self.now -= 100 * DAY
        self.assertEqual([key], self.read())
        self.assertEqual([], self.read())

    def test_the_most_used_first_and_none_too_late(self):
        rare, often, unknown = map(self.put, (b'rare', b'often', b'unknown'))
        for _ in range(3):
            self.is_intact(often)
        self.held.seals.drop(unknown)
        self.now += 6 * DAY
        self.assertEqual(unknown, self.scrub.next())
        self.held.drop(unknown, 'the test')
        self.assertEqual(often, self.scrub.next())
        # Those whose period is nearly over, by age.
        self.now += 3.5 * DAY
        self.assertEqual(rare, self.scrub.next())

    def test_damage_is_found_and_never_served_again(self):
        key = self.put()
        self.deliver(key, 'before')
        self.now += 1
        self.assertTrue(self.held.verify(key))
        since = self.deliver(key, 'since')
        damaged = bytearray(CONTENT)
        damaged[3] ^= 1
        self.change(key, bytes(damaged))
        self.now += 6 * DAY
        self.read()
        self.assertEqual([frozenset()], self.damaged)
        self.assertNotIn(key, self.held)
        found = self.scrub.report()
        self.assertEqual(1, found['damaged'])
        [damage] = found['damages']
        self.assertEqual([since], damage['outputs'])
        # Until an operator has dealt with it, also after a restart.
        self.start()
        self.scrub = self.new_scrub()
        self.assertNotIn(key, self.held)
        self.assertEqual([damage], self.scrub.report()['damages'])
        pathlib.Path(damage['record']).unlink()
        self.assertEqual([], self.scrub.report()['damages'])

    def test_what_was_built_from_a_damaged_base_is_read_again(self):
        key, built = self.put(), self.put(OTHER)
        self.held.note_built(key, self.held.path(built))
        self.change(key, CONTENT.upper())
        self.assertFalse(self.held.verify(key))
        self.assertFalse(self.is_intact(built))
        self.assertEqual(built, self.scrub.next())
        [damage] = self.scrub.report()['damages']
        self.assertIn(str(self.held.path(built)), damage['outputs'][0])

    def test_a_delivery_while_it_is_read_is_named(self):
        key = self.put()
        inner, named = self.inspector.slowly, []

        def slowly(*arguments, **options):
            inner(*arguments, **options)
            named.append(self.deliver(key, 'meanwhile'))

        self.inspector.slowly = slowly
        self.now += 6 * DAY
        self.read()
        self.assertEqual(named, self.held.seals.condemn(key))

    def test_what_cannot_be_read_is_tried_later(self):
        key = self.put()
        self.now += 6 * DAY
        self.patch(self.inspector, 'slowly', _unreadable)
        self.read()
        self.assertIn(key, self.held)
        self.assertIsNone(self.scrub.next())
        self.now += DAY
        self.assertEqual(key, self.scrub.next())

    def test_a_stop_ends_the_reading(self):
        key = self.put()
        self.now += 6 * DAY
        self.scrub._stopped.set()
        self.scrub._read(key)
        self.assertEqual([], self.inspector.read)
        self.assertIn(key, self.held)

    def test_a_rate_that_does_not_suffice(self):
        key = self.put()
        self.now += 11 * DAY
        found = self.scrub.report()
        size = self.held.sizes()[key]
        self.assertEqual(1, found['overdue'])
        self.assertEqual(size, found['overdue_bytes'])
        self.assertGreater(found['needed_rate'], 0)

    def test_the_thread(self):
        key = self.put()
        self.held.seals.drop(key)
        self.scrub.start()
        self.scrub.stop()
        self.start()
        self.assertIn(views.Key(views.IMAGES, key.id), self.held)


def _unreadable(*_arguments, **_options):
    raise OSError(24, 'Too many open files')
