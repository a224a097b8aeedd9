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
"""Metrics and health over HTTP."""

import json
import socket
import urllib.error
import urllib.request

import prometheus_client

from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import metrics
from tests import base


class MetricsServerTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.registry = prometheus_client.CollectorRegistry()
        self.problems = []

    def started(self, address='127.0.0.1:0', **options):
        server = metrics.MetricsServer(address, self.registry,
                                       lambda: self.problems, **options)
        server.start()
        self.addCleanup(server.stop)
        return server

    def get(self, path, method='GET'):
        """Return status and body."""
        server = self.started()
        request = urllib.request.Request(
            f'http://127.0.0.1:{server.port}{path}', method=method)
        try:
            with urllib.request.urlopen(request) as answer:  # nosec B310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def test_metrics_are_text_of_prometheus(self):
        prometheus_client.Gauge('diffcache_bytes', 'Some.',
                                registry=self.registry).set(7)
        status, text = self.get('/metrics')
        self.assertEqual(200, status)
        self.assertIn('# TYPE diffcache_bytes gauge\ndiffcache_bytes 7.0\n',
                      text)

    def test_ready(self):
        status, text = self.get('/ready')
        self.assertEqual((200, {'ready': True, 'problems': []}),
                         (status, json.loads(text)))

    def test_not_ready_says_why(self):
        self.problems.append('no site map')
        status, text = self.get('/ready')
        self.assertEqual((503, {'ready': False, 'problems': ['no site map']}),
                         (status, json.loads(text)))

    def test_live_in_spite_of_problems(self):
        self.problems.append('no site map')
        self.assertEqual(200, self.get('/live')[0])

    def test_other_paths_and_methods(self):
        self.assertEqual(404, self.get('/secrets')[0])
        self.assertEqual(404, self.get('/')[0])
        self.assertEqual(405, self.get('/metrics', method='POST')[0])
        self.assertEqual(405, self.get('/live', method='DELETE')[0])

    def test_a_used_port_is_named(self):
        with socket.socket() as other:
            other.bind(('127.0.0.1', 0))
            other.listen()
            address = f'127.0.0.1:{other.getsockname()[1]}'
            error = self.assertRaises(exceptions.InvalidInput,
                                      self.started, address)
        self.assertIn(address, str(error))
        self.assertIn('[metrics]', str(error))

    def test_workers_share_a_port(self):
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            free.bind(('127.0.0.1', 0))
            address = f'127.0.0.1:{free.getsockname()[1]}'
            self.started(address, shared=True)
            self.started(address, shared=True)

    def test_a_shared_port_has_a_number(self):
        error = self.assertRaises(exceptions.InvalidInput, self.started,
                                  shared=True)
        self.assertIn('[metrics]', str(error))


class AddressTest(base.TestCase):

    def test_addresses(self):
        self.assertEqual(('127.0.0.1', 9796),
                         metrics.parse_address('127.0.0.1:9796'))
        self.assertEqual(('::1', 0), metrics.parse_address('[::1]:0'))

    def test_others_are_refused(self):
        for text in ('9796', ':9796', 'host', 'host:', 'host:65536',
                     'host:-1', 'host:a'):
            error = self.assertRaises(exceptions.InvalidInput,
                                      metrics.parse_address, text)
            self.assertIn(f'"{text}"', str(error))


class FamiliesTest(base.TestCase):

    def text(self, found):
        registry = prometheus_client.CollectorRegistry()

        class Collector(prometheus_client.registry.Collector):
            def collect(self):
                return found

        registry.register(Collector())
        return prometheus_client.generate_latest(registry).decode()

    def test_families(self):
        found = metrics.Families()
        found.gauge('bytes', 'Bytes.', 1, kind='a')
        found.gauge('bytes', 'Bytes.', 2, kind='b')
        found.counter('tries', 'Tries.', 3)
        self.assertEqual(
            '# HELP diffcache_bytes Bytes.\n# TYPE diffcache_bytes gauge\n'
            'diffcache_bytes{kind="a"} 1.0\ndiffcache_bytes{kind="b"} 2.0\n'
            '# HELP diffcache_tries_total Tries.\n'
            '# TYPE diffcache_tries_total counter\n'
            'diffcache_tries_total 3.0\n', self.text(found))

    def test_unknown_values_are_left_out(self):
        found = metrics.Families()
        found.gauge('bytes', 'Bytes.', None)
        self.assertEqual('', self.text(found))
