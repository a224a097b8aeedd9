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
"""Links to arriving files, and what replaces them."""

import errno
import os
import threading
import types
from unittest import mock

from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.nova import lazy
from diffcache_openstack.nova import sources
from diffcache_openstack.nova import tallies
from tests import base
from tests.unit.nova import fakes

IMAGE = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'
CONTENT_ID = 'c' * 64


class Client(fakes.Client):
    """An agent that serves one image while it arrives."""

    def __init__(self, path):
        super().__init__(IMAGE)
        self.answer = {'path': path, 'reason': None}
        self.served = {'content_id': CONTENT_ID, 'path': path, 'held': False,
                       'image_ids': [IMAGE, 'another']}
        self.released = []
        self.left = []

    def open_lazy(self, image_id, rate=None):
        self._ask('lazy', image_id, *([] if rate is None else [rate]))
        return self.answer

    def lazy(self):
        return [self.served]

    def release_lazy(self, content_id):
        self.released.append(content_id)

    def add_lazy_server(self, server_id, server):
        self._ask('server', server_id, server)

    def remove_lazy_server(self, server_id):
        self.left.append(server_id)


class LazyTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.arriving = str(self.write_file('arriving', fakes.CONTENT))
        self.folder = self.directory / '_base'
        self.folder.mkdir()
        self.base = self.folder / self.name_of(IMAGE)
        self.client = Client(self.arriving)
        self.tally = tallies.Tally(self.directory / 'images.json')
        self.locks = []
        self.leaving = []
        self.all_left = True
        self.bases = self.new_bases()

    def new_bases(self, hash_raw_images=False, patience=0.0):
        return lazy.LazyBases(
            self.client, sources.Source(
                self.client, None, 60.0,
                image_records.Verifier(signatures.Security()),
                restarts.Restarts(patience, sleep=lambda seconds: None)),
            self.tally, hash_raw_images)

    @staticmethod
    def name_of(image_id):
        return f'name-{image_id}'

    def locked(self, name, work):
        self.locks.append(name)
        return work()

    def wanted(self, form='raw'):
        return sources.Wanted(IMAGE, 'active', form, 'sha512', fakes.DIGEST)

    def link(self, bases=None, form='raw', inspect=lambda wanted, path: None):
        return (bases or self.bases).link(self.wanted(form), str(self.base),
                                          inspect)

    def look(self):
        self.bases.look(self.folder, self.name_of, self.locked, self.leave)

    def leave(self, base):
        self.leaving.append(base)
        return self.all_left

    def counts(self):
        return self.tally.summary()['lazy']


class TestRestarts(LazyTest):
    """An agent that is being restarted."""

    def setUp(self):
        super().setUp()
        self.gone = exceptions.ServiceUnavailable('gone')
        self.gone.__cause__ = ConnectionRefusedError()
        self.left_to_fail = 2
        self.ask, self.client._ask = self.client._ask, self.fail_at_first
        self.waiting = self.new_bases(patience=60.0)

    def fail_at_first(self, *asked):
        if self.left_to_fail:
            self.left_to_fail -= 1
            raise self.gone
        self.ask(*asked)

    def test_an_image_is_linked_when_it_runs_again(self):
        """It was delivered whole, because the agent was away."""
        self.assertTrue(self.link(self.waiting))
        self.assertEqual(({'linked': 1}, 0), (self.counts(),
                                              self.left_to_fail))

    def test_a_server_is_announced_when_it_runs_again(self):
        self.waiting.add_server(TestServers.instance, IMAGE)
        self.assertEqual(['server'], [asked[0] for asked
                                      in self.client.asked])

    def test_without_the_time_an_image_is_delivered_whole(self):
        self.assertFalse(self.link())
        self.assertEqual({'full_ServiceUnavailable': 1}, self.counts())


class TestServers(LazyTest):

    instance = types.SimpleNamespace(
        uuid='u', project_id='p', metadata={},
        flavor=types.SimpleNamespace(name='m1.small', extra_specs={}))

    def test_a_server_is_announced_with_its_flavor(self):
        self.bases.add_server(self.instance, IMAGE)
        self.assertEqual(
            [('server', 'u', {'project_id': 'p', 'image_id': IMAGE,
                              'label': 'm1.small'})], self.client.asked)

    def test_a_failure_costs_no_server(self):
        self.client.error = exceptions.ServiceUnavailable('down')
        with self.assertLogs(lazy.LOG, 'INFO') as logs:
            self.bases.add_server(self.instance, IMAGE)
        self.assertIn('does not learn from server u: down', logs.output[0])

    def test_servers_whose_folder_is_gone_have_left(self):
        (self.directory / 'here').mkdir()
        self.client.served['servers'] = ['here', 'gone']
        self.look()
        self.assertEqual(['gone'], self.client.left)


