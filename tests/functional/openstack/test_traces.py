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
"""A trace of one boot: from the client through Nova to those who serve it."""

import itertools
import uuid

from oslo_config import cfg
import oslo_messaging

from testing import spans as taken
from tests.functional.openstack import nova_hosts

# Between two spans; "serve" is sent some seconds after the last request.
SECONDS = 60


class TestTraces(nova_hosts.NovaTest):

    def setUp(self):
        super().setUp()
        self.host, self.peer = self.trial.hosts[:2]
        # A thread that has seen a trace goes on with it: osprofiler's init()
        # changes nothing then, and Nova ends no trace.
        with self.trial.stopped('nova-conductor', f'{self.host}-nova'):
            pass

    def traced(self, *words):
        """Type a command of the client with a trace; return its ID."""
        key = self.trial.where.password('traces')
        done = self._enter(f'--os-profile {key} {" ".join(words)}',
                           'admin', 'admin')
        self.assertEqual(0, done.returncode, done.stderr)
        [line] = [line for line in (done.stdout + done.stderr).splitlines()
                  if line.startswith('Trace ID:')]
        return line.split()[-1]

    def collector(self):
        return taken.Collector(oslo_messaging.get_notification_transport(
            cfg.ConfigOpts(), self.trial.where.transport), SECONDS)

    def test_a_boot_through_base_and_patch(self):
        base = self.image_of('base')
        self.start(base, self.peer)
        self.plan()
        image = self.upload(self.new_content('base', 4))
        name = f'traced-{uuid.uuid4().hex[:8]}'
        with self.collector() as collector:
            trace = self.traced(
                'server create --flavor tiny --nic none --wait --image', image,
                '--host', self.host, name)
            self.addCleanup(self.trial.delete,
                            self.compute.find_server(name).id)
            collector.wait_for(taken.Want('delivery', self.host, image))
            # What the broker still had of other traces is not looked at.
            spans = [span for span in collector.wait_for(
                taken.Want('serve', 'repository')) if span['base'] == trace]
        print(_outline(spans))
        [delivery] = [span for span in spans if span['name'] == 'delivery']
        above = taken.path(spans, delivery)
        # From Nova's API to its compute service, and on to the agent.
        self.assertEqual(
            ['osapi_compute', 'nova-conductor', 'nova-compute',
             'diffcache-agent'],
            [service for service, _ in itertools.groupby(
                span['service'] for span in above)])
        for span in spans:
            if span['name'] == 'serve':
                self.assertIn(delivery, taken.path(spans, span))


def _outline(spans):
    """A line for each span, each below the one that it is part of."""
    ordered = sorted((
        [(each['started'], each['id']) for each in taken.path(spans, span)],
        span) for span in spans)
    return '\n'.join(
        f'{span["host"]:12}{"  " * len(path)}{span["project"]}'
        f' {span["service"]} {span["name"]}' for path, span in ordered)
