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
import errno
import functools
import logging
import os
import threading
from unittest import mock

import fixtures

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import patch_work
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

BASE, TARGET = b'base' * 100, b'target' * 100
ID = 'c1b1a3f2-0000-4000-8000-000000000001'


REPORT = objects.PairReport(base='0' * 64, target='0' * 64,
                            verdict=patch_work.FAILED)


class Sketch(bytes):
    """A sketch of the fake site."""

    data_size = property(len)
    signature = ''


class Tools:
    """Patches of the fake site."""

    methods = 'patch 1'

    def sign(self, image, manifest, progress=None):
        content = image.read_bytes()
        manifest.write_bytes(b'manifest')
        return {'content_id': fakes.content_id(content),
                'size': len(content), 'data_size': len(content)}

    def hash_file(self, path):
        return fakes.content_id(path.read_bytes())

    def make_patch(self, base_path, target, patch, level, progress=None):
        contents = [path.read_bytes() for path in (base_path, target)]
        patch.write_bytes(fakes.make_patch(*contents))
        return tuple(fakes.content_id(content) for content in contents)

    def apply_patch(self, base_path, patch, output, progress=None):
        fakes.apply_patch_files(base_path, patch, output)

    def sketch(self, image, output, progress=None):
        output.write_bytes(b'sketch' + image.read_bytes())

    def load_sketch(self, path):
        if not path.read_bytes().startswith(b'sketch'):
            raise exceptions.FormatError(f'{path} is no sketch')
        return Sketch(path.read_bytes()[6:])

    def estimate(self, base_sketch, target_sketch):
        return abs(len(target_sketch) - len(base_sketch))


class Catalogue:

    def __init__(self):
        self.images = {}
        self.patches = {}
        self.sketches = {}
        self.reports = {}
        self.terms = []
        self.compared = []
        self.registered = []
        self.dead = False

    def _answer(self):
        if self.dead:
            raise exceptions.ServiceUnavailable('no answer')

    def find_unregistered(self, images, patches):
        self._answer()
        self.compared.append((len(images), len(patches)))
        return ([image for image in images
                 if image.id not in self.images],
                [patch for patch in patches
                 if (patch.base, patch.target) not in self.patches])

    def register_image(self, record):
        self._answer()
        self.registered.append(record.id)
        # What is compressed is no part of the image's own record.
        self.images[record.id] = dataclasses.replace(
            record, compressed_size=None)

    def signed(self, record):
        return objects.Image(**dataclasses.asdict(record))

    def register_patch(self, record):
        self._answer()
        self.patches[record.base, record.target] = record

    def patch_work(self, terms, creations):
        """All pairs of all images: the real catalogue has better ideas."""
        self._answer()
        contents = [t.content_id for t in self.images.values()
                    if t.status == views.ACTIVE]
        pairs = [(a, b) for a in contents for b in contents if a != b]
        found = objects.PatchWork(
            sketch=[c for c in contents if c not in self.sketches],
            compare=[objects.PatchPair(base=a, target=b) for a, b in pairs
                     if (a, b) not in self.reports])
        wanted = [pair for pair in pairs if pair not in self.patches
                  and self.reports.get(pair, REPORT).verdict == 'estimated']
        found.create = [objects.PatchPair(base=a, target=b)
                        for a, b in wanted[:creations]]
        found.pending = bool(found.sketch or found.compare or found.create)
        self.terms.append(terms)
        return found

    def report_sketches(self, sketches):
        self._answer()
        self.sketches |= {sketch.content_id: sketch for sketch in sketches}

    def report_pairs(self, terms, pairs):
        self._answer()
        self.reports |= {(pair.base, pair.target): pair for pair in pairs}


def _once(patch_work_of, *args):
    """Work as if there were no more."""
    found = patch_work_of(*args)
    found.pending = False
    return found


class RepositoryTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.catalogue = Catalogue()
        self.ratio = 2.0
        self.may_run = True
        self.repository = self.new()
        self.base_file = self.write_file('base.raw', BASE)
        self.target_file = self.write_file('target.raw', TARGET)

    def new(self):
        self.held = holdings.Holdings(
            self.directory / 'objects', None, fakes.Inspector(),
            lambda kind, object_id: 0)
        self.held.scan()
        self.host = host_state.HostState('repo', self.held, None)
        return catalogue.Repository(
            self.host, self.directory / 'state', Tools(), self.catalogue,
            catalogue.PatchOptions(3, self.ratio, lambda: self.may_run, 60))

    def register_both(self):
        return [self.repository.register(path, name, name).content_id
                for path, name in ((self.base_file, 'base'),
                                   (self.target_file, 'target'))]

    def test_register_keeps_a_copy_of_its_own(self):
        record = self.repository.register(self.base_file, ID, 'base')
        self.base_file.write_bytes(b'changed')
        key = views.Key(views.IMAGES, record.content_id)
        self.assertEqual(BASE, self.held.path(key).read_bytes())
        self.assertEqual(record, self.catalogue.images[ID])
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_register_twice_is_once(self):
        first = self.repository.register(self.base_file, ID, 'base')
        self.assertEqual(first, self.repository.register(
            self.base_file, ID, 'base'))
        self.assertEqual([first], self.repository.images())

    def test_an_id_keeps_its_content(self):
        self.repository.register(self.base_file, ID, 'base')
        error = self.assertRaises(
            exceptions.Conflict, self.repository.register, self.target_file,
            ID, 'base')
        self.assertIn(ID, str(error))
        self.assertNotIn(fakes.key_of(TARGET), self.held)

    def test_missing_file(self):
        path = self.directory / 'none.raw'
        error = self.assertRaises(
            exceptions.InvalidInput, self.repository.register, path, ID, '')
        self.assertIn(str(path), str(error))

    def test_makes_what_is_missing_and_knows_it_after_a_restart(self):
        one, two = self.register_both()
        self.assertEqual(2, self.repository.make_missing())
        record = self.catalogue.patches[one, two]
        patch = self.held.path(views.Key(views.PATCHES, record.id))
        self.assertEqual(fakes.make_patch(BASE, TARGET), patch.read_bytes())
        self.assertEqual(patch.stat().st_size, record.size)
        self.assertEqual(0, self.repository.make_missing())
        self.catalogue.images, self.catalogue.patches = {}, {}
        again = self.new()
        self.assertTrue(again.announce())
        self.assertEqual(record, self.catalogue.patches[one, two])
        self.assertEqual(2, len(self.catalogue.images))
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_two_threads_create_a_patch_once(self):
        one, two = self.register_both()
        calls = []
        tools = self.repository._tools
        make_patch = tools.make_patch

        def make_once_both_wait(*arguments):
            calls.append(arguments)
            # Until the other thread has come as far as it can.
            while len(self.repository._pairs_changed._waiters) < 1 \
                    and len(calls) < 2:
                os.sched_yield()
            return make_patch(*arguments)

        tools.make_patch = make_once_both_wait
        results = []
        threads = [threading.Thread(target=lambda: results.append(
            self.repository.create(one, two))) for _number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([False, True], sorted(results))
        self.assertEqual(1, len(calls))
        self.assertEqual(self.repository.patches(),
                         [self.repository.find_patch(one, two)])

    def test_content_is_known_once_it_was_registered_and_sketched(self):
        content = fakes.content_id(BASE)
        self.assertFalse(self.repository.has_content(content))
        self.repository.register(self.base_file, 'base', 'base')
        self.assertTrue(self.repository.has_content(content))
        self.assertFalse(self.repository.has_sketch(content))
        self.repository.make_missing()
        self.assertTrue(self.repository.has_sketch(content))
        self.assertEqual(len(BASE), self.repository.data_size(content))

    def test_a_stop_ends_a_patch_that_is_being_created(self):
        """It is no failure of the pair: the next process creates it."""
        one, two = self.register_both()
        begun = threading.Event()

        def make_patch(*args):
            # As long as it is not interrupted.
            progress = args[-1]
            begun.set()
            while True:
                progress(1, 2)

        with mock.patch.object(self.repository._tools, 'make_patch',
                               make_patch):
            self.repository.start()
            self.assertTrue(begun.wait(60))
            self.repository.stop()
            self.assertFalse(self.repository._thread.is_alive())
            # So do those of calls from other hosts.
            self.assertRaises(exceptions.Interrupted, self.repository.create,
                              two, one)
        self.assertNotIn(patch_work.FAILED, [
            report.verdict for report in self.catalogue.reports.values()])
        self.assertEqual([], os.listdir(self.held.root / 'staging'))
        self.repository = self.new()
        self.assertEqual(2, self.repository.make_missing())

    def test_a_stop_ends_the_comparison_of_images(self):
        one, two = self.register_both()
        self.repository.interrupt()
        with mock.patch.object(
                self.repository._tools, 'sketch',
                lambda image, output, progress: progress(1, 2)):
            self.assertRaises(exceptions.Interrupted,
                              self.repository.estimate, one, two)
        self.assertEqual({}, self.catalogue.reports)

    def test_too_large_a_patch_is_declined(self):
        self.ratio = 0.5
        self.repository = self.new()
        one, two = self.register_both()
        self.assertEqual(0, self.repository.make_missing())
        self.assertEqual([], self.repository.patches())
        report = self.catalogue.reports[one, two]
        self.assertEqual(
            (patch_work.DECLINED, len(fakes.make_patch(BASE, TARGET))),
            (report.verdict, report.size))
        self.assertIn('max_patch_ratio', report.reason)

    def test_an_estimate_far_above_the_limit_is_declined_unmade(self):
        self.ratio = 0.1
        self.repository = self.new()
        one, two = self.register_both()
        self.repository._tools.make_patch = None
        self.assertEqual(0, self.repository.make_missing())
        self.assertEqual(patch_work.DECLINED,
                         self.catalogue.reports[one, two].verdict)

    def test_what_patches_are_declined_by_is_reported(self):
        self.repository.make_missing()
        self.ratio = 0.3
        self.new().make_missing()
        self.assertEqual(['patch 1, level 3, ratio 2',
                          'patch 1, level 3, ratio 0.3'],
                         self.catalogue.terms)

    def test_no_patch_is_started_while_none_may_be(self):
        self.may_run = False
        self.repository = self.new()
        one, two = self.register_both()
        self.catalogue.patch_work = functools.partial(
            _once, self.catalogue.patch_work)
        self.assertEqual(0, self.repository.make_missing())
        self.assertEqual({one, two}, set(self.catalogue.sketches))

    def test_a_patch_whose_report_was_lost_is_reported_not_made_again(self):
        one, two = self.register_both()
        self.repository.make_missing()
        record = self.catalogue.patches.pop((one, two))
        self.repository._tools.make_patch = None
        self.assertEqual(0, self.repository.make_missing())
        self.assertEqual(record, self.catalogue.patches[one, two])

    def test_an_image_deleted_while_its_patches_are_planned_is_no_error(self):
        one, two = self.register_both()
        logged = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        make_patch = Tools.make_patch

        def delete_meanwhile(tools, *args):
            found = make_patch(tools, *args)
            self.held.drop(views.Key(views.IMAGES, two), 'deleted')
            return found

        self.patch(Tools, 'make_patch', delete_meanwhile)
        self.assertEqual(0, self.repository.make_missing())
        lines = [line for line in logged.output.splitlines()
                 if 'Could not create the patch' in line]
        self.assertEqual(2, len(lines), lines)
        self.assertNotIn('Error', logged.output)
        for pair in ((one, two), (two, one)):
            self.assertEqual(patch_work.FAILED,
                             self.catalogue.reports[pair].verdict)

    def test_a_patch_that_cannot_be_made_is_an_error_and_tried_later(self):
        one, two = self.register_both()
        logged = self.useFixture(fixtures.FakeLogger(
            level=logging.ERROR))

        def fail(tools, *args):
            raise exceptions.NoSpace('No space left on the device')

        self.patch(Tools, 'make_patch', fail)
        self.assertEqual(0, self.repository.make_missing())
        self.assertIn('No space left', logged.output)
        self.assertEqual(patch_work.FAILED,
                         self.catalogue.reports[one, two].verdict)

    def test_a_damaged_sketch_is_made_again(self):
        one, two = self.register_both()
        sketches = self.directory / 'state' / 'sketches'
        (sketches / one).write_bytes(b'damaged')
        self.assertEqual(2, self.repository.make_missing())
        self.assertEqual(b'sketch' + BASE, (sketches / one).read_bytes())

    def test_an_image_that_cannot_be_read_costs_its_own_patches_only(self):
        self.register_both()
        bad = self.repository.register(
            self.write_file('bad.raw', b'bad' * 100), 'bad', 'bad').content_id
        sketch = Tools.sketch

        def fail(tools, image, output, progress=None):
            if image.name == bad:
                raise OSError(errno.EIO, 'Input/output error')
            sketch(tools, image, output)

        self.patch(Tools, 'sketch', fail)
        self.assertEqual(2, self.repository.make_missing())
        self.assertNotIn(bad, {end for pair in self.catalogue.patches
                               for end in pair})

    def test_a_changed_base_is_a_clear_error(self):
        one, two = self.register_both()
        self.held.path(views.Key(views.IMAGES, one)).write_bytes(b'changed')
        error = self.assertRaises(exceptions.IntegrityError,
                                  self.repository.make_patch, one, two)
        self.assertIn(one, str(error))
        self.assertNotIn(views.Key(views.IMAGES, one), self.held)
        self.assertEqual([], self.repository.patches())
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_a_dead_conductor_is_told_later(self):
        self.catalogue.dead = True
        self.register_both()
        self.assertFalse(self.repository.announce())
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.repository.make_missing)
        self.catalogue.dead = False
        self.assertTrue(self.repository.announce())
        self.assertEqual({'base', 'target'}, set(self.catalogue.images))

    def test_a_conductor_that_is_busy_is_told_in_the_end(self):
        # Regression: one attempt was made, when contact was found again.
        self.patch(catalogue, 'RETRY_SECONDS', 0.001)
        self.catalogue.dead = True
        self.register_both()
        compare, refused = self.catalogue.find_unregistered, [1, 2]

        def find(images, patches):
            if refused:
                refused.pop()
            else:
                self.catalogue.dead = False
            return compare(images, patches)
        self.patch(self.catalogue, 'find_unregistered', find)
        self.repository.announce_in_time()
        self.assertEqual({'base', 'target'}, set(self.catalogue.images))

    def test_a_conductor_that_stays_away_keeps_no_agent_from_stopping(self):
        self.catalogue.dead = True
        self.register_both()
        thread = threading.Thread(target=self.repository.announce_in_time)
        thread.start()
        self.repository.interrupt()
        thread.join()

    def test_known_images_and_patches_are_not_reported_again(self):
        self.register_both()
        self.repository.make_missing()
        del self.catalogue.images['base']
        self.catalogue.registered.clear()
        self.patch(self.catalogue, 'register_patch', None)
        self.assertTrue(self.new().announce())
        self.assertEqual(['base'], self.catalogue.registered)
        self.assertEqual([(2, 2)], self.catalogue.compared)

    def test_images_are_compared_some_at_a_time(self):
        self.patch(catalogue, '_COMPARED', 2)
        for number in range(5):
            path = self.write_file('image.raw', b'%d' % number)
            self.repository.register(path, f'image-{number}', 'name')
        self.repository.announce()
        self.assertEqual([(2, 0), (2, 0), (1, 0)], self.catalogue.compared)

    def test_deleted_images_are_reported_whatever_is_known(self):
        record = self.repository.register(self.base_file, ID, 'base')
        self.catalogue.dead = True
        self.repository.put(dataclasses.replace(record, status=views.DELETED))
        self.catalogue.dead = False
        self.assertTrue(self.repository.announce())
        self.assertEqual(views.DELETED, self.catalogue.images[ID].status)
        self.assertEqual([], self.repository.images())

    def test_runs_in_the_background_when_something_is_registered(self):
        done = []
        self.patch(self.host.report_due, 'set', lambda: done.append(
            len(self.repository.patches())))
        self.repository.start()
        self.addCleanup(self.repository.stop)
        self.register_both()
        with self.repository._wake:
            while 2 not in done:
                self.repository._wake.wait(0.01)
        self.assertEqual(2, len(self.repository.patches()))

    def test_an_image_is_deleted_while_its_patch_is_hashed(self):
        """The patch stayed, with data of an image that was withdrawn."""
        one, two = self.register_both()
        record = self.repository.find('target')
        hash_file = Tools.hash_file

        def delete_meanwhile(tools, path):
            self.repository.put(dataclasses.replace(
                record, status=views.DELETED))
            return hash_file(tools, path)

        self.patch(Tools, 'hash_file', delete_meanwhile)
        self.assertRaises(exceptions.ObjectMissing,
                          self.repository.make_patch, one, two)
        self.assertEqual([], self.repository.patches())
        self.assertEqual([], list((self.held.root / 'patches').iterdir()))
