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
"""``openstack server version``."""

import argparse
import sys
import typing

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc import waiting
from diffcache_openstack.client import proxy
from diffcache_openstack.common import units

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Name', 'name', None),
    ('Server', 'server_id', None), ('State', 'state', None),
    ('Trigger', 'trigger', None), ('Size', 'size', formats.Size),
    ('Changed', 'bytes_changed', formats.Size),
    ('Stored', 'bytes_stored', formats.Size),
    ('Pause ms', 'pause_ms', formats.Rounded),
    ('Created At', 'created_at', None)]
_SHOWN: list[formats.Column] = [
    ('ID', 'id', None), ('Name', 'name', None),
    ('Description', 'description', None), ('Server', 'server_id', None),
    ('Project', 'project_id', None), ('Parent', 'parent_id', None),
    ('State', 'state', None), ('Trigger', 'trigger', None),
    ('Protected', 'is_protected', None), ('Alpha', 'alpha', None),
    ('Host', 'host', None), ('Base Image', 'base_image', None),
    ('Image', 'image_id', None), ('Size', 'size', formats.Size),
    ('Changed', 'bytes_changed', formats.Size),
    ('Read', 'bytes_read', formats.Size),
    ('Stored', 'bytes_stored', formats.Size),
    ('Seconds', 'seconds', formats.Rounded),
    ('Pause ms', 'pause_ms', formats.Rounded),
    ('Quiesced', 'is_quiesced', None), ('Disks', 'disks', None),
    ('Task', 'task', None), ('Error', 'error', None),
    ('Created At', 'created_at', None), ('Updated At', 'updated_at', None)]
_TASK: list[formats.Column] = [
    ('ID', 'id', None), ('Kind', 'kind', None), ('State', 'state', None),
    ('Version', 'version_id', None), ('Server', 'server_id', None),
    ('Host', 'host', None), ('Done', 'done', formats.Size),
    ('Total', 'total', formats.Size), ('Result', 'result', None),
    ('Error', 'error', None), ('Created At', 'created_at', None),
    ('Updated At', 'updated_at', None)]
_TASKS = [column for column in _TASK if column[0] not in
          ('Result', 'Updated At')]

_STATES = ('saving', 'available', 'error', 'deleting')
_TRIGGERS = ('request', 'schedule', 'shutdown', 'delete', 'rollback')
TIMEOUT = 3600.0


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add the options of waiting."""
    parser.add_argument('--wait', action='store_true',
                        help='Wait for the end, and show how far it is')
    add_timeout(parser)


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how long is waited."""
    parser.add_argument('--timeout', type=float, default=TIMEOUT,
                        metavar='<seconds>',
                        help='Wait no longer (default: 3600)')


def wait_for_task(client: proxy.Proxy, task: typing.Any, label: str,
                  timeout: float) -> typing.Any:
    """Wait for the end of some work, with a bar.

    :raises CommandError: it failed, or was cancelled
    """
    with waiting.Bar(label, sys.stderr) as bar:
        task = client.wait_for_version_task(
            task.id, timeout, progress=lambda found: _draw(bar, found))
    if task.state != 'done':
        raise exceptions.CommandError(
            f'The {task.kind} {task.id} is {task.state}: {task.error}')
    return task


def export(client: proxy.Proxy, version_id: str, name: str | None = None,
           timeout: float = TIMEOUT) -> str:
    """The id of the image that a version is; makes it if need be."""
    task = client.export_server_version(
        version_id, **({'name': name} if name else {}))
    return wait_for_task(client, task, 'Exporting',
                         timeout).result['image_id']


def _draw(bar, task):
    bar.show(task.done or 0, task.total or 0, 'bytes')


