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
"""Tasks on versions of servers: their progress and results."""

import typing
import uuid

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import versions as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import versions as schemas
from diffcache_openstack.db.versions import stores as db_stores
from diffcache_openstack.db.versions import tasks as db
from diffcache_openstack.objects import versions

TABLE = routing.Table()


def _find(request: requests.Request, task_id: str
          ) -> list[dict[str, typing.Any]]:
    """Return the task if the caller may see it."""
    return [request.look(db.get_task, request.viewer, task_id)]


def _find_project(request: requests.Request) -> list[dict[str, typing.Any]]:
    """Return the project whose store is to be verified, copied or rebuilt."""
    [values] = request.document.values()
    return [{'project_id': values.get('project_id',
                                      request.context.project_id)}]


def _find_store(request: requests.Request, project_id: str
                ) -> list[dict[str, typing.Any]]:
    """Return the store of a project if the caller may see it."""
    return [request.look(db_stores.get_store, request.viewer, project_id)]


@TABLE.route('GET', '/v1/version-tasks', policy=policies.TASKS,
             query=schemas.TASKS_QUERY, shows=fields.VERSION_TASK,
             response=schemas.TASKS)
def list_tasks(request: requests.Request) -> dict[str, typing.Any]:
    """List tasks on the versions of the caller's project, latest first."""
    return paging.listed(request, 'version_tasks', db.list_tasks,
                         request.viewer)


@TABLE.route('GET', '/v1/version-tasks/<task_id>', policy=policies.TASK,
             shows=fields.VERSION_TASK, finder=_find,
             response=schemas.TASK)
def show_task(request: requests.Request, task_id: str
              ) -> dict[str, typing.Any]:
    """Show the progress or the result of a task."""
    return {'version_task': request.found[0]}


@TABLE.route('POST', '/v1/version-tasks/<task_id>/cancel',
             policy=policies.CANCEL, body=schemas.CANCEL,
             shows=fields.VERSION_TASK, finder=_find,
             response=schemas.TASK)
def cancel_task(request: requests.Request, task_id: str
                ) -> dict[str, typing.Any]:
    """Cancel a task that may be interrupted."""
    request.services.versions.cancel_task(request.context, task_id)
    return shown(request, task_id)


@TABLE.route('POST', '/v1/version-tasks/verify', policy=policies.VERIFY,
             body=schemas.VERIFY, shows=fields.VERSION_TASK,
             finder=_find_project, response=schemas.TASK, status=202)
def verify(request: requests.Request) -> dict[str, typing.Any]:
    """Read a project's whole version store and list damaged versions."""
    return _started(request, versions.VERIFY)


@TABLE.route('POST', '/v1/version-tasks/replicate',
             policy=policies.REPLICATE, body=schemas.REPLICATE,
             shows=fields.VERSION_TASK, finder=_find_project,
             response=schemas.TASK, status=202)
def replicate(request: requests.Request) -> dict[str, typing.Any]:
    """Have the copy of a project's store follow it, or rebuild it of that."""
    return _started(request, versions.RECOVER if request.document[
        'replicate'].get('from_copy') else versions.REPLICATE)


@TABLE.route('GET', '/v1/version-stores/<project_id>', policy=policies.STORE,
             shows=fields.VERSION_STORE, finder=_find_store,
             response=schemas.STORE)
def show_store(request: requests.Request, project_id: str
               ) -> dict[str, typing.Any]:
    """Show the store of a project's versions, and what its copy lacks."""
    return {'version_store': request.found[0]}


def _started(request: requests.Request, kind: str) -> dict[str, typing.Any]:
    """Start a task on a project's store, and return it."""
    task_id = str(uuid.uuid4())
    request.services.versions.maintain_store(
        request.context, request.found[0]['project_id'], task_id, kind)
    return shown(request, task_id)


def shown(request: requests.Request, task_id: str) -> dict[str, typing.Any]:
    """Return the task if the caller may see it."""
    return {'version_task': request.look(db.get_task, request.viewer,
                                         task_id)}
