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
"""Versions of servers."""

import collections.abc
import typing
import uuid

from diffcache_openstack.api import fields
from diffcache_openstack.api.handlers import version_tasks
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import versions as policies
from diffcache_openstack.api import policy
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import versions as schemas
from diffcache_openstack.cloud import servers as nova
from diffcache_openstack.common import exceptions
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack import objects
from diffcache_openstack.objects import versions

TABLE = routing.Table()


def _find(request: requests.Request, version_id: str
          ) -> list[dict[str, typing.Any]]:
    """Return the version if the caller may see it."""
    return [request.look(db.get_version, request.viewer, version_id)]


def _find_both(request: requests.Request, version_id: str
               ) -> list[dict[str, typing.Any]]:
    """Return a version and the one that it is compared with."""
    return [*_find(request, version_id),
            *_find(request, request.document['diff']['against'])]


def _find_server(request: requests.Request) -> list[nova.Server]:
    """Return the server that is to be saved."""
    return [request.find_server(request.document['version']['server_id'])]


def _find_with_server(request: requests.Request, version_id: str
                      ) -> list[typing.Any]:
    """Return a version and its server, if the caller may see both.

    The rights on both count: the version is read, the server is written.
    """
    [version] = _find(request, version_id)
    return [version, request.find_server(version['server_id'])]


@TABLE.route('GET', '/v1/versions', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.VERSION,
             response=schemas.LIST)
def list_versions(request: requests.Request) -> dict[str, typing.Any]:
    """List the versions of the caller's project, latest first."""
    return paging.listed(request, 'versions', db.list_versions,
                         request.viewer)


@TABLE.route('GET', '/v1/versions/<version_id>', policy=policies.SHOW,
             shows=fields.VERSION, finder=_find,
             response=schemas.SHOW)
def show_version(request: requests.Request, version_id: str
                 ) -> dict[str, typing.Any]:
    """Show a version of the caller's project with its current task."""
    return {'version': request.found[0]}


@TABLE.route('POST', '/v1/versions', policy=policies.CREATE,
             body=schemas.CREATE, shows=fields.VERSION, finder=_find_server,
             response=schemas.SHOW, status=202)
def create_version(request: requests.Request
                   ) -> tuple[dict[str, typing.Any], dict[str, str]]:
    """Save the disks and volumes of a server as a new version."""
    version_id = str(uuid.uuid4())
    values = dict(request.document['version'])
    del values['server_id']
    [server] = request.found
    volumes = _volumes(request, server, values.pop('exclude_volumes', []))
    context = request.context
    request.services.versions.create_version(
        context, objects.NewVersion(
            id=version_id, server_id=server.id,
            project_id=server.project_id, user_id=context.user_id,
            request_id=context.global_request_id or context.request_id,
            base_image=server.image_id, volumes=volumes, **values))
    return _shown(request, version_id), {
        'Location': f'{request.url_root}v1/versions/{version_id}'}


@TABLE.route('PATCH', '/v1/versions/<version_id>', policy=policies.UPDATE,
             body=schemas.UPDATE, shows=fields.VERSION,
             finder=_find, response=schemas.SHOW)
def update_version(request: requests.Request, version_id: str
                   ) -> dict[str, typing.Any]:
    """Change a version's name, description or protection."""
    values = dict(request.document['version'])
    generation = values.pop('generation')
    request.services.versions.update_version(
        request.context, version_id, generation, values)
    return _shown(request, version_id)


@TABLE.route('DELETE', '/v1/versions/<version_id>', policy=policies.DELETE,
             shows=fields.VERSION, finder=_find,
             response=routing.NOTHING, status=204)
def delete_version(request: requests.Request, version_id: str) -> None:
    """Delete a version; it disappears when its store has deleted it."""
    request.services.versions.delete_version(request.context, version_id)


@TABLE.route('POST', '/v1/versions/<version_id>/restore',
             policy=policies.RESTORE, body=schemas.RESTORE,
             shows=fields.VERSION_TASK, finder=_find_with_server,
             response=schemas.TASK, status=202)
def restore_version(request: requests.Request, version_id: str
                    ) -> dict[str, typing.Any]:
    """Restore a stopped server to a version."""
    options = request.document['restore']
    dry_run = options.get('dry_run', False)
    if not dry_run:
        _refuse_locked(request, request.found[1])
    _check_volumes(request, *request.found)
    keep = options.get('keep_current', True) and not dry_run
    task_id = str(uuid.uuid4())
    request.services.versions.restore_version(
        request.context, version_id, task_id,
        str(uuid.uuid4()) if keep else None, dry_run,
        options.get('method', versions.AUTO))
    return version_tasks.shown(request, task_id)


