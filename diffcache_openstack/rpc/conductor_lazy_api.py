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
"""Client side of the conductor RPC API for lazy boots.

Agents exchange with it what instances read and report how far images are;
repositories carry profiles from image to image; the REST API changes profiles
and hydrations.
"""

import collections.abc
import dataclasses
import typing

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack import objects
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import conductor_api

NAMESPACE = 'lazy'
HISTORY = rpc_history.History({
    '1.0': ('exchange_reads', 'import_profile', 'delete_profile',
            'report_hydrations', 'change_hydration', 'carry_work',
            'report_carried', 'exchange_boot_sets'),
})
VERSION = HISTORY.latest


@dataclasses.dataclass(frozen=True)
class Reads:
    """What instances of a host have read of an image in one run.

    :ivar projects: whose servers they are
    :ivar label: of servers that read alike; empty if there are several
    :ivar run: number of the run, greater than those of earlier runs
    :ivar number: of this state within the run
    """

    image_id: str
    projects: list[str]
    label: str
    run: int
    number: int
    rows: profiles.Rows


@dataclasses.dataclass(frozen=True)
class BootSet:
    """A boot set that is planned for a host.

    :ivar bytes: of its chunks
    :ivar rows: of the profile that diffcached fetches by
    """

    content_id: str
    image_id: str
    bytes: int
    rows: profiles.Rows


@dataclasses.dataclass(frozen=True)
class Profile:
    """A profile to boot with.

    :ivar shared: whether it is one of all projects
    """

    id: str
    generation: int
    shared: bool
    rows: profiles.Rows


@dataclasses.dataclass(frozen=True)
class CarrySource:
    """A profile to carry to another image.

    :ivar profile_id: of the image that was read
    :ivar content_id: of that image
    """

    profile_id: str
    content_id: str
    rows: profiles.Rows


@dataclasses.dataclass(frozen=True)
class CarryWork:
    """What a repository is to carry to an image that was not read yet.

    :ivar content_id: of the image
    """

    image_id: str
    content_id: str
    sources: list[CarrySource]


class LazyAPI:
    """Client side of the API for lazy boots.

    All methods raise ServiceUnavailable if no conductor answers.
    """

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts):
        target = oslo_messaging.Target(
            topic=conductor_api.TOPIC, namespace=NAMESPACE)
        self._client = bus.client(target, conf.conductor.rpc_timeout,
                                  HISTORY)

    def exchange_reads(self, ctxt: contexts.RequestContext, host: str,
                       reads: Reads, known: Profile | None) -> Profile | None:
        """Report what instances of a host read; return what others read.

        A report replaces those of the same run; one that is repeated or
        overtaken changes nothing.

        :param known: the profile that the host has
        :returns: the profile for such servers; None if it is the known one,
            or there is none
        :raises NotFound: the host or the image is not registered
        :raises InvalidInput: a row cannot be one of the image, or the
            conductor is older than this method
        """
        found = self._client.call(
            ctxt, 'exchange_reads', host=host, image_id=reads.image_id,
            projects=reads.projects, label=reads.label, run=reads.run,
            number=reads.number, rows=profiles.listed(reads.rows),
            known_id=known and known.id,
            known_generation=known and known.generation)
        return found and Profile(
            found['id'], found['generation'], found['shared'],
            profiles.of_list(found['rows']))

    def carry_work(self, ctxt: contexts.RequestContext, host: str,
                   after: str | None) -> CarryWork | None:
        """Return what a repository can carry to the next image.

        :param after: an image; those up to it by ID are passed over
        :returns: None if there is no further image, or profiles are not
            carried
        :raises NotFound: the host is not registered
        :raises InvalidInput: the conductor is older than this method
        """
        found = self._client.call(ctxt, 'carry_work', host=host, after=after)
        return found and CarryWork(found['image_id'], found['content_id'], [
            CarrySource(each['profile_id'], each['content_id'],
                        profiles.of_list(each['rows']))
            for each in found['sources']])

    def report_carried(self, ctxt: contexts.RequestContext, host: str,
                       image_id: str, profile_id: str, rows: profiles.Rows
                       ) -> bool:
        """Report a profile, carried to another image.

        :param profile_id: that it was carried from
        :param rows: of the image
        :returns: False if it is not wanted any more
        :raises NotFound: the host is not registered
        :raises InvalidInput: a row cannot be one of the image, or counts more
            instances than the profile
        """
        return self._client.call(
            ctxt, 'report_carried', host=host, image_id=image_id,
            profile_id=profile_id, rows=profiles.listed(rows))

    def import_profile(self, ctxt: contexts.RequestContext, profile_id: str,
                       image_id: str, project_id: str | None, label: str,
                       rows: list[list[int]]) -> str:
        """Add rows to a profile, in place of those imported before.

        :param profile_id: of the profile if there is none yet
        :param project_id: whose profile it is; None for all projects
        :param rows: [chunk, count, total_us]
        :returns: the ID of the profile
        :raises NotFound: the image is not registered
        :raises InvalidInput: a row cannot be one of the image
        :raises Conflict: the image has as many labels as are possible
        """
        return self._client.call(
            ctxt, 'import_profile', profile_id=profile_id, image_id=image_id,
            project_id=project_id, label=label, rows=rows)

    def delete_profile(self, ctxt: contexts.RequestContext, profile_id: str
                       ) -> None:
        """Delete a profile, which is learned anew.

        :raises NotFound: there is none
        """
        self._client.call(ctxt, 'delete_profile', profile_id=profile_id)

    def report_hydrations(
            self, ctxt: contexts.RequestContext, host: str,
            hydrations: collections.abc.Sequence[objects.Hydration]) -> None:
        """Replace what is known of the hydrations of a host.

        :raises NotFound: the host is not registered
        :raises InvalidInput: the conductor is older than this method
        """
        self._client.call(ctxt, 'report_hydrations', host=host,
                          hydrations=list(hydrations))

    def change_hydration(self, ctxt: contexts.RequestContext, server_id: str,
                         generation: int, wanted: dict[str, typing.Any]
                         ) -> None:
        """Change the hydration of a server's image on its host.

        :param wanted: ``deadline``, seconds from now or None for none;
            ``rate``, bytes per second or None for no limit; ``paused``
        :raises NotFound: the server runs from no image that is arriving
        :raises Conflict: the image is whole
        :raises Busy: the settings were changed since this generation
        """
        self._client.call(ctxt, 'change_hydration', server_id=server_id,
                          generation=generation, wanted=wanted)

    def exchange_boot_sets(self, ctxt: contexts.RequestContext, host: str,
                           sets: collections.abc.Sequence[
                               tuple[str, int, str, str | None]],
                           known: int | None
                           ) -> tuple[int, list[BootSet]] | None:
        """Report the boot sets of a host; return those planned for it.

        :param sets: content id, bytes that are there, state and message
        :param known: generation of the sets that the host knows
        :returns: generation and sets; None if the host knows them
        :raises NotFound: the host is not registered
        :raises InvalidInput: the conductor is older than this method
        """
        found = self._client.call(
            ctxt, 'exchange_boot_sets', host=host,
            sets=[list(each) for each in sets], known=known)
        return found and (found['generation'], [
            BootSet(each['content_id'], each['image_id'], each['bytes'],
                    profiles.of_list(each['rows']))
            for each in found['sets']])
