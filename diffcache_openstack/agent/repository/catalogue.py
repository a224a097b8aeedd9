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
"""The repository's catalogue: signs images and creates patches between them.

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
import time
import typing
import uuid

from diffcache_openstack.agent.repository import pair_choice
from diffcache_openstack.agent.repository import records
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import permissions
from diffcache_openstack.common import threads
from diffcache_openstack import objects
from diffcache_openstack.objects import patch_work
from diffcache_openstack.sites import views

if typing.TYPE_CHECKING:
    from diffcache_openstack.agent.repository import conductor_catalogue

LOG = logging.getLogger(__name__)

Pair = pair_choice.Pair
# Makes a compressed form: of content, with its manifest, to a new file.
Compress = typing.Callable[[pathlib.Path, pathlib.Path, pathlib.Path], None]

_CONTENT_KINDS = views.IMAGES, views.COMPRESSED
# Images, and patches, of one question to the conductor: some 200 KB.
_COMPARED = 1000
# From an attempt to reach the conductor to the next.
RETRY_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class ImageRecord(views.ImageRef):
    """A registered image, as kept in its record file.

    :param members: projects that a shared image is shared with
    """

    members: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class PatchRecord:
    """A patch, as stored in its record file.

    :param size: bytes
    :param create_seconds: what making it took
    :param apply_seconds: what applying it took on this host
    """

    id: str
    base: str
    target: str
    size: int
    create_seconds: float
    apply_seconds: float


@dataclasses.dataclass(frozen=True)
class PatchOptions:
    """Options of the creation of patches.

    :param level: of compression
    :param max_ratio: largest patch to keep, of its target's data
    :param may_run: whether another one may be started now
    :param scan_interval: seconds between two looks for missing patches
    """

    level: int
    max_ratio: float
    may_run: typing.Callable[[], bool]
    scan_interval: float


class Repository:
    """Registers images and creates patches.

    :param host: this host's state
    :param state: directory of the record files
    :param tools: the native core
    :param catalogue: the conductor's
    :param options: how patches are made
    """

    def __init__(self, host: host_state.HostState, state: pathlib.Path,
                 tools: image_tools.ImageTools,
                 catalogue: 'conductor_catalogue.ConductorCatalogue',
                 options: PatchOptions) -> None:
        self._host = host
        self._held = host.held
        self._tools = tools
        self._catalogue = catalogue
        self._options = options
        self._images = records.Records(
            state / 'images', ImageRecord,
            lambda image: (image.content_id, image.form_id))
        self._patches = records.Records(
            state / 'patches', PatchRecord,
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
        self._estimates = pair_choice.Estimates(self._sketch_of,
                                                tools.estimate)
        # Held while objects and the records of their images change, so that
        # no object is dropped whose image is being registered.
        self._changing = threading.Lock()
        self._making = threading.Lock()
        self._announcing = threading.Lock()
        self._pairs_changed = threading.Condition()
        self._pairs_under_way: set[Pair] = set()
        self._wake = threading.Condition()
        self._stopped = False
        self._look = False
        self._thread: threading.Thread | None = None
        self._listeners: list[typing.Callable[[], object]] = []

    # -- images

    def register(self, image: pathlib.Path, image_id: str,
                 name: str) -> ImageRecord:
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
              recipe: pathlib.Path | None = None) -> ImageRecord:
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
                ) -> typing.Iterator[ImageRecord]:
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
            record = ImageRecord(
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

    def _begin_serving(self, record: ImageRecord,
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

    def _drop_orphans(self) -> None:
        """Delete content that a crash left behind before it was registered."""
        with self._changing:
            for path in self._unregistered.iterdir():
                if path.name.startswith('.'):
                    path.unlink()
                elif path.name not in self._serving:
                    self._drop_unregistered(path.name)

    def register_served(self, record: ImageRecord,
                        recipe: pathlib.Path | None = None) -> ImageRecord:
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
            if not self._all_held(record.content_id):
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

    def as_image(self, record: ImageRecord) -> objects.Image:
        """Return a registered image as hosts believe it."""
        return self._catalogue.signed(self._with_compressed_size(record))

    def find(self, image_id: str) -> ImageRecord | None:
        """Return the record of an image, if it is registered here."""
        return self._images.get(image_id)

    def put(self, record: ImageRecord) -> None:
        """Store an image's record, and report it to the conductor.

        Its status decides whether its objects can be read.
        """
        with self._changing:
            self._store(record)
        self._announce_image(record)

    def _store(self, record: ImageRecord) -> None:
        self._images.put(record)
        self._data_sizes[record.content_id] = record.data_size
        self._apply_status(record)

    def _announce_image(self, record: ImageRecord) -> None:
        """Report an image, now if the conductor answers."""
        self._host.report_due.set()
        try:
            self._report(record)
        except exceptions.RetryableError as error:
            LOG.warning('Could not report image %s to the conductor, will '
                        'retry: %s', record.id, error)
        self.look()

    def images(self) -> list[ImageRecord]:
        """Return all registered images."""
        return self._images.all()

    def images_with(self, object_id: str) -> list[ImageRecord]:
        """Return the registered images that have a content or recipe."""
        return self._images.of(object_id)

    def is_whole(self, record: ImageRecord) -> bool:
        """Return whether all that an image's file is made of is served."""
        return all(key in self._held for key in (
            views.Key(views.IMAGES, record.content_id),
            views.Key(views.MANIFESTS, record.content_id),
            *self._recipe_keys(record)))

    def patches(self) -> list[PatchRecord]:
        """Return the records of all patches that are held."""
        return [record for record in self._patches.all()
                if views.Key(views.PATCHES, record.id) in self._held]

    def announce_in_time(self) -> None:
        """Announce, again and again until the conductor was reached.

        Returns when this agent stops, and at once while another thread does
        the same.
        """
        if not self._announcing.acquire(blocking=False):
            return
        try:
            while not self.announce() and not self._pause(RETRY_SECONDS):
                pass
        finally:
            self._announcing.release()

    def _pause(self, seconds: float) -> bool:
        """Wait, and return whether this agent stops."""
        with self._wake:
            return self._wake.wait_for(lambda: self._stopped, seconds)

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
        missing: list[PatchRecord] = []
        for start in range(0, max(len(compared), len(patches)), _COMPARED):
            more, pairs = self._catalogue.find_unregistered(
                compared[start:start + _COMPARED],
                patches[start:start + _COMPARED])
            found += more
            missing += pairs
        return found, missing

    # -- compressed forms

    def uncompressed(self) -> list[ImageRecord]:
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
            if not self._all_held(content_id):
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

    # -- patches

    def start(self) -> None:
        """Delete what a crash left, and start the thread of patches."""
        self._drop_orphans()
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='patches')
        self._thread.start()

    def stop(self) -> None:
        """End; what is being created is given up, and begun anew later."""
        self.interrupt()
        if self._thread is not None:
            threads.join(self._thread)

    def interrupt(self) -> None:
        """Have all that takes long here, in any thread, end soon."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()

    def go_on(self, _done: int, _total: int) -> None:
        """End a long operation if this agent stops, as its progress callback.

        :raises Interrupted: it does
        """
        if self._stopped:
            raise exceptions.Interrupted('The agent is stopping.')

    def look(self) -> None:
        """Look for what is missing now: patches, and what listeners make."""
        self._notify_listeners()
        with self._wake:
            self._look = True
            self._wake.notify_all()

    def make_missing(self) -> int:
        """Create patches that the conductor requests, until there are none.

        :returns: how many were created
        :raises RetryableError: the conductor does not answer, or this agent
            stops
        """
        count = 0
        with self._making:
            while not self._stopped:
                work = self._catalogue.patch_work(
                    self._terms, int(self._options.may_run()))
                self._sketch(work.sketch)
                self._compare(work.compare)
                if work.compare:
                    self._notify_listeners()
                for pair in work.create:
                    self.go_on(0, 0)
                    count += self.create(pair.base, pair.target)
                if not work.pending:
                    break
        return count

    def make_patch(self, base: str, target: str) -> bool:
        """Create the patch between two images, time it, and report it.

        :returns: False if it turned out too large to be worth it
        :raises IntegrityError: an image's file no longer has the content it
            was registered with; it is taken out of service
        """
        patch = self._held.staging(uuid.uuid4().hex)
        output = self._held.staging(uuid.uuid4().hex)
        base_key, target_key = (views.Key(views.IMAGES, content)
                                for content in (base, target))
        try:
            with self._held.lease(base_key) as base_path, \
                    self._held.lease(target_key) as target_path:
                started = time.monotonic()
                found = self._tools.make_patch(
                    base_path, target_path, patch, self._options.level,
                    self.go_on)
                create_seconds = time.monotonic() - started
                self._check_unchanged((base, target), found)
                declined = pair_choice.judge_size(
                    patch.stat().st_size, self.data_size(target),
                    self._options.max_ratio)
                if declined is not None:
                    LOG.info('Discarding the patch from %s to %s: %s', base,
                             target, declined.reason)
                    self._report_pairs([(base, target, declined)])
                    return False
                started = time.monotonic()
                self._tools.apply_patch(base_path, patch, output, self.go_on)
                apply_seconds = time.monotonic() - started
            self._finish(patch, base, target, create_seconds, apply_seconds)
            return True
        finally:
            patch.unlink(missing_ok=True)
            output.unlink(missing_ok=True)

    def find_patch(self, base: str, target: str) -> PatchRecord | None:
        """Return the record of a patch, if it is held."""
        known = self._made.get((base, target))
        if known is not None \
                and views.Key(views.PATCHES, known.id) in self._held:
            return known
        return None

    def has_content(self, content: str) -> bool:
        """Return whether an image with this content is served."""
        return self._all_held(content)

    def has_sketch(self, content: str) -> bool:
        """Return whether an image is served, and was sketched."""
        return self._all_held(content) \
            and (self._sketches / content).exists()

    def data_size(self, content: str) -> int:
        """Return the bytes of data of an image's content; 0 if unknown."""
        return self._data_sizes.get(content, 0)

    def estimate(self, base: str, target: str) -> pair_choice.Verdict:
        """Estimate a patch from the sketches of two images.

        :raises Interrupted: this agent stops
        """
        try:
            return pair_choice.judge_estimate(
                self._estimates.size(base, target), self.data_size(target),
                self._options.max_ratio)
        except exceptions.Interrupted:
            raise
        except (exceptions.DiffCacheError, OSError) as error:
            self._log_failure(
                f'Could not compare {base} with {target}', error, base,
                target)
            return _failure(error)

    def create(self, base: str, target: str) -> bool:
        """Create a patch unless there is one, or report why there is none.

        If another thread is creating it, wait for that.

        :returns: whether this call created it
        :raises ServiceUnavailable: the conductor does not answer
        :raises Interrupted: this agent stops
        """
        with self._alone((base, target)):
            return self._create(base, target)

    @contextlib.contextmanager
    def _alone(self, pair: Pair) -> typing.Iterator[None]:
        """Wait until no other thread works on a pair, and keep them off."""
        with self._pairs_changed:
            self._pairs_changed.wait_for(
                lambda: pair not in self._pairs_under_way)
            self._pairs_under_way.add(pair)
        try:
            yield
        finally:
            with self._pairs_changed:
                self._pairs_under_way.remove(pair)
                self._pairs_changed.notify_all()

    def _create(self, base: str, target: str) -> bool:
        try:
            known = self.find_patch(base, target)
            if known is not None:
                self._catalogue.register_patch(known)
                return False
            return self.make_patch(base, target)
        except (exceptions.ServiceUnavailable, exceptions.Interrupted):
            # The conductor has the pair for this host until it is reported.
            raise
        except (exceptions.DiffCacheError, OSError) as error:
            self._log_failure(
                f'Could not create the patch from {base} to {target}', error,
                base, target)
            self._report_pairs([(base, target, _failure(error))])
            return False

    # -- inside

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            listener()

    def _report(self, record: ImageRecord) -> None:
        self._catalogue.register_image(self._with_compressed_size(record))
        if record.status == views.DELETED:
            # The catalogue remembers; Glance never uses the id again.
            self._images.remove(record.id)

    def _with_compressed_size(self, record: ImageRecord) -> ImageRecord:
        return dataclasses.replace(
            record, compressed_size=self._compressed_size(record.content_id))

    def _apply_status(self, record: ImageRecord) -> None:
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

    def _bring_back(self, record: ImageRecord) -> None:
        keys = [*_content_keys(record), *self._recipe_keys(record)]
        keys += [views.Key(views.PATCHES, patch.id)
                 for patch in self._patches_of(record)
                 if self._is_active(patch.base)
                 and self._is_active(patch.target)]
        for key in keys:
            self._held.bring_back(key)

    def _withdraw_all(self, record: ImageRecord, status: str) -> None:
        patches = self._patches_of(record)
        keys = [*_content_keys(record), *self._recipe_keys(record),
                *(views.Key(views.PATCHES, patch.id) for patch in patches)]
        if status == views.DELETED:
            keys.append(views.Key(views.MANIFESTS, record.content_id))
            for patch in patches:
                self._patches.remove(patch.id)
                self._made.pop((patch.base, patch.target), None)
            (self._sketches / record.content_id).unlink(missing_ok=True)
        self._withdraw(status, keys)

    def _is_active(self, content_id: str) -> bool:
        return any(image.status == views.ACTIVE
                   for image in self._images.of(content_id))

    def _patches_of(self, record: ImageRecord) -> list[PatchRecord]:
        """Return patches that contain data of an image."""
        return self._patches.of(record.content_id)

    def _withdraw(self, status: str, keys: list[views.Key]) -> None:
        for key in keys:
            if status == views.DELETED:
                self._held.drop(key, 'the image was deleted')
            else:
                self._held.set_aside(key)

    @staticmethod
    def _recipe_keys(record: ImageRecord) -> list[views.Key]:
        return [views.Key(views.RECIPES, record.form_id)] \
            if record.form_id else []

    def _check_conflict(self, record: ImageRecord) -> None:
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

    def _check_unchanged(self, expected: Pair, found: Pair) -> None:
        for content_id, really in zip(expected, found):
            if content_id == really:
                continue
            key = views.Key(views.IMAGES, content_id)
            reason = (f'its file now has the content {really}; register the '
                      f'image again from its source')
            self._held.quarantine(key, reason)
            self._host.report_due.set()
            raise exceptions.IntegrityError(
                f'{key} changed in the repository: {reason}.')

    def _finish(self, patch, base, target, create_seconds,
                apply_seconds) -> None:
        record = PatchRecord(
            self._tools.hash_file(patch), base, target, patch.stat().st_size,
            create_seconds, apply_seconds)
        files.sync(patch)
        with self._changing:
            if not self._all_held(base, target):
                raise exceptions.ObjectMissing(
                    f'The repository does not hold both {base} and {target}'
                    f' any more.')
            self._keep(views.Key(views.PATCHES, record.id), patch)
            self._patches.put(record)
            self._made[base, target] = record
        LOG.info('Created patch %s from %s to %s: %d bytes, created in %.1f s,'
                 ' applied in %.1f s', record.id, base, target, record.size,
                 create_seconds, apply_seconds)
        self._host.report_due.set()
        with contextlib.suppress(exceptions.RetryableError):
            self._catalogue.register_patch(record)

    @property
    def _terms(self) -> str:
        """What patches are declined by; if it changes, they may be wanted."""
        return (f'{self._tools.methods}, level {self._options.level},'
                f' ratio {self._options.max_ratio:g}')

    def _sketch(self, contents: list[str]) -> None:
        """Sketch images, and report what the conductor finds others by."""
        found = []
        for content in contents:
            if self._stopped:
                break
            report = objects.ImageSketch(content_id=content)
            try:
                sketch = self._sketch_of(content)
                report.data_size = sketch.data_size
                report.signature = sketch.signature
            except exceptions.Interrupted:
                raise
            except (exceptions.DiffCacheError, OSError) as error:
                self._log_failure(
                    f'Could not read content {content}, creating no patches'
                    f' from or to it for an hour', error, content)
            found.append(report)
        if found:
            self._catalogue.report_sketches(found)

    def _compare(self, pairs: list[objects.PatchPair]) -> None:
        """Estimate patches, and report their sizes."""
        self._report_pairs([
            (pair.base, pair.target, self.estimate(pair.base, pair.target))
            for pair in pairs])

    def _log_failure(self, what: str, error: Exception,
                     *contents: str) -> None:
        """Log a failure, as an error unless an image was withdrawn."""
        if isinstance(error, exceptions.NotFound) \
                or not self._all_held(*contents):
            LOG.info('%s: an image was withdrawn meanwhile: %s', what, error)
        else:
            LOG.error('%s: %s; check the disk, or register the image again',
                      what, error)

    def _report_pairs(self, verdicts: list[tuple[
            str, str, pair_choice.Verdict]]) -> None:
        if verdicts:
            self._catalogue.report_pairs(self._terms, [
                objects.PairReport(base=base, target=target,
                                   verdict=found.kind, size=found.size,
                                   reason=found.reason)
                for base, target, found in verdicts])

    def _sketch_of(self, content: str) -> typing.Any:
        path = self._sketches / content
        if path.exists():
            try:
                return self._tools.load_sketch(path)
            except exceptions.FormatError as error:
                LOG.info('Sketching %s again: %s', content, error)
        with self._held.lease(views.Key(views.IMAGES, content)) as image:
            self._tools.sketch(image, path, self.go_on)
        return self._tools.load_sketch(path)

    def _all_held(self, *contents: str) -> bool:
        return all(views.Key(views.IMAGES, content) in self._held
                   for content in contents)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._look or self._stopped,
                                    self._options.scan_interval)
                if self._stopped:
                    return
                self._look = False
            try:
                self.make_missing()
            except exceptions.Interrupted:
                return
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not create patches, will retry in %s s: %s',
                            self._options.scan_interval, error)
            except Exception:
                LOG.exception('Could not create patches, will retry in %s s',
                              self._options.scan_interval)


def _content_keys(record: ImageRecord) -> list[views.Key]:
    """Return the objects that carry an image's raw content."""
    return [views.Key(kind, record.content_id) for kind in _CONTENT_KINDS]


def _failure(error: Exception) -> pair_choice.Verdict:
    return pair_choice.Verdict(patch_work.FAILED, None, str(error)[:1000])
