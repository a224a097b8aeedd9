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
"""Commands about hydrations."""

import types

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.client.osc.server import hydrations as commands
from tests.unit import arriving
from tests.unit.client import cloud
from tests.unit.conductor import fakes


class Compute:
    """Stands where Nova would."""

    def __init__(self):
        self.servers = {'running', 'foreign'}

    def find_server(self, name, ignore_missing=True):
        """A server by name: each is named as its id."""
        if name in self.servers:
            return types.SimpleNamespace(id=name)
        if ignore_missing:
            return None
        raise sdk_exceptions.NotFoundException(f'No Server found for {name}')


class TestHydrations(cloud.CommandTest):

    def setUp(self):
        super().setUp()
        self.compute = Compute()
        self.app.client_manager.sdk_connection.compute = self.compute
        self.report(arriving.hydration('running'))
        self.host = arriving.Host(self.directory, arriving.status())
        self.host.boot('running')
        fakes.listen_for_hydrations(self, 'h1', self.host.hydrations)

    def report(self, *found):
        self.services.lazy.report_hydrations(self.ctxt, 'h1', found)

    def test_list(self):
        for options in ((), ('--host', 'h1'), ('--image', 't1'),
                        ('--state', 'arriving')):
            [found] = self.listed(commands.ListHydrations, *options)
            self.assertEqual(('running', 'h1', 25.0, 'idle', False), tuple(
                found[name] for name in ('Server', 'Host', 'Percent', 'Mode',
                                         'Paused')))
        self.assertEqual([], self.listed(commands.ListHydrations, '--state',
                                         'complete'))

    def test_show(self):
        found = self.shown(commands.ShowHydration, 'running')
        self.assertEqual((8, 2, 6 * arriving.CHUNK), tuple(
            found[name] for name in ('chunks', 'present',
                                     'remaining_bytes')))
        self.assertRaises(sdk_exceptions.NotFoundException, self.take,
                          commands.ShowHydration, 'none')

    def test_set(self):
        found = self.shown(commands.SetHydration, 'running', '--deadline',
                           '600', '--rate', '2MB')
        self.assertEqual(('deadline', 2_000_000, 1), tuple(
            found[name] for name in ('mode', 'rate', 'generation')))
        found = self.shown(commands.SetHydration, 'running', '--paused')
        self.assertTrue(found['paused'])
        found = self.shown(commands.SetHydration, 'running', '--unpaused')
        self.assertFalse(found['paused'])

    def test_unset(self):
        self.take(commands.SetHydration, 'running', '--deadline', '10m',
                  '--rate', '2MBps')
        found = self.shown(commands.UnsetHydration, 'running', '--rate')
        self.assertEqual(('deadline', None), (found['mode'], found['rate']))
        found = self.shown(commands.UnsetHydration, 'running', '--deadline')
        self.assertEqual('idle', found['mode'])
        self.assertRaises(exceptions.CommandError, self.take,
                          commands.UnsetHydration, 'running')

    def test_set_nothing(self):
        self.assertRaises(exceptions.CommandError, self.take,
                          commands.SetHydration, 'running')

    def test_words_that_are_no_values(self):
        for option in (('--rate', 'fast'), ('--deadline', 'soon'),
                       ('--paused', '--unpaused')):
            self.assertRaises(SystemExit, self.take, commands.SetHydration,
                              'running', *option)

    def test_wait(self):
        self.report(arriving.hydration('running', state='complete',
                                       present=8))
        found = self.shown(commands.ShowHydration, 'running', '--wait')
        self.assertEqual(100.0, found['percent'])

    def test_wait_too_long(self):
        self.assertRaises(sdk_exceptions.ResourceTimeout, self.take,
                          commands.ShowHydration, 'running', '--wait',
                          '--timeout', '0')

    def test_wait_for_one_that_is_listed_no_more(self):
        command = self.command(commands.ShowHydration)
        found = self.cloud.get_hydration('running')
        self.report()
        self.assertEqual('arriving', command._wait(found, 60).state)
        self.compute.servers.clear()
        self.assertRaises(sdk_exceptions.NotFoundException, command._wait,
                          found, 60)

    def test_wait_until_it_has_arrived_and_is_served_no_more(self):
        """It was listed no more, and shown as it was before that."""
        command = self.command(commands.ShowHydration)
        found = self.cloud.get_hydration('running')
        self.host.daemon.served[arriving.CONTENT].update(complete=True)
        self.host.hydrations.note_arrived(
            self.host.daemon.served.pop(arriving.CONTENT))
        self.report(*self.host.hydrations.collect())
        found = command._wait(found, 60)
        self.assertEqual(('complete', 100.0), (found.state, found.percent))
