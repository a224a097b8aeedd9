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
"""Precache jobs."""

import typing

from openstack import resource

from diffcache_openstack.client.resources import base


class PrecacheJob(base.Resource):
    """Images to cache on hosts before they are requested."""

    label = 'Precache job'
    resource_key = 'precache_job'
    resources_key = 'precache_jobs'
    base_path = '/precache-jobs'
    allow_create = True
    _query_mapping = base.query('state', 'project_id')

    project_id = resource.Body('project_id')
    user_id = resource.Body('user_id')
    #: running, ready, cancelled or expired.
    state = resource.Body('state')
    #: Increased by every change; required to change the job.
    generation = resource.Body('generation', type=int)
    message = resource.Body('message')
    request_id = resource.Body('request_id')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')
    #: Targets, those that are ready or failed, and bytes.
    progress = resource.Body('progress', type=dict)
    priority = resource.Body('priority', type=int)
    #: Bytes per second at each host.
    rate = resource.Body('rate', type=int)
    window = resource.Body('window')
    is_pinned = resource.Body('pinned', type=bool)
    #: Whether the boot sets of the images are wanted, not the images.
    boot_set = resource.Body('boot_set', type=bool)
    expires_at = resource.Body('expires_at')
    images = resource.Body('images', type=list)
    families = resource.Body('families', type=list)
    hosts = resource.Body('hosts', type=list)
    aggregates = resource.Body('aggregates', type=list)
    availability_zones = resource.Body('availability_zones', type=list)

    def cancel(self, session: typing.Any) -> 'PrecacheJob':
        """Cancel the job."""
        return self.act(session, 'cancel')

    def retry(self, session: typing.Any) -> 'PrecacheJob':
        """Retry the failed targets now."""
        return self.act(session, 'retry')


class Target(base.Resource):
    """An image of a job at one host."""

    resources_key = 'targets'
    base_path = '/precache-jobs/%(job_id)s/targets'
    allow_fetch = False
    _query_mapping = base.query('state', 'host')

    job_id = resource.URI('job_id')
    host = resource.Body('host')
    image_id = resource.Body('image_id')
    #: waiting, fetching, ready, failed or cancelled.
    state = resource.Body('state')
    #: local, peer, build or boot_set, once it is ready.
    way = resource.Body('way')
    bytes_total = resource.Body('bytes_total', type=int)
    bytes_done = resource.Body('bytes_done', type=int)
    #: Failed attempts since the host was notified.
    attempts = resource.Body('attempts', type=int)
    #: Time of the next attempt.
    retry_at = resource.Body('retry_at')
    message = resource.Body('message')
    updated_at = resource.Body('updated_at')
