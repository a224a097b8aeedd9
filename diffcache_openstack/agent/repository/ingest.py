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
"""Adding the images of an image service to the repository.

The service reports changes; at the start, and every few hours, everything is
looked at once. An image's file is verified against the hash that the service
vouches for, unpacked to raw content by the native core, and described by a
recipe where the file is not the raw content itself.
"""

import contextlib
import dataclasses
import hashlib
import logging
import pathlib
import threading
import time
import typing
import uuid

from diffcache_openstack.agent.repository import absent_images
from diffcache_openstack.agent.repository import arriving_images
from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import image_limits
from diffcache_openstack.agent.repository import image_service
from diffcache_openstack.agent.repository import ingest_queue
from diffcache_openstack.agent.repository import records
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import threads
from diffcache_openstack import objects
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

RAW = 'raw'
QCOW2 = 'qcow2'
BARE = 'bare'
# What an image service says of images that will be, are, or were.
_GONE = ('deleted', 'pending_delete')
_SERVED = {views.ACTIVE: views.ACTIVE, views.DEACTIVATED: views.DEACTIVATED}
# Level of zstd of images that hosts wait for, and which part of the time of
# the default level it takes.
_QUICK_LEVEL, _QUICK_PART = 3, 1 / 3
# Between two lists of all images: reports may be lost.
_LISTING_SECONDS = 4 * 3600.0
_CHANGEABLE = ('name', 'owner', 'visibility', 'status', 'family',
               'members')


@dataclasses.dataclass(frozen=True)
class _Hash:
    """The hash of an image's file in Glance."""

    algo: str
    value: str


