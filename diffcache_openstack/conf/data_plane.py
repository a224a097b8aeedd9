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
URL under which peers reach this agent, such as ``http://10.0.0.5:9192``, or
``https://10.0.0.5:9192`` with ``tls_cert_file``. Needed when ``listen`` is a
wildcard address and the name of the host does not resolve to the address peers
should use, or behind NAT. Default: derived from ``listen`` and ``[agent]
host``.
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
    cfg.StrOpt(
        'tls_ca_file',
        help='''
File with the certificates, in PEM, of the authorities whose word counts: only
a peer whose certificate is of one of them is answered or asked. Use an
authority for this deployment alone, because any certificate of it lets in. It
goes together with ``tls_cert_file`` and ``tls_key_file``. With them agents
encrypt what they exchange, by TLS 1.3; without, it crosses the network in the
clear. Requests are signed with the key of ``key_file`` in either case.
'''),
    cfg.StrOpt(
        'tls_cert_file',
        help='''
File with this agent's certificate in PEM, followed by those between it and
the authority if there are any. It has to name the host, or have the address,
of the URL under which peers reach this agent, and must be good for servers
and clients. Changed files are read again within seconds, and at once on
SIGHUP.
'''),
    cfg.StrOpt(
        'tls_key_file',
        help='''
File with the private key of ``tls_cert_file`` in PEM, without a passphrase.
It is refused if everybody may read it.
'''),
    cfg.BoolOpt(
        'tls_plain_peers',
        default=False,
        help='''
Whether agents without TLS are put up with: answered, and asked in the clear
where they announce ``http://``. This agent then announces ``http://`` itself,
and answers both. Only for the time in which TLS is introduced, host by host.
When it is off, nothing goes out in the clear whatever a peer announces.
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
