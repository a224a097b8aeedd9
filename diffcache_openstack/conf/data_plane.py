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
"""Options of the data plane: transfers between agents over HTTP."""

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
``ADDRESS:PORT``. Port 0 takes any free port and announces it to the conductor.
Any address but loopback requires ``key_file``, and TLS unless ``allow_plain``
is true.
'''),
    cfg.StrOpt(
        'advertise_url',
        help='''
URL under which peers reach this agent, such as ``http://10.0.0.5:9192``, or
``https://10.0.0.5:9192`` with ``tls_cert_file``. Needed when ``listen`` is a
wildcard address and the name of the host does not resolve to the address that
peers should use, or behind NAT. Default: derived from ``listen`` and ``[agent]
host``.
'''),
    cfg.StrOpt(
        'key_file',
        mutable=True,
        help='''
File with the key that all agents of a deployment share and sign every request
between them with. Create it with ``diffcache-manage key create`` and copy it
to every host. It must be readable by the agent's user only (mode 0600), or the
agent does not start. Without a key the agent serves only loopback addresses.
A changed file is read again within seconds, or at once on SIGHUP.
'''),
    cfg.StrOpt(
        'key_name',
        default='site',
        mutable=True,
        regex=r'^[A-Za-z0-9._-]{1,64}$',
        advanced=True,
        help='''
Name of the key, sent with each request, so that a peer with another key can
name the missing one in its error. Change it together with the key.
'''),
    cfg.DictOpt(
        'accepted_keys',
        default={},
        mutable=True,
        advanced=True,
        help='''
Further keys that requests of peers may be signed with, as ``NAME:FILE,...``.
It lets a key be replaced without an interruption: accept the new key on all
hosts, then sign with it (``key_file``, ``key_name``) and accept the old one,
then remove the old one. Read again on SIGHUP.
'''),
    cfg.BoolOpt(
        'allow_plain',
        default=False,
        advanced=True,
        help='''
Dangerous if true: any host on the network between the agents can read the
images that they exchange. Starts without TLS although ``listen`` is not a
loopback address. If false, such an agent does not start until ``tls_ca_file``,
``tls_cert_file`` and ``tls_key_file`` are set. Loopback addresses never need
it.
'''),
    cfg.StrOpt(
        'tls_ca_file',
        help='''
File with the certificates, in PEM, of the trusted authorities. Agents connect
only to peers with a certificate of one of them. Use an authority for this
deployment alone: any certificate that it issues is accepted. Required together
with ``tls_cert_file`` and ``tls_key_file``. With them agents encrypt their
transfers with TLS 1.3, without them transfers are not encrypted. Requests are
signed with the key of ``key_file`` in both cases.
'''),
    cfg.StrOpt(
        'tls_cert_file',
        help='''
File with this agent's certificate in PEM, followed by the intermediate ones if
there are any. It must contain the host name or the address of the URL under
which peers reach this agent, and be valid for servers and clients. Changed
files are read again within seconds, or at once on SIGHUP.
'''),
    cfg.StrOpt(
        'tls_key_file',
        help='''
File with the private key of ``tls_cert_file`` in PEM, without a passphrase.
It is refused if it is readable by all users.
'''),
    cfg.StrOpt(
        'tls_crl_file',
        help='''
File with lists, in PEM, of certificates that the authorities of
``tls_ca_file`` have revoked. Peers with such a certificate are refused. A
changed file is read again like the certificates. An authority without a list
has revoked nothing; lists do not expire.
'''),
    cfg.BoolOpt(
        'tls_plain_peers',
        default=False,
        advanced=True,
        help='''
Dangerous if true: images are sent unencrypted. Accepts peers without TLS, and
connects without TLS to those that announce ``http://``. This agent then
announces ``http://`` itself and accepts both. Use it only while TLS is
introduced host by host. If false, nothing is sent unencrypted, whatever a peer
announces.
'''),
    cfg.Opt(
        'rate',
        type=units.Size(),
        default=0,
        help='''
Maximum bytes per second that this agent sends to all its peers together, in
bytes or with a unit (``25MB``). At a repository all sites share this
bandwidth. 0 sets no limit.
'''),
    cfg.Opt(
        'compress_below',
        type=units.Size(),
        default=25_000_000,
        advanced=True,
        help='''
Bytes per second, or with a unit (``25MB``), below which peers are asked to
compress images that they send to this agent. It is compared with the rate at
which peers have sent so far (``peer_mbps`` of ``diffcache-manage agent
status``). The peer compresses while it sends, at level 1 of zstd. Raise it if
hosts have idle processors and a busy network; 0 never asks for it.
'''),
    cfg.Opt(
        'min_rate',
        type=units.Size(),
        default=16384,
        advanced=True,
        help='''
Bytes per second, or with a unit (``16KiB``), below which a transfer from a
peer is given up for another source. The limit follows the links of the site
map: within a site it is at most one hundredth of the peers' link, over the WAN
at most one thousandth of this host's slowest link to a repository. Raise it to
leave slow hosts earlier; lower it if transfers of busy hosts are given up
(``slow_peers`` of ``diffcache-manage agent status``). Only time spent waiting
for the peer counts.
'''),
    cfg.IntOpt(
        'max_connections',
        default=256,
        min=1,
        advanced=True,
        help='''
Maximum number of peers' connections that are served at the same time. Each
takes a thread and a file descriptor. Up to 128 more connections may wait for
their first request to be accepted.
'''),
    cfg.IntOpt(
        'max_connections_per_address',
        default=128,
        min=1,
        advanced=True,
        help='''
Maximum number of connections from one address that are served at the same
time; further ones get the answer "busy". Raise it, up to ``max_connections``,
at a repository whose sites are behind one address each.
'''),
]
