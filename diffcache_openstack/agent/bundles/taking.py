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
"""A bundle's objects, taken in by a host as if they came from a repository.

The bundle is served on the loopback address by a data plane of its own, and
the host's data plane fetches from there: it verifies each object, resumes what
was cut off, and builds images from their compressed form.
"""

import collections.abc
import contextlib
import dataclasses
import logging
import os
import pathlib
import shutil

from oslo_config import cfg

from diffcache_openstack.agent.bundles import packing
from diffcache_openstack.agent.bundles import sealing
from diffcache_openstack.agent.data_plane import inspector
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.state import directory
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import map_file
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import keys
from diffcache_openstack.common import permissions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common.signing import signatures
from diffcache_openstack import objects
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

TAKEN, HELD = 'taken', 'held'
INCOMPLETE, NO_ROOM, DAMAGED = 'pieces missing', 'no room', 'damaged'
DONE = frozenset((TAKEN, HELD))
# In the directory of the state: the list that a controller signed.
REVOKED_KEYS = 'revoked_keys.json'
_LOOPBACK = '127.0.0.1:0'
# In the staging area, which a start of the agent empties.
_SPOOL = 'bundle'


def shared_key(conf: cfg.ConfigOpts) -> bytes:
    """Return the key that the agents share.

    :raises InvalidInput: there is none
    """
    if not conf.data_plane.key_file:
        raise exceptions.InvalidInput(
            'Bundles are sealed with the key that the agents share; set'
            ' [data_plane] key_file.')
    return keys.read_key(conf.data_plane.key_file)


class Intake:
    """Takes a bundle in at a host whose agent is stopped.

    :param conf: the agent's
    :param path: directory of the bundle
    :param security: verifies the bundle, and records of images; from now on
        it refuses keys that this host knows to be revoked
    :raises DiffCacheError: as by :class:`.sealing.Bundle`
    """

    def __init__(self, conf: cfg.ConfigOpts, path: pathlib.Path,
                 security: signatures.Security) -> None:
        if conf.agent.role != objects.COMPUTE:
            raise exceptions.InvalidInput(
                'Bundles are for compute hosts: a repository gets images from'
                ' its image service.')
        self._conf = conf
        self._state = pathlib.Path(conf.agent.state_dir)
        self._security = security
        self._revoked = None if security.authority is None \
            else revocations.Revocations(self._state / REVOKED_KEYS,
                                         security.authority)
        self._bundle = sealing.Bundle(path, conf.agent.site,
                                      shared_key(conf), security)
        self._records = image_records.Verifier(security)

    @contextlib.contextmanager
    def running(self, progress: sealing.Progress
                ) -> collections.abc.Iterator[
                    collections.abc.Iterator[packing.Entry]]:
        """Yield what becomes of each object, which is done as it is read.

        :raises Conflict: the agent runs
        :raises Forbidden: the bundle's own list revokes its creator's key
        :raises InvalidInput: its state belongs to another user
        """
        with contextlib.ExitStack() as stack:
            _check_user(self._state)
            stack.callback(os.umask, os.umask(permissions.UMASK))
            stack.enter_context(directory.used_by_one(self._state))
            self._keep_revoked_keys()
            shared, view = shared_key(self._conf), self._keep_map()
            plan = self._keep_plan()
            plane = stack.enter_context(contextlib.closing(_plane(
                self._state / 'objects', self._conf.agent.host, shared)))
            held = holdings.Holdings(
                self._state / 'objects', self._conf.agent.cache_capacity,
                inspector.NativeInspector(), plane.readers)
            held.scan()
            spool = held.staging(_SPOOL)
            stack.callback(shutil.rmtree, spool, True)
            source = stack.enter_context(contextlib.closing(_plane(
                spool, 'bundle', shared)))
            # Without a plan for it, a host is to have all that comes.
            placed = list(plan.items) or [
                holdings.PlacedObject(_as_held(packed.key), number)
                for number, packed in enumerate(self._bundle.objects)]
            held.want(placed)
            stack.callback(held.save_seals)
            yield _Taking(self._bundle, held, view, spool, _Link(
                plane, orders.Host(source.name, source.url), progress)
            ).all({item.key for item in placed})

    def _keep_revoked_keys(self) -> None:
        """Use the bundle's list of revoked keys, unless there is a newer one.

        :raises Forbidden: it revokes the key that signed the bundle
        """
        carried = self._bundle.contents.get('revoked')
        if self._revoked is None or carried is None:
            return
        try:
            self._revoked.update(carried)
        except exceptions.Forbidden as error:
            LOG.warning("Could not use the bundle's list of revoked keys"
                        ' (still using number %d): %s', self._revoked.number,
                        error)
        self._bundle.verify(self._security)

    def _keep_map(self) -> views.SiteView:
        """Store the bundle's map, unless there is a newer one."""
        kept = map_file.MapFile(self._state / 'site_map.json')
        carried = objects.SiteMap.parse_kept(self._bundle.contents['map'])
        present = kept.load(self._is_trusted)
        if present is not None and present.generation >= carried.generation:
            return present.view()
        kept.replace(carried)
        return map_state.MapState(carried, self._is_trusted).view()

    def _is_trusted(self, image: objects.Image) -> bool:
        try:
            self._records.check(image)
        except exceptions.Forbidden:
            return False
        return True

    def _keep_plan(self) -> filling.FillPlan:
        """Store the bundle's plan for this host, unless it has a newer one."""
        path = self._state / 'plan.json'
        kept = filling.FillPlan.load(path)
        carried = self._bundle.contents['plan']
        if carried is None or carried['generation'] <= kept.generation:
            return kept
        plan = filling.FillPlan.received(
            carried['generation'],
            carried['items'].get(self._conf.agent.host, []))
        plan.save(path)
        return plan


