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
"""Creating the patches of a repository."""

import dataclasses
import errno
import functools
import logging
import os
import threading
from unittest import mock

import fixtures

from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import patch_work
from diffcache_openstack.sites import views
from tests.unit.agent import fakes
from tests.unit.agent.repository import repositories
from tests import waiting

BASE, TARGET = repositories.BASE, repositories.TARGET


def _once(patch_work_of, *args):
    """Work as if there were no more."""
    found = patch_work_of(*args)
    found.pending = False
    return found


class PatchMakerTest(repositories.RepositoryCase):

    def test_makes_what_is_missing_and_knows_it_after_a_restart(self):
        one, two = self.register_both()
        self.assertEqual(2, self.maker.make_missing())
        record = self.catalogue.patches[one, two]
        patch = self.held.path(views.Key(views.PATCHES, record.id))
        self.assertEqual(fakes.make_patch(BASE, TARGET), patch.read_bytes())
        self.assertEqual(patch.stat().st_size, record.size)
        self.assertEqual(0, self.maker.make_missing())
        self.catalogue.images, self.catalogue.patches = {}, {}
        again = self.new()
        self.assertTrue(again.announce())
        self.assertEqual(record, self.catalogue.patches[one, two])
        self.assertEqual(2, len(self.catalogue.images))
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_two_threads_create_a_patch_once(self):
        one, two = self.register_both()
        calls = []
        tools = self.maker._tools
        make_patch = tools.make_patch

        def make_once_both_wait(*arguments):
            calls.append(arguments)
            # Until the other thread has come as far as it can.
            while len(self.maker._pairs_changed._waiters) < 1 \
                    and len(calls) < 2:
                os.sched_yield()
            return make_patch(*arguments)

        tools.make_patch = make_once_both_wait
        results = []
        threads = [threading.Thread(target=lambda: results.append(
            self.maker.create(one, two))) for _number in range(2)]
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
        self.assertFalse(self.maker.has_sketch(content))
        self.maker.make_missing()
        self.assertTrue(self.maker.has_sketch(content))
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

        with mock.patch.object(self.maker._tools, 'make_patch',
                               make_patch):
            self.maker.start()
            self.assertTrue(begun.wait(60))
            self.maker.stop()
            # So do those of calls from other hosts.
            self.assertRaises(exceptions.Interrupted, self.maker.create,
                              two, one)
        self.assertNotIn(patch_work.FAILED, [
            report.verdict for report in self.catalogue.reports.values()])
        self.assertEqual([], os.listdir(self.held.root / 'staging'))
        self.repository = self.new()
        self.assertEqual(2, self.maker.make_missing())

    def test_a_stop_ends_the_comparison_of_images(self):
        one, two = self.register_both()
        self.repository.interrupt()
        with mock.patch.object(
                self.maker._tools, 'sketch',
                lambda image, output, progress: progress(1, 2)):
            self.assertRaises(exceptions.Interrupted,
                              self.maker.estimate, one, two)
        self.assertEqual({}, self.catalogue.reports)

    def test_too_large_a_patch_is_declined(self):
        self.ratio = 0.5
        self.repository = self.new()
        one, two = self.register_both()
        self.assertEqual(0, self.maker.make_missing())
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
        self.maker._tools.make_patch = None
        self.assertEqual(0, self.maker.make_missing())
        self.assertEqual(patch_work.DECLINED,
                         self.catalogue.reports[one, two].verdict)

    def test_what_patches_are_declined_by_is_reported(self):
        self.maker.make_missing()
        self.ratio = 0.3
        self.new()
        self.maker.make_missing()
        self.assertEqual(['patch 1, level 3, ratio 2',
                          'patch 1, level 3, ratio 0.3'],
                         self.catalogue.terms)

    def test_no_patch_is_started_while_none_may_be(self):
        self.may_run = False
        self.repository = self.new()
        one, two = self.register_both()
        self.catalogue.patch_work = functools.partial(
            _once, self.catalogue.patch_work)
        self.assertEqual(0, self.maker.make_missing())
        self.assertEqual({one, two}, set(self.catalogue.sketches))

    def test_a_patch_whose_report_was_lost_is_reported_not_made_again(self):
        one, two = self.register_both()
        self.maker.make_missing()
        record = self.catalogue.patches.pop((one, two))
        self.maker._tools.make_patch = None
        self.assertEqual(0, self.maker.make_missing())
        self.assertEqual(record, self.catalogue.patches[one, two])

    def test_an_image_deleted_while_its_patches_are_planned_is_no_error(self):
        one, two = self.register_both()
        logged = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        make_patch = repositories.Tools.make_patch

        def delete_meanwhile(tools, *args):
            found = make_patch(tools, *args)
            self.held.drop(views.Key(views.IMAGES, two), 'deleted')
            return found

        self.patch(repositories.Tools, 'make_patch', delete_meanwhile)
        self.assertEqual(0, self.maker.make_missing())
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

        self.patch(repositories.Tools, 'make_patch', fail)
        self.assertEqual(0, self.maker.make_missing())
        self.assertIn('No space left', logged.output)
        self.assertEqual(patch_work.FAILED,
                         self.catalogue.reports[one, two].verdict)

    def test_a_damaged_sketch_is_made_again(self):
        one, two = self.register_both()
        sketches = self.directory / 'state' / 'sketches'
        (sketches / one).write_bytes(b'damaged')
        self.assertEqual(2, self.maker.make_missing())
        self.assertEqual(b'sketch' + BASE, (sketches / one).read_bytes())

    def test_an_image_that_cannot_be_read_costs_its_own_patches_only(self):
        self.register_both()
        bad = self.repository.register(
            self.write_file('bad.raw', b'bad' * 100), 'bad', 'bad').content_id
        sketch = repositories.Tools.sketch

        def fail(tools, image, output, progress=None):
            if image.name == bad:
                raise OSError(errno.EIO, 'Input/output error')
            sketch(tools, image, output)

        self.patch(repositories.Tools, 'sketch', fail)
        self.assertEqual(2, self.maker.make_missing())
        self.assertNotIn(bad, {end for pair in self.catalogue.patches
                               for end in pair})

    def test_a_changed_base_is_a_clear_error(self):
        one, two = self.register_both()
        self.held.path(views.Key(views.IMAGES, one)).write_bytes(b'changed')
        error = self.assertRaises(exceptions.IntegrityError,
                                  self.maker.make_patch, one, two)
        self.assertIn(one, str(error))
        self.assertNotIn(views.Key(views.IMAGES, one), self.held)
        self.assertEqual([], self.repository.patches())
        self.assertEqual([], os.listdir(self.held.root / 'staging'))

    def test_nothing_is_asked_before_something_changed(self):
        # Regression: the conductor does not know a host that is starting.
        self.maker._make_round()
        self.assertEqual([], self.catalogue.terms)
        self.repository.look()
        self.maker._make_round()
        self.assertEqual(1, len(self.catalogue.terms))

    def test_runs_in_the_background_when_something_is_registered(self):
        self.maker.start()
        self.addCleanup(self.maker.stop)
        self.register_both()
        self.assertTrue(waiting.until(
            lambda: len(self.repository.patches()) == 2, 'patches'))

    def test_an_image_is_deleted_while_its_patch_is_hashed(self):
        """The patch stayed, with data of an image that was withdrawn."""
        one, two = self.register_both()
        record = self.repository.find('target')
        hash_file = repositories.Tools.hash_file

        def delete_meanwhile(tools, path):
            self.repository.put(dataclasses.replace(
                record, status=views.DELETED))
            return hash_file(tools, path)

        self.patch(repositories.Tools, 'hash_file', delete_meanwhile)
        self.assertRaises(exceptions.ObjectMissing,
                          self.maker.make_patch, one, two)
        self.assertEqual([], self.repository.patches())
        self.assertEqual([], list((self.held.root / 'patches').iterdir()))
