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

from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.objects import boot_set
from diffcache_openstack.objects import fields
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire

# Of one host.
_MOST_SERVERS = 65_536
_MOST_BOOT_SETS = 1000
# Whose servers one host runs of one image.
_MOST_PROJECTS = 1000

_ROWS = wire.tuples(wire.COUNT, wire.COUNT, wire.COUNT,
                    most=profiles.MOST_ROWS)
# A label of a profile, such as a flavor's name.
_LABEL = fields.StringField(profiles.LABEL_PATTERN, 128)


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


class LazyAPI(remote.API):
    """Client side of the API for lazy boots."""

    NAMESPACE = 'lazy'

    @remote.method(remote.HOSTS, {
        'host': wire.HOST, 'image_id': wire.ID,
        'projects': fields.ListOfStringsField(fields.ID_PATTERN,
                                              _MOST_PROJECTS),
        'label': _LABEL, 'run': wire.COUNT, 'number': wire.COUNT,
        'rows': _ROWS, 'known_id': fields.UUIDField(nullable=True),
        'known_generation': wire.GENERATION})
    def exchange_reads(self, ctxt: contexts.RequestContext, host: str,
                       reads: Reads, known: Profile | None) -> Profile | None:
        """Report what instances of a host read; return what others read.

        A report replaces those of the same run; one that is repeated or
        overtaken changes nothing.

        :param known: the profile that the host has
        :returns: the profile for such servers; None if it is the known one,
            or there is none
        :raises NotFound: the host or the image is not registered
        :raises InvalidInput: a row cannot be one of the image
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

    @remote.method(remote.REPOSITORY, {
        'host': wire.HOST, 'after': fields.IdField(nullable=True)},
        changes=False)
    def carry_work(self, ctxt: contexts.RequestContext, host: str,
                   after: str | None) -> CarryWork | None:
        """Return what a repository can carry to the next image.

        :param after: an image; those up to it by ID are passed over
        :returns: None if there is no further image, or profiles are not
            carried
        :raises NotFound: the host is not registered
        """
        found = self._client.call(ctxt, 'carry_work', host=host, after=after)
        return found and CarryWork(found['image_id'], found['content_id'], [
            CarrySource(each['profile_id'], each['content_id'],
                        profiles.of_list(each['rows']))
            for each in found['sources']])

    @remote.method(remote.REPOSITORY, {
        'host': wire.HOST, 'image_id': wire.ID, 'profile_id': wire.UUID,
        'rows': _ROWS})
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

    @remote.call(remote.CONTROLLER, {
        'profile_id': wire.UUID, 'image_id': wire.ID,
        'project_id': fields.IdField(nullable=True), 'label': _LABEL,
        'rows': _ROWS})
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

    @remote.call(remote.CONTROLLER, {'profile_id': wire.UUID})
    def delete_profile(self, ctxt: contexts.RequestContext, profile_id: str
                       ) -> None:
        """Delete a profile, which is learned anew.

        :raises NotFound: there is none
        """

    @remote.call(remote.HOSTS, {
        'host': wire.HOST,
        'hydrations': fields.ListOfObjectsField('Hydration', _MOST_SERVERS)})
    def report_hydrations(
            self, ctxt: contexts.RequestContext, host: str,
            hydrations: collections.abc.Sequence[objects.Hydration]) -> None:
        """Replace what is known of the hydrations of a host.

        :raises NotFound: the host is not registered
        """

    @remote.call(remote.CONTROLLER, {
        'server_id': wire.ID, 'generation': wire.COUNT,
        'wanted': wire.HYDRATION_SETTINGS})
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

    @remote.method(remote.HOSTS, {
        'host': wire.HOST,
        'sets': wire.tuples(
            wire.HASH, wire.COUNT, fields.EnumField(boot_set.STATES),
            fields.TextField(nullable=True), most=_MOST_BOOT_SETS),
        'known': wire.GENERATION})
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
        """
        found = self._client.call(
            ctxt, 'exchange_boot_sets', host=host,
            sets=[list(each) for each in sets], known=known)
        return found and (found['generation'], [
            BootSet(each['content_id'], each['image_id'], each['bytes'],
                    profiles.of_list(each['rows']))
            for each in found['sets']])
