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
"""Delivery of images to paths of this host.

Each request gets a file of its own at the path that it names: whole,
verified, and created by rename. Requests for the same image at the same time
share the work; the others get copies of the verified result.
"""

import contextlib
import dataclasses
import datetime
import logging
import os
import pathlib
import threading
import time
import typing
import uuid

from diffcache_openstack.agent.images import build_modes
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack import objects
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

WAY_FAILED = 'none'

# Attempts to write content that is evicted before it was: each may cross the
# WAN.
_MOST_ATTEMPTS = 3

#: Called with the record of a request that ended, and the image.
Observer = typing.Callable[[objects.Request, views.ImageRef], None]


class PendingOutputs:
    """Notes of outputs being written outside of this agent's directory.

    After a crash their temporary files are removed.

    :param directory: for the notes
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def noted(self, output: pathlib.Path) -> typing.Iterator[None]:
        """Note an output that is written during the block."""
        note = self._directory / f'{uuid.uuid4().hex}.json'
        files.write_json(note, {'output': str(output)}, durable=False)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

    def clean(self, find: typing.Callable[[pathlib.Path], outputs.Output]
              ) -> None:
        """Remove temporary files that a crash left behind.

        :param find: returns the output with a path
        """
        for note in self._directory.glob('*.json'):
            document = files.read_json(note)
            if document is not None:
                find(pathlib.Path(document['output'])).clean()
            note.unlink(missing_ok=True)


class ImageServer:
    """Delivers the images of one host, and records each request.

    :param shared: raw content of images
    :param host: this host's state
    :param new_throttle: gives the throttle of a request
    :param allowed: directories of other services that may be written to
    :param pending: notes outputs while they are written
    :param requests: keeps records until the conductor has them
    :param default_mode: one of building.MODES; build_modes.AUTO for the
        faster one
    """

    def __init__(self, shared: contents.Contents, host: host_state.HostState,
                 new_throttle: typing.Callable[[], throttles.Throttle],
                 allowed: outputs.Outputs, pending: PendingOutputs,
                 requests: request_spool.RequestSpool,
                 default_mode: str = build_modes.AUTO) -> None:
        self._contents = shared
        self._host = host
        self._staging = host.held.root / holdings.STAGING
        self._durable = new_throttle().durable
        self._new_throttle = new_throttle
        self._outputs = allowed
        self._pending = pending
        self._requests = requests
        self._default_mode = default_mode
        self._observers: list[Observer] = []
        self.modes = build_modes.BuildModes()

    def observe(self, observer: Observer) -> None:
        """Call an observer with each request that ended, and its image."""
        self._observers.append(observer)

    def deliver_image(self, image_id: str, path: str, mode: str | None,
                      watch: contents.Watch) -> objects.Request:
        """Write an image to a path of another service's directory.

        See :meth:`deliver`.

        :raises InvalidInput: the path must not be written
        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        output = self._outputs.open(path)
        image = self._host.site_map.find(image_id)
        watch.progress(0, image.size)
        return self.deliver(image, output, mode, watch)

    def deliver(self, image: views.ImageRef, output: outputs.Output,
                mode: str | None = None,
                watch: contents.Watch | None = None) -> objects.Request:
        """Write an image's raw content to an output of this host.

        If its client disconnects, nothing is written, and there is no record.

        :param mode: one of building.MODES; None for the default
        :param watch: the client that waits for the image
        :returns: the record of the request
        :raises Cancelled: the client has disconnected
        :raises InvalidInput: the output or mode cannot be used
        :raises DiffCacheError: no source delivers the image; output is
            untouched
        """
        check_mode(mode)
        request = objects.Request(
            id=str(uuid.uuid4()), image_id=image.id,
            host=self._host.name, mode=mode or self._choose_mode(),
            started_at=datetime.datetime.now(datetime.UTC), way=WAY_FAILED,
            predicted_seconds=0.0)
        started = time.monotonic()
        try:
            with tracing.span('delivery', image=image.id,
                              mode=request.mode) as span:
                built = (self._copy_held(image, output, watch)
                         or self._bring(image, output, request.mode,
                                        watch))
                span.note(way=built.way, detail=built.detail)
        except exceptions.Cancelled as error:
            LOG.info('Not delivering image %s to %s: %s', image.id,
                     output.path, error)
            raise
        except exceptions.DiffCacheError as error:
            request.seconds = time.monotonic() - started
            request.error = str(error)
            self._report(request, image)
            raise
        request.seconds = time.monotonic() - started
        _describe(request, built)
        self._report(request, image)
        return request

    def deliver_content(self, content_id: str | None, output: pathlib.Path,
                        gone: threading.Event | None = None) -> bool:
        """Write the content with an id to a path of this host.

        :param gone: set once the content is not needed any more
        :returns: False if no image that may be served has it
        :raises Cancelled: it was set; output is untouched
        :raises DiffCacheError: no source delivers it; output is untouched
        """
        image = next(
            (each for each in self._host.site_map.current().images
             if each.content_id == content_id
             and each.status == views.ACTIVE), None)
        if image is None:
            return False
        watch = contents.Watch()
        if gone is not None:
            watch.gone = gone
        self.deliver(image, outputs.LocalOutput(output), watch=watch)
        return True

    def _choose_mode(self) -> str:
        if self._default_mode == build_modes.AUTO:
            return self.modes.choose()
        return self._default_mode

    def _report(self, request: objects.Request,
                image: views.ImageRef) -> None:
        if request.error is None:
            LOG.info('Delivered image %s in %.3f s: %s (%s)', image.id,
                     request.seconds, request.way, request.detail)
        else:
            LOG.warning('Could not deliver image %s: %s', image.id,
                        request.error)
        self._requests.add(request)
        self._host.report_due.set()
        for observer in self._observers:
            observer(request, image)

    def _copy_held(self, image: views.ImageRef, output: outputs.Output,
                   watch: contents.Watch | None) -> building.Built | None:
        """Write what this host holds and need not read, if that is so.

        There is nothing to decide, and several requests at once need not share
        the work.

        :returns: None if the image has to be brought or to be read first, or
            something has to be removed for it
        """
        key = views.Key(views.IMAGES, image.content_id)
        started = time.monotonic()
        try:
            with self._host.held.opened(key) as found:
                if not found.is_intact:
                    return None
                with _output_errors(output):
                    self._publish(key, found.path, output, watch)
        except (exceptions.ObjectMissing, exceptions.NoSpace,
                FileNotFoundError):
            return None
        return building.Built(
            site_sources.LOCAL, f'image from {self._host.name}',
            site_transfers.Moved(), time.monotonic() - started,
            routes.local_seconds(self._host.site_map.current(),
                                 self._host.name, key), 0)

    def _bring(self, image, output, mode, watch) -> building.Built:
        for _attempt in range(_MOST_ATTEMPTS):
            output.check()
            with self._contents.shared(image, self._new_throttle(), mode,
                                       watch) as content:
                try:
                    with _output_errors(output):
                        self._write(image, content, output, watch)
                except FileNotFoundError:
                    # The content was evicted meanwhile, or the output's
                    # directory was removed, which is checked next.
                    continue
                if content.leads:
                    self.modes.learn(mode, content.outcome,
                                     image.data_size)
                    return content.outcome
                return dataclasses.replace(content.outcome,
                                           moved=site_transfers.Moved())
        raise exceptions.ServiceUnavailable(
            f'Image {image.id} was removed {_MOST_ATTEMPTS} times before it'
            f' was copied to {output.path}: this host deletes what it fetches.'
            f' Try again, or give its cache more space ([agent]'
            f' cache_capacity).')

    def _write(self, image: views.ImageRef,
               content: single_flight.Membership, output: outputs.Output,
               watch: contents.Watch | None) -> None:
        _check_present(watch)
        key = views.Key(views.IMAGES, image.content_id)
        if self._is_staged(content.path) and output.can_take(content.path) \
                and content.take():
            status = content.path.stat()
            output.take(content.path, self._durable)
            self._host.held.borrowed.note_delivered(key, status)
        else:
            self._publish(key, content.path, output, watch)

    def _publish(self, key: views.Key, source: pathlib.Path,
                 output: outputs.Output, watch: contents.Watch | None
                 ) -> None:
        """Write a copy of verified content to an output."""
        with self._pending.noted(output.path), \
                files.space_errors(output.path), \
                outputs.unfinished(output) as part:
            files.copy_to(source, part.fd)
            _check_present(watch)
            status = os.fstat(part.fd)
            # Before it is handed over: it may be found damaged at any moment.
            self._host.held.note_delivered(key, output.path, status)
            with tracing.span('publish', durable=self._durable):
                part.publish(self._durable)

    def _is_staged(self, path: pathlib.Path) -> bool:
        return path.parent == self._staging


