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
"""Options of the data plane: bulk bytes between agents, over HTTP."""

import copy

from oslo_config import cfg

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'data_plane',
    title='Transfers between agents',
    help='Images and patches travel from agent to agent over HTTP, never'
         ' over the message broker.')

OPTS = [
    cfg.StrOpt(
        'listen',
        default='0.0.0.0:9192',
        help='''
Address and port on which the agent serves its objects to peers, as
``ADDRESS:PORT``. Port 0 takes any free port, which is then announced to the
conductor. Listening beyond loopback requires ``key_file``.
'''),
    cfg.StrOpt(
        'advertise_url',
        help='''
URL under which peers reach this agent, such as ``http://10.0.0.5:9192``.
Needed when ``listen`` is a wildcard address and the name of the host does not
resolve to the address peers should use, or behind NAT. Default: derived from
``listen`` and ``[agent] host``.
'''),
    cfg.StrOpt(
        'key_file',
        help='''
File with the key that all agents of a deployment share; every request
between them is signed with it. Create it with ``diffcache-manage key create``
and copy it to every host. It must be readable by the agent alone (mode 0600),
else the agent refuses to start. Without a key the agent serves loopback
addresses only.
'''),
    cfg.StrOpt(
        'key_name',
        default='site',
        regex=r'^[A-Za-z0-9._-]{1,64}$',
        help='''
Name under which the key is announced, so that a peer with another key can say
which one it misses. Change it together with the key.
'''),
    cfg.Opt(
        'rate',
        type=units.Size(),
        default=0,
        help='''
Most bytes per second that this agent sends to all its peers together, with a
unit if you like (``25MB``). At a repository this is the bandwidth that all
sites share. 0 sends as fast as the network takes it.
'''),
    cfg.FloatOpt(
        'latency',
        default=0.0,
        min=0.0,
        max=10.0,
        help='''
Seconds by which each request is delayed. Only for rehearsing a slow link on
one machine; leave it at 0 in production.
'''),
    cfg.IntOpt(
        'claim_ttl',
        default=30,
        min=2,
        help='''
Seconds after which the right to fetch an object over the WAN falls back when
the agent that claimed it shows no progress. Shorter recovers faster from a
lost host; too short and two hosts fetch the same object over a WAN that
merely stalled.
'''),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    # A group remembers its options' values: each configuration its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """The group and its options, for the sample configuration."""
    return {GROUP: OPTS}
