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
"""``openstack image precache``."""

import argparse
import datetime
import sys
import typing

from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc import waiting
from diffcache_openstack.common import units

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Name', 'name', None), ('State', 'state', None),
    ('Ready', 'progress', formats.Progress),
    ('Done', 'progress', formats.BytesDone), ('Priority', 'priority', None),
    ('Pinned', 'is_pinned', None), ('Expires At', 'expires_at', formats.Time)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Boot Set', 'boot_set', None),
    ('Images', 'images', formats.Names),
    ('Families', 'families', formats.Names),
    ('Hosts', 'hosts', formats.Names),
    ('Aggregates', 'aggregates', formats.Names),
    ('Availability Zones', 'availability_zones', formats.Names),
    ('Rate', 'rate', formats.Size), ('Window', 'window', None),
    ('Message', 'message', None), ('Generation', 'generation', None),
    ('Created At', 'created_at', formats.Time)]
_TARGETS: list[formats.Column] = [
    ('Host', 'host', None), ('Image', 'template_id', None),
    ('State', 'state', None), ('Way', 'way', None),
    ('Size', 'bytes_total', formats.Size),
    ('Done', 'bytes_done', formats.Size), ('Tries', 'attempts', None),
    ('Next Try', 'retry_at', formats.Time), ('Message', 'message', None)]
_TARGET_FIELDS = ('host', 'template_id', 'state', 'way', 'bytes_done',
                  'bytes_total', 'attempts', 'retry_at', 'message')
_PLACES = ('hosts', 'aggregates', 'availability_zones')
_TIMEOUT = 3600.0
_LONGEST_DAYS = 36500


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add the options to wait for a job."""
    parser.add_argument('--wait', action='store_true',
                        help='Wait until every target is ready')
    parser.add_argument('--timeout', type=commands.seconds, default=_TIMEOUT,
                        metavar='<seconds>',
                        help='Wait at most so long (default: 3600)')


def add_lifetime(parser: argparse.ArgumentParser,
                 default: str | None = None) -> None:
    """Add the option for the time until a job expires."""
    parser.add_argument('--lifetime', type=_lifetime, metavar='<duration>',
                        default=default,
                        help='Time until the job expires, such as 12h or 7d'
                             + (f' (default: {default})' if default else ''))


def end_of(lifetime: datetime.timedelta) -> str:
    """Return when a job expires that is created now, for the service."""
    ends = datetime.datetime.now(datetime.UTC) + lifetime
    return ends.strftime('%Y-%m-%dT%H:%M:%SZ')


def wait(client: typing.Any, job: typing.Any, timeout: float) -> typing.Any:
    """Wait for a job, with a progress bar on a terminal.

    :raises CommandError: some of its targets failed
    """
    with waiting.Bar('Precaching', sys.stderr) as bar:
        job = client.wait_for_precache_job(job.id, timeout, progress=bar.job)
    counts = job.progress
    if job.state == 'running' and not counts['targets']:
        raise exceptions.CommandError(
            f'Precache job {job.id} has nothing to do yet: {job.message}'
            f' To give it up:  "openstack image precache cancel {job.id}".')
    if job.state == 'running':
        raise exceptions.CommandError(
            f'{counts["failed"]} of {counts["targets"]} targets'
            f' of precache job {job.id} failed; see "openstack image'
            f' precache target list {job.id}".')
    return job


class ShowOneJob(commands.ShowOne):
    """A command that prints the fields of a job."""

    def shown(self, job: typing.Any) -> tuple:
        """Return the fields of a job and its progress at each host."""
        targets = [{name: getattr(target, name) for name in _TARGET_FIELDS}
                   for target in self.client.precache_targets(job.id)]
        headings, values = formats.fields(_SHOWN, job)
        return ((*headings, 'targets'),
                (*values, formats.Targets(targets)))


class CreateJob(ShowOneJob):
    """Cache images on hosts before they are requested"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('images', metavar='<image>', nargs='*',
                            help='Image (name or ID)')
        parser.add_argument('--family', dest='families', action='append',
                            default=[], metavar='<image>',
                            help='Also all images whose family is this one'
                                 ' (name or ID; repeat for more)')
        parser.add_argument('--host', dest='hosts', action='append',
                            default=[], metavar='<host>',
                            help='Cache on this host (repeat for more)')
        parser.add_argument('--aggregate', dest='aggregates',
                            action='append', default=[],
                            metavar='<aggregate>',
                            help='Cache on the hosts of this aggregate (repeat'
                                 ' for more)')
        parser.add_argument('--availability-zone', action='append',
                            dest='availability_zones', default=[],
                            metavar='<zone>',
                            help='Cache on the hosts of this availability zone'
                                 ' (repeat for more)')
        parser.add_argument('--boot-set', action='store_true',
                            help='Cache what boots read of the images, on'
                                 ' hosts that need not have the images')
        _add_changeable(parser)
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service; wait if requested."""
        _check_targets(parsed_args)
        values = _changeable(parsed_args)
        # Services of earlier releases refuse it.
        if parsed_args.boot_set:
            values['boot_set'] = True
        for kind in ('images', 'families'):
            values[kind] = list(dict.fromkeys(
                map(self.image_id, getattr(parsed_args, kind))))
        for kind in _PLACES:
            values[kind] = list(dict.fromkeys(getattr(parsed_args, kind)))
        job = self.client.create_precache_job(**_renamed(values))
        if parsed_args.wait:
            job = wait(self.client, job, parsed_args.timeout)
        return self.shown(job)


class ListJobs(commands.Lister):
    """List precache jobs"""

    wide = frozenset({'Done', 'Priority', 'Pinned', 'Expires At'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--state', choices=('running', 'ready', 'cancelled', 'expired'),
            help='List only jobs in this state')
        parser.add_argument('--project', dest='project_id',
                            metavar='<project>',
                            help='List only jobs of this project (name or ID)')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        if parsed_args.project_id:
            parsed_args.project_id = self.project_id(parsed_args.project_id)
        return formats.table(_LISTED, self.client.precache_jobs(
            **commands.query(parsed_args, 'state', 'project_id')))


class JobCommand(commands.Command):
    """A command about one job."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('job', metavar='<job>', help='ID of the job')
        return parser