@dataclasses.dataclass(frozen=True)
class _Link:
    """Where objects come from, and the data plane that fetches them."""

    plane: native_plane.DataPlane
    source: orders.Host
    progress: sealing.Progress

    def deliver(self, key: views.Key, dest: pathlib.Path,
                manifest: pathlib.Path | None) -> None:
        """Fetch an object to its place, and verify it.

        :raises DiffCacheError: it is damaged, or cannot be written
        """
        found = self.plane.deliver(
            orders.Order(key, dest, (orders.HostSource(
                self.source, orders.Link.WAN),), manifest, in_place=True),
            self.plane.new_handle(), self._show)
        if found.source is None:
            raise found.failures[-1].error

    def _show(self, done: int, total: int, over_wan: bool) -> None:
        self.progress(done, total)


class _Taking:
    """Takes objects in, one after another."""

    def __init__(self, bundle: sealing.Bundle, held: holdings.Holdings,
                 view: views.SiteView, spool: pathlib.Path, link: _Link
                 ) -> None:
        self._bundle = bundle
        self._held = held
        self._view = view
        self._spool = spool
        self._link = link

    def all(self, placed: set[views.Key]
            ) -> collections.abc.Iterator[packing.Entry]:
        """Take in what this host is to have, and what it needs for that."""
        for packed in self._bundle.objects:
            key = _as_held(packed.key)
            if key.kind not in views.UNPLANNED and key not in placed:
                continue
            yield packing.Entry(key, packed.size, self._state_of(packed, key))

    def _state_of(self, packed: sealing.Packed, key: views.Key) -> str:
        if key in self._held:
            return HELD
        if not self._bundle.is_whole(packed):
            return INCOMPLETE
        try:
            with self._held.room_for(key, self._view.size_of(key) or 0):
                self._take(packed, key)
        except exceptions.NoSpace:
            return NO_ROOM
        except (exceptions.IntegrityError, exceptions.FormatError) as error:
            return f'{DAMAGED}: {error}'
        return TAKEN

    def _take(self, packed: sealing.Packed, key: views.Key) -> None:
        if key.kind in (views.IMAGES, views.PATCHES) \
                and self._view.size_of(key) is None:
            raise exceptions.IntegrityError(
                f'No repository vouches for {key}, or it was withdrawn.')
        served = self._spool / packed.key.kind / packed.key.id
        dest = self._held.path(key)
        try:
            self._bundle.unpack(packed, served)
            self._link.deliver(key, dest, self._held.manifest(key.id)
                               if key.kind == views.IMAGES else None)
        finally:
            served.unlink(missing_ok=True)
        self._held.added(key)
        files.discard_part(dest)


def _as_held(key: views.Key) -> views.Key:
    """Return what an object of a bundle is at a host."""
    return views.Key(views.IMAGES, key.id) \
        if key.kind == views.COMPRESSED else key


def _plane(root: pathlib.Path, name: str, key: bytes
           ) -> native_plane.DataPlane:
    root.mkdir(parents=True, exist_ok=True)
    # The key keeps other users of this machine out.
    return native_plane.DataPlane(root, name, _LOOPBACK, key)


def _check_user(state: pathlib.Path) -> None:
    """Check that files of this process will be the agent's.

    :raises InvalidInput: they will be those of another user
    """
    if files.is_there(state) and state.stat().st_uid != os.geteuid():
        raise exceptions.InvalidInput(
            f'{state} belongs to user {state.owner()}: run the command as'
            f' that user, for instance with "sudo -u {state.owner()}".')