class TestLink(LazyTest):

    def test_the_base_is_a_link(self):
        inspected = []
        self.assertTrue(self.link(
            inspect=lambda *words: inspected.append(words)))
        self.assertEqual(self.arriving, os.readlink(self.base))
        self.assertEqual([(self.wanted(), self.arriving)], inspected)
        self.assertEqual({'linked': 1}, self.counts())
        self.assertEqual([self.base.name], os.listdir(self.folder))

    def test_what_the_agent_delivers_whole(self):
        self.client.answer = {'path': None, 'reason': 'held'}
        self.assertFalse(self.link())
        self.assertEqual({'full_held': 1}, self.counts())
        self.assertEqual([], os.listdir(self.folder))

    def test_what_goes_wrong_is_counted_and_delivered_whole(self):
        self.client.error = exceptions.ServiceUnavailable('down')
        self.assertFalse(self.link())
        self.client.error = OSError('unexpected')
        self.assertFalse(self.link())
        self.assertEqual({'full_ServiceUnavailable': 1, 'full_OSError': 1},
                         self.counts())

    def test_content_of_another_format_is_not_linked(self):
        def refuse(wanted, path):
            raise exceptions.FormatError('looks like qcow2')

        self.assertFalse(self.link(inspect=refuse))
        self.assertEqual({'full_FormatError': 1}, self.counts())
        self.assertEqual([], os.listdir(self.folder))

    def test_what_is_hashed_first_is_delivered_whole(self):
        hashing = self.new_bases(hash_raw_images=True)
        self.assertFalse(self.link(hashing))
        self.assertEqual({'full_hash': 1}, self.counts())
        self.assertTrue(self.link(hashing, 'qcow2'))

    def test_a_server_that_migrates_here_live_gets_a_whole_image(self):
        with self.bases.migrating():
            self.assertFalse(self.link())
        self.assertEqual({'full_live_migration': 1}, self.counts())
        self.assertTrue(self.link())


