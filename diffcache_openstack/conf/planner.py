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
"""Options of the planner: which host holds what."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'planner',
    title='Planning what each host holds',
    help='The conductor computes a plan for each site from the catalogue,'
         ' the history of requests and what the hosts can hold.')

OPTS = [
    cfg.StrOpt(
        'solver',
        default='auto',
        mutable=True,
        help='''
Name of the algorithm, out of the namespace ``diffcache.placement.solvers``.
``auto`` finds good plans at any scale and says how far from the best they can
be at most; ``ilp`` proves small ones optimal; ``greedy`` is the algorithm of
the DiffCache paper, which leaves patches out where a site has one host.
'''),
    cfg.IntOpt(
        'interval',
        default=3600,
        min=0,
        mutable=True,
        help='''
Seconds between two plans of a site. Shorter follows changing demand faster
but moves more bytes over the WAN to do so. 0 plans only when asked
(``diffcache-manage plan create``).
'''),
    cfg.FloatOpt(
        'time_limit',
        default=20.0,
        min=0.1,
        mutable=True,
        help='''
Seconds the solver may take for one site; it then returns the best plan found.
'''),
    cfg.IntOpt(
        'threads',
        default=1,
        min=1,
        mutable=True,
        help='Threads of the solver. Not every solver can use more than one.'),
    cfg.IntOpt(
        'max_patches',
        default=1,
        min=1,
        max=4,
        mutable=True,
        deprecated_opts=[
            cfg.DeprecatedOpt('hops', group='planner'),
            cfg.DeprecatedOpt('max_patches', group='agent'),
        ],
        help='''
Most patches that may be applied one after another to rebuild an image, in
plans and by the hosts. More pay off where images descend from each other in
long lines, but take longer to plan for; what is built on the way to an image
takes space in the host's state directory for a moment. Set it where the
conductor runs: hosts learn it from the site map.
'''),
    cfg.IntOpt(
        'half_life',
        default=7 * 24 * 3600,
        min=1,
        mutable=True,
        help='''
Seconds after which a request counts half in the forecast of demand. Default:
a week, so that weekends do not empty the cache of the working days.
'''),
    cfg.FloatOpt(
        'prior',
        default=0.05,
        min=0.0,
        mutable=True,
        help='''
Requests that every image is taken to have had a moment ago at each host,
beside what was really requested. Lets images that nobody asked for yet have
room that is left over. 0 plans for images with a history only.
'''),
    cfg.FloatOpt(
        'trend_limit',
        default=2.0,
        min=1.0,
        mutable=True,
        help='''
Most by which the forecast of an image is multiplied or divided because its
requests became more or fewer lately (within a quarter of ``half_life``). 1
follows no trends.
'''),
    cfg.FloatOpt(
        'family_weight',
        default=1.0,
        min=0.0,
        mutable=True,
        help='''
Requests of an image that count as much as the mean of its family, the images
it shares patches or its origin with. Lets new images start with what is
asked of their relatives. 0 looks at each image's own requests only.
'''),
    cfg.FloatOpt(
        'host_weight',
        default=2.0,
        min=0.0,
        mutable=True,
        help='''
Requests of an image at a host that count as much as the assumption that all
hosts ask for it alike.
'''),
    cfg.IntOpt(
        'max_templates',
        default=1000,
        min=1,
        mutable=True,
        help='''
Images that a site's plan considers: those with the highest forecast. Bounds
the solver's time and memory in catalogues of many thousand images.
'''),
    cfg.FloatOpt(
        'min_gain',
        default=0.02,
        min=0.0,
        max=1.0,
        mutable=True,
        help='''
Fraction by which a new plan has to lower the expected cost, what moving its
objects costs taken off, before it replaces the current one. Keeps hosts from
exchanging objects of equal worth at each round. 0 takes any that is better.
'''),
    cfg.FloatOpt(
        'move_weight',
        default=0.01,
        min=0.0,
        mutable=True,
        help='''
Seconds of waiting for images that a second of transferring objects to their
hosts is worth. What a new plan moves has to pay for itself within
``horizon``. 0 moves objects for any saving.
'''),
    cfg.IntOpt(
        'horizon',
        default=7 * 24 * 3600,
        min=60,
        mutable=True,
        help='''
Seconds that a plan is expected to last, over which the cost of its transfers
is spread.
'''),
    cfg.ListOpt(
        'drained_hosts',
        default=[],
        mutable=True,
        help='''
Hosts that shall hold nothing, by name: the next plan empties them and moves
what is worth it to the others.
'''),
    cfg.FloatOpt(
        'local_bandwidth',
        default=4000.0,
        min=0.001,
        mutable=True,
        help='''
Mbit/s at which a host reads and writes images on its own disk.
'''),
    cfg.FloatOpt(
        'peer_bandwidth',
        default=1000.0,
        min=0.001,
        mutable=True,
        help='''
Mbit/s at which a host receives from another host of its site. Default:
gigabit Ethernet.
'''),
    cfg.FloatOpt(
        'repository_bandwidth',
        default=20.0,
        min=0.001,
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
        'host_repository_bandwidth',
        default={},
        mutable=True,
        help='''
Mbit/s from the repository for hosts that differ from their site, as
``HOST:MBITS`` pairs separated by commas. Plans take it into account.
'''),
    cfg.DictOpt(
        'host_peer_bandwidth',
        default={},
        mutable=True,
        help='''
Mbit/s from other hosts of the site for hosts that differ from
``peer_bandwidth``, as ``HOST:MBITS`` pairs separated by commas.
'''),
    cfg.FloatOpt(
        'patch_seconds_base',
        default=0.5,
        min=0.0,
        mutable=True,
        help='''
Seconds assumed for applying a patch of which no time was measured yet, beside
the time for its target's size. Measured times replace the assumption.
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
