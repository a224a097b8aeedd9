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
"""Images as the files that Glance has, built from the objects of the site.

Hosts keep raw content. The file that a user uploaded is the content itself,
if it was raw; else a *recipe* makes it of the content, bit for bit. Raw images
are read where they lie, through base and patch if need be, and written
nowhere. Other files are made once, verified, and kept for a while. They are
read while they are made, if the recipe says where each part of the file is.
"""

import contextlib
import hashlib
import logging
import pathlib
import threading
import time
import typing
import uuid

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import file_cache
from diffcache_openstack.agent.images.delivery import streams
from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

FILES = 'files'
Readable = file_cache.FileReader | streams.GrowingReader
_PIECE = 1 << 20
# A held image that was read and found sound is not read again before it
# is served, for this many seconds.
_SOUND_SECONDS = 3600.0


class ImageFiles:
    """Builds files of images.

    :param builder: builds objects at this host
    :param held: what this host holds
    :param shared: raw content of images
    :param costs: what images cost
    :param new_throttle: gives the throttle of a request
    :param store: where files that were made are kept
    :param tools: the native core
    """

    def __init__(self, builder: building.Builder, held: holdings.Holdings,
                 shared: contents.Contents, costs: image_costs.ImageCosts,
                 new_throttle: typing.Callable[[], throttles.Throttle],
                 store: file_cache.FileCache,
                 tools: image_tools.ImageTools) -> None:
        self._builder = builder
        self._sources = builder.sources
        self._held = held
        self._costs = costs
        self._new_throttle = new_throttle
        self._tools = tools
        self._contents = shared
        self._sound: dict[str, float] = {}
        self._lock = threading.Lock()
        self.store = store
        self._single_flight = single_flight.SingleFlight(store.directory)
        self._streams = streams.Streams(store, held.free_disk)

    def cost(self, image: views.ImageRef, content: image_costs.ImageCost
             ) -> image_costs.ImageCost:
        """Estimate the cost of having the file.

        :param content: what the raw content would
        """
        cost = self._costs.file(image, content)
        if _name_of(image) in self.store:
            return image_costs.ImageCost('local', 0.0, 0, True, cost.arriving)
        making = (self._single_flight.is_under_way(_key_of(image))
                  or _name_of(image) in self._streams)
        return cost if not making else image_costs.ImageCost(
            cost.way, cost.seconds, cost.wan_bytes, cost.at_site, True)

    @contextlib.contextmanager
    def open(self, image: views.ImageRef, site_only: bool
             ) -> typing.Iterator[typing.Any]:
        """Open the file of an image for reading.

        :param site_only: rather fail than use the WAN
        :raises Conflict: that would take the WAN
        :raises DiffCacheError: it cannot be made
        """
        cost = self.cost(image, self._costs.content(image))
        if site_only and not (cost.at_site or cost.arriving):
            raise exceptions.Conflict(
                f'The site cannot build image {image.id}: {cost.wan_bytes}'
                ' bytes would have to cross the WAN; request it without'
                ' site_only.')
        throttle = self._new_throttle()
        if site_only:
            throttle.excluded = self._costs.repositories()
        with contextlib.ExitStack() as stack:
            reader = self._in_place(image, stack)
            if reader is None:
                reader = self._made(image, throttle)
                stack.callback(reader.close)
            yield reader

    def take(self, image: views.ImageRef, source: typing.BinaryIO,
             length: int) -> pathlib.Path | None:
        """Verify and cache a file that another service fetched.

        :returns: the raw content, verified, in the staging area; None if it
            is held here already. It is the caller's.
        :raises IntegrityError: it is not what Glance vouches for
        :raises InvalidInput: it ended early
        :raises NoSpace: it does not fit
        """
        path = self.store.new()
        try:
            self._receive(image, source, length, path)
            raw = None
            if views.Key(views.IMAGES, image.content_id) \
                    not in self._held:
                raw = self._content_of(image, path)
            self.store.keep(path, _name_of(image)).close()
            return raw
        finally:
            path.unlink(missing_ok=True)

    def drop(self, image: views.ImageRef) -> None:
        """Delete the file of an image."""
        self.store.drop(_name_of(image))

    # -- inside

    def _in_place(self, image, stack):
        """Open the file from held objects if no write is needed."""
        found = self._find(image)
        if found is None and image.form_id is None:
            found = self._held_raw(image, stack) \
                or self._through_patch(image, stack)
        if isinstance(found, (file_cache.FileReader, streams.GrowingReader)):
            stack.callback(found.close)
        return found

    def _find(self, image) -> Readable | None:
        """Open the file if it is kept, or being written."""
        name = _name_of(image)
        # In this order: one that is whole is kept before it is no longer
        # being written.
        return self._streams.find(name) or self.store.find(name)

    def _held_raw(self, image, stack):
        key = views.Key(views.IMAGES, image.content_id)
        if image.form_id is not None or key not in self._held:
            return None
        if time.monotonic() > self._sound.get(key.id, 0.0):
            if not self._held.verify(key):
                return None
            self._sound[key.id] = time.monotonic() + _SOUND_SECONDS
        try:
            # A lease could be of a borrowed file, which was not verified.
            return file_cache.FileReader(
                stack.enter_context(self._held.opened(key)).path)
        except exceptions.ObjectMissing:
            return None

    def _own_routes(self, image):
        """Return the routes to content by a patch where all is held here."""
        table = self._sources.lookup_table()
        return [route for route in table.to_image(image.content_id)
                if len(route.patches) == 1 and all(
                    self._sources.is_own(part.host) for part in route.parts)]

    def _through_patch(self, image, stack):
        """Base and patch are both held here: no byte has to be written."""
        manifest = views.Key(views.MANIFESTS, image.content_id)
        if manifest not in self._held:
            return None
        for route in self._own_routes(image):
            try:
                base, patch = (
                    stack.enter_context(self._held.lease(part.key))
                    for part in route.parts)
                return self._tools.open_view(base, patch,
                                             self._held.path(manifest))
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not read image %s through its patch, will'
                            ' build its file: %s', image.id, error)
        return None

    def _made(self, image, throttle) -> Readable:
        """Return the file, built by this caller or the flight it follows."""
        def write(_member):
            # A flight may have ended since this caller looked.
            return None, (self._find(image)
                          or self._with_space(image, throttle))

        # What fits in no cache is there as long as a reader has it open.
        with self._single_flight.share(
                _key_of(image), throttle, write) as flight:
            return flight.outcome.copy()

    def _with_space(self, image, throttle) -> Readable:
        try:
            return self._write(image, throttle)
        except exceptions.NoSpace:
            # All of them: what is lent and unwanted goes as well.
            if not any([self.store.drop_all(), self._held.free_disk()]):
                raise
            LOG.warning('Filesystem full; deleted cached files, building the'
                        ' file of image %s again', image.id)
            return self._write(image, throttle)

    def _write(self, image, throttle) -> Readable:
        if image.form_id is None:
            return self._write_raw(image, throttle)
        key = views.Key(views.RECIPES, image.form_id)
        self._builder.bring(key, throttle)
        with self._held.lease(key) as recipe:
            return (self._stream_held(image, recipe)
                    or self._write_packed(image, recipe, throttle))

    def _write_raw(self, image, throttle) -> Readable:
        # The second time it is no borrowed file that is copied.
        found = self._copy(image, throttle) \
            or self._copy(image, throttle)
        if found is None:
            raise exceptions.IntegrityError(
                f'The content of image {image.id} changed while it was'
                f' copied; request it again.')
        return found

    def _copy(self, image, throttle) -> Readable | None:
        """Copy raw content; return None if the copy is not it."""
        path = self.store.new()
        try:
            with self._content(image, throttle) as content:
                if content.parent == self._held.root / views.IMAGES:
                    return file_cache.FileReader(content)
                files.copy_file(content, path, durable=False)
            if self._tools.hash_file(path) == image.content_id:
                return self.store.keep(path, _name_of(image))
        finally:
            path.unlink(missing_ok=True)
        # Its owner wrote to a borrowed file after it was verified.
        self._held.quarantine(
            views.Key(views.IMAGES, image.content_id),
            'its content changed while it was copied')
        return None

    def _stream_held(self, image, recipe: pathlib.Path
                     ) -> streams.GrowingReader | None:
        """Write the file from what is held here, in no intermediate file.

        It is not verified first: each part of the file is, before it is used.
        """
        ways = [(views.Key(views.IMAGES, image.content_id),)]
        ways += [tuple(part.key for part in route.parts)
                 for route in self._own_routes(image)]
        for keys in ways:
            try:
                with contextlib.ExitStack() as stack:
                    return self._stream(image, recipe, keys, *(
                        stack.enter_context(self._held.lease(key))
                        for key in keys))
            except exceptions.ObjectMissing:
                continue
            except (exceptions.IntegrityError,
                    exceptions.BaseMismatch) as error:
                LOG.warning('Could not build the file of image %s from what'
                            ' this host holds: %s', image.id, error)
                self._check(keys)
        return None

    def _stream(self, image, recipe, keys, *sources: pathlib.Path
                ) -> streams.GrowingReader | None:
        """Write the file while it is read, if the recipe allows it.

        :param keys: what the sources are, if they are held here
        :param sources: raw content, or its base and the patch; they may be
            deleted meanwhile
        """
        file = self._tools.open_recipe(recipe, *sources)
        if file is None:
            return None
        return self._streams.start(_name_of(image), file,
                                   lambda: self._check(keys))

    def _check(self, keys) -> None:
        """Take what is damaged out of service."""
        for key in keys:
            self._held.verify(key)

    def _write_packed(self, image, recipe, throttle) -> Readable:
        with self._content(image, throttle) as content:
            return (self._stream(image, recipe, (), content)
                    or self._write_whole(image, recipe, content))

    def _write_whole(self, image, recipe, content) -> Readable:
        path = self.store.new()
        started = time.monotonic()
        try:
            with files.space_errors(path):
                self._tools.apply_recipe(content, recipe, path)
            LOG.info('Built the file of image %s in %.1f s', image.id,
                     time.monotonic() - started)
            return self.store.keep(path, _name_of(image))
        finally:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _content(self, image, throttle):
        """Yield the raw content as a file, shared with other users."""
        key = views.Key(views.IMAGES, image.content_id)
        if self._held.verify(key):
            with self._held.lease(key) as path:
                yield path
            return
        with self._contents.shared(image, throttle) as content:
            if content.leads:
                self._sound[key.id] = time.monotonic() + _SOUND_SECONDS
            yield content.path

    def _receive(self, image, source, length, path) -> None:
        hasher = hashlib.new(image.os_hash_algo or 'sha512',
                             usedforsecurity=False)
        left = length
        with files.space_errors(path), open(path, 'xb') as output:
            while left:
                data = source.read(min(_PIECE, left))
                if not data:
                    raise exceptions.InvalidInput(
                        f'The file of image {image.id} ended with {left}'
                        f' of {length} bytes missing; send it again.')
                hasher.update(data)
                output.write(data)
                left -= len(data)
        if image.os_hash_value and \
                hasher.hexdigest() != image.os_hash_value:
            raise exceptions.IntegrityError(
                f'Discarded the file sent for image {image.id}: its'
                f' {hasher.name} is {hasher.hexdigest()[:16]}..., in Glance it'
                f' is {image.os_hash_value[:16]}...; send the file again.')

    def _content_of(self, image, path) -> pathlib.Path:
        raw = self._held.staging(
            f'{image.content_id}.{uuid.uuid4().hex}')
        try:
            with files.space_errors(raw):
                if image.disk_format == 'raw':
                    files.copy_file(path, raw, durable=False)
                    found = self._tools.hash_file(raw)
                else:
                    found = self._tools.to_raw(path, raw)
            if found != image.content_id:
                raise exceptions.IntegrityError(
                    f'Discarded the file sent for image {image.id}: its'
                    f' content is {found}, in the catalogue it is'
                    f' {image.content_id}; check the image in Glance.')
        except BaseException:
            files.discard(raw)
            raise
        return raw


def _name_of(image: views.ImageRef) -> str:
    return image.form_id or image.content_id


def _key_of(image: views.ImageRef) -> views.Key:
    return views.Key(FILES, _name_of(image))
