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
"""What of a site needs attention: codes with values, and sentences."""

import collections.abc
import typing

from diffcache_openstack.client import proxy

# A host of the site does not report: ``host``, ``seen_at``.
HOST_DEAD = 'host_dead'
# The site has no current plan: ``site``.
NO_PLAN = 'no_plan'
# A repository does not report: ``host``, ``seen_at``.
REPOSITORY_DEAD = 'repository_dead'
# A host gets no answer from a repository: ``host``, ``repository``, ``since``,
# ``reason``.
REPOSITORY_UNREACHABLE = 'repository_unreachable'
# A repository could not add an image: ``host``, ``image``, ``state``,
# ``reason``.
IMAGE_NOT_ADDED = 'image_not_added'

SENTENCES = {
    HOST_DEAD: 'Host {host} is dead: last heartbeat at {seen_at}.',
    NO_PLAN: 'There is no plan yet: compute one with "openstack image cache'
             ' plan create {site}".',
    REPOSITORY_DEAD:
        'Repository {host} is dead: last heartbeat at {seen_at}.',
    REPOSITORY_UNREACHABLE:
        'Host {host} gets nothing from repository {repository} since {since}:'
        ' {reason}',
    IMAGE_NOT_ADDED:
        'Repository {host} could not add image {image} ({state}): {reason}'}


class Problem(typing.NamedTuple):
    """Something that needs attention.

    :ivar code: a key of :data:`SENTENCES`
    :ivar values: what the sentence names; instants are ISO 8601 in UTC
    """

    code: str
    values: dict[str, str]

    def __str__(self) -> str:
        """Return the problem as a sentence."""
        return SENTENCES[self.code].format_map(self.values)


def of_site(client: proxy.Proxy, site: str, has_plan: bool
            ) -> collections.abc.Iterator[Problem]:
    """List hosts and repositories that do not answer, and what is missing.

    :param has_plan: whether the site has a current plan
    """
    for host in client.hosts(site=site, alive=False):
        yield Problem(HOST_DEAD, {'host': host.name,
                                  'seen_at': host.seen_at})
    if not has_plan:
        yield Problem(NO_PLAN, {'site': site})
    for repository in client.hosts(role='repository'):
        yield from _of_repository(client, repository, site)


def _of_repository(client: proxy.Proxy, repository: typing.Any, site: str
                   ) -> collections.abc.Iterator[Problem]:
    name = repository.name
    if not repository.is_alive and repository.site != site:
        yield Problem(REPOSITORY_DEAD, {'host': name,
                                        'seen_at': repository.seen_at})
    for reader in client.get_host(name).clients or ():
        if not reader['answers']:
            yield Problem(REPOSITORY_UNREACHABLE, {
                'host': reader['host'], 'repository': name,
                'since': reader['since'], 'reason': reader['reason']})
    for image in client.pending_images(name):
        if image.error:
            yield Problem(IMAGE_NOT_ADDED, {
                'host': name, 'image': image.image_id, 'state': image.state,
                'reason': image.error})
