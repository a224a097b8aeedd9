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
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Name', 'name', None), ('State', 'state', None),
    ('Ready', 'progress', formats.Progress),
    ('Done', 'progress', formats.BytesDone), ('Priority', 'priority', None),
    ('Pinned', 'is_pinned', None), ('Expires At', 'expires_at', cells.Time)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Boot Set', 'boot_set', None),
    ('Images', 'images', cells.Names),
    ('Families', 'families', cells.Names),
    ('Hosts', 'hosts', cells.Names),
    ('Aggregates', 'aggregates', cells.Names),
    ('Availability Zones', 'availability_zones', cells.Names),
    ('Rate', 'rate', cells.Size), ('Window', 'window', None),
    ('Message', 'message', None), ('Generation', 'generation', None),
    ('Created At', 'created_at', cells.Time)]
_TARGETS: list[formats.Column] = [
    ('Host', 'host', None), ('Image', 'image_id', None),
    ('State', 'state', None), ('Way', 'way', None),
    ('Size', 'bytes_total', cells.Size),
    ('Done', 'bytes_done', cells.Size), ('Tries', 'attempts', None),
    ('Next Try', 'retry_at', cells.Time), ('Message', 'message', None)]
_TARGET_FIELDS = ('host', 'image_id', 'state', 'way', 'bytes_done',
                  'bytes_total', 'attempts', 'retry_at', 'message')
_PLACES = ('hosts', 'aggregates', 'availability_zones')
_LONGEST_DAYS = 36500


def _lifetime(text):
    """Parse a duration of up to a century."""
    total = cli.duration(text)
    if not 0 < total <= _LONGEST_DAYS * 86400:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not between 1s and {_LONGEST_DAYS}d')
    return datetime.timedelta(seconds=total)


WAIT = commands.wait('every target is ready')


def lifetime(default: str | None = None) -> cli.Argument:
    """Return the option for the time until a job expires."""
    return cli.Argument('--lifetime', type=_lifetime, metavar='<duration>',
                        default=default,
                        help='Time until the job expires, such as 12h or 7d'
                             + (f' (default: {default})' if default else ''))


_CHANGEABLE = (
    cli.Argument('--name', metavar='<name>', help='Human-readable name'),
    cli.Argument('--priority', type=cli.whole(0, 100), metavar='<0-100>',
                 help='Priority over other objects of the plan (default: 50)'),
    cli.Argument('--rate', type=cli.rate(), metavar='<rate>',
                 help='Limit what each host fetches, such as 2MBps (a bare'
                      ' number: bytes per second)'),
    cli.Argument('--window', metavar='<window>',
                 help='Times when hosts may fetch, such as "mon-fri'
                      ' 22:00-06:00"'),
    lifetime(),
    cli.pair('pinned', 'unpinned',
             ('Require the whole image on each host',
              'Accept a base and a patch at the site')))


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

    examples = (
        'debian-12 --host edge-1-host-2 --wait',
        '--family debian-12 --aggregate edge-1 --rate 20MBps --name '
        'monday')
    arguments = (
        cli.Argument('images', metavar='<image>', nargs='*',
                     help='Image (name or ID)'),
        cli.Argument('--family', dest='families', action='append', default=[],
                     metavar='<image>',
                     help='Also cache all images of the family of this image'
                          ' (name or ID; repeat for more)'),
        cli.Argument('--host', dest='hosts', action='append', default=[],
                     metavar='<host>',
                     help='Cache on this host (repeat for more)'),
        cli.Argument('--aggregate', dest='aggregates', action='append',
                     default=[], metavar='<aggregate>',
                     help='Cache on the hosts of this aggregate (repeat for'
                          ' more)'),
        cli.Argument('--availability-zone', action='append',
                     dest='availability_zones', default=[], metavar='<zone>',
                     help='Cache on the hosts of this availability zone'
                          ' (repeat for more)'),
        cli.Argument('--boot-set', action='store_true',
                     help='Cache only what boots read of the images, not the'
                          ' whole images'),
        *_CHANGEABLE,
        *WAIT)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        _check_targets(parsed_args)
        values = _changeable(parsed_args)
        values['boot_set'] = parsed_args.boot_set
        if 'pinned' in values:
            # What the SDK calls it.
            values['is_pinned'] = values.pop('pinned')
        for kind in ('images', 'families'):
            values[kind] = list(dict.fromkeys(
                map(self.image_id, getattr(parsed_args, kind))))
        for kind in _PLACES:
            values[kind] = list(dict.fromkeys(getattr(parsed_args, kind)))
        job = self.client.create_precache_job(**values)
        if parsed_args.wait:
            job = wait(self.client, job, parsed_args.timeout)
        return self.shown(job)


class ListJobs(commands.Lister):
    """List precache jobs"""

    examples = ('--state running',)
    wide = frozenset({'Done', 'Priority', 'Pinned', 'Expires At'})

    arguments = (
        commands.state('jobs', 'running', 'ready', 'cancelled', 'expired'),
        commands.project('jobs'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        if parsed_args.project_id:
            parsed_args.project_id = self.project_id(parsed_args.project_id)
        return formats.table(_LISTED, self.client.precache_jobs(
            **commands.query(parsed_args, 'state', 'project_id')))


class JobCommand(commands.Command):
    """A command about one job."""

    arguments: cli.Arguments = (cli.Argument('job', metavar='<job>',
                                             help='ID of the job'),)


class ShowJob(JobCommand, ShowOneJob):
    """Show a precache job"""

    examples = ('monday',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return self.shown(self.client.get_precache_job(parsed_args.job))


class SetJob(JobCommand):
    """Change a precache job"""

    examples = ('monday --rate 5MBps --priority 80',)
    arguments = _CHANGEABLE

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        values = _changeable(parsed_args)
        if not values:
            raise exceptions.CommandError(
                'Nothing to change; see --help for the options.')
        self.client.update_precache_job(parsed_args.job, **values)


class CancelJob(JobCommand):
    """Cancel a precache job"""

    examples = ('monday',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.cancel_precache_job(parsed_args.job)


class RetryJob(JobCommand, ShowOneJob):
    """Retry the failed targets of a precache job now"""

    examples = ('monday --wait',)
    arguments = WAIT

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        self.client.retry_precache_job(parsed_args.job)
        job = self.client.get_precache_job(parsed_args.job)
        if parsed_args.wait:
            job = wait(self.client, job, parsed_args.timeout)
        return self.shown(job)


class ListTargets(JobCommand, commands.Lister):
    """List the progress of a precache job by host and image"""

    examples = ('monday --state failed',)
    wide = frozenset({'Way', 'Tries', 'Next Try', 'Message'})

    arguments = (
        commands.state('targets', 'waiting', 'fetching', 'ready', 'failed',
                       'cancelled'),
        *commands.filters('targets', host='on this host'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
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


def _changeable(parsed_args):
    values = commands.given(parsed_args, 'name', 'priority', 'rate', 'window',
                            'pinned')
    if parsed_args.lifetime is not None:
        values['expires_at'] = end_of(parsed_args.lifetime)
    return values
