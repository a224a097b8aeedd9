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
"""Agents and conductor, watched by a real Prometheus."""

import json
import pathlib
import re
import subprocess
import tempfile

import requests

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import keys
from diffcache_openstack.rpc import agent_api
from testing import server
from tests import base
from tests.functional.agent import family
from tests.functional.fixtures import deployment
from tests.functional.fixtures import prometheus
from tests import waiting

ROOT = pathlib.Path(__file__).resolve().parents[3]
ETC = ROOT / 'etc'
PAGE = ROOT / 'doc' / 'source' / 'admin' / 'monitoring.rst'
RULES = ETC / 'prometheus' / 'diffcache.rules.yaml'
DASHBOARD = ETC / 'grafana' / 'diffcache.json'
REPOSITORY, HOST = 'hub', 'host-1'
# Only where there are such images, jobs and tasks.
EVENTS = {'diffcache_pending_images', 'diffcache_precache_jobs',
          'diffcache_version_tasks',
          # Only with TLS.
          'diffcache_cert_expiry_timestamp_seconds',
          # Known once enough bytes came.
          'diffcache_repository_rate_bytes_per_second',
          # Of a plan; none is computed here.
          'diffcache_plan_cost_seconds_per_day',
          'diffcache_plan_bound_seconds_per_day',
          'diffcache_plan_bytes', 'diffcache_plan_held_bytes'}


def metrics_of(text):
    """Return the names of our metrics in an expression."""
    return set(re.findall(r'\bdiffcache_[a-z0-9_]+', text))


def family_of(name):
    """Return the name of a metric without what the format adds."""
    return re.sub(r'_(total|created|bucket|count|sum)$', '', name)


def expressions_of_dashboard():
    """List the expressions of the panels, with the variables filled in."""
    document = json.loads(DASHBOARD.read_text())
    return [target['expr'].replace('$__rate_interval', '1m')
            .replace('$site', '.*') for panel in document['panels']
            for target in panel['targets']]


class MonitoringTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.ports = {name: server.free_port()
                      for name in ('conductor', REPOSITORY, HOST)}
        self.site = self.useFixture(deployment.Deployment())
        self.processes = {'conductor': self.site.start_conductor(
            conductor={'host_timeout': 4}, **self.listen('conductor'))}
        keys.create_key(self.directory / 'site.key')
        for name in (REPOSITORY, HOST):
            self.start_agent(name)

    def listen(self, name):
        return {'metrics': {'listen': f'127.0.0.1:{self.ports[name]}'}}

    def start_agent(self, name):
        self.processes[name] = self.site.start(
            'diffcache-agent', name, agent={
                'host': name, 'site': 'edge',
                'role': 'repository' if name == REPOSITORY else 'compute',
                'state_dir': self.directory / name, 'heartbeat_interval': 1,
                'socket': self.directory / f'{name}.sock',
                'output_directories': tempfile.gettempdir()},
            repository={'image_directories': tempfile.gettempdir()},
            data_plane={'listen': '127.0.0.1:0',
                        'key_file': self.directory / 'site.key'},
            **self.listen(name))
        self.processes[name].wait_for(f'Agent {name} serves')

    def watch(self):
        """Start Prometheus; alerts do not wait before they fire."""
        rules = re.sub(r'for: \w+', 'for: 0s', RULES.read_text())
        found = prometheus.Prometheus(
            [f'127.0.0.1:{port}' for port in self.ports.values()], rules)
        self.addCleanup(found.stop)
        found.start()
        return found

    @staticmethod
    def watched(watcher, expression):
        """What Prometheus finds, once that is something."""
        return waiting.until(lambda: watcher.query(expression), expression)

    def ask(self, name, path):
        return requests.get(f'http://127.0.0.1:{self.ports[name]}{path}',
                            timeout=60)

    def serve_an_image(self):
        """Have the host serve an image, and report a fallback."""
        agents = agent_api.AgentAPI(self.site.bus, self.site.conf)
        image = family.write(self.directory)['system']
        agents.register_image(self.site.context, REPOSITORY, str(image),
                              'image', 'image')
        waiting.until(lambda: agents.status(
            self.site.context, HOST)['images'] == 1, 'the map of the host')
        agents.get_image(self.site.context, HOST, 'image',
                         str(self.directory / 'output.raw'))
        local_client.LocalClient(str(self.directory / f'{HOST}.sock'),
                                 timeout=60).fallback('nova', 'Timeout', 2)

    def test_what_is_shipped_fits_what_is_exposed(self):
        self.serve_an_image()
        for name in self.ports:
            waiting.until(lambda: self.ask(name, '/ready').ok,  # noqa: B023
                          f'{name} to be ready')
        watcher = self.watch()
        count = 'diffcache_request_seconds_count{way="repository"}'
        self.watched(watcher, f'{count} > 0')
        # A host may be late with its word, and dead till then.
        waiting.until(lambda: {HOST, REPOSITORY} == {
            series['metric']['host'] for series in watcher.query(
                'diffcache_host_alive == 1')}, 'both hosts to be alive')
        moved, = watcher.query('diffcache_request_wan_bytes_total > 0')
        self.assertIn(str(self.ports[HOST]), moved['metric']['instance'])
        expressions = (prometheus.expressions_of_rules(RULES)
                       + expressions_of_dashboard())
        for expression in expressions:
            watcher.query(expression)
        used = {name for expression in expressions
                for name in metrics_of(expression)}
        waiting.until(lambda: not used - watcher.names() - EVENTS,
                      'all that is used to be there',
                      seen=lambda: used - watcher.names() - EVENTS)
        exposed = {family_of(name) for name in watcher.names()
                   if name.startswith('diffcache_')}
        self.assertEqual(set(), exposed - metrics_of(PAGE.read_text()))

    def test_an_alert_fires_when_a_host_dies(self):
        watcher = self.watch()
        # The other may be late with its word, and dead till then.
        alert = ('ALERTS{alertname="DiffCacheHostDead",alertstate="firing",'
                 f'host="{HOST}"}}')
        alive = f'diffcache_host_alive{{host="{HOST}"}} == 1'
        waiting.until(lambda: watcher.query(alive)
                      and not watcher.query(alert), 'a host without an alert')
        self.processes[HOST].destroy()
        fired, = self.watched(watcher, alert)
        self.assertEqual((HOST, 'edge'), (fired['metric']['host'],
                                          fired['metric']['site']))


class RulesTest(base.TestCase):

    def test_rules(self):
        """The tests that are shipped with the rules pass."""
        found = subprocess.run(
            ['promtool', 'test', 'rules',
             RULES.with_name('diffcache.test.yaml')],
            capture_output=True, text=True, check=False)
        self.assertEqual(0, found.returncode, found.stdout + found.stderr)
