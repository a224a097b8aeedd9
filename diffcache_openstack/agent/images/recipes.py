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
nowhere. Other files are made once, verified, and kept for a while.
"""

import contextlib
import hashlib
import logging
import os
import pathlib
import threading
import time
import typing
import uuid

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images import costs as prices
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import throttle as throttles
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)

FILES = 'files'
_PIECE = 1 << 20
# A held template that was read and found sound is not read again before it
# is served, for so many seconds.
_SOUND_SECONDS = 3600.0


class FileReader:
    """A file on this host's disk; it stays readable when it is unlinked."""

    def __init__(self, path: pathlib.Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """See :class:`~diffcache_openstack.blocks.codecs.base.Reader`."""
        return os.pread(self._fd, length, offset)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class FileCache:
    """Files that were built; the least recently used are deleted.

    :param directory: emptied at the start
    :param capacity: bytes; one file that is larger is kept until it was read
    """

    def __init__(self, directory: pathlib.Path, capacity: int) -> None:
        self.directory = directory
        self._capacity = capacity
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.iterdir():
            leftover.unlink()

    def find(self, name: str) -> FileReader | None:
        """Return a file, if it is cached, and note its use."""
        path = self.directory / name
        try:
            reader = FileReader(path)
            os.utime(path)
        except FileNotFoundError:
            return None
        return reader

    def __contains__(self, name: str) -> bool:
        return (self.directory / name).exists()

    def new(self) -> pathlib.Path:
        """Return the path of a new file."""
        return self.directory / f'.{uuid.uuid4().hex}.part'

    def keep(self, path: pathlib.Path, name: str) -> FileReader:
        """Add a complete file to the cache; return it for reading.

        :raises NoSpace: the filesystem is full
        """
        with contextlib.ExitStack() as stack:
            reader = FileReader(path)
            stack.callback(reader.close)
            with files.space_errors(path):
                os.replace(path, self.directory / name)
            self._trim(name)
            stack.pop_all()
        return reader

    def used(self) -> int:
        """Return bytes on disk."""
        return sum(size for _name, size in self.oldest_first())

    def oldest_first(self) -> list[tuple[str, int]]:
        """Return names and bytes on disk, the least recently used first."""
        found = []
        for path in self.directory.iterdir():
            # Others may drop files meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if not path.name.startswith('.'):
                    status = path.stat()
                    found.append((status.st_mtime_ns, path.name,
                                  status.st_blocks * 512))
        return [(name, size) for _used_at, name, size in sorted(found)]

    def drop(self, name: str) -> None:
        """Delete a file; open readers can read it to its end."""
        (self.directory / name).unlink(missing_ok=True)

    def drop_all(self) -> bool:
        """Delete all files to free space; return whether there were any."""
        found = self.oldest_first()
        for name, _size in found:
            self.drop(name)
        return bool(found)

    def _trim(self, newest: str) -> None:
        left = self.used() - self._capacity
        for name, size in self.oldest_first():
            if left <= 0:
                return
            # One that is larger than all there may be is read, not kept.
            if name != newest or size > self._capacity:
                self.drop(name)
                left -= size


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
                 shared: contents.Contents, costs: prices.Costs,
                 new_throttle: typing.Callable[[], throttles.Throttle],
                 store: FileCache,
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

    def cost(self, template: views.TemplateRef, content: prices.Cost
             ) -> prices.Cost:
        """Estimate the cost of having the file.

        :param content: what the raw content would
        """
        cost = self._costs.file(template, content)
        if _name_of(template) in self.store:
            return prices.Cost('local', 0.0, 0, True, cost.arriving)
        making = self._single_flight.is_under_way(_key_of(template))
        return cost if not making else prices.Cost(
            cost.way, cost.seconds, cost.wan_bytes, cost.at_site, True)

    @contextlib.contextmanager
    def open(self, template: views.TemplateRef, site_only: bool
             ) -> typing.Iterator[typing.Any]:
        """Open the file of an image for reading.

        :param site_only: rather fail than use the WAN
        :raises Conflict: that would take the WAN
        :raises DiffCacheError: it cannot be made
        """
        cost = self.cost(template, self._costs.content(template))
        if site_only and not (cost.at_site or cost.arriving):
            raise exceptions.Conflict(
                f'Image {template.id} cannot be made of what the site holds:'
                f' {cost.wan_bytes} bytes would have to cross the WAN; ask'
                f' without site_only.')
        throttle = self._new_throttle()
        if site_only:
            throttle.excluded = self._costs.repositories()
        with contextlib.ExitStack() as stack:
            reader = self._in_place(template, stack)
            if reader is None:
                reader = self._made(template, throttle)
                stack.callback(reader.close)
            yield reader

    def take(self, template: views.TemplateRef, source: typing.BinaryIO,
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
            self._receive(template, source, length, path)
            raw = None
            if views.Key(views.TEMPLATES, template.content_id) \
                    not in self._held:
                raw = self._content_of(template, path)
            self.store.keep(path, _name_of(template)).close()
            return raw
        finally:
            path.unlink(missing_ok=True)

    def drop(self, template: views.TemplateRef) -> None:
        """Delete the file of an image."""
        self.store.drop(_name_of(template))

    # -- inside

    def _in_place(self, template, stack):
        """Open the file from held objects if no write is needed."""
        found = self.store.find(_name_of(template))
        if found is None and template.form_id is None:
            found = self._held_raw(template, stack) \
                or self._through_patch(template, stack)
        if isinstance(found, FileReader):
            stack.callback(found.close)
        return found

    def _held_raw(self, template, stack):
        key = views.Key(views.TEMPLATES, template.content_id)
        if template.form_id is not None or key not in self._held:
            return None
        if time.monotonic() > self._sound.get(key.id, 0.0):
            if not self._held.verify(key):
                return None
            self._sound[key.id] = time.monotonic() + _SOUND_SECONDS
        try:
            return FileReader(stack.enter_context(self._held.lease(key)))
        except exceptions.ObjectMissing:
            return None

    def _through_patch(self, template, stack):
        """Base and patch are both held here: no byte has to be written."""
        manifest = views.Key(views.MANIFESTS, template.content_id)
        if manifest not in self._held:
            return None
        table = self._sources.lookup_table()
        for route in table.to_template(template.content_id):
            if len(route.patches) != 1 or not all(
                    self._sources.is_own(part.host) for part in route.parts):
                continue
            try:
                return self._tools.open_view(
                    stack.enter_context(self._held.lease(route.source.key)),
                    stack.enter_context(
                        self._held.lease(route.patches[0].key)),
                    self._held.path(manifest))
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not read image %s through its patch, will'
                            ' build its file: %s', template.id, error)
        return None

    def _made(self, template, throttle) -> FileReader:
        """Return the file, built by this caller or the flight it follows."""
        def write(_member):
            # A flight may have ended since this caller looked.
            return None, (self.store.find(_name_of(template))
                          or self._with_space(template, throttle))

        while True:
            with self._single_flight.share(
                    _key_of(template), throttle, write) as flight:
                if flight.leads:
                    return flight.outcome
            with contextlib.ExitStack() as stack:
                found = self.store.find(_name_of(template)) \
                    or self._held_raw(template, stack)
                if found is not None:
                    return found

    def _with_space(self, template, throttle) -> FileReader:
        try:
            return self._write(template, throttle)
        except exceptions.NoSpace:
            # All of them: what is lent and unwanted goes as well.
            if not any([self.store.drop_all(), self._held.free_disk()]):
                raise
            LOG.warning('Filesystem full; deleted cached files, building the'
                        ' file of image %s again', template.id)
            return self._write(template, throttle)

    def _write(self, template, throttle) -> FileReader:
        path = self.store.new()
        started = time.monotonic()
        try:
            with self._content(template, throttle) as content:
                if template.form_id is None:
                    if content.parent == self._held.root / views.TEMPLATES:
                        return FileReader(content)
                    files.copy_file(content, path, durable=False)
                else:
                    self._builder.recipe(template.form_id, throttle)
                    recipe = views.Key(views.RECIPES, template.form_id)
                    with self._held.lease(recipe) as recipe_path, \
                            files.space_errors(path):
                        self._tools.apply_recipe(content, recipe_path, path)
            LOG.info('Built the file of image %s in %.1f s', template.id,
                     time.monotonic() - started)
            return self.store.keep(path, _name_of(template))
        finally:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _content(self, template, throttle):
        """Yield the raw content as a file, shared with other users."""
        key = views.Key(views.TEMPLATES, template.content_id)
        if self._held.verify(key):
            with self._held.lease(key) as path:
                yield path
            return
        with self._contents.shared(template, throttle) as content:
            if content.leads:
                self._sound[key.id] = time.monotonic() + _SOUND_SECONDS
            yield content.path

    def _receive(self, template, source, length, path) -> None:
        hasher = hashlib.new(template.os_hash_algo or 'sha512',
                             usedforsecurity=False)
        left = length
        with files.space_errors(path), open(path, 'xb') as output:
            while left:
                data = source.read(min(_PIECE, left))
                if not data:
                    raise exceptions.InvalidInput(
                        f'The file of image {template.id} ended with {left}'
                        f' of {length} bytes missing; send it again.')
                hasher.update(data)
                output.write(data)
                left -= len(data)
        if template.os_hash_value and \
                hasher.hexdigest() != template.os_hash_value:
            raise exceptions.IntegrityError(
                f'Discarded the file sent for image {template.id}: its'
                f' {hasher.name} is {hasher.hexdigest()[:16]}..., in Glance it'
                f' is {template.os_hash_value[:16]}...; send the file again.')

    def _content_of(self, template, path) -> pathlib.Path:
        raw = self._held.staging(
            f'{template.content_id}.{uuid.uuid4().hex}')
        try:
            with files.space_errors(raw):
                if template.disk_format == 'raw':
                    files.copy_file(path, raw, durable=False)
                    found = self._tools.hash_file(raw)
                else:
                    found = self._tools.to_raw(path, raw)
            if found != template.content_id:
                raise exceptions.IntegrityError(
                    f'Discarded the file sent for image {template.id}: its'
                    f' content is {found}, in the catalogue it is'
                    f' {template.content_id}; check the image in Glance.')
        except BaseException:
            files.discard(raw)
            raise
        return raw


def _name_of(template: views.TemplateRef) -> str:
    return template.form_id or template.content_id


def _key_of(template: views.TemplateRef) -> views.Key:
    return views.Key(FILES, _name_of(template))
