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
"""Agents that speak TLS, each a process of its own."""

import socket
import urllib.parse

from diffcache_openstack.sites import views
from tests import certificates
from tests.functional.agent import family
from tests.functional.agent import test_processes


class Site(test_processes.Site):
    """As its base, and each agent has a certificate."""

    def _setUp(self):
        self.authority = None
        self.issued = {}
        super()._setUp()

    def data_plane(self, name):
        if self.authority is None:
            self.authority = certificates.Authority(self.directory / 'tls')
        self.issued[name] = self.authority.issue(name)
        return {**super().data_plane(name), **self.issued[name]}

    def counter(self, host, name):
        return self.status(host)['data_plane'][name]


class TlsTest(test_processes.ProcessesTest):

    def new_site(self):
        return Site(self.rates)

    def serve(self, host, name):
        """Have a host write an image; returns the way it took."""
        output = self.directory / f'{host}-{name}'
        request = self.site.get(host, name, output)
        self.assertEqual(self.sha256[name], family.sha256(output))
        return request.way

    def test_images_cross_wan_and_site_encrypted(self):
        self.contents = self.site.register({'java': self.images['java']})
        self.assertEqual('repository', self.serve('host-1', 'java'))
        self.site.hold('host-2', self.image('java'))
        self.assertNotEqual('repository', self.serve('host-3', 'java'))
        for host in (test_processes.REPOSITORY, *test_processes.HOSTS):
            status = self.site.status(host)
            self.assertTrue(status['url'].startswith('https://'))
            self.assertEqual(0, status['data_plane']['handshakes_failed'])
        sent = sum(self.site.sent(host) for host in
                   (test_processes.REPOSITORY, *test_processes.HOSTS))
        self.assertGreater(sent, 2 * 8 * test_processes.MIB)
        self.assertGreater(self.site.counter(
            test_processes.REPOSITORY, 'handshakes'), 0)

    def test_a_certificate_of_somebody_else_and_its_replacement(self):
        self.contents = self.site.register({
            name: self.images[name] for name in ('java', 'other')})
        self.site.hold('host-1', views.Key(
            views.IMAGES, self.contents['java']))
        stranger = certificates.Authority(self.site.directory / 'stranger')
        wrong = stranger.issue('wrong')
        self._replace(self.site.issued['host-1'], wrong)
        self.site.processes['host-1'].wait_for('Reloaded certificates')
        # The nearest host is not believed, so the next way is taken.
        self.assertEqual('repository', self.serve('host-2', 'java'))
        agent = self.site.processes['host-1']
        agent.wait_for("refuses this host's certificate")
        self.assertGreater(
            self.site.counter('host-1', 'handshakes_failed'), 0)
        self._replace(self.site.issued['host-1'],
                      self.site.authority.issue('another'))
        self.site.wait(
            lambda: agent.printed().count('Reloaded certificates') > 1)
        self.assertIn(self.serve('host-1', 'other'), ('peer', 'repository'))

    def test_requests_in_the_clear_are_turned_away_and_logged(self):
        url = urllib.parse.urlsplit(self.site.status('host-1')['url'])
        with socket.create_connection((url.hostname, url.port)) as stream:
            stream.sendall(b'GET /v1/health HTTP/1.1\r\n\r\n')
            answer = stream.makefile('rb').read()
        self.assertTrue(answer.startswith(b'HTTP/1.1 426 '), answer)
        self.site.processes['host-1'].wait_for('it asks in the clear')

    @staticmethod
    def _replace(old, new):
        # Whoever looks in between finds two that do not belong together.
        for name in ('tls_cert_file', 'tls_key_file'):
            with open(new[name], 'rb') as source, \
                    open(old[name], 'wb') as target:
                target.write(source.read())
