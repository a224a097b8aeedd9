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
"""A trace of a boot: through API, conductor, agent, peer and repository.

The spans cross RabbitMQ, from processes of their own.
"""

import uuid

import oslo_messaging
from osprofiler import notifier
from werkzeug import test as http

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.api import app
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.sites import views
from testing import spans as taken
from testing import tokens
from tests.functional.agent import test_processes
from tests import waiting

KEY = 'a-key-of-tests'
HOST, PEER, REPOSITORY = 'host-2', 'host-1', test_processes.REPOSITORY


class TracedSite(test_processes.Site):
    """A site whose processes trace, with sockets."""

    def __init__(self):
        super().__init__({})
        self._options = {'profiler': {'enabled': True, 'hmac_keys': KEY}}

    def agent_options(self, name):
        return super().agent_options(name) | {
            'socket': self.directory / name / 'agent.sock',
            'serve_mode': 'on_the_fly'}


class TracesTest(test_processes.ProcessesTest):

    def setUp(self):
        super().setUp()
        self.base_id, self.root = str(uuid.uuid4()), str(uuid.uuid4())
        # This process traces as Nova and the API do.
        self.addCleanup(notifier.clear_notifier_cache)
        self.addCleanup(notifier.set, notifier.get())
        self.addCleanup(tracing.stop)
        tracing.setup(self.site.conf, 'diffcache-api')

    def new_site(self):
        return TracedSite()

    def collector(self):
        return taken.Collector(
            oslo_messaging.get_notification_transport(self.site.conf),
            waiting.SECONDS)

    def continued(self):
        """Have this thread work for the trace."""
        return tracing.continued(tracing.Origin(self.base_id, self.root, KEY))

    def patch_to(self, name):
        """Wait for a patch from what the peer holds; returns its id."""
        def known():
            return [patch for patch in self.site.conductor.update_site_map(
                self.site.context, 'edge').patches
                if patch.target == self.contents[name]]

        self.site.wait(known)
        return known()[0].id

    def test_a_boot_from_a_peer_and_the_repository(self):
        self.contents = self.site.register(
            {name: self.images[name] for name in ('system', 'java')})
        self.site.hold(PEER, self.image('system'))
        patch = views.Key(views.PATCHES, self.patch_to('java'))
        output = self.directory / 'out'
        socket = self.site.directory / HOST / 'agent.sock'
        with self.collector() as collector:
            with self.continued():
                request = local_client.LocalClient(str(socket)).content(
                    'java', str(output), stall_timeout=waiting.SECONDS)
            self.assertEqual('build', request['way'])
            self.assertServed('java', output)
            base = self.image('system')
            spans = collector.wait_for(
                taken.Want('wsgi', HOST, '/v1/images/java/content'),
                taken.Want('serve', PEER, str(base)),
                taken.Want('serve', REPOSITORY, str(patch)))
        self.assertEqual({self.base_id}, {span['base'] for span in spans})

        def path_to(*words):
            """Names of the spans from the root to one."""
            [span] = [span for span in spans
                      if taken.is_of(span, taken.Want(*words))]
            found = taken.path(spans, span)
            self.assertEqual(self.root, found[0]['parent'])
            return [each['name'] for each in found]

        for name in ('decision', 'lookup'):
            self.assertEqual(['wsgi', 'delivery', name],
                             path_to(name, HOST, 'java' if name == 'decision'
                                     else str(self.image('java'))))
        self.assertEqual(['wsgi', 'delivery', 'patch', 'fetch', 'serve'],
                         path_to('serve', PEER, str(base)))
        # The repository sends the patch, which is brought here first.
        fetched = path_to('serve', REPOSITORY, str(patch))
        self.assertEqual((['wsgi', 'delivery'], ['fetch', 'serve']),
                         (fetched[:2], fetched[-2:]))

    def test_a_request_to_the_api_goes_to_the_conductor(self):
        self.useFixture(tokens.Tokens())
        with self.collector() as collector:
            with self.continued():
                headers = tracing.headers()
            client = http.Client(app.load(self.site.conf))
            for given in ({}, headers | {tracing.HMAC_HEADER: '0' * 40},
                          headers):
                answer = client.post(
                    '/v1/plans', json={'plan': {'site': 'edge'}},
                    headers={'X-Auth-Token': 'admin', **given})
                self.assertEqual(202, answer.status_code, answer.text)
            host = self.site.conf.agent.host
            spans = collector.wait_for(
                taken.Want('rpc', host, 'propose_plan'),
                taken.Want('wsgi', host, '/v1/plans'))
        [rpc] = [span for span in spans if span['name'] == 'rpc']
        [wsgi] = [span for span in spans if span['name'] == 'wsgi']
        self.assertEqual('diffcache-conductor', rpc['service'])
        self.assertEqual('diffcache-api', wsgi['service'])
        self.assertEqual(wsgi['id'], rpc['parent'])
        self.assertEqual((self.base_id, self.root),
                         (wsgi['base'], wsgi['parent']))
