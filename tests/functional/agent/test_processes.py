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
"""Separate processes on a real broker and a real database."""

import concurrent.futures
import os
import pathlib
import signal
import stat
import tempfile
import threading
import time

import fixtures

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.sites import views
from testing import rabbitmq
from tests import base
from tests.functional.agent import family
from tests.functional.fixtures import deployment
from tests import waiting

MIB = family.MIB
HOSTS = ('host-1', 'host-2', 'host-3')
REPOSITORY = 'hub'


class Site(deployment.Deployment):
    """Conductor, repository and three hosts, each a process of its own.

    The links are slow enough that a test can act while an image is on its
    way: an image takes two to three seconds.
    """

    def __init__(self, rates):
        """:param rates: of hosts whose links are still slower"""
        super().__init__()
        self._rates = rates

    def _setUp(self):
        super()._setUp()
        self.key_file = self.directory / 'site.key'
        keys.create_key(self.key_file)
        self.agents = agent_api.AgentAPI(self.bus, self.conf)
        self.processes = {'conductor': self.start_conductor()}
        for name in (REPOSITORY, *HOSTS):
            self.start_agent(name)
        self.wait(lambda: all(
            len(self.status(name)['hosts']) == 4 for name in HOSTS))

    def start_agent(self, name):
        self.processes[name] = self.start(
            'diffcache-agent', name, agent=self.agent_options(name),
            # What crosses the WAN is counted in raw bytes.
            repository={'image_directories': tempfile.gettempdir(),
                        'compression_level': 0},
            data_plane=self.data_plane(name))
        self.processes[name].wait_for(f'Agent {name} serves')

    def agent_options(self, name):
        """Options of an agent itself."""
        return {'host': name, 'site': 'edge',
                'role': 'repository' if name == REPOSITORY else 'compute',
                'state_dir': self.directory / name, 'heartbeat_interval': 2,
                'output_directories': f'{tempfile.gettempdir()},/dev/shm'}

    def data_plane(self, name):
        """Options of a host's data plane."""
        return {'listen': '127.0.0.1:0', 'key_file': self.key_file,
                'rate': self._rates.get(name, '4MB')}

    def wait(self, ready):
        """Wait until something is so; what does not answer is not so."""
        waiting.until(ready, 'the site', exceptions.ServiceUnavailable,
                      seen=self.printed)

    def status(self, host):
        return self.agents.status(self.context, host)

    def sent(self, host, kind=views.IMAGES):
        """Bytes that a host's data plane has sent."""
        return self.status(host)['data_plane']['sent'][kind]

    def register(self, images):
        """Register images; returns their content ids by name."""
        contents = {name: self.agents.register_image(
            self.context, REPOSITORY, str(path), name, name).content_id
            for name, path in images.items()}
        self.wait(lambda: all(
            self.status(name)['images'] == len(contents)
            for name in HOSTS))
        return contents

    def hold(self, host, *keys_wanted):
        """Have a host hold objects, and all hosts know of it."""
        self.agents.hold(self.context, host, int(time.time()), [
            (*key, n) for n, key in enumerate(keys_wanted)])
        self.wait(lambda: all(
            list(key) in self.status(name)['hosts'][host]
            for name in HOSTS for key in keys_wanted))

    def get(self, host, name, output):
        return self.agents.get_image(self.context, host, name, str(output))

    def get_from_started(self, host, name, output):
        """Get an image from an agent that may be starting.

        It refuses a request that was signed before it started.
        """
        return waiting.until(lambda: self.get(host, name, output), name,
                             exceptions.ServiceUnavailable)


class ProcessesTest(base.TestCase):

    #: what hosts send in a second, if not the usual
    rates: dict[str, str] = {}

    def setUp(self):
        super().setUp()
        self.site = self.useFixture(self.new_site())
        self.images = family.write(self.directory)
        self.sha256 = {name: family.sha256(path)
                       for name, path in self.images.items()}

    def new_site(self):
        return Site(self.rates)

    def image(self, name):
        return views.Key(views.IMAGES, self.contents[name])

    def ask(self, host, name, output):
        """Ask for an image, and do not wait.

        In a thread that nobody waits for: what a killed agent was asked for
        is never answered.
        """
        answer = concurrent.futures.Future()

        def call():
            try:
                answer.set_result(self.site.get(host, name, output))
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        return answer

    def assertServed(self, name, output):
        self.assertEqual(self.sha256[name], family.sha256(output))
        staging = self.site.directory / 'host-2' / 'objects' / 'staging'
        self.assertEqual([], list(staging.iterdir()))
        self.assertEqual([], list(output.parent.glob('.*.part')))