@TABLE.route('POST', '/v1/versions/<version_id>/export',
             policy=policies.EXPORT, body=schemas.EXPORT,
             shows=fields.VERSION_TASK, finder=_find,
             response=schemas.TASK, status=202)
def export_version(request: requests.Request, version_id: str
                   ) -> dict[str, typing.Any]:
    """Export a disk of a version as an image of its project.

    The first disk is exported once.
    """
    task_id = str(uuid.uuid4())
    options = request.document['export']
    request.services.versions.export_version(
        request.context, version_id, task_id, options.get('name', ''),
        options.get('device'))
    return version_tasks.shown(request, task_id)


@TABLE.route('POST', '/v1/versions/<version_id>/diff', policy=policies.DIFF,
             body=schemas.DIFF, shows=fields.VERSION_TASK,
             finder=_find_both, response=schemas.TASK, status=202)
def diff_versions(request: requests.Request, version_id: str
                  ) -> dict[str, typing.Any]:
    """Compare two versions."""
    task_id = str(uuid.uuid4())
    request.services.versions.diff_versions(
        request.context, version_id, request.found[1]['id'], task_id)
    return version_tasks.shown(request, task_id)


def _volumes(request: requests.Request, server: nova.Server,
             excluded: list[str]) -> list[str]:
    """Return the volumes that are saved with a server's disks.

    :raises InvalidInput: one that is left out is none of the server's
    :raises Forbidden: the caller may not read one of the others
    :raises Conflict: one of them cannot be saved; the message names all
    """
    if unknown := set(excluded) - set(server.volumes):
        raise exceptions.InvalidInput(
            f'exclude_volumes: server {server.id} has no volume'
            f' {", ".join(sorted(unknown))}.')
    chosen = [each for each in server.volumes if each not in excluded]
    if chosen and not server.shows_volumes:
        raise exceptions.Conflict(
            f'Cannot save the volumes of server {server.id}: it is'
            f' {server.status}. Start or stop it, or leave them out:'
            f' {_options(chosen)}.')
    if refused := _refused(request, chosen):
        raise exceptions.Conflict(
            f'Cannot save all volumes of server {server.id}:'
            f' {_reasons(refused)}. Leave them out: {_options(refused)}.')
    return chosen


def _check_volumes(request: requests.Request,
                   version: dict[str, typing.Any], server: nova.Server
                   ) -> None:
    """Check that the volumes of a version may be written in place.

    :raises Forbidden: the caller may not read one of them
    :raises Conflict: the server does not have one of them any more, or one
        of them cannot be restored; the message names all
    """
    disks = {disk['volume_id']: disk['device'] for disk in version['disks']
             if disk['volume_id']}
    refused = {each: 'not attached to the server any more' for each in disks
               if each not in server.volumes}
    try:
        refused |= _refused(request, [each for each in disks
                                      if each not in refused])
    except exceptions.Forbidden as error:
        raise exceptions.Forbidden(
            f'Cannot restore server {server.id}: you may not read one of its'
            f' volumes, {", ".join(disks)}, or Cinder has no such volume.'
        ) from error
    if refused:
        version_id = version['id']
        raise exceptions.Conflict(
            f'Cannot restore server {server.id} to version {version_id}:'
            f' {_reasons(refused)}. Create a server from it (openstack server'
            f' create --from-version {version_id}), or export each disk and'
            f' create a volume from its image (openstack server version export'
            f' {version_id} --device {disks[next(iter(refused))]}).')


def _refused(request: requests.Request,
             volumes: collections.abc.Iterable[str]) -> dict[str, str]:
    """Return why volumes can be neither saved nor restored, by their IDs.

    :raises Forbidden: the caller may not read one of them
    """
    refused = {}
    for each in volumes:
        volume = request.services.cinder.get(each, request.context)
        if volume.unsaveable:
            refused[each] = volume.unsaveable
    return refused


def _reasons(refused: dict[str, str]) -> str:
    return ', '.join(f'volume {each} is {reason}'
                     for each, reason in refused.items())


def _options(volumes: collections.abc.Iterable[str]) -> str:
    return ' '.join(f'--exclude-volume {each}' for each in volumes)


def _refuse_locked(request, server):
    """Refuse to write the disks of a server that is locked in Nova.

    :raises Conflict: it is, and the caller may not restore it nevertheless
    """
    if server.locked and not request.services.enforcer.allows(
            request.context, policies.RESTORE_LOCKED,
            policy.target_of(server)):
        raise exceptions.Conflict(
            f'Cannot restore server {server.id}: it is locked. Unlock it first'
            f' (openstack server unlock {server.id}).')


def _shown(request, version_id):
    """Return the version as it is now."""
    return {'version': request.look(db.get_version, request.viewer,
                                    version_id)}
