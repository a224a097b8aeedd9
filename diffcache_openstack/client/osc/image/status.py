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
"""``openstack image cache status``: a site on one screen."""

import argparse
import typing

from cliff import columns

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client import problems
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import units

_DAYS = 7
_WITHOUT_AGENTS = ('nova', 'glance')


class Requests(columns.FormattableColumn):
    """Numbers of requests; in tables as a sentence."""

    def human_readable(self) -> str:
        counts = self._value
        if not counts['requests']:
            return 'none'
        ways = ', '.join(f'{way} {number / counts["requests"]:.0%}'
                         for way, number in counts['ways'].items())
        times = '' if counts['mean_s'] is None else (
            f'; {counts["delivered"]} by agents, in {counts["mean_s"]:.3f} s'
            ' each')
        return (f'{counts["requests"]}, {counts["failed"]} failed{times}\n'
                f'{ways}')


class Saved(columns.FormattableColumn):
    """Bytes over the WAN; in tables beside those of whole images."""

    def human_readable(self) -> str:
        moved, whole = self._value['bytes'], self._value['whole_bytes']
        text = f'{units.format_size(moved)} for requests'
        if not whole:
            return text
        saved = 1 - moved / whole
        return (f'{text}, whole images {units.format_size(whole)}:'
                f' {abs(saved):.0%} {"saved" if saved >= 0 else "more"}')


class Lines(columns.FormattableColumn):
    """Sentences; in tables a line for each."""

    def human_readable(self) -> str:
        return '\n'.join(self._value) or 'none'


class ShowStatus(commands.SiteCommand, commands.ShowOne):
    """Show the state of a site on one screen, and what needs attention

    Problems are hosts and repositories that do not answer, images that a
    repository could not add, and a site that has no plan.
    """

    examples = ('edge-1',)
    arguments = (
        cli.Argument('--days', type=cli.whole(1), metavar='<n>', default=_DAYS,
                     help='Count the requests of the last N days (default:'
                          ' %(default)s)'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        site = self.site_name(parsed_args.site)
        report = self.client.site_report(site, days=parsed_args.days)
        jobs = self.client.precache_jobs(state='running')
        values = {
            'site': site, 'days': parsed_args.days,
            'hosts': formats.HostCounts(report['site']['hosts']),
            'held': formats.Held(report['held']),
            'plan': formats.Fill(report['plan']),
            'requests': Requests(_count(report['requests'])),
            'wan': Saved({name.removeprefix('wan_'): report[name] for name in
                          ('wan_bytes', 'whole_bytes')}),
            'running_jobs': sum(1 for _job in jobs),
            'problems': Lines([str(problem) for problem in problems.of_site(
                self.client, site, has_plan=report['plan'] is not None)])}
        return tuple(values), tuple(values.values())


def _count(ways: list[dict[str, typing.Any]]) -> dict[str, typing.Any]:
    """Sum the ways of requests.

    The mean is of what agents delivered. The seconds of other ways are those
    of Nova's whole build of a server, or of a download of Glance.
    """
    agents = [way for way in ways if way['way'] not in _WITHOUT_AGENTS]
    delivered = sum(way['requests'] for way in agents)
    total = sum(way['requests'] * (way['mean_s'] or 0.0) for way in agents)
    return {'requests': sum(way['requests'] for way in ways),
            'failed': sum(way['failed'] for way in ways),
            'delivered': delivered,
            'mean_s': total / delivered if delivered else None,
            'ways': {way['way']: way['requests'] for way in ways}}
