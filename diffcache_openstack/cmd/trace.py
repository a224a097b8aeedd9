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
import typing

from cliff import columns
from cliff import show

from diffcache_openstack.cmd import quick
from diffcache_openstack.ssdcache import simulation


class _Rows(columns.FormattableColumn):
    """A long list: its length for people."""

    def human_readable(self) -> str:
        return f'{len(self._value)} entries (shown by -f json)'


class _Volumes(columns.FormattableColumn):
    """Numbers of each volume, a line each."""

    def human_readable(self) -> str:
        return '\n'.join(f'{name}: {_words(numbers)}'
                         for name, numbers in self._value.items())


class _Numbers(columns.FormattableColumn):
    """Several numbers under names."""

    def human_readable(self) -> str:
        return _words(self._value)


def _words(numbers: dict[str, float]) -> str:
    return ', '.join(f'{name} {value:.4g}' if isinstance(value, float)
                     else f'{name} {value}'
                     for name, value in numbers.items())


def _whole(low: int, high: int) -> typing.Callable[[str], int]:
    """Return a parser of whole numbers."""
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f'{text!r} is not a whole number {low}..{high}')
        return value
    return parse


def _seconds(text: str) -> int:
    """Return microseconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    # No comparison with NaN is true.
    if not 1e-6 <= seconds <= simulation.MAX_OCCUPANCY_S:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a number of seconds'
            f' 0.000001..{simulation.MAX_OCCUPANCY_S:g}')
    return round(seconds * 1e6)


def _by_volume(text: str) -> list[tuple[str, int]]:
    """Parse VOLUME=NUMBER,..."""
    parse = _whole(0, simulation.MAX_CAPACITY)
    pairs: dict[str, int] = {}
    for part in text.split(','):
        name, equals, number = part.rpartition('=')
        if not (name and equals):
            raise argparse.ArgumentTypeError(
                f'{part!r} is not VOLUME=NUMBER')
        if name in pairs:
            raise argparse.ArgumentTypeError(f'{name!r} is given twice')
        pairs[name] = parse(number)
    return list(pairs.items())


class Simulate(quick.Quick, show.ShowOne):
    """Simulate an SSD cache with the requests of a trace.

    Plays the requests, in their order, to the same code that caches volumes
    on a host, without data: the result is the hits that the cache would have
    had.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'trace', metavar='TRACE',
            help='Requests, one per line: time_us,volume,op,offset,length with'
                 ' op r or w, and bytes; or the binary form.')
        parser.add_argument(
            '--capacity', required=True, metavar='BLOCKS',
            type=_whole(1, simulation.MAX_CAPACITY),
            help='Size of the cache, in blocks of 4 KiB.')
        parser.add_argument(
            '--mode', required=True, choices=simulation.MODES,
            help='How volumes share the cache. partitioned: each has blocks of'
                 ' its own, as many as --sizes says; unified: one eviction'
                 ' order over the blocks of all volumes.')
        parser.add_argument(
            '--sizes', type=_by_volume, metavar='VOLUME=BLOCKS,...',
            help='Size of the partition of each volume.')
        parser.add_argument(
            '--evict', choices=simulation.EVICTIONS, default='lru',
            help='Which block leaves a full partition (default: lru).')
        parser.add_argument(
            '--writes', choices=('allocate', 'ignore'), default='allocate',
            help='Whether writes are cached as reads are, or left out as if'
                 ' they were not in the trace (default: allocate).')
        parser.add_argument(
            '--admission', metavar='N', default=1,
            type=_whole(1, simulation.MAX_ADMISSION),
            help='Cache a block at the N-th reference to it within as many'
                 ' references as the partition has blocks (default: 1).')
        parser.add_argument(
            '--sequential', metavar='BYTES', default=0,
            type=_whole(0, simulation.MAX_SEQUENTIAL),
            help='Do not cache what requests read or write after this many'
                 ' bytes in sequence; 0: cache it (default: 0).')
        parser.add_argument(
            '--occupancy', metavar='SECONDS', type=_seconds,
            help='Show the blocks of each volume at this interval, in the'
                 ' time of the trace.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        args = parsed_args
        document = simulation.simulate(args.trace, simulation.Scenario(
            capacity=args.capacity, sizes=_sizes(args), evict=args.evict,
            ignore_writes=args.writes == 'ignore', admission=args.admission,
            sequential=args.sequential, occupancy_us=args.occupancy))
        shown = {'volumes': _Volumes, 'total': _Numbers, 'occupancy': _Rows,
                 'sizes': _Rows}
        return list(document), [
            shown[name](value) if name in shown else value
            for name, value in document.items()]


def _sizes(args: argparse.Namespace) -> list[tuple[str, int]] | None:
    """Return the sizes that the mode takes."""
    if args.mode == 'partitioned' and args.sizes is None:
        raise simulation.SimulationError(
            '--mode partitioned: give the size of each volume with --sizes')
    if args.mode == 'unified' and args.sizes is not None:
        raise simulation.SimulationError(
            '--mode unified: volumes have no sizes of their own; leave out'
            ' --sizes')
    return typing.cast(list[tuple[str, int]] | None, args.sizes)
