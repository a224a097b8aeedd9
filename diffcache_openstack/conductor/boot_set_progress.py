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
"""How far the boot sets that precache jobs want are at each host."""

import collections.abc
import datetime
import typing

from sqlalchemy import orm

from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import precache as db
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import boot_set
from diffcache_openstack.objects import precache

# How a host has an image at once: it has what boots read.
SET = 'boot_set'
LOCAL = 'local'


class SetProgress(typing.NamedTuple):
    """Hosts, and the boot sets there.

    :ivar hosts: with what they hold, by name
    :ivar sets: by host and content id
    :ivar serving: names of hosts that serve images while they arrive
    """

    hosts: collections.abc.Mapping[str, objects.Host]
    sets: collections.abc.Mapping[tuple[str, str], models.BootSet]
    serving: frozenset[str]

    def progress(self, target: typing.Any) -> db.Progress:
        """Compute the progress of a target of a job."""
        held = self._held(target)
        if held is not None:
            return _progress(target, precache.READY, way=held,
                             bytes_done=target.bytes_total)
        trouble = self._trouble(target)
        if trouble:
            return _progress(target, precache.FAILED, message=trouble)
        waits = self._waits_for(target)
        if waits:
            return _progress(target, precache.WAITING, message=waits)
        found = self.sets[target.host, target.content_id]
        done = min(found.held_bytes, target.bytes_total)
        if found.state == boot_set.FAILED:
            return _progress(target, precache.FAILED, bytes_done=done,
                             message=found.message)
        if found.state == boot_set.WAITING:
            return _progress(target, precache.WAITING)
        return _progress(target, precache.FETCHING, bytes_done=done)

    def _held(self, target):
        """Return how the host has what boots read; None if it does not."""
        host = self.hosts.get(target.host)
        if host is not None and any(
                held.kind == objects.IMAGES
                and held.id == target.content_id for held in host.holdings):
            return LOCAL
        found = self.sets.get((target.host, target.content_id))
        # Of a host that is down, what it reported last; one that is up and
        # reports no sets serves none any more.
        is_known = host is not None and (
            target.host in self.serving or not host.alive)
        if is_known and found is not None and found.state in (
                boot_set.READY, boot_set.USED):
            return SET
        return None

    def _trouble(self, target):
        if target.content_id is None:
            return (f'Image {target.image_id} is not in the catalogue, or'
                    f' was withdrawn.')
        if target.host not in self.hosts:
            return (f'Host {target.host} is not registered; start its'
                    f' agent.')
        return None

    def _waits_for(self, target):
        if not target.bytes_total:
            return (f'Nothing is known of boots of image'
                    f' {target.image_id}: boot a server lazily, or import'
                    f' a profile ("openstack image profile import").')
        if not self.hosts[target.host].alive:
            return f'Host {target.host} sends no heartbeats.'
        if target.host not in self.serving:
            return (f'Host {target.host} serves no image while it arrives:'
                    f' start diffcache-lazy there, and set [lazy] socket.')
        found = self.sets.get((target.host, target.content_id))
        if found is None or not found.wanted:
            return (f'The plan has no room for {target.bytes_total} bytes on'
                    f' host {target.host}; raise [lazy] boot_set_share or'
                    f' most_boot_sets, or cancel another job.')
        return None


def _progress(target, state, **values):
    return db.Progress(target.host, target.image_id, state, **values)


def read(session: orm.Session, now: datetime.datetime) -> SetProgress:
    """Read the view of all hosts."""
    return SetProgress(
        {host.name: host for host in held_rows.holding_hosts(session)},
        boot_sets.by_object(session),
        boot_sets.serving(session, now))
