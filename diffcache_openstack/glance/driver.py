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
"""Glance's image cache, kept by the agents of the site.

An image that the site can make counts as cached, and is made while it is
sent. One that is not at the site is brought by the agent, once for the site,
if the plan places it there or that takes no more of the WAN than the image's
file; else the first request reads it from Glance's store, later ones read
along, and the agent gets it.
"""

import collections.abc
import contextlib
import os
import pathlib
import threading
import time
import typing

from oslo_config import cfg
from oslo_log import log
from oslo_utils import uuidutils

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import option_names
from diffcache_openstack.glance import agents
from diffcache_openstack.glance import fills
from diffcache_openstack.glance import options
from diffcache_openstack.glance import reading
from diffcache_openstack.glance import store
from glance.image_cache.drivers import base

CONF = cfg.CONF
LOG = log.getLogger(__name__)


class Misconfigured(RuntimeError):
    """Glance must not start: it would use another driver instead.

    On purpose none of the errors after which Glance does so.
    """


class Driver(base.Driver):
    """See :class:`glance.image_cache.drivers.base.Driver`."""

    def configure(self) -> None:
        """Check the options and create what the driver needs.

        :raises Misconfigured: the message names the option
        """
        options.register_opts(CONF)
        try:
            option_names.check_group(option_names.files_of(CONF),
                                     options.GROUP.name, options.OPTS)
        except option_names.UnknownOptionError as error:
            raise Misconfigured(str(error)) from error
        group = CONF[options.GROUP.name]
        if not group.socket or not os.path.isabs(group.socket):
            raise Misconfigured(
                f'[diffcache] socket is {group.socket!r}; image_cache_driver'
                f' diffcache needs the absolute path of the agent\'s socket'
                f' ([agent] glance_socket in diffcache.conf).')
        if not CONF.image_cache_dir:
            raise Misconfigured(
                'image_cache_dir is not set; image_cache_driver diffcache'
                ' needs a directory for images that are on their way.')
        try:
            self.set_paths()
        except OSError as error:
            raise Misconfigured(
                f'image_cache_dir {CONF.image_cache_dir} cannot be used:'
                f' {error.strerror}; name a directory that Glance may write'
                f' to.') from error
        self._agent = agents.HostAgent(
            local_client.LocalClient(group.socket, group.connect_timeout,
                                     contexts.current_request_id),
            group.stall_timeout)
        self._fills = fills.Fills(pathlib.Path(self.incomplete_dir),
                                  1000 * group.least_rate)
        self.source = reading.Source(self._agent, self._fills,
                                     store.read_from)
        self._greet(group.socket)
        store.prefetch_with(self.prefetch)

    # -- what is cached

    def is_cached(self, image_id: str) -> bool:
        """Return whether the cache answers a request.

        True also for what is on its way, or is to come by the plan, and for
        what the agent can bring for no more of the WAN than the image's file
        takes.
        """
        known = self._known(image_id)
        if known is None:
            return False
        return self._by_agent(known) or self._fills.lead_or_follow(image_id)

    def is_cacheable(self, image_id: str) -> bool:
        """Return whether a download of the image helps the site."""
        known = self._known(image_id)
        return known is not None and not known['cached']

    def get_cached_images(self) -> list[dict[str, typing.Any]]:
        """List records of images that the site can build."""
        none: list[dict[str, typing.Any]] = []
        return [{
            'image_id': image['id'],
            'hits': image['hits'],
            'last_accessed': image['last_access'],
            'last_modified': image['last_access'],
            'size': image['file_size'],
        } for image in self._agent.ask(lambda agent: agent.images(), none)
            if image['cached']]

    def get_cached_nodes(self, image_id: str) -> list[str]:
        """List no nodes: Glance asks its own driver centralized_db alone."""
        return []

    def get_hit_count(self, image_id: str) -> int:
        """Count how often this cache served the image."""
        known = self._known(image_id)
        return known['hits'] if known else 0

    def get_image_size(self, image_id: str) -> int:
        """Return the bytes of the image's file.

        :raises NotFound: the agent does not know the image
        """
        known = self._known(image_id)
        if known is None:
            raise exceptions.NotFound(
                f'The agent does not know image {image_id}.')
        return known['file_size']

    def get_cache_size(self) -> int:
        """Return the bytes on this host's disk that are cached for Glance.

        What the planner has put there serves Nova too, and is not counted.
        """
        return self._agent.ask(lambda agent: agent.status()['files_used'], 0)

    def get_least_recently_accessed(self) -> tuple[str, int] | None:
        """Return ID and size of the least recently used file."""
        found = self._agent.ask(lambda agent: agent.status()['files'], [])
        return (found[0]['image_id'], found[0]['bytes']) if found else None

    def delete_cached_image(self, image_id: str) -> None:
        """Stop serving an image from the cache until its next request."""
        if uuidutils.is_uuid_like(image_id):
            self._agent.ask(lambda agent: agent.drop(image_id), None)

    def delete_all_cached_images(self) -> int:
        """Delete all cached images; return how many there were."""
        images = self.get_cached_images()
        for image in images:
            self.delete_cached_image(image['image_id'])
        return len(images)

    # -- the queue

    def is_queued(self, image_id: str) -> bool:
        """Return whether an operator queued the image for caching."""
        return image_id in self.get_queued_images()

    def queue_image(self, image_id: str) -> bool:
        """Queue an image; False if it is queued or cached already."""
        return self._agent.ask(lambda agent: agent.enqueue(image_id), False)

    def get_queued_images(self) -> list[str]:
        """List the IDs of the images in the queue, oldest first."""
        return self._agent.ask(lambda agent: agent.queue(), [])

    def delete_queued_image(self, image_id: str) -> None:
        """Remove an image from the queue."""
        self._agent.ask(lambda agent: agent.dequeue(image_id), False)

    def delete_all_queued_images(self) -> int:
        """Empty the queue; returns how many were in it."""
        images = self.get_queued_images()
        for image_id in images:
            self.delete_queued_image(image_id)
        return len(images)

    def prefetch(self, image_id: str) -> bool:
        """Make the agent bring an image to the site.

        :returns: whether it is there now; if not, Glance reads its store
        """
        known = self._known(image_id)
        if known is None or not self._by_agent(known):
            return False
        try:
            self._agent.prefetch(image_id)
        except exceptions.DiffCacheError as error:
            self._agent.fell_back(image_id, type(error).__name__, error)
            return False
        self.delete_queued_image(image_id)
        return True

    # -- bytes

    @contextlib.contextmanager
    def open_for_read(self, image_id: str
                      ) -> collections.abc.Iterator[reading.Stream]:
        """Open the image's file, byte for byte."""
        known = self._known(image_id)
        if known is None:
            # The agent has gone since it was asked.
            stream = reading.Stream(iter(store.read_from(image_id, 0)))
        else:
            stream = reading.Stream(self.source.whole(
                image_id, known['file_size'], self._by_agent(known)))
        try:
            yield stream
        finally:
            stream.close()

    @contextlib.contextmanager
    def open_for_write(self, image_id: str
                       ) -> collections.abc.Iterator[typing.BinaryIO]:
        """Write what is read from the store to a file for the agent.

        The client that downloads the image has all of it before the agent
        gets the file, from a thread.
        """
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(self._fills.begin(image_id))
            if file is None:
                yield stack.enter_context(open(os.devnull, 'wb'))
                return
            progress = self._fills.progress(file)
            stack.enter_context(self._agent.expecting(image_id,
                                                      progress.is_slow))
            yield file
            file.flush()
            progress.end()
            # Not a daemon: the prefetcher's process waits for it at its end.
            threading.Thread(target=self._hand_over, name='hand-over', args=(
                image_id, file, stack.pop_all())).start()

    def is_at_site(self, image_id: str) -> bool:
        """Return whether a part of the image can be read without the WAN."""
        known = self._known(image_id)
        return known is not None and known['cached']

    def clean(self, stall_time: int | None = None) -> None:
        """Remove what interrupted downloads left behind."""
        if stall_time is None:
            stall_time = CONF.image_cache_stall_time
        count = self._fills.clean(time.time() - stall_time)
        for leftover in pathlib.Path(self.invalid_dir).iterdir():
            leftover.unlink(missing_ok=True)
            count += 1
        LOG.info('Removed %d leftovers of interrupted downloads', count)

    # -- inside

    def _known(self, image_id):
        if not uuidutils.is_uuid_like(image_id):
            return None
        return self._agent.image(image_id)

    @staticmethod
    def _by_agent(known) -> bool:
        # What the plan brings here is not to cross the WAN a second time as
        # a file, even if that is smaller because it is compressed.
        return (known['cached'] or known['file_arriving'] or known['planned']
                or known['file_wan_bytes'] <= known['file_size'])

    def _hand_over(self, image_id, file, download):
        """Give the agent a file, and then end its download."""
        with download:
            length = file.tell()
            file.seek(0)
            try:
                self._agent.client.give_file(image_id, file, length)
            except (exceptions.DiffCacheError, OSError) as error:
                LOG.warning('Could not cache image %s after its download: %s',
                            image_id, error)
                self._agent.fell_back(image_id, type(error).__name__, error)

    def _greet(self, path):
        try:
            self._agent.client.status()
        except exceptions.DiffCacheError as error:
            LOG.warning('Agent unreachable, reading images from the store of'
                        ' Glance until it answers: %s', error)
        else:
            LOG.info('Images are cached by the agent at %s', path)
