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
"""Light agents: what hosts say to conductors, without disks and images.

Each has connections of its own to the broker, a key, and the agent's own
link, site map, spool of requests and RPC endpoint. Replaced are its disk
(sizes that were drawn), its fills (what a plan places is held at once), and
the data plane (an address at which nothing listens); records of images are
not verified.

A process of its own runs many: it reads the document that :func:`run`
describes from standard input, prints a line when all have reported, and ends
when its input does.
"""

import json
import pathlib
import random
import sys
import threading
import types
import typing

from diffcache_openstack.agent.endpoints import agent_endpoint
from diffcache_openstack.agent.images import host_status
from diffcache_openstack.agent import link
from diffcache_openstack.agent.state import current_map
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.common import contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.conf import opts
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.sites import views

CAPACITY = 10 ** 11
SIZE = 10 ** 9


class Sizes(dict):
    """Sizes by key, in place of files."""

    def sizes(self) -> dict[views.Key, int]:
        """Return a copy."""
        return dict(self)


class Disk(Sizes):
    """What a host holds; nothing is borrowed."""

    capacity = CAPACITY
    borrowed = Sizes()

    def used(self) -> int:
        """Return the bytes of all."""
        return sum(self.values())


class Fills:
    """Follows plans: what they place is held at once."""

    def __init__(self, disk: Disk) -> None:
        self.generation = 0
        self._disk = disk

    def hold(self, plan: typing.Any) -> None:
        """Hold what a plan places, and nothing else."""
        self.generation = plan.generation
        self._disk.clear()
        self._disk.update({item.key: SIZE for item in plan.items})

    def report(self) -> list:
        """Return what is on its way: nothing."""
        return []

    def missing(self) -> list:
        """Return what is not there yet: nothing."""
        return []

    def wake(self) -> None:
        """Look for work: there is none."""


class Plane:
    """An address for peers."""

    def __init__(self, name: str) -> None:
        self.url = f'http://{name}:9192'

    def peer_mbps(self) -> float | None:
        """Return what was measured between hosts: nothing."""
        return None

    def repositories(self) -> list:
        """Return what was measured of repositories: nothing."""
        return []


class Agent:
    """One light agent."""

    def __init__(self, conf, described: dict, state: pathlib.Path) -> None:
        state.mkdir()
        name, site = described['name'], described['site']
        authority = host_keys.Authority(conf.messaging.authority_file)
        security = signatures.Security(
            host_keys.HostKey(described['key']), authority, True)
        self._bus = messaging.Bus(conf, versioned.Serializer(),
                                  security=security)
        context = contexts.RequestContext.for_service('diffcache-agent')
        conductor = conductor_api.ConductorAPI(self._bus, conf)
        site_map = current_map.SiteMap(
            state / 'site_map.json', conductor, context, site,
            image_records.Verifier(signatures.Security()))
        disk = Disk({views.Key(*each): SIZE for each in described['held']})
        host = host_state.HostState(name, disk, site_map)
        spool = request_spool.RequestSpool(state / 'requests')
        fills = Fills(disk)
        options = types.SimpleNamespace(site=site, role=described['role'])
        status = host_status.HostStatus(
            types.SimpleNamespace(agent=options, fill=conf.fill),
            Plane(name), host, fills, spool)
        self.link = link.ConductorLink(
            link.Clients(conductor, agent_api.AgentAPI(self._bus, conf),
                         context),
            host, status, spool, conf.agent.heartbeat_interval,
            link.OptionalParts(revocations.Revocations(
                state / 'revoked_keys.json', authority)))
        self.contact = threading.Event()
        self.link.on_contact(self.contact.set)
        self._server = agent_endpoint.new_server(
            self._bus, name,
            agent_endpoint.AgentManager(host, None, fills, status))

    def start(self) -> None:
        """Listen, and report."""
        self._bus.start(self._server)
        self.link.start()


def run(document: dict) -> None:
    """Run agents until standard input ends.

    :param document: the file of the configuration, a folder for states, and of
        each agent name, site, role, file of its key, and kind and ID of what
        it holds
    """
    conf = opts.new_config(['--config-file', document['config']])
    drawn = random.Random(document['agents'][0]['name'])
    state = pathlib.Path(document['state'])
    started = []
    for each in document['agents']:
        agent = Agent(conf, each, state / each['name'])
        # Agents of a deployment do not report at the same moment.
        timer = threading.Timer(
            drawn.uniform(0, conf.agent.heartbeat_interval), agent.start)
        timer.daemon = True
        timer.start()
        started.append(agent)
    for agent in started:
        agent.contact.wait()
    print(json.dumps({'started': len(started)}), flush=True)
    sys.stdin.read()


if __name__ == '__main__':
    # It runs for as long as its input is open.
    run(json.loads(sys.stdin.readline()))
