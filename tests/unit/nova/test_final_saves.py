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
"""Servers that go are saved before, as far as their policies say so."""

import types

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import final_saves
from diffcache_openstack.nova import options
from diffcache_openstack.nova import tallies
from tests import base

SERVER = types.SimpleNamespace(uuid='a-server', project_id='p',
                               image_ref='an-image')


class Client:
    """An agent that answers as a test says."""

    def __init__(self):
        self.asked = []
        self.answer = {'version': 'v', 'required': False, 'error': None}

    def save_server(self, server_id, wish, stall_timeout):
        self.asked.append((server_id, wish))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class TestSaver(base.TestCase):

    def setUp(self):
        super().setUp()
        self.client = Client()
        self.tally = tallies.Tally(self.directory / 'counts.json')

    def save(self, trigger=final_saves.DELETE, unknown=options.GO):
        saver = final_saves.Saver(self.client, self.tally, 60.0, unknown)
        saver.save_before(SERVER, trigger)

    def unsaved(self):
        return self.tally.summary()['unsaved']

    def test_agent_is_told_whose_it_is_and_why(self):
        self.save()
        self.assertEqual([('a-server', {
            'project_id': 'p', 'trigger': 'delete',
            'image_id': 'an-image'})], self.client.asked)
        self.assertEqual({}, self.unsaved())

    def test_no_policy(self):
        self.client.answer = {'version': None, 'required': False,
                              'error': None}
        self.save()
        self.assertEqual({}, self.unsaved())

    def test_agent_that_is_away_blocks_nothing_and_is_counted(self):
        self.client.answer = exceptions.ServiceUnavailable('away')
        self.save()
        self.client.answer = ValueError('nonsense')
        self.save()
        self.assertEqual({'ServiceUnavailable': 1, 'ValueError': 1},
                         self.unsaved())
        again = tallies.Tally(self.directory / 'counts.json')
        self.assertEqual(self.unsaved(), again.summary()['unsaved'])

    def test_agent_that_is_away_blocks_if_the_operator_wants_that(self):
        self.client.answer = exceptions.ServiceUnavailable('away')
        self.save(final_saves.SHUTDOWN, options.STAY)
        error = self.assertRaises(final_saves.NotSaved, self.save,
                                  final_saves.DELETE, options.STAY)
        for part in ('a-server', 'away', 'try again'):
            self.assertIn(part, str(error))
        self.assertEqual({'ServiceUnavailable': 2}, self.unsaved())

    def test_failure_blocks_only_if_the_policy_requires_it(self):
        self.client.answer = {'version': None, 'required': False,
                              'error': 'no space'}
        self.save()
        self.client.answer = {'version': None, 'required': True,
                              'error': 'no space'}
        error = self.assertRaises(final_saves.NotSaved, self.save)
        self.assertIn('no space', str(error))
        self.assertEqual({'Failed': 2}, self.unsaved())


class TestRollbacks(base.TestCase):

    def test_journal_tells(self):
        (self.directory / 'disk').touch()
        self.assertIsNone(final_saves.unfinished_rollback(self.directory))
        (self.directory / 'disk.rollback').touch()
        self.assertEqual(self.directory / 'disk',
                         final_saves.unfinished_rollback(self.directory))