class TestLook(LazyTest):

    def test_a_link_stays_until_its_image_is_held(self):
        self.link()
        self.look()
        self.assertEqual(self.arriving, os.readlink(self.base))
        self.assertEqual([], self.client.released)

    def test_a_link_is_replaced_by_a_file(self):
        self.link()
        self.client.served['held'] = True
        self.look()
        self.assertFalse(self.base.is_symlink())
        self.assertEqual(fakes.CONTENT, self.base.read_bytes())
        self.assertEqual([self.base.name], self.locks)
        self.assertEqual([CONTENT_ID], self.client.released)
        self.assertEqual({'linked': 1, 'replaced': 1}, self.counts())
        self.assertEqual([(IMAGE, fakes.CONTENT)], self.client.lent)
        self.assertEqual([self.base.name], os.listdir(self.folder))

    def test_a_version_is_delivered_as_such(self):
        self.link()
        self.client.served |= {'held': True, 'version': {
            'id': 'v', 'project_id': 'p'}}
        self.look()
        self.assertIn(('version_content', 'v', 'p'), self.client.asked)
        self.assertEqual(fakes.CONTENT, self.base.read_bytes())
        self.assertEqual([CONTENT_ID], self.client.released)

    def test_it_is_released_when_no_server_reads_it_any_more(self):
        self.link()
        self.look()
        self.assertEqual([], self.leaving)
        self.client.served['held'] = True
        self.all_left = False
        self.look()
        self.assertFalse(self.base.is_symlink())
        self.assertEqual([self.base], self.leaving)
        self.assertEqual([], self.client.released)
        self.all_left = True
        self.look()
        self.assertEqual([CONTENT_ID], self.client.released)

    def test_a_link_that_nova_removed_meanwhile_does_not_come_back(self):
        self.link()
        self.client.served['held'] = True

        def locked(name, work):
            self.base.unlink()
            return work()

        self.bases.look(self.folder, self.name_of, locked, self.leave)
        self.assertEqual([], os.listdir(self.folder))
        self.assertEqual([CONTENT_ID], self.client.released)

    def test_a_failed_delivery_leaves_the_link(self):
        self.link()
        self.client.served['held'] = True
        self.client.content_error = exceptions.NoSpace('full')
        self.look()
        self.assertEqual(self.arriving, os.readlink(self.base))
        self.assertEqual([], self.client.released)
        self.assertEqual([self.base.name], os.listdir(self.folder))
        self.client.content_error = None
        self.look()
        self.assertFalse(self.base.is_symlink())

    def test_what_no_base_links_to_is_released(self):
        self.look()
        self.assertEqual([CONTENT_ID], self.client.released)
        self.client.release_lazy = self.refuse
        self.look()

    def test_what_cannot_be_seen_is_not_released(self):
        # Regression: a base that could not be read was no link.
        self.link()
        failure = OSError(errno.ESTALE, 'server away')
        with mock.patch.object(os, 'readlink', side_effect=failure):
            self.look()
        self.assertEqual([], self.client.released)

    def test_an_error_of_one_content_keeps_no_other_from_its_file(self):
        # Regression: the round ended there, each time.
        served = self.client.lazy()
        other = {**served[0], 'content_id': 'e' * 64,
                 'path': '/none', 'image_ids': []}
        failed = []

        def release(content_id):
            if content_id == other['content_id']:
                failed.append(content_id)
                raise exceptions.NoSpace('full')
            self.client.released.append(content_id)

        with mock.patch.multiple(self.client, lazy=lambda: [other, *served],
                                 release_lazy=release):
            self.look()
        self.assertEqual([other['content_id']], failed)
        self.assertEqual([CONTENT_ID], self.client.released)

    def test_nothing_is_released_while_the_image_cache_is_away(self):
        self.folder.rmdir()
        self.look()
        self.assertEqual([], self.client.released)

    def test_a_server_whose_folder_cannot_be_seen_has_not_left(self):
        self.client.served['servers'] = ['s1']
        (self.directory / 's1').symlink_to('s1')
        self.look()
        self.assertEqual([], self.client.left)
        self.assertEqual([], self.client.released)

    def refuse(self, content_id):
        raise exceptions.NotFound('not served')

    def test_a_link_keeps_content_whose_image_left_the_site_map(self):
        # Regression: what a stopped server's disk is based on was deleted,
        # as the base of a deleted image was not looked for.
        self.link()
        self.client.served['image_ids'] = []
        self.look()
        self.assertEqual(self.arriving, os.readlink(self.base))
        self.assertEqual([], self.client.released)

    def test_a_whole_image_that_was_withdrawn_is_copied(self):
        # Regression: it is not held, and its link was never replaced.
        self.link()
        self.client.served |= {'image_ids': [], 'complete': True}
        self.all_left = False
        self.look()
        self.assertFalse(self.base.is_symlink())
        self.assertEqual(fakes.CONTENT, self.base.read_bytes())
        self.assertEqual(([self.base.name], []),
                         (self.locks, self.client.released))
        self.assertEqual([self.base.name], os.listdir(self.folder))
        self.all_left = True
        self.look()
        self.assertEqual([self.base] * 2, self.leaving)
        self.assertEqual([CONTENT_ID], self.client.released)

    def test_a_withdrawn_image_that_cannot_be_copied_stays_a_link(self):
        self.link()
        self.client.served |= {'image_ids': [], 'complete': True}
        os.unlink(self.arriving)
        with self.assertLogs(lazy.LOG, 'WARNING'):
            self.look()
        self.assertEqual(self.arriving, os.readlink(self.base))
        self.assertEqual([], self.client.released)

    def test_the_base_of_a_withdrawn_image_is_that_of_another_one(self):
        self.link()
        self.client.served |= {'image_ids': ['another'], 'held': True}
        self.look()
        self.assertFalse(self.base.is_symlink())
        self.assertEqual([('another', fakes.CONTENT)], self.client.lent)

    def test_what_a_kill_left_beside_a_base_keeps_nothing(self):
        os.symlink(self.arriving, f'{self.base}{lazy.SUFFIX}')
        self.look()
        self.assertEqual([CONTENT_ID], self.client.released)

    def test_links_and_files_of_others_are_left_alone(self):
        os.symlink('/elsewhere', self.base)
        self.client.served['held'] = True
        self.look()
        self.assertEqual('/elsewhere', os.readlink(self.base))

    def test_nothing_is_released_between_serving_and_linking(self):
        # Regression: the file was served, had no link yet, and was removed.
        served, looked = threading.Event(), threading.Event()

        def look():
            served.wait(60)
            self.look()
            looked.set()

        thread = threading.Thread(target=look)
        thread.start()

        def inspect(wanted, path):
            served.set()
            # The look has begun, and waits for the link.
            self.assertFalse(looked.wait(0.2))

        self.assertTrue(self.link(inspect=inspect))
        thread.join()
        self.assertEqual([], self.client.released)