class VersionCommand(commands.Command):
    """A command about one version."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('version', metavar='<version>',
                            help='ID of the version')
        return parser


class CreateVersion(commands.ShowOne):
    """Save a server, running or not, as a version"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='<server>',
                            help='Server (name or ID)')
        parser.add_argument('--name', metavar='<name>',
                            help='Name of the version')
        parser.add_argument('--description', metavar='<text>',
                            help='What there is to say of it')
        parser.add_argument('--alpha', metavar='<alpha>',
                            help='Part that is stored again so that it can be'
                                 ' read fast: 0 (default) takes the least'
                                 ' storage, 1 restores fastest, auto does'
                                 ' what keeps restores fast enough')
        parser.add_argument('--rate', type=_size, metavar='<size>',
                            help='Most that is read of the disks per second,'
                                 ' such as 50MB')
        parser.add_argument('--protect', action='store_true',
                            help='Neither policies nor people delete it')
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Tell the service, and wait if that was asked for."""
        values = {name: getattr(parsed_args, name)
                  for name in ('name', 'description', 'alpha', 'rate')
                  if getattr(parsed_args, name) is not None}
        if parsed_args.protect:
            values['is_protected'] = True
        version = self.client.create_server_version(
            server_id=server_id(self.connection, parsed_args.server),
            **values)
        if parsed_args.wait:
            version = self._wait(version.id, parsed_args.timeout)
        return formats.fields(_SHOWN, version)

    def _wait(self, version_id, timeout):
        with waiting.Bar('Saving', sys.stderr) as bar:
            version = self.client.wait_for_server_version(
                version_id, timeout, progress=lambda task: _draw(bar, task))
        if version.state != 'available':
            raise exceptions.CommandError(
                f'Version {version_id} was not saved: {version.error}')
        return version


class ListVersions(commands.Lister):
    """List versions, the latest first"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--server', metavar='<server>',
                            help='Versions of this server only (name or ID;'
                                 ' the ID if it is deleted)')
        parser.add_argument('--project', metavar='<project>',
                            dest='project_id', help='Versions of this project'
                            ' only (name or ID)')
        parser.add_argument('--state', choices=_STATES,
                            help='Versions in this state only')
        parser.add_argument('--trigger', choices=_TRIGGERS,
                            help='Versions that were saved for this reason'
                                 ' only')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        if parsed_args.project_id:
            parsed_args.project_id = self.project_id(parsed_args.project_id)
        parsed_args.server_id = parsed_args.server and server_id(
            self.connection, parsed_args.server, may_be_gone=True)
        return formats.table(_LISTED, self.client.server_versions(
            **commands.query(parsed_args, 'server_id', 'project_id', 'state',
                             'trigger')))


