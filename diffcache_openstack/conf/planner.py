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
"""Options of the planner, which places objects on hosts."""

from oslo_config import cfg
from oslo_config import types

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'planner',
    title='Cache placement',
    help='The conductor computes a plan for each site from the catalogue,'
         ' the history of requests and what the hosts can hold.')

OPTS = [
    cfg.StrOpt(
        'solver',
        default='auto',
        mutable=True,
        advanced=True,
        help='''
Solver to use, from the entry point namespace ``diffcache.placement.solvers``.
``auto`` finds good plans at any scale with a bound on their distance from the
optimum; ``ilp`` proves small plans optimal; ``greedy`` is the algorithm of the
DiffCache paper, which uses no patches at a site with one host.
'''),
    cfg.StrOpt(
        'objective',
        default='seconds',
        choices=[
            ('seconds', 'Seconds that requests wait for their images.'),
            ('wan_bytes', 'Bytes that requests take from repositories.'),
        ],
        mutable=True,
        help='''
What plans minimize. Choose ``wan_bytes`` where the link to the repository is
paid by volume: images then wait somewhat longer. Moving an object to a host
costs the bytes that it takes from the repository. Then two plans are computed,
one for each objective, each within half of ``time_limit``; the one that
fetches fewer bytes is used.
'''),
    cfg.Opt(
        'site_objective',
        type=types.Dict(types.String(choices=['seconds', 'wan_bytes'])),
        default={},
        mutable=True,
        help='''
Objective of sites that differ from ``objective``, as ``SITE:OBJECTIVE`` pairs
separated by commas.
'''),
    cfg.IntOpt(
        'interval',
        default=3600,
        min=0,
        mutable=True,
        help='''
Seconds between two plans of a site. Lower values follow changing demand faster
and move more bytes over the WAN. While nothing that a plan depends on changes,
one is computed once a day. 0 computes plans only on request
(``diffcache-manage plan create``).
'''),
    cfg.Opt(
        'time_limit',
        type=units.Number(min=0.1),
        default=20.0,
        mutable=True,
        advanced=True,
        help='''
Seconds that the solver may take for one site; it then returns the best plan
found.
'''),
    cfg.IntOpt(
        'hops',
        default=1,
        min=1,
        max=4,
        mutable=True,
        advanced=True,
        help='''
Maximum number of patches to apply one after another to build an image, in
plans and on the hosts. Higher values help if images derive from each other in
long chains, but planning takes longer, and intermediate images take space in
the host's state directory during a build. Set it on the conductors: hosts get
it with the site map.
'''),
    cfg.ListOpt(
        'drained_hosts',
        default=[],
        mutable=True,
        help='''
Names of hosts to empty: the next plan places nothing on them and moves objects
to other hosts where that pays.
'''),
    cfg.Opt(
        'local_bandwidth',
        type=units.Number(min=0.001),
        default=4000.0,
        mutable=True,
        advanced=True,
        help='''
Mbit/s at which a host reads and writes images on its own disk.
'''),
    cfg.Opt(
        'peer_bandwidth',
        type=units.Number(min=0.001),
        default=1000.0,
        mutable=True,
        help='''
Mbit/s at which a host receives from another host of its site. Default:
gigabit Ethernet.
'''),
    cfg.Opt(
        'repository_bandwidth',
        type=units.Number(min=0.001),
        default=20.0,
        mutable=True,
        help='''
Mbit/s at which a host receives from the repository. Only the ratio of the
three bandwidths shapes the plan; their values shape predicted times.
'''),
    cfg.DictOpt(
        'site_repository_bandwidth',
        default={},
        mutable=True,
        help='''
Mbit/s from the repository for sites that differ from
``repository_bandwidth``, as ``SITE:MBITS`` pairs separated by commas.
'''),
    cfg.DictOpt(
        'named_repository_bandwidth',
        default={},
        mutable=True,
        advanced=True,
        help='''
Mbit/s from repositories whose link differs from ``repository_bandwidth`` and
``site_repository_bandwidth``, as ``REPOSITORY:MBITS`` pairs separated by
commas, or ``SITE/REPOSITORY:MBITS`` for one site. Hosts read from the fastest
repository that has what they need and that answers.
'''),
    cfg.BoolOpt(
        'measured_bandwidths',
        default=False,
        mutable=True,
        help='''
Use the bandwidths that each host measured with its transfers (those of
"openstack image cache host show") in plans, in its choice of routes and in
Nova's weigher, once it has transferred 8 MiB. Leave it off where the
configured bandwidths express a policy, such as a low value that spares the
WAN.
'''),
]