class Ingest:
    """Adds an image service's images to a repository and follows changes.

    :param source: the image service
    :param repository: takes images in
    :param held: has the staging area
    :param tools: the native core
    :param limits: what unpacking an image may cost
    :param workers: how many images are added at a time
    :param level: of compression of what crosses the WAN; 0 for none
    :ivar arriving: the images that are being added
    """

    def __init__(self, source: image_service.ImageService,
                 repository: catalogue.Repository,
                 held: holdings.Holdings, tools: image_tools.ImageTools,
                 limits: image_limits.ImageLimits, workers: int = 1,
                 level: int = 0) -> None:
        self._source = source
        self._repository = repository
        self._held = held
        self._tools = tools
        self._limits = limits
        self._level = level
        self.arriving = arriving_images.ArrivingImages(
            self._hurry, self._registered)
        self._absent = absent_images.AbsentImages()
        self._queue = ingest_queue.IngestQueue(workers)
        self._queue.add(ingest_queue.LISTING)
        self._threads = [
            threading.Thread(target=self._run, daemon=True,
                             name=f'ingest-{number}')
            for number in range(workers)]
        # Why images cannot be added, until they change.
        self.refused: dict[str, str] = {}

    def start(self) -> None:
        """Start the threads, which process every image once at first."""
        # First listen, then look: what changes in between is seen twice.
        self._source.start(self.changed, self.deleted)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop; images that are being added are added at the next start.

        The repository's :meth:`~.catalogue.Repository.interrupt` ends what
        takes long.
        """
        self._source.stop()
        self._queue.close()
        self.arriving.close()
        for thread in self._threads:
            threads.join(thread)

    def changed(self, image_id: str) -> None:
        """Schedule an update of an image that changed."""
        self._queue.add(image_id)

    def deleted(self, image_id: str) -> None:
        """Schedule the withdrawal of an image, if it really is gone."""
        self._absent.note_deleted(image_id)
        self._queue.add(image_id)

    def replace(self, key: views.Key) -> None:
        """Schedule the images of an object that was damaged."""
        for record in self._repository.images_with(key.id):
            if record.os_hash_value and record.id not in self.refused:
                self._queue.hurry(record.id, record.file_size or 0)

    def report(self) -> dict[str, typing.Any]:
        """Return what is being added, waits, or was refused, and why.

        Images that are served although the service does not list them count
        as refused.
        """
        return {'queue': self._queue.report(),
                'refused': self.refused | self._absent.report(),
                'arriving': self.arriving.report()}

    def reconcile(self) -> None:
        """Schedule every image of the service and of the repository.

        :raises RetryableError: the service does not answer
        """
        # In this order: one that is added meanwhile is not missing.
        known = {record.id: record.visibility
                 for record in self._repository.images()
                 if record.os_hash_value and record.status != views.DELETED}
        images = {image.id: image for image in self._source.images()}
        gone = self._absent.update(known.keys() - images.keys(), known)
        # What must not be served comes before what may be.
        for image_id in gone:
            self._queue.add(image_id, 0)
        for image in images.values():
            is_active = image.status == views.ACTIVE
            # Some are refused after a download.
            if not (is_active and image.id in self.refused):
                self._queue.add(image.id,
                                image.size or 0 if is_active else 0)
        LOG.info('Found %d images in the image service; %d were known before',
                 len(images), len(known))

    def look_at(self, image_id: str) -> None:
        """Update one image from the image service.

        :raises DiffCacheError: that is not possible, now or ever
        """
        image = self._source.image(image_id)
        if image is None and not self._absent.is_gone(image_id):
            LOG.warning('The image service does not return image %s, and'
                        ' reported no deletion; the next list of all images'
                        ' decides whether it is withdrawn', image_id)
            return
        if image is None or image.status in _GONE:
            self._withdraw(image_id)
        self._absent.forget(image_id)
        if image is None or image.status not in _SERVED:
            return
        known = self._repository.find(image_id)
        if known is None:
            if image.status == views.ACTIVE:
                self._take(image)
            return
        self._check_same(known, image)
        record = dataclasses.replace(known, **{
            name: getattr(image, name) for name in _CHANGEABLE})
        if record != known:
            self._repository.put(record)
            LOG.info('Updated image %s (%s): %s, %s', image.id, image.name,
                     image.status, image.visibility)
        if image.status == views.ACTIVE \
                and not self._repository.is_whole(record):
            LOG.warning('Adding image %s (%s) again: objects of it were lost'
                        ' or damaged', image.id, image.name)
            self._take(image)

    # -- inside

    def _withdraw(self, image_id: str) -> None:
        """Stop serving an image that was deleted, for good."""
        known = self._repository.find(image_id)
        if known is not None and known.status != views.DELETED:
            LOG.info('Withdrawing image %s (%s), which was deleted', image_id,
                     known.name)
            self._repository.put(dataclasses.replace(
                known, status=views.DELETED))

    @staticmethod
    def _check_same(known, image) -> None:
        """Refuse data that changed: an active image's never does."""
        if image.os_hash_value and known.os_hash_value \
                and known.os_hash_value != image.os_hash_value:
            raise exceptions.Conflict(
                f'Image {image.id} has the {image.os_hash_algo}'
                f' {image.os_hash_value[:16]}... and was added with'
                f' {known.os_hash_value[:16]}...; remove the image with'
                f' "diffcache-manage image delete {image.id}".')

    def _registered(self, image_id: str) -> objects.Image | None:
        """Return an image that was added, and is served."""
        known = self._repository.find(image_id)
        if known is None or known.status != views.ACTIVE:
            return None
        return self._repository.as_image(known)

    def _hurry(self, image_id: str) -> bool:
        """Have an image added soon; return whether that is possible.

        :raises RetryableError: the image service does not answer
        """
        image = self._source.image(image_id)
        if image is None or image.status != views.ACTIVE \
                or self._repository.find(image_id) is not None:
            return False
        try:
            _checked(image)
        except exceptions.InvalidInput:
            return False
        return self._queue.hurry(image_id, image.size or 0)

    def _take(self, image: image_service.ServiceImage) -> None:
        vouched = _checked(image)
        started = time.monotonic()
        self.arriving.begin(image.id)
        try:
            size = self._add(image, vouched)
        finally:
            self.arriving.end(image.id)
        LOG.info('Added image %s (%s), %d bytes, in %.1f s', image.id,
                 image.name, size, time.monotonic() - started)

    def _add(self, image: image_service.ServiceImage, vouched: _Hash) -> int:
        """Add an image; returns the bytes of its file.

        Hosts can read its content before the recipe is made, which takes
        longer than all the rest.
        """
        with contextlib.ExitStack() as stack:
            path, content, recipe = (self._staged(stack) for _ in range(3))
            size = self._download(image, vouched, path)
            about = {
                'id': image.id, 'name': image.name, 'file_size': size,
                'disk_format': image.disk_format, 'owner': image.owner,
                'os_hash_algo': image.os_hash_algo,
                'os_hash_value': image.os_hash_value,
                'visibility': image.visibility, 'status': image.status,
                'family': image.family, 'members': image.members}
            deadline = self._limits.deadline(image.id,
                                             self._repository.go_on)
            if image.disk_format == RAW:
                content = path
            else:
                started = time.monotonic()
                self._unpack(image, path, content, deadline)
                self.arriving.note_unpacked(
                    size, time.monotonic() - started)
            form = _Form(self._tools, self._level,
                         lambda: self.arriving.is_awaited(image.id),
                         self._repository.go_on)
            with self._repository.serving(
                    content, about,
                    form.compress if self._level else None) as record:
                self.arriving.publish(self._repository.as_image(record),
                                      form.spare)
                self._register(record, path, recipe, deadline)
        return size

    def _register(self, record: records.ImageRecord, path: pathlib.Path,
                  recipe: pathlib.Path, deadline: image_limits.Deadline
                  ) -> None:
        """Register an image whose content is served."""
        try:
            if record.disk_format == RAW:
                self._repository.register_served(record)
                return
            key = views.Key(views.IMAGES, record.content_id)
            with self._held.lease(key) as content:
                self._make_recipe(content, path, recipe, deadline)
            self._repository.register_served(record, recipe)
        except BaseException:
            self.arriving.withdraw(record.id)
            raise

    def _staged(self, stack) -> pathlib.Path:
        path = self._held.staging(uuid.uuid4().hex)
        stack.callback(files.discard, path)
        return path

    def _download(self, image: image_service.ServiceImage, vouched: _Hash,
                  path: pathlib.Path) -> int:
        """Write the file, verified; returns its bytes."""
        hasher = hashlib.new(vouched.algo, usedforsecurity=False)
        size = 0
        with files.space_errors(path), open(path, 'xb') as output:
            for piece in self._source.download(image.id):
                self._repository.go_on(size, image.size or 0)
                size += len(piece)
                if image.size is not None and size > image.size:
                    raise exceptions.IntegrityError(
                        f'Glance sends more of image {image.id} than the'
                        f' {image.size} bytes it states; it is not added.'
                        f' Check the store that Glance reads it from.')
                hasher.update(piece)
                output.write(piece)
        if hasher.hexdigest() != vouched.value:
            raise exceptions.IntegrityError(
                f'Image {image.id} came with the {vouched.algo}'
                f' {hasher.hexdigest()[:16]}..., and Glance vouches for'
                f' {vouched.value[:16]}...; it is not added. Check'
                f' the store that Glance reads it from.')
        return size

    def _unpack(self, image: image_service.ServiceImage, path: pathlib.Path,
                content: pathlib.Path, deadline: image_limits.Deadline
                ) -> None:
        if not self._tools.is_qcow2(path):
            raise exceptions.InvalidInput(
                f'Image {image.id} has the disk format qcow2 in Glance, and is'
                f' not qcow2; it is not added. Upload it with its own disk'
                f' format.')
        self._limits.check(image.id, path, self._tools)
        with files.space_errors(content):
            self._tools.to_raw(path, content, deadline)

    def _make_recipe(self, content: pathlib.Path, path: pathlib.Path,
                     recipe: pathlib.Path, deadline: image_limits.Deadline
                     ) -> None:
        with files.space_errors(recipe):
            self._tools.make_recipe(content, path, recipe, deadline)
        self._tools.check_recipe(content, recipe, deadline)

    def _run(self) -> None:
        while (entry := self._queue.take()) is not None:
            try:
                self._process(entry)
                self._queue.finish(entry)
                if entry.image_id == ingest_queue.LISTING:
                    self._queue.add_later(entry.image_id, _LISTING_SECONDS)
            except exceptions.Interrupted:
                return
            except exceptions.RetryableError as error:
                self._postpone(entry, str(error),
                               isinstance(error, exceptions.NoSpace))
            except exceptions.DiffCacheError as error:
                self.refused[entry.image_id] = str(error)
                self._queue.finish(entry)
                LOG.error('Could not add image %s: %s', entry.image_id, error)
            except Exception as error:
                LOG.exception('Could not process image %s', entry.image_id)
                self._postpone(entry, f'{type(error).__name__}: {error}')

    def _process(self, entry: ingest_queue.Entry) -> None:
        if entry.image_id == ingest_queue.LISTING:
            self.reconcile()
            return
        if entry.size is None and (size := self._size(entry.image_id)):
            # Now that its size is known, smaller ones may come first.
            self._queue.add(entry.image_id, size)
            return
        self.look_at(entry.image_id)
        self.refused.pop(entry.image_id, None)

    def _size(self, image_id: str) -> int | None:
        """Return the bytes of an image's file if it has to be downloaded."""
        image = self._source.image(image_id)
        if (image is None or image.status != views.ACTIVE
                or self._repository.find(image_id) is not None):
            return None
        return image.size

    def _postpone(self, entry: ingest_queue.Entry, error: str,
                  for_space: bool = False) -> None:
        wait = self._queue.postpone(entry, error, for_space)
        about = (f'image {entry.image_id}' if entry.image_id
                 else 'the image service')
        LOG.warning('Waiting for %s, next attempt in %.0f s: %s', about, wait,
                    error)


