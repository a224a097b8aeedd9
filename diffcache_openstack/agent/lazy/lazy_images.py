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
"""Images that diffcached serves while they arrive, as the agent sees them.

What diffcached has on its disk is the record of what is served; the agent adds
to each image the room that it takes of the cache. A whole image becomes an
object of this host, and stays one until no process has it open.
"""

import collections.abc
import contextlib
import dataclasses
import logging
import os
import pathlib
import time
import typing
import uuid

from oslo_config import cfg

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_boot_sets
from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.agent.lazy import lazy_learning
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import lazy_sources
from diffcache_openstack.agent.lazy import lazy_versions
from diffcache_openstack.agent.lazy import planned_boot_sets
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import threads
from diffcache_openstack.conf import lazy as lazy_options
from diffcache_openstack import objects
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# Seconds between checks of images.
LOOK_SECONDS = 2.0
# Seconds until an image that could not be held is read again: the first time,
# and the longest.
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 3600.0
# What says that a file is not the image. Other errors say nothing of it.
_DAMAGED = (exceptions.IntegrityError, exceptions.FormatError,
            exceptions.InvalidInput)
# diffcached ranks all homes, and uses this many of them.
MOST_HOMES = 64
# Why an image is delivered whole.
DISABLED = 'disabled'
HELD = 'held'
QUICK = 'quick'


def _always() -> bool:
    return True


@dataclasses.dataclass
class LazyImage:
    """An image that is served.

    :ivar uses: what it takes of this host until it is removed
    :ivar in_cache: whether room was set aside in the cache; without it the
        image is an object of this host only until its user has a file
    :ivar attached: whether peers read it here while it arrives
    :ivar held: whether it is an object of this host
    :ivar released: whether its user has replaced it by a file
    :ivar hold_at: when it may be read to be held, by time.monotonic()
    :ivar pause: seconds from the last failure of that to the next attempt
    """

    uses: contextlib.ExitStack
    in_cache: bool = True
    attached: bool = False
    held: bool = False
    released: bool = False
    hold_at: float = 0.0
    pause: float = 0.0

    def rest(self) -> None:
        """Have it not be read again for a while, as it could not be held."""
        self.pause = min(max(2 * self.pause, FIRST_PAUSE), LONGEST_PAUSE)
        self.hold_at = time.monotonic() + self.pause


class Supply(typing.NamedTuple):
    """What brings images to this host.

    :ivar builder: brings manifests
    :ivar transfers: of this host
    :ivar costs: what images cost here
    :ivar new_throttle: gives the throttle of a request
    :ivar may_fill: whether the windows of fills are open
    """

    builder: building.Builder
    transfers: site_transfers.Transfers
    costs: image_costs.ImageCosts
    new_throttle: collections.abc.Callable[[], throttles.Throttle]
    may_fill: collections.abc.Callable[[], bool] = _always


class Users(typing.NamedTuple):
    """What uses the images that are served.

    :ivar servers: that boot from them
    :ivar learning: exchanges what is read of them; None for none
    :ivar hydrations: of the images; None without diffcached
    :ivar boot_sets: planned for this host; None for none
    """

    servers: lazy_servers.Servers
    learning: lazy_learning.LazyLearning | None = None
    hydrations: lazy_hydrations.Hydrations | None = None
    boot_sets: planned_boot_sets.PlannedBootSets | None = None


@contextlib.contextmanager
def _warned(content_id: str) -> collections.abc.Iterator[None]:
    """Log why one content could not be checked; others are, all the same."""
    try:
        yield
    except (exceptions.DiffCacheError, OSError) as error:
        LOG.warning('Could not check the content %s, which is served while it'
                    ' arrives: %s', content_id, error)