class ShowJob(JobCommand, ShowOneJob):
    """Show a precache job"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return self.shown(self.client.get_precache_job(parsed_args.job))


class SetJob(JobCommand):
    """Change a precache job"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        _add_changeable(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the service."""
        values = _changeable(parsed_args)
        if not values:
            raise exceptions.CommandError(
                'Nothing to change; see --help for the options.')
        self.client.update_precache_job(parsed_args.job, **values)


class CancelJob(JobCommand):
    """Cancel a precache job"""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the service."""
        self.client.cancel_precache_job(parsed_args.job)


class RetryJob(JobCommand, ShowOneJob):
    """Retry the failed targets of a precache job now"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service; wait if requested."""
        self.client.retry_precache_job(parsed_args.job)
        job = self.client.get_precache_job(parsed_args.job)
        if parsed_args.wait:
            job = wait(self.client, job, parsed_args.timeout)
        return self.shown(job)


class ListTargets(JobCommand, commands.Lister):
    """List the progress of a precache job by host and image"""

    wide = frozenset({'Way', 'Tries', 'Next Try', 'Message'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--state', choices=('waiting', 'fetching', 'ready', 'failed',
                                'cancelled'),
            help='List only targets in this state')
        commands.add_filters(parser, 'targets', host='on this host')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.table(_TARGETS, self.client.precache_targets(
            parsed_args.job, **commands.query(parsed_args, 'state', 'host')))


def _check_targets(parsed_args):
    if not parsed_args.images and not parsed_args.families:
        raise exceptions.CommandError(
            'Nothing to cache; name an image or a --family.')
    if not any(getattr(parsed_args, name) for name in _PLACES):
        raise exceptions.CommandError(
            'No host to cache on; give --host, --aggregate or'
            ' --availability-zone.')


def _add_changeable(parser):
    parser.add_argument('--name', metavar='<name>', help='Human-readable name')
    parser.add_argument('--priority', type=int, metavar='<0-100>',
                        help='Priority over other objects of the plan'
                             ' (default: 50)')
    parser.add_argument('--rate', type=_size, metavar='<size>',
                        help='Most bytes that each host fetches per second,'
                             ' such as 2MB')
    parser.add_argument('--window', metavar='<window>',
                        help='Times when hosts may fetch, such as "mon-fri'
                             ' 22:00-06:00"')
    add_lifetime(parser)
    pinned = parser.add_mutually_exclusive_group()
    pinned.add_argument('--pinned', action='store_true', default=None,
                        help='Require the whole image on each host')
    pinned.add_argument('--not-pinned', dest='pinned', action='store_false',
                        help='Accept a base and a patch at the site')


def _changeable(parsed_args):
    values = {name: getattr(parsed_args, name) for name in
              ('name', 'priority', 'rate', 'window', 'pinned')}
    if parsed_args.lifetime is not None:
        values['expires_at'] = end_of(parsed_args.lifetime)
    return {name: value for name, value in values.items()
            if value is not None}


def _renamed(values):
    """Return values by the names that the SDK uses."""
    if 'pinned' in values:
        values['is_pinned'] = values.pop('pinned')
    return values


def _size(text):
    try:
        return units.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _lifetime(text):
    """Parse a number with one of s, m, h, d, w, up to a century."""
    seconds = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 604800}
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in seconds:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a duration; write 90m, 12h or 7d')
    total = int(number) * seconds[unit]
    if not 0 < total <= _LONGEST_DAYS * seconds['d']:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not between 1s and {_LONGEST_DAYS}d')
    return datetime.timedelta(seconds=total)
