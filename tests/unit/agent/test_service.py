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
import urllib.error
import urllib.request
import uuid

from diffcache_openstack.agent.data_plane import identity
from diffcache_openstack.agent import service
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.conf import opts
from diffcache_openstack.sites import views
from tests import base


class AgentTest(base.TestCase):
    """An agent that never meets a conductor."""

    def new_agent(self, **options):
        conf = opts.new_config()
        conf.set_override('transport_url', 'fake:/')
        conf.set_override('control_exchange', uuid.uuid4().hex)
        values = {'agent': {'host': 'h1', 'state_dir':
                            str(self.directory / 'state')},
                  'conductor': {'rpc_timeout': 1},
                  'data_plane': {'listen': '127.0.0.1:0'}}
        for group, given in options.items():
            values.setdefault(group, {}).update(given)
        for group, given in values.items():
            for name, value in given.items():
                conf.set_override(name, value, group=group)
        return service.Agent(conf)

    def started(self, **options):
        agent = self.new_agent(**options)
        agent.start()
        self.addCleanup(agent.stop)
        return agent

    def test_works_by_itself(self):
        agent = self.started()
        status = agent.status.report()
        self.assertFalse(status['conductor_reachable'])
        self.assertEqual(0, status['used'])
        error = self.assertRaises(exceptions.NotFound, agent.site_map.find,
                                  'an-image')
        self.assertIn('an-image', str(error))

    def test_one_agent_per_directory(self):
        self.started()
        error = self.assertRaises(exceptions.Conflict,
                                  self.new_agent().start)
        self.assertIn(str(self.directory / 'state'), str(error))

    def test_a_directory_that_cannot_be_used(self):
        self.write_file('file', b'')
        error = self.assertRaises(
            exceptions.InvalidInput, self.new_agent(agent={
                'state_dir': str(self.directory / 'file' / 'x')}).start)
        self.assertIn('state_dir', str(error))

    def test_beyond_loopback_it_takes_a_key(self):
        error = self.assertRaises(
            exceptions.InvalidInput, self.new_agent(data_plane={
                'listen': '0.0.0.0:19192', 'allow_plain': True}).start)
        self.assertIn('key', str(error))

    def test_beyond_loopback_it_takes_tls(self):
        keys.create_key(self.directory / 'key')
        options = {'listen': '0.0.0.0:0',
                   'advertise_url': 'http://192.0.2.1:9192',
                   'key_file': str(self.directory / 'key')}
        error = self.assertRaises(exceptions.InvalidInput, self.new_agent(
            data_plane=options).start)
        for name in ('tls_ca_file', 'tls_cert_file', 'tls_key_file',
                     'allow_plain'):
            self.assertIn(name, str(error))
        with self.assertLogs(identity.LOG.logger, 'WARNING') as logged:
            self.started(data_plane={**options, 'allow_plain': True})
        self.assertIn('not encrypted on 0.0.0.0:0', logged.output[0])

    def test_neither_address_nor_port(self):
        error = self.assertRaises(
            exceptions.InvalidInput, self.new_agent(data_plane={
                'listen': '0.0.0.0:0', 'allow_plain': True}).start)
        self.assertIn('advertise_url', str(error))

    def test_a_repository_registers_without_a_conductor(self):
        path = self.write_file('image', b'content' * 100000)
        agent = self.started(agent={'role': 'repository'})
        image = agent.repository.register(path, 'id', 'name')
        agent.stop()
        again = self.started(agent={'role': 'repository'})
        self.assertEqual(['id'], [i.id for i in again.repository.images()])
        self.assertIn(views.Key(views.IMAGES, image.content_id),
                      again.held)

    def get(self, agent, path):
        """Return status and text of a path of the agent's metrics."""
        url = f'http://127.0.0.1:{agent.metrics.port}{path}'
        try:
            with urllib.request.urlopen(url) as answer:  # nosec B310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def test_metrics_are_served_where_an_address_is_set(self):
        self.assertIsNone(self.started().metrics)

    def test_metrics(self):
        image = self.write_file('image', b'content' * 100000)
        agent = self.started(agent={'role': 'repository'},
                             metrics={'listen': '127.0.0.1:0'})
        agent.repository.register(image, 'id', 'name')
        status, text = self.get(agent, '/metrics')
        self.assertEqual(200, status)
        for line in ('diffcache_cache_objects{kind="images",owner="agent"}'
                     ' 1.0', 'diffcache_conductor_reachable 0.0',
                     'diffcache_request_wan_bytes_total 0.0',
                     'diffcache_data_plane_events_total{event="refused"} 0.0',
                     'role="repository"', 'process_resident_memory_bytes'):
            self.assertIn(line, text)

    def test_not_ready_without_a_site_map(self):
        agent = self.started(metrics={'listen': '127.0.0.1:0'})
        status, text = self.get(agent, '/ready')
        self.assertEqual(503, status)
        self.assertIn('site map', text)
        self.assertEqual(200, self.get(agent, '/live')[0])
