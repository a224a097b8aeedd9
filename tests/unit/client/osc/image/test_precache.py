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
"""Precache jobs, by commands over the API itself."""

import io
import sys

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.client.osc.image import precache
from diffcache_openstack.client.osc import waiting
from tests.unit.client import cloud
from tests.unit.client.osc import pages


class TestPrecache(cloud.CommandTest):

    def create(self, *words):
        return self.shown(precache.CreateJob, 't1', '--host', 'h1', *words)

    def test_create_list_show(self):
        job = self.create('--pinned', '--rate', '2MB', '--lifetime', '7d',
                          '--priority', '80', '--name', 'Monday')
        self.assertEqual((True, 2_000_000, 80, 'Monday'), (
            job['pinned'], job['rate'], job['priority'], job['name']))
        self.assertTrue(job['expires_at'].endswith('Z'))
        [row] = self.listed(precache.ListJobs, '--state', 'running')
        self.assertEqual(job['id'], row['ID'])
        self.assertEqual(job['images'],
                         self.shown(precache.ShowJob, job['id'])['images'])

    def test_the_guide_shows_the_fields_of_a_job(self):
        names, _ = self.take(precache.ShowJob, self.create()['id'])
        pages.assert_are_fields(self, pages.CLIENT, 'precache show', names)

    def test_boot_sets(self):
        job = self.create('--boot-set')
        self.assertIs(True, job['boot_set'])
        self.assertIs(False, self.create()['boot_set'])

    def test_change_and_cancel(self):
        job = self.create()
        self.take(precache.SetJob, job['id'], '--priority', '5',
                  '--unpinned')
        self.assertEqual(
            5, self.shown(precache.ShowJob, job['id'])['priority'])
        self.take(precache.CancelJob, job['id'])
        self.assertEqual(
            'cancelled', self.shown(precache.ShowJob, job['id'])['state'])
        self.assertRaises(exceptions.CommandError, self.take,
                          precache.SetJob, job['id'])

    def test_a_wait_that_is_interrupted_tells_what_goes_on(self):
        stream = io.StringIO()
        self.patch(sys, 'stderr', stream)

        def interrupt(_bar, _job):
            raise KeyboardInterrupt

        self.patch(waiting.Bar, 'job', interrupt)
        command = self.command(precache.CreateJob)
        arguments = command.get_parser('test').parse_args(
            ['t1', '--host', 'h1', '--wait'])
        self.assertRaises(KeyboardInterrupt, command.run, arguments)
        [job] = self.listed(precache.ListJobs)
        self.assertIn(job['ID'], stream.getvalue())
        self.assertEqual('running', job['State'])

    def test_retry_and_wait(self):
        job = self.create()
        self.conductor._precacher.round()
        shown = self.shown(precache.RetryJob, job['id'], '--wait')
        self.assertEqual('ready', shown['state'])
        [row] = self.listed(precache.ListTargets, job['id'], '--host', 'h1')
        self.assertEqual('local', row['Way'])

    def test_wait_for_what_cannot_be(self):
        job = self.shown(precache.CreateJob, 't1', '--host', 'h9')
        self.conductor._precacher.round()
        error = self.assertRaises(
            exceptions.CommandError, self.take, precache.RetryJob, job['id'],
            '--wait')
        self.assertIn('1 of 1 targets', str(error))

    def test_wait_for_what_has_no_target(self):
        job = self.shown(precache.CreateJob, 't1', '--aggregate', 'none')
        self.conductor._precacher.round()
        error = self.assertRaises(
            exceptions.CommandError, self.take, precache.RetryJob, job['id'],
            '--wait')
        self.assertIn('has nothing to do yet: [nova] has no auth_type',
                      str(error))

    def test_the_same_said_twice(self):
        job = self.shown(precache.CreateJob, 't1', 't1', '--host', 'h1',
                         '--host', 'h1')
        self.assertEqual((['t1'], ['h1']), (job['images'], job['hosts']))

    def test_progress_is_told_once(self):
        [row] = self.create() and self.listed(precache.ListJobs)
        self.assertEqual(({'targets', 'ready', 'failed'},
                          {'bytes', 'bytes_done'}),
                         (set(row['Ready']), set(row['Done'])))

    def test_image_that_is_none(self):
        error = self.assertRaises(
            sdk_exceptions.NotFoundException, self.take, precache.CreateJob,
            'none', '--host', 'h1')
        self.assertIn('"none"; see "openstack image list"', str(error))

    def test_what_and_where_have_to_be_said(self):
        for words, said in ((('t1',), '--host'), (('--host', 'h1'),
                                                  '--family')):
            error = self.assertRaises(exceptions.CommandError, self.take,
                                      precache.CreateJob, *words)
            self.assertIn(said, str(error))

    def test_words_that_are_no_durations(self):
        for word in ('7', 'd', '1y', '-1d', '1.5h', '0s', '99999999w',
                     '9' * 30 + 'd'):
            self.assertRaises(SystemExit, self.create, '--lifetime', word)
        self.assertRaises(SystemExit, self.create, '--rate', 'fast')
