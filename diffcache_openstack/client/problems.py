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
"""What of a site needs attention, in sentences."""

import collections.abc
import typing

from diffcache_openstack.client import proxy


def of_site(client: proxy.Proxy, site: str, has_plan: bool
            ) -> collections.abc.Iterator[str]:
    """List hosts and repositories that do not answer, and what is missing.

    :param has_plan: whether the site has a current plan
    """
    for host in client.hosts(site=site, alive=False):
        yield f'Host {host.name} is dead: last heartbeat at {host.seen_at}.'
    if not has_plan:
        yield (f'There is no plan yet: compute one with "openstack image cache'
               f' plan create {site}".')
    for repository in client.hosts(role='repository'):
        yield from _of_repository(client, repository, site)


def _of_repository(client: proxy.Proxy, repository: typing.Any, site: str
                   ) -> collections.abc.Iterator[str]:
    name = repository.name
    if not repository.is_alive and repository.site != site:
        yield (f'Repository {name} is dead: last heartbeat at'
               f' {repository.seen_at}.')
    for reader in client.get_host(name).clients or ():
        if not reader['answers']:
            yield (f'Host {reader["host"]} gets nothing from repository {name}'
                   f' since {reader["since"]}: {reader["reason"]}')
    for image in client.pending_images(name):
        if image.error:
            yield (f'Repository {name} could not add image {image.image_id}'
                   f' ({image.state}): {image.error}')
