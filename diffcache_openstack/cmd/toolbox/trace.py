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
"""``diffcache trace``: what traces of volumes' requests say of SSD caches."""

import argparse
import re
import typing

from cliff import columns

from diffcache_openstack.blocks import operands
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import curves
from diffcache_openstack.ssdcache import partition
from diffcache_openstack.ssdcache import simulation
from diffcache_openstack.ssdcache.sizing import base

_TRACE_HELP = (
    'Requests, one per line: time_us,volume,op,offset,length with op r or w,'
    ' and bytes; or the binary form.')


def _named(parse: typing.Callable[[str], typing.Any]
           ) -> typing.Callable[[str], dict[str, typing.Any]]:
    """Return a parser of VOLUME=VALUE,..."""
    def parse_all(text: str) -> dict[str, typing.Any]:
        found: dict[str, typing.Any] = {}
        for part in text.split(','):
            name, equals, value = part.rpartition('=')
            if not (name and equals):
                raise argparse.ArgumentTypeError(
                    f'{part!r} is not VOLUME=VALUE')
            if name in found:
                raise argparse.ArgumentTypeError(f'{name!r} is given twice')
            try:
                found[name] = parse(value)
            except argparse.ArgumentTypeError as error:
                raise argparse.ArgumentTypeError(f'{name}: {error}')
        return found
    return parse_all


_BLOCKS_OF = _named(cli.whole(0, base.MAX_CAPACITY))


def _seconds(text: str) -> int:
    """Return microseconds."""
    parse = cli.seconds(1e-6, simulation.MAX_OCCUPANCY_S)
    return round(parse(text) * 1e6)


cli.measured('seconds', _seconds)


class _Rounded(columns.FormattableColumn):
    """A number that was measured."""

    def human_readable(self) -> str:
        return f'{self._value:,.3g}' if self._value < 1000 \
            else f'{self._value:,.0f}'