class PeerTest(ProcessesTest):

    # Much longer than a test takes to notice that an image is on its way.
    rates = {'host-1': '250kB'}

    def test_a_peer_killed_while_it_serves(self):
        self.contents = self.site.register({'java': self.images['java']})
        self.site.hold('host-1', self.image('java'))
        output = self.directory / 'out'
        pending = self.ask('host-2', 'java', output)
        self.site.wait(lambda: self.site.sent('host-1') > MIB)
        self.assertFalse(output.exists())
        self.site.processes['host-1'].stop(signal.SIGKILL)
        self.assertFalse(pending.done())
        request = pending.result(waiting.SECONDS)
        self.assertServed('java', output)
        self.assertEqual('repository', request.way)
        self.assertEqual(1, request.fallbacks)
        # What the peer had sent is kept: the repository sent the rest.
        self.assertLess(request.wan_bytes, 10 * MIB)


class OpenSite(Site):
    """Hosts whose umask takes no rights, with sockets for all users."""

    def agent_options(self, name):
        (self.directory / f'{name}-instances').mkdir()
        return super().agent_options(name) | {
            'socket': self.directory / name / 'agent.sock',
            'output_directories': self.directory / f'{name}-instances'}


class ModesTest(ProcessesTest):

    def new_site(self):
        self.addCleanup(os.umask, os.umask(0))
        return OpenSite(self.rates)

    def test_other_users_read_what_is_delivered_and_nothing_else(self):
        self.contents = self.site.register({'java': self.images['java']})
        self.site.hold('host-1', self.image('java'))
        output = self.site.directory / 'host-1-instances' / 'out'
        socket = self.site.directory / 'host-1' / 'agent.sock'
        local_client.LocalClient(str(socket)).content(
            'java', str(output), stall_timeout=waiting.SECONDS)
        self.assertServed('java', output)
        self.assertEqual(0o644, stat.S_IMODE(output.stat().st_mode))
        for host in (REPOSITORY, 'host-1'):
            state = self.site.directory / host
            self.assertEqual(0o711, stat.S_IMODE(state.stat().st_mode))
            found = [path for path in state.rglob('*')
                     if not path.is_socket()]
            self.assertLess(8, len(found))
            self.assertEqual([], [str(path) for path in found
                                  if path.stat().st_mode & 0o077])


class HolderTest(ProcessesTest):

    # Much longer than a test takes to notice that an image is on its way.
    rates = {REPOSITORY: '400kB'}

    def test_a_holder_killed_while_it_crosses_the_wan(self):
        self.contents = self.site.register({'java': self.images['java']})
        outputs = [self.directory / f'out-{n}' for n in (1, 2)]
        self.ask('host-1', 'java', outputs[0])
        self.site.wait(
            lambda: self.site.status('host-1')['data_plane']['received'][
                views.IMAGES] > MIB)
        second = self.ask('host-2', 'java', outputs[1])
        self.site.wait(lambda: self.site.sent('host-1') > MIB)
        self.site.processes['host-1'].stop(signal.SIGKILL)
        request = second.result(waiting.SECONDS)
        self.assertServed('java', outputs[1])
        self.assertGreater(request.wan_bytes, 0)
        self.assertFalse(outputs[0].exists())


class WanTest(ProcessesTest):

    rates = {REPOSITORY: '2MB'}

    def test_sixteen_requests_cross_the_wan_once(self):
        self.contents = self.site.register({'other': self.images['other']})
        before = self.site.sent(REPOSITORY)
        outputs = [self.directory / f'out-{n}' for n in range(16)]
        answers = [self.ask(HOSTS[n % 3], 'other', outputs[n])
                   for n in range(16)]
        requests = [answer.result(waiting.SECONDS) for answer in answers]
        for output in outputs:
            self.assertServed('other', output)
        # Bytes are counted after they were sent.
        self.site.wait(lambda: self.site.sent(REPOSITORY) - before
                       >= 6 * MIB)
        self.assertEqual(6 * MIB, self.site.sent(REPOSITORY) - before)
        self.assertEqual(6 * MIB, sum(r.wan_bytes for r in requests))


