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
"""``diffcache-manage simulate``: a history with and without this suite."""

import argparse
import collections.abc
import itertools
import pathlib
import statistics
import typing

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.placement import objectives
from diffcache_openstack.planning import histories
from diffcache_openstack.planning import replays

_COLUMNS = ('Site', 'Way', 'Servers', 'Needs', 'WAN Bytes', 'Mean Wait S',
            'P95 Wait S', 'Held Bytes')
_DEFAULT = replays.Assumptions()
_ALL = 'all sites'


class Simulate(base.Lister):
    """Simulate what a history of servers would cost with this suite

    The history is a file of "openstack image cache history export". Each site
    is replayed four ways: as plain Nova ("nova"), with Glance's cache at the
    site ("glance-cache"), and with this suite, without patches ("templates")
    and with them ("patches"). Needs are the servers whose host did not have
    the image; the others wait for nothing, whatever the way. What the file
    does not say of a site is taken from the options. No service is needed.
    """

    examples = ('history.json --wan-rate 50Mbps --capacity 60GB',
                'history.json --patch-share 0.05 -f json')
    arguments = (
        cli.Argument('history', metavar='FILE', type=pathlib.Path,
                     help='History of servers, images and sites.'),
        cli.Argument('--wan-rate', dest='wan_mbps', type=cli.bandwidth,
                     default=_DEFAULT.wan_mbps, metavar='RATE',
                     help='Link of a site to Glance (default: 20Mbps).'),
        cli.Argument('--lan-rate', dest='lan_mbps', type=cli.bandwidth,
                     default=_DEFAULT.lan_mbps, metavar='RATE',
                     help='Link between hosts of a site (default:'
                          ' 1000Mbps).'),
        cli.Argument('--disk-rate', dest='disk_mbps', type=cli.bandwidth,
                     default=_DEFAULT.disk_mbps, metavar='RATE',
                     help='How fast hosts read and write images (default:'
                          ' 4000Mbps).'),
        cli.Argument('--capacity', dest='capacity_bytes', type=cli.size(),
                     default=_DEFAULT.capacity_bytes, metavar='SIZE',
                     help='Cache of each host (default: 100GB).'),
        cli.Argument('--patch-share', type=cli.real(0, 1), metavar='S',
                     default=_DEFAULT.patch_share,
                     help='Size of a patch between images of a family, as a'
                          ' share of the image (default: %(default)s);'
                          ' "diffcache patch matrix" estimates it for yours.'),
        cli.Argument('--hops', type=cli.whole(1),
                     default=_DEFAULT.hops, metavar='N',
                     help='Patches that may be applied one after another'
                          ' (default: %(default)s).'),
        cli.Argument('--objective', choices=tuple(objectives.OBJECTIVES),
                     default=_DEFAULT.objective,
                     help='What plans minimize: seconds of waiting, or bytes'
                          ' over the WAN (default: %(default)s).'),
        cli.Argument('--time-limit', type=cli.seconds(),
                     default=_DEFAULT.time_limit, metavar='SECONDS',
                     help='Time for each plan (default: %(default)s).'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        history = histories.load(parsed_args.history)
        given = replays.Assumptions(**{
            name: getattr(parsed_args, name)
            for name in vars(_DEFAULT)})
        work = list(itertools.product(history.sites, replays.WAYS))
        found: dict[str, list[replays.Outcome]] = {
            way: [] for way in replays.WAYS}
        rows = []
        with progress.of(self, 'simulate', progress.Steps) as bar:
            for done, (site, way) in enumerate(work):
                bar(done, len(work))
                outcome = replays.replay(history, site, way, given)
                found[way].append(outcome)
                rows.append(_row(site.name, way, [outcome]))
        return _COLUMNS, rows + [_row(_ALL, *each) for each in found.items()]


def _row(site: str, way: str,
         outcomes: collections.abc.Sequence[replays.Outcome]
         ) -> tuple[typing.Any, ...]:
    """Return what is printed of one site, or of several."""
    waits = sorted(itertools.chain.from_iterable(
        each.waits for each in outcomes))
    mean = statistics.fmean(waits) if waits else None
    late = waits[int(0.95 * (len(waits) - 1))] if waits else None
    return (site, way, sum(each.servers for each in outcomes), len(waits),
            cells.Size(sum(each.wan_bytes for each in outcomes)),
            cells.Rounded(mean), cells.Rounded(late),
            cells.Size(max(each.held for each in outcomes)))