class ShowVersion(VersionCommand, commands.ShowOne):
    """Show a version"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        return formats.fields(
            _SHOWN, self.client.get_server_version(parsed_args.version))


class SetVersion(VersionCommand):
    """Change what a version is called, and whether it is protected"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='<name>', help='New name')
        parser.add_argument('--description', metavar='<text>',
                            help='New description')
        protected = parser.add_mutually_exclusive_group()
        protected.add_argument('--protect', dest='protected', default=None,
                               action='store_true',
                               help='Neither policies nor people delete it')
        protected.add_argument('--unprotect', dest='protected',
                               action='store_false',
                               help='It may be deleted')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Tell the service."""
        values = {name: getattr(parsed_args, name)
                  for name in ('name', 'description', 'protected')
                  if getattr(parsed_args, name) is not None}
        if not values:
            raise exceptions.CommandError('Say what to change.')
        self.client.update_server_version(parsed_args.version, **values)


class DeleteVersion(commands.Command):
    """Delete versions; others stay whole"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('versions', metavar='<version>', nargs='+',
                            help='ID of the version')
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Tell the service, and wait if that was asked for."""
        for version_id in parsed_args.versions:
            self.client.delete_server_version(version_id)
        if parsed_args.wait:
            for version_id in parsed_args.versions:
                self._wait(version_id, parsed_args.timeout)

    def _wait(self, version_id, timeout):
        for task in self.client.version_tasks(version_id=version_id,
                                              kind='forget'):
            wait_for_task(self.client, task, 'Deleting', timeout)
            return


class RestoreVersion(VersionCommand, commands.ShowOne):
    """Have a stopped server go back to a version"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--dry-run', action='store_true',
                            help='Only tell how many bytes would be written')
        parser.add_argument('--discard-current', action='store_true',
                            help='Do not save what the server is now as a'
                                 ' version first')
        parser.add_argument('--method', choices=('auto', 'rollback',
                                                 'rebuild'),
                            help='Write what differs in place (rollback), or'
                                 ' the disks anew (rebuild); auto, the'
                                 ' default, does what is cheaper, and the'
                                 ' result says why')
        parser.add_argument('--restart', action='store_true',
                            help='Stop the server first if it runs, and start'
                                 ' it afterwards; waits for the end')
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Tell the service, and wait if that was asked for."""
        version_id = parsed_args.version
        started_again = None
        if parsed_args.restart:
            version = self.client.get_server_version(version_id)
            started_again = self._stop(version.server_id,
                                       parsed_args.timeout)
        try:
            options = ({'method': parsed_args.method}
                       if parsed_args.method else {})
            task = self.client.restore_server_version(
                version_id, dry_run=parsed_args.dry_run,
                keep_current=not parsed_args.discard_current, **options)
            if parsed_args.wait or parsed_args.restart:
                task = wait_for_task(self.client, task, 'Restoring',
                                     parsed_args.timeout)
        except sdk_exceptions.ConflictException:
            # Nothing was begun: the server is what it was.
            self._start(started_again)
            raise
        self._start(started_again)
        return formats.fields(_TASK, task)

    def _stop(self, server, timeout):
        """Stop a server that runs; the server, or None if it was off."""
        compute = self.connection.compute
        server = compute.get_server(server)
        if server.status != 'ACTIVE':
            return None
        compute.stop_server(server)
        return compute.wait_for_server(server, status='SHUTOFF', interval=1,
                                       wait=timeout)

    def _start(self, server):
        if server is not None:
            self.connection.compute.start_server(server)


class ExportVersion(VersionCommand, commands.ShowOne):
    """Make an image of a version, or find the one that was made of it"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='<name>',
                            help='Name of the image')
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Tell the service, and wait if that was asked for."""
        options = {'name': parsed_args.name} if parsed_args.name else {}
        task = self.client.export_server_version(parsed_args.version,
                                                 **options)
        if parsed_args.wait:
            task = wait_for_task(self.client, task, 'Exporting',
                                 parsed_args.timeout)
        return formats.fields(_TASK, task)


class DiffVersions(commands.ShowOne):
    """Tell in what two versions differ"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('old', metavar='<old>', help='ID of a version')
        parser.add_argument('new', metavar='<new>', help='ID of another one')
        add_timeout(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Have them compared, and wait for the answer."""
        task = self.client.diff_server_versions(parsed_args.old,
                                                parsed_args.new)
        result = wait_for_task(self.client, task, 'Comparing',
                               parsed_args.timeout).result
        return ('old', 'new', 'bytes', 'disks'), (
            parsed_args.old, parsed_args.new,
            formats.Size(result['bytes']), result['disks'])


class ListTasks(commands.Lister):
    """List work on versions, the latest first"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--version', metavar='<version>',
                            dest='version_id',
                            help='Work on this version only')
        parser.add_argument('--state', choices=(
            'queued', 'running', 'done', 'failed', 'cancelled'),
            help='Work in this state only')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        return formats.table(_TASKS, self.client.version_tasks(
            **commands.query(parsed_args, 'version_id', 'state')))


class TaskCommand(commands.Command):
    """A command about some work."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('task', metavar='<task>', help='ID of the task')
        return parser


class ShowTask(TaskCommand, commands.ShowOne):
    """Show how far some work on versions is, or what it came to"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        return formats.fields(
            _TASK, self.client.get_version_task(parsed_args.task))


class CancelTask(TaskCommand):
    """Cancel some work on versions"""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Tell the service."""
        self.client.cancel_version_task(parsed_args.task)


class Verify(commands.ShowOne):
    """Read all that a project has stored, and name what is damaged"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--project', metavar='<project>',
                            help='Whose versions (name or ID; default: your'
                                 ' project\'s)')
        add_wait(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Tell the service, and wait if that was asked for."""
        project = parsed_args.project
        task = self.client.verify_versions(
            self.project_id(project) if project else None)
        if parsed_args.wait:
            task = wait_for_task(self.client, task, 'Verifying',
                                 parsed_args.timeout)
        return formats.fields(_TASK, task)


def server_id(connection: typing.Any, name: str, may_be_gone: bool = False
              ) -> str:
    """The id of a server by its name or id.

    :param may_be_gone: take what nobody knows for an id
    :raises NotFoundException: there is none
    """
    found = connection.compute.find_server(name,
                                           ignore_missing=may_be_gone)
    return name if found is None else found.id


def _size(text):
    try:
        return units.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