class _Awaited(Exception):
    """A host waits for the image that is being compressed."""


class _Form:
    """Compresses an image, less but sooner if a host waits for it.

    :param level: of zstd
    :param is_awaited: whether a host waits
    :param go_on: ends it if the agent stops, as its progress callback
    :ivar spare: seconds that it would have taken less for a host
    """

    def __init__(self, tools: image_tools.ImageTools, level: int,
                 is_awaited: typing.Callable[[], bool],
                 go_on: typing.Callable[[int, int], None]) -> None:
        self._tools = tools
        self._level = level
        self._is_awaited = is_awaited
        self._go_on = go_on
        self.spare = 0.0

    def compress(self, content: pathlib.Path, manifest: pathlib.Path,
                 form: pathlib.Path) -> None:
        """Make the compressed form of content."""
        if self._level > _QUICK_LEVEL and not self._is_awaited():
            started = time.monotonic()
            with contextlib.suppress(_Awaited):
                self._tools.compress(content, manifest, form, self._level,
                                     self._go_on_unless_awaited)
                self.spare = (1 - _QUICK_PART) * (time.monotonic() - started)
                return
        self._tools.compress(content, manifest, form,
                             min(self._level, _QUICK_LEVEL), self._go_on)

    def _go_on_unless_awaited(self, done: int, total: int) -> None:
        self._go_on(done, total)
        # Near the end, to begin anew would take longer.
        if done < (1 - _QUICK_PART) * total and self._is_awaited():
            raise _Awaited


def _checked(image: image_service.ServiceImage) -> _Hash:
    """Return the hash to verify an image with.

    :raises InvalidInput: the message says why
    """
    if image.container_format != BARE \
            or image.disk_format not in (RAW, QCOW2):
        raise exceptions.InvalidInput(
            f'Image {image.id} is {image.disk_format} in'
            f' {image.container_format}; only bare raw and qcow2 images are'
            f' cached.')
    if not image.os_hash_value or not image.os_hash_algo \
            or image.os_hash_algo not in hashlib.algorithms_available:
        raise exceptions.InvalidInput(
            f'Image {image.id} has no hash that can be verified'
            f' ({image.os_hash_algo}); upload it again.')
    return _Hash(image.os_hash_algo, image.os_hash_value)
