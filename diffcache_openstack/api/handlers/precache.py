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
"""Precache jobs: images to cache before they are requested."""

import typing
import uuid

from oslo_utils import timeutils

from diffcache_openstack.api import fields
from diffcache_openstack.api import host_ids
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import base
from diffcache_openstack.api.policies import precache as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import precache as schemas
from diffcache_openstack.db.planning import precache as db
from diffcache_openstack import objects

TABLE = routing.Table()


def _find(request: requests.Request, job_id: str
          ) -> list[dict[str, typing.Any]]:
    """Return the job if the caller may see it."""
    return [request.look(db.get_job, request.viewer, job_id)]


@TABLE.route('GET', '/v1/precache-jobs', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.PRECACHE_JOB,
             response=schemas.LIST)
def list_jobs(request: requests.Request) -> dict[str, typing.Any]:
    """List the precache jobs of the caller's project by ID."""
    return paging.listed(request, 'precache_jobs', db.list_jobs,
                         request.viewer)


@TABLE.route('GET', '/v1/precache-jobs/<job_id>', policy=policies.SHOW,
             shows=fields.PRECACHE_JOB, finder=_find, response=schemas.SHOW)
def show_job(request: requests.Request, job_id: str
             ) -> dict[str, typing.Any]:
    """Show a precache job of the caller's project."""
    return {'precache_job': request.found[0]}


@TABLE.route('GET', '/v1/precache-jobs/<job_id>/targets',
             policy=policies.SHOW, query=schemas.TARGETS_QUERY,
             guarded={'host': base.INFRASTRUCTURE},
             shows=fields.PRECACHE_TARGET, finder=_find,
             response=schemas.TARGETS)
def list_targets(request: requests.Request, job_id: str
                 ) -> dict[str, typing.Any]:
    """List the progress of a precache job by host and image."""
    page = request.page
    if request.sees_infrastructure:
        part = request.look(db.list_targets, job_id, request.filters(), page)
        return paging.document(request, 'targets', part)
    names = host_ids.HostIds(request.found[0]['project_id'],
                             request.look(db.target_hosts, job_id))
    if page.marker is not None:
        page = page._replace(marker=names.reveal(page.marker))
    part = request.look(db.list_targets, job_id, request.filters(), page)
    return paging.document(request, 'targets', names.conceal(part))


@TABLE.route('POST', '/v1/precache-jobs', policy=policies.CREATE,
             body=schemas.CREATE, shows=fields.PRECACHE_JOB,
             response=schemas.SHOW, status=202)
def create_job(request: requests.Request
               ) -> tuple[dict[str, typing.Any], dict[str, str]]:
    """Create a precache job.

    A job with ``boot_set`` wants the boot sets of its images instead of the
    images; ``pinned`` has no effect then.
    """
    job_id = str(uuid.uuid4())
    values = dict(request.document['precache_job'])
    boot_set = values.pop('boot_set', False)
    if values.get('expires_at'):
        values['expires_at'] = timeutils.parse_isotime(values['expires_at'])
    context = request.context
    request.services.control.create_precache_job(
        context, objects.PrecacheJob(
            id=job_id, project_id=context.project_id,
            user_id=context.user_id,
            request_id=context.global_request_id or context.request_id,
            **values), boot_set)
    return _shown(request, job_id), {
        'Location': f'{request.url_root}v1/precache-jobs/{job_id}'}


@TABLE.route('PATCH', '/v1/precache-jobs/<job_id>', policy=policies.UPDATE,
             body=schemas.UPDATE, shows=fields.PRECACHE_JOB, finder=_find,
             response=schemas.SHOW)
def update_job(request: requests.Request, job_id: str
               ) -> dict[str, typing.Any]:
    """Change a precache job."""
    values = dict(request.document['precache_job'])
    generation = values.pop('generation')
    request.services.control.update_precache_job(
        request.context, job_id, generation, values)
    return _shown(request, job_id)


@TABLE.route('POST', '/v1/precache-jobs/<job_id>/cancel',
             policy=policies.CANCEL, body=schemas.CANCEL,
             shows=fields.PRECACHE_JOB, finder=_find, response=schemas.SHOW)
def cancel_job(request: requests.Request, job_id: str
               ) -> dict[str, typing.Any]:
    """Cancel a precache job; its images may then be evicted."""
    request.services.control.cancel_precache_job(
        request.context, job_id, request.document.get('generation'))
    return _shown(request, job_id)


@TABLE.route('POST', '/v1/precache-jobs/<job_id>/retry',
             policy=policies.RETRY, body=schemas.RETRY,
             shows=fields.PRECACHE_JOB, finder=_find, response=schemas.SHOW,
             status=202)
def retry_job(request: requests.Request, job_id: str
              ) -> dict[str, typing.Any]:
    """Retry the failed targets of a precache job now."""
    request.services.control.retry_precache_job(request.context, job_id)
    return _shown(request, job_id)


def _shown(request, job_id):
    """Return the job as it is now."""
    return {'precache_job': request.look(db.get_job, request.viewer, job_id)}
