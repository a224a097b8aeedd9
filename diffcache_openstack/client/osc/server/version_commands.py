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
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Name', 'name', None),
    ('Server', 'server_id', None), ('State', 'state', None),
    ('Trigger', 'trigger', None), ('Size', 'size', cells.Size),
    ('Changed', 'bytes_changed', cells.Size),
    ('Stored', 'bytes_stored', cells.Size),
    ('Pause ms', 'pause_ms', cells.Rounded),
    ('Created At', 'created_at', cells.Time)]
_SHOWN: list[formats.Column] = [
    ('ID', 'id', None), ('Name', 'name', None),
    ('Description', 'description', None), ('Server', 'server_id', None),
    ('Project', 'project_id', None), ('Parent', 'parent_id', None),
    ('State', 'state', None), ('Trigger', 'trigger', None),
    ('Protected', 'is_protected', None), ('Alpha', 'alpha', None),
    ('Host', 'host', None), ('Base Image', 'base_image', None),
    ('Image', 'image_id', None), ('Size', 'size', cells.Size),
    ('Changed', 'bytes_changed', cells.Size),
    ('Read', 'bytes_read', cells.Size),
    ('Stored', 'bytes_stored', cells.Size),
    ('Seconds', 'seconds', cells.Rounded),
    ('Pause ms', 'pause_ms', cells.Rounded),
    ('Frozen ms', 'frozen_ms', cells.Rounded),
    ('Quiesced', 'is_quiesced', None), ('Disks', 'disks', formats.Disks),
    ('Task', 'task', formats.Task), ('Error', 'error', None),
    ('Created At', 'created_at', cells.Time),
    ('Updated At', 'updated_at', cells.Time)]
TASK: list[formats.Column] = [
    ('ID', 'id', None), ('Kind', 'kind', None), ('State', 'state', None),
    ('Version', 'version_id', None), ('Server', 'server_id', None),
    ('Host', 'host', None), ('Done', 'done', cells.Size),
    ('Total', 'total', cells.Size), ('Result', 'result', cells.Named),
    ('Error', 'error', None), ('Created At', 'created_at', cells.Time),
    ('Updated At', 'updated_at', cells.Time)]
_TASKS = [column for column in TASK if column[0] not in
          ('Result', 'Updated At')]

_STATES = ('saving', 'available', 'error', 'deleting')
_TRIGGERS = ('request', 'schedule', 'shutdown', 'delete', 'rollback',
             'image')
TIMEOUT = 3600.0
WAIT = commands.wait('it is done, and show the progress', TIMEOUT)
_PROTECTED = cli.pair('protected', 'unprotected',
                      ('Refuse to delete the version',
                       'Allow the version to be deleted'))


def wait_for_task(client: proxy.Proxy, task: typing.Any, label: str,
                  timeout: float) -> typing.Any:
    """Wait until a task ends, with a progress bar.

    :raises CommandError: it failed, or was cancelled
    """
    with waiting.Bar(label, sys.stderr) as bar:
        task = client.wait_for_version_task(
            task.id, timeout, progress=lambda found: _draw(bar, found))
    if task.state != 'done':
        raise exceptions.CommandError(
            f'The {task.kind} {task.id} is {task.state}: {task.error}')
    return task


def export(client: proxy.Proxy, version_id: str, **options: str) -> str:
    """Return the ID of the image of a version's disk; export it if needed.

    :param options: as of ``export_server_version``
    """
    task = client.export_server_version(version_id, **options)
    return wait_for_task(client, task, 'Exporting',
                         TIMEOUT).result['image_id']


def _draw(bar, task):
    bar.show(task.done or 0, task.total or 0, 'bytes')


class VersionCommand(commands.Command):
    """A command about one version."""

    arguments: cli.Arguments = (
        cli.Argument('version', metavar='<version>',
                     help='ID of the version'),)