class LazyImages(threads.Rounds):
    """Has images served while they arrive, and accounts for them.

    What is done with one content takes its turn, and may wait for the WAN or
    for diffcached. Nothing that concerns other contents waits meanwhile.

    :param options: the group ``[lazy]``
    :param host: this host's state
    :param supply: what brings images here
    :param users: what uses them
    :param versions: that are served like images; None for none
    """

    def __init__(self, options: cfg.ConfigOpts, host: host_state.HostState,
                 supply: Supply, users: Users,
                 versions: version_reads.VersionReads | None = None
                 ) -> None:
        super().__init__('lazy-images', self.look, LOOK_SECONDS,
                         'Could not check served images',
                         exceptions.ServiceUnavailable)
        # Apart from what may not wait for images that are read to their end.
        self._holding = threads.Rounds(
            'lazy-holding', self.hold, LOOK_SECONDS,
            'Could not hold whole images', exceptions.ServiceUnavailable)
        self._options = options
        self._host = host
        self._supply = supply
        self._servers = users.servers
        self._learning, self._hydrations = users.learning, users.hydrations
        self._sources = lazy_sources.ImageSources(
            host, supply.transfers, supply.builder.sources)
        self._daemon = diffcached.Diffcached(options.socket) \
            if options.socket else None
        self._turns = threads.KeyedLocks()
        self._versions: lazy_versions.LazyVersions | None = None
        if self._daemon is not None and versions is not None:
            self._versions = lazy_versions.LazyVersions(
                self._daemon, versions, self._servers, self._turns)
        self._sets: lazy_boot_sets.LazyBootSets | None = None
        if self._daemon is not None and users.boot_sets is not None:
            self._sets = lazy_boot_sets.LazyBootSets(
                host, users.boot_sets, self._means_of_sets(self._daemon))
        # Each entry is changed in the turn of its content.
        self._served: dict[str, LazyImage] = {}

    def _means_of_sets(self, daemon: diffcached.Diffcached
                       ) -> lazy_boot_sets.Means:
        plane = self._supply.transfers.plane
        return lazy_boot_sets.Means(
            daemon, self._document, self._bring_manifest, plane.attach,
            plane.detach, self._supply.may_fill, self._turns)

    # -- life

    def boot_set_counts(self) -> dict[str, int]:
        """Return how many boot sets were served, dropped, and failed."""
        return dict(self._sets.counts) if self._sets is not None else {}

    def start(self) -> None:
        """Start the thread that checks images."""
        if self._daemon is not None:
            super().start()
            self._holding.start()

    def stop(self) -> None:
        """Stop looking after images; they are served all the same."""
        super().stop()
        self._holding.stop()
        for content_id in list(self._served):
            with self._turns.of(content_id):
                self._forget_use(content_id)
        if self._sets is not None:
            self._sets.close()

    # -- requests

    def open(self, image_id: str, rate: int | None = None
             ) -> dict[str, typing.Any]:
        """Serve an image while it arrives, if that is worth while.

        :param rate: bytes per second at which the rest is fetched at most, if
            this begins it; None for that of the options
        :returns: ``path``, of a file that can be read now; or ``path`` None
            and ``reason``, if it is to be delivered whole
        :raises NotFound: the catalogue does not have it, or it was withdrawn
        :raises ServiceUnavailable: diffcached does not answer
        :raises DiffCacheError: no source has it, or its manifest
        """
        image = self._host.site_map.find(image_id)
        key = views.Key(views.IMAGES, image.content_id)
        if self._daemon is None:
            return {'path': None, 'reason': DISABLED}
        with self._turns.of(key.id):
            if key.id not in self._served:
                reason = self._reason_against(image, key)
                if reason:
                    return {'path': None, 'reason': reason}
            return self._add(image, key, rate)

    def open_version(self, version_id: str, project_id: str, image_id: str,
                     rate: int | None = None) -> dict[str, typing.Any]:
        """Serve a version while it arrives, if that is possible.

        :param project_id: of the server that boots from it
        :param image_id: stands for the version in Nova
        :param rate: as of :meth:`open`, of the version and of its base image
        :returns: as :meth:`open`
        :raises NotFound: the project has no such version
        :raises Conflict: it is not complete, or has several disks
        :raises ServiceUnavailable: conductor, store or diffcached does not
            answer
        """
        if self._versions is None:
            return {'path': None, 'reason': DISABLED}
        disk = self._versions.disk_of(version_id, project_id)
        version = version_reads.ReadVersion(
            version_id, project_id, disk.version, disk.base_id,
            disk.base_name, self._arriving_base(disk, rate), (image_id,))
        return self._versions.open(version, self._serving_options(rate))

    def _arriving_base(self, disk: objects.VersionDisk, rate: int | None
                       ) -> str | None:
        """Have the base image of a version served; return its path.

        :param rate: as of :meth:`open`
        :returns: None if it is to be delivered whole, or there is none
        """
        view = self._host.site_map.current()
        image = next((each for each in view.images
                      if each.content_id == disk.base_id
                      and each.status == views.ACTIVE), None)
        if image is None:
            return None
        try:
            return self.open(image.id, rate)['path']
        except exceptions.DiffCacheError as error:
            LOG.info('The base image %s of a version is not served while it'
                     ' arrives: %s', image.id, error)
            return None

    def whole_version(self, version_id: str, project_id: str
                      ) -> pathlib.Path | None:
        """Return the file of a version that has arrived, if it is served.

        :param project_id: that the version has to be of
        :raises ServiceUnavailable: diffcached does not answer
        """
        return self._versions.whole(version_id, project_id) \
            if self._versions is not None else None

    def describe_served(self) -> list[dict[str, typing.Any]]:
        """Describe the images that are served.

        :raises ServiceUnavailable: diffcached does not answer
        """
        if self._daemon is None:
            return []
        return [self._describe(status) for status in self._daemon.images()]

    def _describe(self, status: diffcached.Document) -> diffcached.Document:
        content_id = status['content_id']
        common = {**status, 'servers': [
            server.id for server in self._servers.of(content_id)]}
        if self._versions is not None and self._versions.owns(content_id):
            return {**common, **self._versions.describe(status)}
        served = self._served.get(content_id)
        return {**common, 'held': served is not None and served.held,
                'boot_set': self._is_set(content_id), 'image_ids': [
                    image.id for image
                    in self._host.site_map.current().images
                    if image.content_id == content_id]}

    def _content_of(self, image_id: str) -> str:
        """Return the content of an image, or of the version it stands for.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        found = self._versions.content_of(image_id) if self._versions \
            else None
        return found or self._host.site_map.find(image_id).content_id

    def add_server(self, server: lazy_servers.LazyServer,
                   wish: lazy_servers.Wish | None = None) -> None:
        """Note that a server boots from an image that is served.

        :param wish: the deadline of its hydration, at its first boot; None
            for whenever
        :raises NotFound: it is not served
        """
        content_id = self._content_of(server.image_id)
        is_new = self._servers.add(content_id, server)
        if self._learning is not None:
            self._learning.wake()
        if is_new:
            self._consider(content_id, server, wish or lazy_servers.Wish())
        self._host.report_due.set()

    def remove_server(self, server_id: str) -> None:
        """Note that a server is no longer on this host."""
        contents = self._servers.remove(server_id)
        if self._hydrations is not None:
            self._hydrations.remove_server(server_id, contents)

    def release(self, content_id: str) -> None:
        """Note that no new user of a served image comes.

        It is removed when no process has it open any more.

        :raises NotFound: it is not served
        """
        if self._versions is not None and self._versions.owns(content_id):
            self._versions.release(content_id)
            return
        if self._is_set(content_id):
            return  # It waits for its first server.
        served = self._served.get(content_id)
        if served is None:
            raise exceptions.NotFound(
                f'Content {content_id} is not served while it arrives.')
        served.released = True
        self.wake()

    def look(self) -> None:
        """Account for what is served.

        :raises ServiceUnavailable: diffcached does not answer
        """
        if self._daemon is None:
            return
        if self._sets is not None:
            self._sets.prepare()
        found = {each['content_id']: each for each in self._daemon.images()}
        for content_id in self._known() - found.keys():
            self._forget_gone(content_id)
        for content_id, status in found.items():
            # One whose turn is taken is looked at the next time.
            with self._turns.attempt(content_id) as is_mine, \
                    _warned(content_id):
                if is_mine:
                    self._look_at(content_id, status)
        if self._sets is not None:
            self._sets.look(found)

    def hold(self) -> None:
        """Make objects of what is whole, one after another.

        :raises ServiceUnavailable: diffcached does not answer
        """
        if self._daemon is None:
            return
        found = {each['content_id']: each for each in self._daemon.images()}
        # Not in its turn: this reads each image to its end.
        for content_id, served in self._find_whole(found):
            with _warned(content_id):
                served.rest()
                self._hold(views.Key(views.IMAGES, content_id),
                           pathlib.Path(found[content_id]['data_path']),
                           served)
                served.hold_at = 0.0

    def _known(self) -> set[str]:
        """Return the contents that are accounted for."""
        versions = self._versions.content_ids() if self._versions else []
        return {*self._served, *self._servers.all_contents(), *versions}

    def _forget_gone(self, content_id: str) -> None:
        """Forget a content that diffcached does not list, if it is gone.

        It may have been added since diffcached listed the others.
        """
        assert self._daemon is not None
        with self._turns.attempt(content_id) as is_mine:
            if not is_mine:
                return
            with contextlib.suppress(exceptions.NotFound):
                self._daemon.image(content_id)
                return
            self._forget_use(content_id)
            self._servers.forget(content_id)
            if self._versions is not None:
                self._versions.forget(content_id)

    def _forget_use(self, content_id: str) -> None:
        served = self._served.pop(content_id, None)
        if served is not None:
            served.uses.close()

    def _find_whole(self, found: dict[str, diffcached.Document]
                    ) -> list[tuple[str, LazyImage]]:
        """Return the images that are whole and no objects of the host yet."""
        return [(content_id, served)
                for content_id, served in list(self._served.items())
                if found.get(content_id, {}).get('complete')
                and not served.held and not served.released
                and served.hold_at <= time.monotonic()
                and not self._is_set(content_id)]

    def _renew_set(self, content_id: str, status: diffcached.Document) -> None:
        try:
            self._renew_sources(views.Key(views.IMAGES, content_id),
                                status)
        except (exceptions.DiffCacheError, OSError) as error:
            LOG.warning('Could not renew the sources of the boot set of'
                        ' content %s: %s', content_id, error)

    def _is_set(self, content_id: str) -> bool:
        """Return whether no server has begun to boot from a content."""
        return self._sets is not None and self._sets.owns(content_id)

    def _consider(self, content_id: str, server: lazy_servers.LazyServer,
                  wish: lazy_servers.Wish) -> None:
        if self._hydrations is None:
            return
        try:
            self._hydrations.wish(content_id, server.id, wish)
        except exceptions.DiffCacheError as error:
            # The server boots all the same.
            LOG.warning('Could not hydrate the image of server %s within %s s'
                        ' at up to %s bytes/s: %s', server.id, wish.seconds,
                        wish.rate, error)

    # -- inside; the content's turn is taken

    def _reason_against(self, image: views.ImageRef, key: views.Key
                        ) -> str | None:
        if key in self._host.held.readable():
            return HELD
        cost = self._supply.costs.content(image)
        is_quick = (cost.way != image_costs.NONE
                    and cost.seconds < self._options.worth_seconds)
        return QUICK if is_quick else None

    def _add(self, image: views.ImageRef, key: views.Key,
             rate: int | None) -> dict[str, typing.Any]:
        assert self._daemon is not None
        options = self._serving_options(rate)
        wanted = {**self._document(key), **options}
        profile = self._learning and self._learning.profile(key.id)
        if profile:
            wanted['profile'] = str(profile)
        served = self._served.get(key.id)
        if served is None:
            served = self._take_room(key, image.data_size)
        try:
            status = self._daemon.add(key.id, wanted)
            if self._sets is not None and self._is_set(key.id):
                self._sets.hand_over(key.id)
            self._hydrate_set(key.id, status, options)
        except BaseException:
            if key.id not in self._served:
                served.uses.close()
            raise
        served.released = False
        if key.id not in self._served:
            LOG.info('Serving image %s while it arrives, at %s', image.id,
                     status['path'])
        self._served[key.id] = served
        self._attach(key, status, served)
        self._servers.follow(key.id)
        return {'path': status['path'], 'reason': None}

    def _document(self, key: views.Key) -> diffcached.Document:
        """Return what diffcached needs to serve an image.

        :raises DiffCacheError: no source has it, or its manifest
        """
        manifest = self._bring_manifest(key.id)
        sources = self._sources.of(key)
        if not sources:
            raise exceptions.ServiceUnavailable(
                f'No host that answers has the image content {key.id}; it can'
                f' be served when one does.')
        return {'manifest': str(manifest), 'sources': sources,
                'homes': self._homes(), 'wait': self._options.wait}

    def _bring_manifest(self, content_id: str) -> pathlib.Path:
        return self._supply.builder.manifest(content_id,
                                             self._supply.new_throttle())

    def _hydrate_set(self, content_id: str, status: diffcached.Document,
                     options: diffcached.Document) -> None:
        """Have the rest fetched of what was served for its boot set."""
        assert self._daemon is not None
        if status.get('hydration', {}).get('mode') != lazy_boot_sets.PROFILE:
            return
        self._daemon.change(content_id, {
            'hydrate': options['hydrate'], 'rate': options.get('rate')})
        LOG.info('A server boots from content %s, whose boot set is here',
                 content_id)

    def _serving_options(self, rate: int | None = None) -> diffcached.Document:
        """Return the options of an image.

        :param rate: that its first server asks for
        """
        options = self._options
        rate = lazy_hydrations.limit(rate, options.hydrate_rate)
        limit = {'rate': rate} if rate else {}
        return {'hydrate': options.hydrate, 'wait': options.wait, **limit}

    def _take_room(self, key: views.Key, size: int) -> LazyImage:
        """Set room aside for all of an image, if the cache has it.

        A cache that is full of what the plan places does not keep servers from
        starting: the file is Nova's base image, which counts nowhere else.
        """
        in_cache = True
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._host.held.room_for(key, size))
            except exceptions.NoSpace as error:
                in_cache = False
                LOG.info('Content %s is served outside of the cache while it'
                         ' arrives: %s', key.id, error)
            if self._options.hydrate == lazy_options.IDLE:
                # Fills of the site do not bring it over the WAN once more.
                stack.enter_context(self._supply.transfers.expecting(key))
            return LazyImage(stack.pop_all(), in_cache)

    def _homes(self) -> dict[str, typing.Any]:
        """Return the hosts that fetch chunks for one another.

        Those that do not answer now are among them: the ranks of the others
        do not change with them.
        """
        return {'own': self._host.name, 'hosts': [
            {'name': host.name, 'url': host.url}
            for host in self._host.site_map.current().compute_hosts()
            if host.url]}

    def _attach(self, key: views.Key, status: dict, served: LazyImage) -> None:
        """Let peers read an image here while it arrives."""
        if served.attached or served.held:
            return
        try:
            self._supply.transfers.plane.attach(
                key, pathlib.Path(status['data_path']).parent)
        except (exceptions.DiffCacheError, OSError) as error:
            # Guests of this host do not depend on it.
            LOG.warning('Peers cannot read content %s here while it'
                        ' arrives: %s', key.id, error)
            return
        served.uses.callback(self._supply.transfers.plane.detach, key)
        served.attached = True

    def _look_at(self, content_id: str, status: dict) -> None:
        if self._is_set(content_id):
            self._renew_set(content_id, status)
            return
        if self._versions is not None and self._versions.owns(content_id):
            if self._versions.look_at(content_id, status) \
                    and self._end(content_id, status):
                self._versions.forget(content_id)
            return
        key = views.Key(views.IMAGES, content_id)
        served = self._served.get(content_id)
        if served is None:
            served = self._take_up(key, status)
        if served.released:
            if not served.in_cache:
                self._drop(key, served)
            if self._end(content_id, status):
                self._forget_use(content_id)
                return
        if not status.get('complete'):
            self._attach(key, status, served)
            self._renew_sources(key, status)
            # The agent may have ended before it did this.
            self._hydrate_set(content_id, status, self._serving_options())

    def _take_up(self, key: views.Key, status: dict) -> LazyImage:
        """Account for an image that was served before this agent started."""
        if key in self._host.held:
            uses = contextlib.ExitStack()
            uses.enter_context(self._host.held.lease(key))
            served = LazyImage(uses, held=True)
        else:
            # Of a withdrawn image no more comes than has arrived.
            size = self._host.site_map.current().size_of(key)
            if size is None:
                size = status['present'] * status['chunk']
            served = self._take_room(key, size)
        self._served[key.id] = served
        self._servers.follow(key.id)
        return served

    def _has_manifest(self, content_id: str) -> bool:
        """Return whether a whole image can be verified, to be held.

        A withdrawn image is not held, and its manifest is deleted. Guests that
        have it open read it on.

        :raises DiffCacheError: no source delivers the manifest
        """
        if files.is_there(self._host.held.manifest(content_id)):
            return True
        image = self._host.site_map.current().content(content_id)
        if image is None or image.status != views.ACTIVE:
            return False
        self._bring_manifest(content_id)
        return True

    def _hold(self, key: views.Key, data: pathlib.Path, served: LazyImage
              ) -> None:
        """Make an object of a whole image, verified once more.

        Called outside of its turn. The image may be removed meanwhile. Of one
        that is damaged diffcached verifies all, and fetches what is wrong.
        """
        assert self._daemon is not None
        if not self._has_manifest(key.id):
            return
        held = self._host.held
        staged = held.staging(f'{key.id}.{uuid.uuid4().hex}')
        os.link(data, staged)
        try:
            try:
                held.inspector.deep(key, staged, held.manifest(key.id))
            except _DAMAGED:
                self._daemon.change(key.id, {'verify': True})
                raise
            with self._turns.attempt(key.id) as is_mine, \
                    contextlib.ExitStack() as stack:
                if not is_mine or served.released or \
                        self._served.get(key.id) is not served:
                    return  # The next look tries again, if it is here.
                held.take(key, staged)
                stack.enter_context(held.lease(key))
                # The bytes are the object's from now on.
                served.uses.close()
                served.uses = stack.pop_all()
                served.held = True
        finally:
            staged.unlink(missing_ok=True)
        LOG.info('Image content %s has arrived whole and is held', key.id)
        self._supply.transfers.offer(key)
        self._host.object_added()

    def _drop(self, key: views.Key, served: LazyImage) -> None:
        """Hold an image no longer that the cache has no room for.

        Guests may have it open for weeks: diffcached serves it to its end.
        """
        served.uses.close()
        served.held = False
        if self._host.held.release(key):
            self._host.report_due.set()

    def _renew_sources(self, key: views.Key, status: dict) -> None:
        assert self._daemon is not None
        used = status.get('sources', [])
        fresh = self._sources.of(key)
        changed: diffcached.Document = {}
        if fresh and used and lazy_sources.differ(fresh, used):
            changed['sources'] = fresh
        homes = self._homes()
        if not _is_same(homes['hosts'], status['homes']):
            changed['homes'] = homes
        if changed:
            self._daemon.change(key.id, changed)

    def _end(self, content_id: str, status: diffcached.Document) -> bool:
        """Have a content served no longer, unless a guest has it open.

        :returns: whether it is served no longer
        """
        assert self._daemon is not None
        # Before it is gone: no report is to be without its servers.
        if self._hydrations is not None and status.get('complete'):
            self._hydrations.note_arrived(status)
        try:
            self._daemon.remove(content_id)
        except exceptions.Conflict:
            return False
        LOG.info('Content %s is no longer served while it arrives',
                 content_id)
        self._servers.forget(content_id)
        self._host.report_due.set()
        return True

    # -- the thread


def _is_same(hosts: list[dict[str, str]], used: list[dict]) -> bool:
    """Return whether diffcached uses the homes of a list."""
    urls = {host['name']: host['url'] for host in hosts}
    return (len(used) == min(len(urls), MOST_HOMES)
            and all(urls.get(each['name']) == each['url'] for each in used))
