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
"""Status of one host: for the conductor, and for operators."""

import collections.abc
import datetime
import typing

from oslo_config import cfg

from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned


class HostStatus:
    """Describes this host, its fills, and what its agent is doing.

    :param conf: a configuration with the group ``agent``
    :param plane: this host's data plane
    :param host: this host's state
    :param filler: follows the plan
    :param requests: records that the conductor does not have yet
    :param ingest: reports on images of an image service, at a repository
    :param more: functions that return further entries, by name
    """

    def __init__(self, conf: cfg.ConfigOpts, plane, host: host_state.HostState,
                 filler: filling.Filler,
                 requests: request_spool.RequestSpool,
                 ingest: typing.Callable[[], dict[str, typing.Any]]
                 | None = None,
                 more: collections.abc.Mapping[
                     str, typing.Callable[[], typing.Any]]
                 | None = None) -> None:
        self._more = more or {}
        self._conf = conf
        self._plane = plane
        self._host = host
        self._filler = filler
        self._requests = requests
        self._ingest = ingest

    def describe(self) -> objects.Host:
        """Return this host as the conductor registers it."""
        options = self._conf.agent
        return objects.Host(
            name=self._host.name, site=options.site, role=options.role,
            url=self._plane.url, capacity=self._host.held.capacity or 0,
            plan_generation=self._filler.generation)

    def fills(self) -> list[objects.Fill]:
        """List objects that the plan places and that are not held yet."""
        now = versioned.now()
        return [objects.Fill(
            kind=found.key.kind, id=found.key.id, active=found.active,
            bytes_done=found.done, bytes_total=found.total,
            attempts=found.attempts, error=found.error,
            retry_at=None if found.retry_in is None else
            now + datetime.timedelta(seconds=round(found.retry_in)))
            for found in self._filler.report()]

    def network(self) -> objects.HostNetwork | None:
        """Return when this host fills, and what it measured of its links.

        :returns: None for a repository, which fetches nothing
        """
        if self._conf.agent.role == objects.REPOSITORY:
            return None
        options, now = self._conf.fill, versioned.now()
        return objects.HostNetwork(
            fill_rate=options.max_rate or None,
            fill_windows=list(options.windows),
            peer_mbps=self._plane.peer_mbps(),
            repositories=[_standing(found, now)
                          for found in self._plane.repositories()])

    def pending_images(self) -> list[objects.PendingImage] | None:
        """List images that this repository could not add yet, by ID.

        Images that only wait for their turn are left out.

        :returns: None where no images are taken from an image service
        """
        if self._ingest is None:
            return None
        found, now = self._ingest(), versioned.now()
        pending = [objects.PendingImage(image_id=image, state='refused',
                                        error=error)
                   for image, error in found['refused'].items()]
        pending += [
            objects.PendingImage(
                image_id=entry['image'], state=entry['state'],
                attempts=entry['attempts'], error=entry['error'],
                retry_at=now + datetime.timedelta(
                    seconds=entry['retry_in_s']))
            for entry in found['queue'] if entry['image']
            and entry['image'] not in found['refused']
            and entry.get('attempts')]
        pending += [objects.PendingImage(image_id=entry['image'],
                                         state='adding')
                    for entry in found['queue'] if entry['image']
                    and entry['state'] == 'active']
        named = {image.image_id: image for image in pending}
        return [image for _name, image in sorted(named.items())]

    def report(self) -> dict[str, typing.Any]:
        """Return what the agent is doing, as plain values."""
        held, site = self._host.held, self._host.site_map.current()
        return {
            'host': self._host.name,
            'role': self._conf.agent.role,
            'url': self._plane.url,
            'conductor_reachable': self._host.site_map.reachable,
            'map_generation': site.generation,
            'images': len(site.images),
            'hosts': {host.name: sorted(list(key) for key in host.holdings)
                      for host in site.hosts},
            'plan_generation': self._filler.generation,
            'capacity': held.capacity,
            'used': held.used(),
            'holdings': [[*key, size] for key, size
                         in sorted(held.sizes().items())],
            'borrowed': self._borrowed(),
            'missing': [list(key) for key in self._filler.missing()],
            'unreported_requests': len(self._requests),
            'data_plane': self._plane.stats(),
            'ingest': None if self._ingest is None else self._ingest(),
            **{name: values() for name, values in self._more.items()},
            'repositories': self._plane.repositories(),
            'left_alone': {host: round(seconds) for host, seconds
                           in self._plane.left_alone().items()},
        }

    def _borrowed(self) -> list[list]:
        """List kind, id, bytes and path of the files of other services."""
        borrowed = self._host.held.borrowed
        paths = borrowed.paths()
        return [[*key, size, str(paths.get(key, ''))]
                for key, size in sorted(borrowed.sizes().items())]


def _standing(found, now):
    """Return a repository as it is reported.

    :param found: as :meth:`.native_plane.DataPlane.repositories` returns it
    """
    down = found['down_s']
    return objects.RepositoryStanding(
        answers=down is None, reason=found['reason'],
        since=None if down is None else
        now - datetime.timedelta(seconds=round(down)),
        **{name: found[name] for name in (
            'name', 'mbps', 'transfers', 'failures', 'bytes')})