class CreateVersion(commands.ServerCommand, commands.ShowOne):
    """Save the disks and volumes of a server as a new version"""

    examples = ('web-1 --name before-upgrade --wait',
                'web-1 --exclude-volume scratch-1')
    arguments = (
        cli.Argument('--name', metavar='<name>', help='Name of the version'),
        cli.Argument('--description', metavar='<text>',
                     help='Description of the version'),
        cli.Argument('--alpha', metavar='<alpha>',
                     help='Share of the data to store as difference to the'
                          ' first version: 0 (default) takes the least space,'
                          ' 1 restores fastest, auto keeps restores fast'
                          ' enough'),
        cli.Argument('--rate', type=cli.rate(), metavar='<rate>',
                     help='Limit how fast the disks are read, such as 50MBps'
                          ' (a bare number: bytes per second)'),
        cli.Argument('--exclude-volume', metavar='<volume>',
                     action='append', default=[],
                     help='Leave out this volume (name or ID; may be'
                          ' repeated)'),
        _PROTECTED,
        *WAIT)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        values = commands.given(parsed_args, 'name', 'description', 'alpha',
                                'rate')
        if parsed_args.protected:
            values['is_protected'] = True
        if parsed_args.exclude_volume:
            values['exclude_volumes'] = [
                self.volume_id(name) for name in parsed_args.exclude_volume]
        version = self.client.create_server_version(
            server_id=self.server_id(parsed_args.server), **values)
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
    """List versions, latest first"""

    examples = ('--server web-1',)
    wide = frozenset({
        'Server', 'Trigger', 'Size', 'Changed', 'Stored', 'Pause ms'})

    arguments = (
        cli.Argument('--server', metavar='<server>',
                     help='List only versions of this server (name or ID; the'
                          ' ID if it is deleted)'),
        commands.project('versions'),
        commands.state('versions', *_STATES),
        cli.Argument('--trigger', choices=_TRIGGERS,
                     help='List only versions that were saved for this'
                          ' reason'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        if parsed_args.project_id:
            parsed_args.project_id = self.project_id(parsed_args.project_id)
        parsed_args.server_id = parsed_args.server and self.server_id(
            parsed_args.server, may_be_gone=True)
        return formats.table(_LISTED, self.client.server_versions(
            **commands.query(parsed_args, 'server_id', 'project_id', 'state',
                             'trigger')))


class ShowVersion(VersionCommand, commands.ShowOne):
    """Show a version"""

    examples = ('before-upgrade',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.fields(
            _SHOWN, self.client.get_server_version(parsed_args.version))


class SetVersion(VersionCommand):
    """Change the name, description or protection of a version"""

    examples = ('before-upgrade --protected',)
    arguments = (
        cli.Argument('--name', metavar='<name>', help='New name'),
        cli.Argument('--description', metavar='<text>',
                     help='New description'),
        _PROTECTED)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.update_server_version(
            parsed_args.version, **commands.changes(
                parsed_args, 'name', 'description', 'protected'))


class DeleteVersion(commands.Command):
    """Delete versions; other versions are not affected"""

    examples = ('before-upgrade --wait',)
    arguments = (
        cli.Argument('versions', metavar='<version>', nargs='+',
                     help='ID of the version'),
        *WAIT)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
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
    """Restore a stopped server to a version"""

    examples = (
        'before-upgrade --dry-run',
        'before-upgrade --discard-current --wait')
    arguments = (
        cli.Argument('--dry-run', action='store_true',
                     help='Only report how many bytes would be written'),
        cli.Argument('--discard-current', action='store_true',
                     help='Do not save the current state as a version first'),
        cli.Argument('--method', choices=('auto', 'rollback', 'rebuild'),
                     help='rollback writes only what differs, in place;'
                          ' rebuild writes whole new disks; auto (default)'
                          ' chooses the cheaper one, and the result says why'),
        cli.Argument('--restart', action='store_true',
                     help='Stop the server first if it runs, and start it'
                          ' afterwards; implies --wait'),
        *WAIT)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
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
            # The restore was refused: the server is unchanged.
            self._start(started_again)
            raise
        self._start(started_again)
        return formats.fields(TASK, task)

    def _stop(self, server, timeout):
        """Stop a server; return it, or None if it did not run."""
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
    """Export a disk of a version as an image

    The first disk is exported once: later exports return the same image.
    """

    examples = ('before-upgrade --name web-1-image --wait',
                'before-upgrade --device vdb --name data --wait')
    arguments = (
        cli.Argument('--name', metavar='<name>', help='Name of the image'),
        cli.Argument('--device', metavar='<device>',
                     help='Device of the disk or volume to export, such as vdb'
                          ' (default: the first)'),
        *WAIT)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        options = commands.given(parsed_args, 'name', 'device')
        task = self.client.export_server_version(parsed_args.version,
                                                 **options)
        if parsed_args.wait:
            task = wait_for_task(self.client, task, 'Exporting',
                                 parsed_args.timeout)
        return formats.fields(TASK, task)


class DiffVersions(commands.ShowOne):
    """Show how much two versions differ"""

    examples = ('before-upgrade after-upgrade',)
    arguments = (
        cli.Argument('old', metavar='<old>', help='ID of a version'),
        cli.Argument('new', metavar='<new>', help='ID of another version'),
        commands.time_limit(TIMEOUT))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        task = self.client.diff_server_versions(parsed_args.old,
                                                parsed_args.new)
        result = wait_for_task(self.client, task, 'Comparing',
                               parsed_args.timeout).result
        return ('old', 'new', 'bytes', 'disks'), (
            parsed_args.old, parsed_args.new,
            cells.Size(result['bytes']), result['disks'])


class ListTasks(commands.Lister):
    """List tasks on versions, latest first"""

    examples = ('--state running',)
    wide = frozenset({'Version', 'Server', 'Host', 'Error', 'Created At'})

    arguments = (
        cli.Argument('--version', metavar='<version>', dest='version_id',
                     help='List only tasks on this version'),
        commands.state('tasks', 'queued', 'running', 'done', 'failed',
                       'cancelled'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(_TASKS, self.client.version_tasks(
            **commands.query(parsed_args, 'version_id', 'state')))


class TaskCommand(commands.Command):
    """A command about one task."""

    arguments: cli.Arguments = (
        cli.Argument('task', metavar='<task>', help='ID of the task'),)


class ShowTask(TaskCommand, commands.ShowOne):
    """Show the progress or the result of a task"""

    examples = ('5c1d',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.fields(
            TASK, self.client.get_version_task(parsed_args.task))


class CancelTask(TaskCommand):
    """Cancel a task"""

    examples = ('5c1d',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.cancel_version_task(parsed_args.task)


class Verify(commands.ShowOne):
    """Read a project's whole version store and list damaged versions"""

    examples = ('--wait',)
    arguments = (
        cli.Argument('--project', metavar='<project>',
                     help='Project (name or ID; default: your own)'),
        *WAIT)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        project = parsed_args.project
        task = self.client.verify_versions(
            self.project_id(project) if project else None)
        if parsed_args.wait:
            task = wait_for_task(self.client, task, 'Verifying',
                                 parsed_args.timeout)
        return formats.fields(TASK, task)
