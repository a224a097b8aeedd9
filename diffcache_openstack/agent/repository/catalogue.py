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
"""The repository's catalogue: its images, and the patches between them.

All of it resumes after a crash: an image counts as registered once its record
file exists, a patch once its own does, and both are reported until the
conductor has them.
"""

import collections
import contextlib
import dataclasses
import logging
import pathlib
import threading
import typing
import uuid

from diffcache_openstack.agent.repository import conductor_catalogue
from diffcache_openstack.agent.repository import records
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import permissions
from diffcache_openstack import objects
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# Makes a compressed form: of content, with its manifest, to a new file.
Compress = typing.Callable[[pathlib.Path, pathlib.Path, pathlib.Path], None]

_CONTENT_KINDS = views.IMAGES, views.COMPRESSED
# Images, and patches, of one question to the conductor: some 200 KB.
_COMPARED = 1000
# From an attempt to reach the conductor to the next.
RETRY_SECONDS = 10.0


class Repository:
    """Registers images, and keeps what is served of them and of their patches.

    :param host: this host's state
    :param state: directory of the record files
    :param tools: the native core
    :param catalogue: the conductor's
    """

    def __init__(self, host: host_state.HostState, state: pathlib.Path,
                 tools: image_tools.ImageTools,
                 catalogue: conductor_catalogue.ConductorCatalogue
                 ) -> None:
        self._host = host
        self._held = host.held
        self._tools = tools
        self._catalogue = catalogue
        self._images = records.Records(
            state / 'images', records.ImageRecord,
            lambda image: (image.content_id, image.form_id))
        self._patches = records.Records(
            state / 'patches', records.PatchRecord,
            lambda patch: (patch.base, patch.target))
        self._data_sizes = {image.content_id: image.data_size
                            for image in self._images.all()}
        self._made = {(patch.base, patch.target): patch
                      for patch in self._patches.all()}
        self._sketches = state / 'sketches'
        self._sketches.mkdir(mode=permissions.PRIVATE.directory, parents=True,
                             exist_ok=True)
        # Named after content that is served and that may have no image yet.
        self._unregistered = state / 'unregistered'
        self._unregistered.mkdir(mode=permissions.PRIVATE.directory,
                                 exist_ok=True)
        self._serving: collections.Counter[str] = collections.Counter()
        # Held while objects and the records of their images change, so that
        # no object is dropped whose image is being registered.
        self._changing = threading.Lock()
        self._announcing = threading.Lock()
        self._stopped = threading.Event()
        self._listeners: list[typing.Callable[[], object]] = []

    # -- images

    def register(self, image: pathlib.Path, image_id: str,
                 name: str) -> records.ImageRecord:
        """Add an image to the repository.

        The file is copied (its extents shared where the filesystem can), so
        that later writes to the original change nothing here.

        :param image_id: the image's id in Glance
        :raises InvalidInput: the file cannot be read
        :raises Conflict: the id belongs to other content already
        :raises NoSpace: the filesystem is full; nothing was kept
        """
        if not image.is_file():
            raise exceptions.InvalidInput(
                f'The image {image} is not a readable file; give the path '
                f'of a raw image on the repository\'s host.')
        copy = self._held.staging(uuid.uuid4().hex)
        try:
            files.copy_file(image, copy)
            return self.admit(copy, {
                'id': image_id, 'name': name,
                'file_size': image.stat().st_size})
        finally:
            copy.unlink(missing_ok=True)

    def admit(self, content: pathlib.Path, about: dict[str, typing.Any],
              recipe: pathlib.Path | None = None) -> records.ImageRecord:
        """Add raw content to the repository.

        :param content: a file of the staging area, which is moved
        :param about: what else is known of the image: fields of its record
        :param recipe: what makes the image's file of the content; moved, too
        :raises Conflict: the id belongs to other content already
        :raises NoSpace: the filesystem is full; nothing was kept
        """
        with self.serving(content, about) as record:
            return self.register_served(record, recipe)

    @contextlib.contextmanager
    def serving(self, content: pathlib.Path, about: dict[str, typing.Any],
                compress: Compress | None = None
                ) -> typing.Iterator[records.ImageRecord]:
        """Let hosts read raw content before its image is registered.

        After the block, content that no registered image has is deleted.

        :param content: a file of the staging area, which is moved
        :param about: as for :meth:`admit`
        :param compress: makes the compressed form; None for no form
        :returns: the image's record, without a recipe
        :raises Conflict: the id belongs to other content already
        :raises NoSpace: the filesystem is full; nothing was kept
        """
        manifest, form = (self._held.staging(uuid.uuid4().hex)
                          for _ in range(2))
        try:
            signed = self._tools.sign(content, manifest, self.go_on)
            record = records.ImageRecord(
                content_id=signed['content_id'], size=signed['size'],
                data_size=signed['data_size'], **about)
            if compress is not None and views.Key(
                    views.COMPRESSED, record.content_id) not in self._held:
                compress(content, manifest, form)
                files.sync(form)
            # Before their names are durable, and before the lock is taken.
            for path in (manifest, content):
                files.sync(path)
            self._begin_serving(record, {
                views.MANIFESTS: manifest, views.COMPRESSED: form,
                views.IMAGES: content})
        finally:
            for path in (manifest, form):
                files.discard(path)
        try:
            yield record
        finally:
            self._end_serving(record.content_id)

    def _begin_serving(self, record: records.ImageRecord,
                       made: dict[str, pathlib.Path]) -> None:
        content_id = record.content_id
        with self._changing:
            self._check_conflict(record)
            # A crash from here on leaves content without an image.
            files.write_json(self._unregistered / content_id, {})
            self._serving[content_id] += 1
            try:
                for kind, path in made.items():
                    if files.is_there(path):
                        self._keep(views.Key(kind, content_id), path)
            except BaseException:
                self._forget_serving(content_id)
                raise

    def _end_serving(self, content_id: str) -> None:
        with self._changing:
            self._forget_serving(content_id)

    def _forget_serving(self, content_id: str) -> None:
        """Count one less that serves content, and delete it if need be."""
        self._serving[content_id] -= 1
        if self._serving[content_id] <= 0:
            del self._serving[content_id]
            self._drop_unregistered(content_id)

    def _drop_unregistered(self, content_id: str) -> None:
        images = self._images.of(content_id)
        if not images:
            for kind in (*_CONTENT_KINDS, views.MANIFESTS):
                self._held.drop(views.Key(kind, content_id),
                                'its image was not added')
        elif not self._is_active(content_id):
            self._apply_status(images[0])
        (self._unregistered / content_id).unlink(missing_ok=True)

    def register_served(self, record: records.ImageRecord,
                        recipe: pathlib.Path | None = None
                        ) -> records.ImageRecord:
        """Register an image whose content is being served.

        :param record: what :meth:`serving` returned
        :param recipe: what makes the image's file of the content; moved
        :raises Conflict: the id belongs to other content already
        :raises ObjectMissing: another image with this content was withdrawn
        """
        if recipe is not None:
            files.sync(recipe)
            record = dataclasses.replace(
                record, form_id=self._tools.hash_file(recipe),
                form_size=recipe.stat().st_size)
        with self._changing:
            self._check_conflict(record)
            if not self.has_content(record.content_id):
                raise exceptions.ObjectMissing(
                    f'The content of image {record.id} was withdrawn while'
                    f' the image was being added; it will be added again.')
            for key in self._recipe_keys(record):
                self._keep(key, typing.cast(pathlib.Path, recipe))
            self._store(record)
        LOG.info('Registered image %s (%s) with content %s', record.id,
                 record.name, record.content_id)
        self._announce_image(record)
        return record

    def as_image(self, record: records.ImageRecord) -> objects.Image:
        """Return a registered image as hosts believe it."""
        return self._catalogue.signed(self._with_compressed_size(record))

    def find(self, image_id: str) -> records.ImageRecord | None:
        """Return the record of an image, if it is registered here."""
        return self._images.get(image_id)

    def put(self, record: records.ImageRecord) -> None:
        """Store an image's record, and report it to the conductor.

        Its status decides whether its objects can be read.
        """
        with self._changing:
            self._store(record)
        self._announce_image(record)

    def _store(self, record: records.ImageRecord) -> None:
        self._images.put(record)
        self._data_sizes[record.content_id] = record.data_size
        self._apply_status(record)

    def _announce_image(self, record: records.ImageRecord) -> None:
        """Report an image, now if the conductor answers."""
        self._host.report_due.set()
        try:
            self._report(record)
        except exceptions.RetryableError as error:
            LOG.warning('Could not report image %s to the conductor, will '
                        'retry: %s', record.id, error)
        self.look()

    def images(self) -> list[records.ImageRecord]:
        """Return all registered images."""
        return self._images.all()

    def images_with(self, object_id: str) -> list[records.ImageRecord]:
        """Return the registered images that have a content or recipe."""
        return self._images.of(object_id)

    def is_whole(self, record: records.ImageRecord) -> bool:
        """Return whether all that an image's file is made of is served."""
        return all(key in self._held for key in (
            views.Key(views.IMAGES, record.content_id),
            views.Key(views.MANIFESTS, record.content_id),
            *self._recipe_keys(record)))

    def announce_in_time(self) -> None:
        """Announce, again and again until the conductor was reached.

        Returns when this agent stops, and at once while another thread does
        the same.
        """
        if not self._announcing.acquire(blocking=False):
            return
        try:
            while not (self.announce()
                       or self._stopped.wait(RETRY_SECONDS)):
                pass
        finally:
            self._announcing.release()

    def announce(self) -> bool:
        """Report the images and patches that the conductor does not know.

        :returns: whether the conductor was reached
        """
        try:
            images, patches = self._find_unregistered()
        except exceptions.RetryableError as error:
            LOG.warning('Could not compare images with those that the'
                        ' conductor knows, will retry: %s', error)
            return False
        calls: list[tuple[typing.Any, typing.Any]] = [
            *((self._report, image) for image in images),
            *((self._catalogue.register_patch, patch) for patch in patches)]
        for call, record in calls:
            try:
                call(record)
            except exceptions.RetryableError as error:
                LOG.warning('Could not report %s to the conductor, will '
                            'retry: %s', record.id, error)
                return False
            except exceptions.PermanentError as error:
                LOG.error('The conductor refused %s: %s', record.id, error)
        self.look()
        return True

    def _find_unregistered(self):
        images = self.images()
        # Patches of removed images are kept, as the image may return, but
        # not registered.
        contents = {image.content_id for image in images}
        patches = [patch for patch in self.patches()
                   if contents >= {patch.base, patch.target}]
        # After they were reported, records of deleted images are removed.
        found = [image for image in images if image.status == views.DELETED]
        compared = [self._with_compressed_size(image) for image in images
                    if image.status != views.DELETED]
        missing: list[records.PatchRecord] = []
        for start in range(0, max(len(compared), len(patches)), _COMPARED):
            more, pairs = self._catalogue.find_unregistered(
                compared[start:start + _COMPARED],
                patches[start:start + _COMPARED])
            found += more
            missing += pairs
        return found, missing

    # -- compressed forms

    def uncompressed(self) -> list[records.ImageRecord]:
        """Return the images that are served without a compressed form.

        One image for each content, the smallest first.
        """
        held = self._held.keys()
        found = {
            image.content_id: image for image in self.images()
            if views.Key(views.IMAGES, image.content_id) in held
            and views.Key(views.COMPRESSED, image.content_id) not in held}
        return sorted(found.values(), key=lambda image: image.data_size)

    def keep_compressed(self, content_id: str, form: pathlib.Path) -> bool:
        """Serve a content's compressed form from now on.

        :param form: a file of the staging area, which is moved
        :returns: False if the content is not served any more
        """
        files.sync(form)
        with self._changing:
            if not self.has_content(content_id):
                return False
            self._keep(views.Key(views.COMPRESSED, content_id), form)
        self._report_compressed(content_id)
        return True

    def _report_compressed(self, content_id: str) -> None:
        """Report the images of a content, whose form is new."""
        try:
            for image in self._images.of(content_id):
                self._report(image)
        except exceptions.DiffCacheError as error:
            # All images are reported when the conductor answers again.
            LOG.warning('Could not report the compressed size of %s, which'
                        ' counts as uncompressed until then: %s', content_id,
                        error)

    def _compressed_size(self, content_id: str) -> int:
        key = views.Key(views.COMPRESSED, content_id)
        if key in self._held:
            with contextlib.suppress(FileNotFoundError):
                return self._held.path(key).stat().st_size
        return 0

    def subscribe(self, listener: typing.Callable[[], object]) -> None:
        """Call ``listener`` whenever images, or similar ones, changed."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Delete what a crash left behind before it was registered."""
        with self._changing:
            for path in self._unregistered.iterdir():
                if path.name.startswith('.'):
                    path.unlink()
                elif path.name not in self._serving:
                    self._drop_unregistered(path.name)

    def interrupt(self) -> None:
        """Have all that takes long here, in any thread, end soon."""
        self._stopped.set()

    # Nothing runs here but what others have called.
    stop = interrupt

    def go_on(self, _done: int = 0, _total: int = 0) -> None:
        """End a long operation if this agent stops, as its progress callback.

        :raises Interrupted: it does
        """
        if self._stopped.is_set():
            raise exceptions.Interrupted('The agent is stopping.')

    def look(self) -> None:
        """Have listeners look for what is missing now."""
        for listener in self._listeners:
            listener()

    # -- patches

    def patches(self) -> list[records.PatchRecord]:
        """Return the records of all patches that are held."""
        return [record for record in self._patches.all()
                if views.Key(views.PATCHES, record.id) in self._held]

    def find_patch(self, base: str, target: str) -> records.PatchRecord | None:
        """Return the record of a patch, if it is held."""
        known = self._made.get((base, target))
        if known is not None \
                and views.Key(views.PATCHES, known.id) in self._held:
            return known
        return None

    def has_content(self, *contents: str) -> bool:
        """Return whether images with these contents are served."""
        return all(views.Key(views.IMAGES, content) in self._held
                   for content in contents)

    def data_size(self, content: str) -> int:
        """Return the bytes of data of an image's content; 0 if unknown."""
        return self._data_sizes.get(content, 0)

    def add_patch(self, record: records.PatchRecord, patch: pathlib.Path
                  ) -> None:
        """Serve a patch, and report it.

        :param patch: a file of the staging area, which is moved
        :raises ObjectMissing: one of its images is not served any more
        :raises PermanentError: the conductor refuses it
        """
        files.sync(patch)
        with self._changing:
            if not self.has_content(record.base, record.target):
                raise exceptions.ObjectMissing(
                    f'The repository does not hold both {record.base} and'
                    f' {record.target} any more.')
            self._keep(views.Key(views.PATCHES, record.id), patch)
            self._patches.put(record)
            self._made[record.base, record.target] = record
        self._host.report_due.set()
        with contextlib.suppress(exceptions.RetryableError):
            self._catalogue.register_patch(record)

    def quarantine(self, content: str, reason: str) -> None:
        """Take content whose file is wrong out of service, and report it."""
        self._held.quarantine(views.Key(views.IMAGES, content), reason)
        self._host.report_due.set()

    def sketch_path(self, content: str) -> pathlib.Path:
        """Return where content's sketch is kept for as long as it is."""
        return self._sketches / content

    # -- inside

    def _report(self, record: records.ImageRecord) -> None:
        self._catalogue.register_image(self._with_compressed_size(record))
        if record.status == views.DELETED:
            # The catalogue remembers; Glance never uses the id again.
            self._images.remove(record.id)

    def _with_compressed_size(self, record: records.ImageRecord
                              ) -> records.ImageRecord:
        return dataclasses.replace(
            record, compressed_size=self._compressed_size(record.content_id))

    def _apply_status(self, record: records.ImageRecord) -> None:
        """Serve an image's objects, or set them aside, by its status."""
        others = [image for image in self._images.of(record.content_id)
                  if image.id != record.id]
        if record.status == views.ACTIVE:
            self._bring_back(record)
        elif any(image.status == views.ACTIVE for image in others):
            # Only a recipe can be this image's alone.
            if record.form_id and self._images.of(record.form_id) == [record]:
                self._withdraw(record.status, self._recipe_keys(record))
        elif others:
            self._withdraw_all(record, views.DEACTIVATED)
        else:
            self._withdraw_all(record, record.status)

    def _bring_back(self, record: records.ImageRecord) -> None:
        keys = [*_content_keys(record), *self._recipe_keys(record)]
        keys += [views.Key(views.PATCHES, patch.id)
                 for patch in self._patches_of(record)
                 if self._is_active(patch.base)
                 and self._is_active(patch.target)]
        for key in keys:
            self._held.bring_back(key)

    def _withdraw_all(self, record: records.ImageRecord, status: str) -> None:
        patches = self._patches_of(record)
        keys = [*_content_keys(record), *self._recipe_keys(record),
                *(views.Key(views.PATCHES, patch.id) for patch in patches)]
        if status == views.DELETED:
            keys.append(views.Key(views.MANIFESTS, record.content_id))
            for patch in patches:
                self._patches.remove(patch.id)
                self._made.pop((patch.base, patch.target), None)
            self.sketch_path(record.content_id).unlink(missing_ok=True)
        self._withdraw(status, keys)

    def _is_active(self, content_id: str) -> bool:
        return any(image.status == views.ACTIVE
                   for image in self._images.of(content_id))

    def _patches_of(self, record: records.ImageRecord
                    ) -> list[records.PatchRecord]:
        """Return patches that contain data of an image."""
        return self._patches.of(record.content_id)

    def _withdraw(self, status: str, keys: list[views.Key]) -> None:
        for key in keys:
            if status == views.DELETED:
                self._held.drop(key, 'the image was deleted')
            else:
                self._held.set_aside(key)

    @staticmethod
    def _recipe_keys(record: records.ImageRecord) -> list[views.Key]:
        return [views.Key(views.RECIPES, record.form_id)] \
            if record.form_id else []

    def _check_conflict(self, record: records.ImageRecord) -> None:
        known = self._images.get(record.id)
        if known is not None and known.content_id != record.content_id:
            raise exceptions.Conflict(
                f'Image {record.id} is registered with the content '
                f'{known.content_id} and this file has '
                f'{record.content_id}; register it under another id.')

    def _keep(self, key: views.Key, path: pathlib.Path) -> None:
        """Hold an object, unless it is held.

        :param path: a file that is on the disk already; it is renamed
        """
        if key not in self._held:
            files.move(path, self._held.path(key))
            self._held.added(key)


def _content_keys(record: records.ImageRecord) -> list[views.Key]:
    """Return the objects that carry an image's raw content."""
    return [views.Key(kind, record.content_id) for kind in _CONTENT_KINDS]
