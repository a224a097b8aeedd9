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
"""Creates the patches that the conductor requests of a repository."""

import contextlib
import dataclasses
import logging
import pathlib
import threading
import time
import typing
import uuid

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import conductor_catalogue
from diffcache_openstack.agent.repository import pair_choice
from diffcache_openstack.agent.repository import records
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack import objects
from diffcache_openstack.objects import patch_work
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

Pair = pair_choice.Pair


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


class PatchMaker:
    """Creates patches between images that a repository serves.

    :param repository: serves images and patches
    :param held: this host's objects
    :param tools: the native core
    :param conductor: requests patches
    :param options: how patches are made
    """

    def __init__(self, repository: catalogue.Repository,
                 held: holdings.Holdings, tools: image_tools.ImageTools,
                 conductor: conductor_catalogue.ConductorCatalogue,
                 options: PatchOptions) -> None:
        self._repository = repository
        self._held = held
        self._tools = tools
        self._catalogue = conductor
        self._options = options
        self._estimates = pair_choice.Estimates(self._sketch_of,
                                                tools.estimate)
        self._making = threading.Lock()
        self._pairs_changed = threading.Condition()
        self._pairs_under_way: set[Pair] = set()
        # Before something changed, the conductor may not know this host.
        self._has_begun = False
        self._rounds = threads.Rounds(
            'patches', self._make_round, options.scan_interval,
            'Could not create patches')

    def start(self) -> None:
        """Start to create patches, in a thread, after the first wake."""
        self._rounds.start()

    def wake(self) -> None:
        """Look for missing patches now."""
        self._has_begun = True
        self._rounds.wake()

    def stop(self) -> None:
        """End; what is being created is given up, and begun anew later."""
        self._repository.interrupt()
        self._rounds.stop()

    def _make_round(self) -> None:
        if not self._has_begun:
            return
        try:
            self.make_missing()
        except exceptions.Interrupted:
            pass
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not create patches, will retry in %g s: %s',
                        self._options.scan_interval, error)

    def make_missing(self) -> int:
        """Create patches that the conductor requests, until there are none.

        :returns: how many were created
        :raises RetryableError: the conductor does not answer, or this agent
            stops
        """
        count = 0
        with self._making:
            while True:
                self._repository.go_on()
                work = self._catalogue.patch_work(
                    self._terms, int(self._options.may_run()))
                self._sketch(work.sketch)
                self._compare(work.compare)
                if work.compare:
                    self._repository.look()
                for pair in work.create:
                    self._repository.go_on()
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
                    self._repository.go_on)
                create_seconds = time.monotonic() - started
                self._check_unchanged((base, target), found)
                declined = pair_choice.judge_size(
                    patch.stat().st_size, self._repository.data_size(target),
                    self._options.max_ratio)
                if declined is not None:
                    LOG.info('Discarding the patch from %s to %s: %s', base,
                             target, declined.reason)
                    self._report_pairs([(base, target, declined)])
                    return False
                started = time.monotonic()
                self._tools.apply_patch(base_path, patch, output,
                                        self._repository.go_on)
                apply_seconds = time.monotonic() - started
            self._finish((base, target), patch, create_seconds,
                         apply_seconds)
            return True
        finally:
            patch.unlink(missing_ok=True)
            output.unlink(missing_ok=True)

    def has_sketch(self, content: str) -> bool:
        """Return whether an image is served, and was sketched."""
        return self._repository.has_content(content) \
            and self._repository.sketch_path(content).exists()

    def estimate(self, base: str, target: str) -> pair_choice.Verdict:
        """Estimate a patch from the sketches of two images.

        :raises Interrupted: this agent stops
        """
        try:
            return pair_choice.judge_estimate(
                self._estimates.size(base, target),
                self._repository.data_size(target), self._options.max_ratio)
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
            known = self._repository.find_patch(base, target)
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

    def _check_unchanged(self, expected: Pair, found: Pair) -> None:
        for content_id, really in zip(expected, found):
            if content_id == really:
                continue
            reason = (f'its file now has the content {really}; register the '
                      f'image again from its source')
            self._repository.quarantine(content_id, reason)
            raise exceptions.IntegrityError(
                f'{views.Key(views.IMAGES, content_id)} changed in the'
                f' repository: {reason}.')

    def _finish(self, pair: Pair, patch: pathlib.Path, create_seconds: float,
                apply_seconds: float) -> None:
        record = records.PatchRecord(
            self._tools.hash_file(patch), *pair, patch.stat().st_size,
            create_seconds, apply_seconds)
        self._repository.add_patch(record, patch)
        LOG.info('Created patch %s from %s to %s: %d bytes, created in %.1f s,'
                 ' applied in %.1f s', record.id, *pair, record.size,
                 create_seconds, apply_seconds)

    @property
    def _terms(self) -> str:
        """What patches are declined by; if it changes, they may be wanted."""
        return (f'{self._tools.methods}, level {self._options.level},'
                f' ratio {self._options.max_ratio:g}')

    def _sketch(self, contents: list[str]) -> None:
        """Sketch images, and report what the conductor finds others by."""
        found = []
        for content in contents:
            self._repository.go_on()
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
                or not self._repository.has_content(*contents):
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
        path = self._repository.sketch_path(content)
        if path.exists():
            try:
                return self._tools.load_sketch(path)
            except exceptions.FormatError as error:
                LOG.info('Sketching %s again: %s', content, error)
        with self._held.lease(views.Key(views.IMAGES, content)) as image:
            self._tools.sketch(image, path, self._repository.go_on)
        return self._tools.load_sketch(path)


def _failure(error: Exception) -> pair_choice.Verdict:
    return pair_choice.Verdict(patch_work.FAILED, None, str(error)[:1000])
