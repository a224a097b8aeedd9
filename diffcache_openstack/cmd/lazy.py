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
"""``diffcache lazy``: boots from an image that is still arriving."""

import argparse
import dataclasses
import typing

from cliff import columns
from cliff import show

from diffcache_openstack.cmd import quick
from diffcache_openstack.prefetch import replay
from diffcache_openstack.prefetch import scenario as scenarios


class _Rows(columns.FormattableColumn):
    """A long list: its length for people."""

    def human_readable(self) -> str:
        return f'{len(self._value)} entries (shown by -f json)'


class _Parts(columns.FormattableColumn):
    """Several numbers under names."""

    def human_readable(self) -> str:
        return '\n'.join(f'{name} {value:g}'
                         for name, value in self._value.items())


def _count(least: int) -> typing.Callable[[str], int]:
    """Return a parser of whole numbers of at least ``least``."""
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= scenarios.MAX_CHUNKS:
            raise argparse.ArgumentTypeError(
                f'{text!r} is not a whole number {least}..'
                f'{scenarios.MAX_CHUNKS}')
        return value
    return parse


def _column(value: typing.Any) -> typing.Any:
    if isinstance(value, list):
        return _Rows(value)
    return _Parts(value) if isinstance(value, dict) else value


class Replay(quick.Quick, show.ShowOne):
    """Simulate boots of many instances that share the links of a site.

    Runs in virtual time with the prefetching policy of the services: needs no
    network, and the same scenario gives the same result.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('scenario', metavar='SCENARIO.json',
                            help='Image, links and reads of each instance.')
        parser.add_argument(
            '--mode', required=True, choices=replay.MODES,
            help='How chunks reach the instances. local: all are there;'
                 ' on-demand: each when it is read; first: prefetched by'
                 ' hints, with nothing known before; later: the same, with'
                 ' the profile of the scenario or of a first run; broadcast:'
                 ' the whole image before the boot; oracle: requested at the'
                 ' start, in the order in which they will be read.')
        parser.add_argument(
            '--events', action='store_true',
            help='Show every access to a chunk, and when chunks were'
                 ' requested.')
        parser.add_argument(
            '--in-flight', type=_count(1), metavar='N',
            help='Let each instance prefetch at most N chunks at once'
                 ' (default: 3).')
        parser.add_argument(
            '--read-ahead', type=_count(0), metavar='N',
            help='Read at most N chunks ahead where an instance reads in'
                 ' sequence; 0: none (default: 2).')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        args = parsed_args
        scenario = dataclasses.replace(
            scenarios.load(args.scenario), in_flight=args.in_flight,
            read_ahead=args.read_ahead)
        document = replay.replay(scenario, args.mode, args.events)
        return list(document), [_column(v) for v in document.values()]