@contextlib.contextmanager
def _output_errors(output: outputs.Output) -> typing.Iterator[None]:
    """Name the output in errors of the system, except that it is missing.

    :raises InvalidInput: it cannot be written
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise exceptions.InvalidInput(
            f'The output {output.path} cannot be written: {error.strerror};'
            f' choose another path.') from error


def _check_present(watch: contents.Watch | None) -> None:
    """Check that the client of an output still waits for it.

    :raises Cancelled: it does not
    """
    if watch is not None and watch.gone.is_set():
        raise exceptions.Cancelled('Its client has disconnected.')


def _describe(request: objects.Request, built: building.Built) -> None:
    """Record in a request how its image was brought here."""
    request.way, request.detail = built.way, built.detail
    request.predicted_seconds = built.predicted_seconds
    request.wan_bytes = built.moved.wan_bytes
    request.lan_bytes = built.moved.lan_bytes
    request.fallbacks = built.fallbacks
    request.patch_id = built.patch_id
    request.apply_seconds = built.moved.apply_seconds


def check_mode(mode: str | None) -> None:
    """Refuse a mode that does not exist.

    :raises InvalidInput: the message lists those that do
    """
    if mode and mode not in building.MODES:
        raise exceptions.InvalidInput(
            f'The mode "{mode}" is unknown; use one of'
            f' {", ".join(building.MODES)}.')