class KillTest(ProcessesTest):
    """host-2 is killed with SIGKILL again and again."""

    KILLS = 4
    # What waits for a process that gets no processor is little.
    rates = {REPOSITORY: '1MB'}

    def kill(self):
        self.site.processes['host-2'].stop(signal.SIGKILL)
        self.site.start_agent('host-2')

    def test_a_fill_goes_on_where_it_was(self):
        self.contents = self.site.register({'java': self.images['java']})
        key = self.image('java')
        before = self.site.sent(REPOSITORY)
        self.site.agents.hold(self.site.context, 'host-2', 1, [(*key, 0)])
        for number in range(1, self.KILLS):
            self.site.wait(lambda: self.site.sent(REPOSITORY) - before
                           > number * 2 * MIB)
            self.kill()
        self.site.wait(lambda: list(key) in self.site.status('host-1')[
            'hosts']['host-2'])
        # 10 MiB, and what was on its way at each kill.
        self.assertLess(self.site.sent(REPOSITORY) - before,
                        (10 + 2 * self.KILLS) * MIB)
        output = self.directory / 'out'
        self.assertEqual('local',
                         self.site.get('host-2', 'java', output).way)
        self.assertServed('java', output)

    def test_outputs_are_whole_or_not_there(self):
        self.contents = self.site.register({'java': self.images['java']})
        self.site.hold('host-2', self.image('java'))
        # On another filesystem than the agent's: outputs are copied there.
        folder = pathlib.Path(self.useFixture(
            fixtures.TempDir(rootdir='/dev/shm')).path)
        for number in range(self.KILLS):
            output = folder / f'disk-{number}'
            self.ask('host-2', 'java', output)
            time.sleep(0.02 * number)
            self.kill()
            if output.exists():
                self.assertServed('java', output)
            # What was left goes at the start.
            self.site.wait(lambda: not list(folder.glob('.*')))
        output = folder / 'disk'
        self.site.get_from_started('host-2', 'java', output)
        self.assertServed('java', output)


class ConductorTest(ProcessesTest):

    def test_served_without_a_conductor_and_reported_later(self):
        self.contents = self.site.register({'java': self.images['java']})
        self.site.hold('host-1', self.image('java'))
        self.site.processes['conductor'].stop(signal.SIGKILL)
        # Even an agent that starts now works, from the map it kept.
        self.site.processes['host-2'].stop(signal.SIGKILL)
        self.site.start_agent('host-2')
        output = self.directory / 'out'
        self.site.wait(lambda: self.site.status('host-2')['images'])
        request = self.site.get('host-2', 'java', output)
        self.assertServed('java', output)
        self.assertEqual('peer', request.way)
        self.assertEqual(
            1, self.site.status('host-2')['unreported_requests'])
        self.site.processes['conductor'] = self.site.start_conductor()
        self.site.wait(lambda: not self.site.status('host-2')[
            'unreported_requests'])


class OwnBroker(Site):
    """A site whose broker can be stopped."""

    def __init__(self, rates):
        super().__init__(rates)
        # So that what was lost is asked for again soon.
        self._options = {'conductor': {'rpc_timeout': 10},
                         'oslo_messaging_rabbit': {'rabbit_interval_max': 1}}

    def _setUp(self):
        self.broker = rabbitmq.RabbitMQ(virtual_hosts=1)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.url = self.broker.transport_url()
        super()._setUp()

    def configuration(self, name, **overrides):
        # One virtual host for all of the site's processes.
        self.transport_url = self.url
        return super().configuration(name, **overrides)


class BrokerTest(ProcessesTest):

    def new_site(self):
        return OwnBroker(self.rates)

    def test_an_image_arrives_although_the_broker_dies(self):
        self.contents = self.site.register({'java': self.images['java']})
        output = self.directory / 'out'
        self.ask('host-2', 'java', output)
        self.site.wait(lambda: self.site.sent(REPOSITORY) > MIB)
        self.site.broker.stop()
        self.site.wait(output.exists)
        self.assertServed('java', output)
        self.site.broker.directory.mkdir()
        self.site.broker.start()
        again = self.directory / 'again'
        self.site.wait(lambda: self.site.status('host-2'))
        self.site.get('host-2', 'java', again)
        self.assertServed('java', again)