class _Curves(columns.FormattableColumn):
    """The curve of each volume: a line, and a table of hit ratios."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{name}: {curve["references"]} references,'
            f' {curve["distinct"]} blocks\n{_table(curve)}'
            for name, curve in self._value.items())


# Rows of a curve that a table shows.
_SHOWN = 10


def _table(curve: dict[str, typing.Any]) -> str:
    hits, every = curve['hits'], max(1, len(curve['hits']) // _SHOWN)
    rows = hits[every - 1::every]
    if hits and rows[-1] != hits[-1]:
        rows.append(hits[-1])
    return '\n'.join(f'  {size:>12} blocks {found:>12} hits'
                     f' {found / curve["references"]:7.1%}'
                     for size, found in rows if curve['references'])


def _sizes_of(text: str) -> list[int]:
    """Parse SIZE,..."""
    parse = cli.whole(0, curves.MAX_SIZE)
    sizes = [parse(part) for part in text.split(',')]
    if len(sizes) > curves.MAX_SIZES:
        raise argparse.ArgumentTypeError(
            f'more than {curves.MAX_SIZES} sizes')
    return sizes


class Curve(quick.ShowOne):
    """Show how many requests of a trace caches of any size would hit.

    The hits are those of an LRU cache that the volume has for itself. They
    follow from reuse distances: a reference hits if fewer blocks than the
    cache has were referenced since the one before to the same block.
    """

    examples = ('requests.csv --method shards --rate 0.01',)
    cells = {'volumes': _Curves, 'seconds': _Rounded,
             'references_per_second': _Rounded}
    arguments = (
        cli.Argument('trace', metavar='TRACE', help=_TRACE_HELP),
        cli.Argument('--method', choices=curves.METHODS, default=curves.EXACT,
                     help='exact: distances of all references; shards:'
                          ' distances of references to a sample of the blocks,'
                          ' which is faster and takes little memory (default:'
                          ' exact).'),
        cli.OneOf(cli.Argument('--rate', metavar='SHARE',
                               type=cli.real(1e-6, 1),
                               help='Part of the blocks to sample with'
                                    ' --method shards.'),
                  cli.Argument('--samples', metavar='N',
                               type=cli.whole(1, curves.MAX_SAMPLES),
                               help='Most blocks of a volume to sample with'
                                    ' --method shards (default:'
                                    f' {curves.SAMPLES}).')),
        cli.Argument('--block', metavar='SIZE',
                     type=cli.size(1, curves.MAX_BLOCK),
                     default=curves.BLOCK,
                     help=f'Size of a block (default: {curves.BLOCK}).'),
        cli.Argument('--sizes', type=_sizes_of, metavar='BLOCKS,...',
                     help='Cache sizes to show hits of (default: those at'
                          ' which the hits change, 100 of them at most).'),
        cli.Argument('--writes', choices=('allocate', 'ignore'),
                     default='allocate',
                     help='Whether writes count as references (allocate) or'
                          ' are ignored (default: allocate).'))

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        with progress.of(self, 'curve') as bar:
            document = curves.analyse(args.trace, _analysis(args),
                                      args.sizes, bar)
        if not document['references']:
            raise curves.TraceError(f'{args.trace} has no requests')
        for name, volume in document['volumes'].items():
            count = round(volume['distinct'] * volume['sampled'])
            if volume['sampled'] < 1 and count < curves.FEWEST_SAMPLES:
                self.app.LOG.warning(
                    'The hits of volume %s are those of a sample of about %d'
                    ' blocks, which says little; sample more with --rate or'
                    ' --samples, or choose --method exact', name, count)
        return document


def _analysis(args: argparse.Namespace) -> curves.Analysis:
    """Return the analysis that the options select."""
    samples = args.samples
    if args.method == curves.EXACT:
        if args.rate or samples:
            raise curves.TraceError(
                '--rate and --samples are of --method shards; choose it, or'
                ' leave them out')
    elif args.rate is None and samples is None:
        samples = curves.SAMPLES
    return curves.Analysis(
        block=args.block, writes=args.writes == 'allocate', rate=args.rate,
        samples=samples)


class Pack(quick.Command):
    """Write a trace in its binary form, which is faster to read."""

    examples = ('requests.csv requests.trace',)
    arguments = (
        cli.Argument('trace', metavar='TRACE', help=_TRACE_HELP),
        cli.Argument('packed', metavar='PACKED', help='File to write.'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        operands.check_output(parsed_args.packed, trace=parsed_args.trace)
        with progress.of(self, 'pack') as bar:
            count = curves.pack(parsed_args.trace, parsed_args.packed, bar)
        self.app.stdout.write(f'{count} requests in {parsed_args.packed}\n')


# Named here, so that help texts do not load all of them.
_POLICIES = ('latency', 'wss', 'priority', 'fairness', 'static', 'pooled')
# The policy latency, with targets.
_SLA = 'sla'
# Weights, and microseconds.
_POSITIVE = cli.positive(1e12)


def _target(text: str) -> choices.Target:
    """Parse hit=RATIO or latency=MICROSECONDS; a colon will do."""
    try:
        return choices.parse_target(text)
    except exceptions.InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error))


def _targets(text: str) -> dict[str, choices.Target]:
    """Return what VOLUME=hit=RATIO,... says, by volume."""
    return _named(_target)(re.sub('=(hit|latency)=', r'=\1:', text))


class Partition(quick.ShowOne):
    """Divide an SSD cache among the volumes of a trace.

    A policy decides by the curves of the volumes (see "trace curve"), and
    explains its decisions.
    """

    examples = ('requests.trace --capacity 1000000 --policy latency',)
    cells = {'infeasible': cells.Lines, 'explain': cells.Lines,
             'objective': _Rounded}
    arguments = (
        cli.Argument('trace', metavar='TRACE', help=_TRACE_HELP),
        cli.Argument('--capacity', required=True, metavar='N',
                     type=cli.whole(0, base.MAX_CAPACITY),
                     help='Size of the cache, in blocks of --block.'),
        cli.Argument('--policy', required=True, choices=(*_POLICIES, _SLA),
                     help='latency: lowest mean latency of all references;'
                          ' wss: in proportion to the blocks that each volume'
                          ' uses; priority: the volume with the highest weight'
                          ' first; fairness: highest minimum hit ratio; sla:'
                          ' the targets of --sla, then latency; static: in'
                          ' proportion to weights; pooled: --min is reserved,'
                          ' the rest is shared.'),
        cli.Argument('--step', type=cli.whole(1, base.MAX_CAPACITY), default=1,
                     metavar='BLOCKS',
                     help='Make sizes multiples of this many blocks (default:'
                          ' 1).'),
        cli.Argument('--weights', type=_named(_POSITIVE), default={},
                     metavar='VOLUME=N,...',
                     help='Weights, shares or priorities of volumes (default:'
                          ' 1).'),
        cli.Argument('--min', type=_BLOCKS_OF, default={},
                     metavar='VOLUME=BLOCKS,...',
                     help='Minimum sizes of volumes (default: 0).'),
        cli.Argument('--max', type=_BLOCKS_OF, default={},
                     metavar='VOLUME=BLOCKS,...',
                     help='Maximum sizes of volumes (default: the capacity).'),
        cli.Argument('--sla', type=_targets, default={},
                     metavar='VOLUME=TARGET,...',
                     help='Targets for --policy sla: hit=RATIO or'
                          ' latency=MICROSECONDS, the mean of all'
                          ' references.'),
        cli.Argument('--hit-us', type=_POSITIVE, default=100.0,
                     metavar='MICROSECONDS',
                     help='Latency of a hit (default: 100).'),
        cli.Argument('--miss-us', type=_POSITIVE, default=5000.0,
                     metavar='MICROSECONDS',
                     help='Latency of a miss (default: 5000).'),
        cli.Argument('--block', metavar='SIZE',
                     type=cli.size(1, curves.MAX_BLOCK), default=curves.BLOCK,
                     help=f'Size of a block (default: {curves.BLOCK}).'),
        cli.Argument('--writes', choices=('allocate', 'ignore'),
                     default='allocate',
                     help='Whether writes count as references (allocate) or'
                          ' are ignored (default: allocate).'))

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        if args.sla and args.policy != _SLA:
            raise base.SizingError(
                f'--sla: the policy {args.policy} has no targets; choose'
                f' --policy {_SLA}')
        with progress.of(self, 'partition') as bar:
            found = curves.read(args.trace, curves.Analysis(
                block=args.block, writes=args.writes == 'allocate'), bar)
        wishes = partition.Wishes(args.weights, args.min, args.max, args.sla)
        policy = 'latency' if args.policy == _SLA else args.policy
        return partition.partition(
            wishes.volumes(found), policy,
            base.Cache(args.capacity, args.step, args.hit_us, args.miss_us)
        ) | {'policy': args.policy}


# As in the paper.
_EPOCH_US = 120_000_000


class Simulate(quick.ShowOne):
    """Simulate an SSD cache with the requests of a trace.

    Plays the requests, in their order, to the same code that caches volumes
    on a host, without data: the result is the hits that the cache would have
    had.
    """

    examples = ('requests.trace --capacity 100GiB --mode dynamic --epoch 600',)
    arguments = (
        cli.Argument('trace', metavar='TRACE', help=_TRACE_HELP),
        cli.Argument('--capacity', required=True, metavar='BLOCKS',
                     type=cli.blocks(1, simulation.MAX_CAPACITY),
                     help='Size of the cache, such as 100GiB, or a number of'
                          ' blocks of 4 KiB.'),
        cli.Argument('--mode', required=True, choices=simulation.MODES,
                     help='How volumes share the cache. partitioned: each has'
                          ' blocks of its own, as many as --sizes says;'
                          ' unified: one eviction order over the blocks of all'
                          ' volumes; dynamic: --policy sizes the partitions'
                          ' after each epoch, by what was referenced in it.'),
        cli.Argument('--sizes', metavar='VOLUME=BLOCKS,...',
                     type=_named(cli.blocks(0, simulation.MAX_CAPACITY)),
                     help='Size of the partition of each volume.'),
        cli.Argument('--policy', choices=_POLICIES,
                     help='How to size partitions with --mode dynamic'
                          ' (default: latency; see "trace partition").'),
        cli.Argument('--epoch', metavar='SECONDS', type=_seconds,
                     help='Length of an epoch with --mode dynamic, in the time'
                          ' of the trace (default: 120).'),
        cli.Argument('--shortest-epoch', metavar='SECONDS', type=_seconds,
                     help='With --mode dynamic, end an epoch early, after at'
                          ' least this many seconds, if hits no longer match'
                          ' the prediction (default: never).'),
        cli.Argument('--evict', choices=simulation.EVICTIONS, default='lru',
                     help='Which block leaves a full partition (default:'
                          ' lru).'),
        cli.Argument('--writes', choices=('allocate', 'ignore'),
                     default='allocate',
                     help='Whether writes are cached (allocate) or ignored'
                          ' (default: allocate).'),
        cli.Argument('--admission', metavar='N', default=1,
                     type=cli.whole(1, choices.MAX_ADMISSION),
                     help='Cache a block at the N-th reference to it within as'
                          ' many references as the partition has blocks'
                          ' (default: 1).'),
        cli.Argument('--sequential', metavar='SIZE', default=0,
                     type=cli.size(0, simulation.MAX_SEQUENTIAL),
                     help='Stop caching a sequential stream after this many'
                          ' bytes; 0: cache all (default: 0).'),
        cli.Argument('--occupancy', metavar='SECONDS', type=_seconds,
                     help='Show the blocks of each volume at this interval, in'
                          ' the time of the trace.'))

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        return simulation.simulate(args.trace, simulation.Scenario(
            capacity=args.capacity, sizes=_sizes(args), evict=args.evict,
            ignore_writes=args.writes == 'ignore', admission=args.admission,
            sequential=args.sequential, occupancy_us=args.occupancy,
            **_epochs(args)))


def _epochs(args: argparse.Namespace) -> dict[str, typing.Any]:
    """Return what dynamic partitions take."""
    if args.mode == 'dynamic':
        return {'policy': args.policy or 'latency',
                'epoch_us': args.epoch or _EPOCH_US,
                'shortest_us': args.shortest_epoch}
    if args.policy or args.epoch or args.shortest_epoch:
        raise simulation.SimulationError(
            f'--mode {args.mode}: sizes do not change; leave out --policy,'
            f' --epoch and --shortest-epoch')
    return {}


def _sizes(args: argparse.Namespace) -> list[tuple[str, int]] | None:
    """Return the sizes that the mode takes."""
    if args.mode == 'partitioned' and args.sizes is None:
        raise simulation.SimulationError(
            '--mode partitioned: give the size of each volume with --sizes')
    if args.mode == 'unified' and args.sizes is not None:
        raise simulation.SimulationError(
            '--mode unified: volumes have no sizes of their own; leave out'
            ' --sizes')
    if args.mode == 'dynamic' and args.sizes is not None:
        raise simulation.SimulationError(
            '--mode dynamic: --policy decides the sizes; leave out --sizes')
    return None if args.sizes is None else list(args.sizes.items())
