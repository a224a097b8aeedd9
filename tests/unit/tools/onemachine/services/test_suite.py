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
"""What the suite writes into the services' configurations."""

import types
from unittest import mock

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import suite
from onemachine import shell
from onemachine import steps

from tests import base

PASTE = '''\
[composite:api]
keystone+cachemanagement = context cache cachemanage rootapp
'''


class TestSuite(base.TestCase):

    def make(self, **caching):
        """The suite of an OpenStack that is not up."""
        where = layout.Layout(self.directory, 2)
        return suite.Suite(
            place.Place(where, processes.Processes(where),
                        steps.Progress()), suite.Caching(**caching))

    def test_plain_leaves_others_alone(self):
        made = self.make(kind=suite.NONE)
        self.assertEqual({}, made.nova_groups('compute-1'))
        self.assertEqual({}, made.scheduler_groups())
        self.assertEqual(PASTE, made.glance_paste(PASTE))
        self.assertNotIn('DEFAULT', made.glance_groups())

    def test_glance_caches_as_it_comes(self):
        made = self.make(kind=suite.GLANCE)
        # The pipeline with the cache, and its own driver.
        self.assertEqual({}, made.glance_groups())
        self.assertEqual(PASTE, made.glance_paste(PASTE))
        self.assertEqual({}, made.nova_groups('compute-1'))

    def test_drivers_are_chosen_by_configuration(self):
        made = self.make()
        self.assertEqual(
            'diffcache', made.glance_groups()['DEFAULT']['image_cache_driver'])
        nova = made.nova_groups('compute-1')
        self.assertEqual('diffcache.LibvirtDriver',
                         nova['DEFAULT']['compute_driver'])
        # Asked for before the drivers are: see common/config_hook.py.
        self.assertEqual('diffcache_hook', nova['DEFAULT']['config_source'])
        self.assertEqual('diffcache', nova['diffcache_hook']['driver'])

    def test_filter_comes_directly_before_glance(self):
        text = self.make().glance_paste(PASTE)
        self.assertIn('cache cachemanage diffcache rootapp', text)
        self.assertIn('[filter:diffcache]', text)

    def test_agents_are_told_apart(self):
        made = self.make(options={'agent': {'cache_capacity': '1GB'}})
        with mock.patch.object(made, '_ensure_keys'):
            made.configure()
        texts = {name: made.config(name).read_text() for name in (
            'repository', 'edge', 'compute-1', 'compute-2')}
        self.assertIn('role = repository', texts['repository'])
        for name, text in texts.items():
            self.assertIn(f'host = {name}\n', text)
            role = 'repository' if name == 'repository' else 'compute'
            self.assertIn(f'diffcache/{role}-{name}.key\n', text)
            self.assertIn('cache_capacity = 1GB\n', text)
        # The centre is beyond the WAN, everybody else on the site's network.
        self.assertIn(f'listen = {made._where.wan_centre}:',
                      texts['repository'])
        self.assertIn(f'listen = {made._where.lan("compute-2")}:',
                      texts['compute-2'])

    def test_agents_have_certificates_of_one_authority(self):
        made = self.make()
        with mock.patch.object(made, '_ensure_keys'):
            made.configure()
            before = made.config('compute-1').read_text()
            made.configure()
        address = made._where.lan('compute-1')
        self.assertIn(f'advertise_url = https://{address}:', before)
        authority = self.directory / 'etc/diffcache/ca.pem'
        self.assertIn(f'tls_ca_file = {authority}\n', before)
        own = authority.with_name(f'compute-1-{address}.pem')
        self.assertIn(f'tls_cert_file = {own}\n', before)
        shell.run('openssl', 'verify', '-CAfile', authority,
                  '-verify_ip', address, own)
        self.assertEqual(0o600, own.with_name(
            f'{own.stem}.key').stat().st_mode & 0o777)

    def test_socket_of_a_host_lies_on_its_disk(self):
        where = types.SimpleNamespace(
            hosts=['compute-1'], host=self.directory / 'host',
            data=self.directory / 'data')
        self.assertEqual(self.directory / 'host/diffcache/agent.sock',
                         suite.socket(where, 'compute-1'))
        self.assertEqual(self.directory / 'data/edge/agent.sock',
                         suite.socket(where, suite.EDGE))

    def test_native_programs_are_found_beside_the_module(self):
        made = self.make()
        with mock.patch.object(made, '_ensure') as ensure, \
                mock.patch.object(made, '_give_files'), \
                mock.patch.object(suite, 'ensure_user'), \
                mock.patch.object(shell, 'run'):
            made.ensure_lazy('compute-1')
            made.ensure_ssd_cache('compute-1')
        for call in ensure.call_args_list:
            path = call.args[0].environment['PATH'].split(':')
            self.assertEqual(str(layout.CHECKOUT / '.venv/bin'), path[0])
