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
"""Answering requests for images.

A request is answered with a file of its own at the path it names: whole,
verified, and made by rename, so that the path never shows anything else.
However many requests of this host ask for one image at once, it is made
once; the others get copies of the verified result.
"""

import contextlib
import dataclasses
import datetime
import logging
import pathlib
import time
import typing
import uuid

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import throttle
from diffcache_openstack.agent.images import transfers
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)

WAY_FAILED = 'none'


@dataclasses.dataclass(frozen=True)
class Served:
    """One request and how it was answered.

    :param started_at: UTC
    :param way: local, peer, build, repository, or none if it failed
    :param detail: the sources in words
    :param seconds: from the request to the hand-over
    :param predicted_seconds: of the cost model for the way taken
    :param fallbacks: ways that failed before
    :param patch_id: the patch applied, if just one was
    :param apply_seconds: of the patch, if timed by itself
    :param error: why it failed, None if it did not
    """

    id: str
    template_id: str
    mode: str
    started_at: datetime.datetime
    way: str = WAY_FAILED
    detail: str = ''
    seconds: float = 0.0
    predicted_seconds: float = 0.0
    wan_bytes: int = 0
    lan_bytes: int = 0
    fallbacks: int = 0
    patch_id: str | None = None
    apply_seconds: float = 0.0
    error: str | None = None


class PendingOutputs:
    """Remembers outputs being written outside of this agent's directory.

    After a crash the hidden files that were to become them are removed.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def noted(self, output: pathlib.Path) -> typing.Iterator[None]:
        """An output is written during the block."""
        note = self._directory / f'{uuid.uuid4().hex}.json'
        files.write_json(note, {'output': str(output)}, durable=False)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what a crash left behind."""
        for note in self._directory.glob('*.json'):
            document = files.read_json(note)
            if document is not None:
                self._clean_output(pathlib.Path(document['output']))
            note.unlink(missing_ok=True)

    @staticmethod
    def _clean_output(output: pathlib.Path) -> None:
        for leftover in files.temporaries_of(output):
            LOG.info('Removing %s, left by an interrupted request', leftover)
            leftover.unlink(missing_ok=True)


class ImageServer:
    """Serves the images of one host.

    :param shared: raw content of images
    :param held: what this host holds
    :param new_pace: makes the pace of a request
    :param pending: notes outputs while they are written
    """

    def __init__(self, shared: contents.Contents, held: holdings.Holdings,
                 new_pace: typing.Callable[[], throttle.Pace],
                 pending: PendingOutputs) -> None:
        self._durable = new_pace().durable
        self._contents = shared
        self._held = held
        self._new_pace = new_pace
        self._pending = pending

    def serve(self, template: views.TemplateRef, output: pathlib.Path,
              mode: str, watch: contents.Watch | None = None) -> Served:
        """Bring an image to output.

        :param watch: is told how far it is, and tells if nobody cares
            any more
        :raises DiffCacheError: output is untouched; the error's ``served``
            attribute is the record of the failed request
        """
        record = Served(str(uuid.uuid4()), template.id, mode,
                        datetime.datetime.now(datetime.timezone.utc))
        started = time.monotonic()
        try:
            made = self._serve(template, output, mode, watch)
        except exceptions.DiffCacheError as error:
            error.served = dataclasses.replace(  # type: ignore[attr-defined]
                record, seconds=time.monotonic() - started, error=str(error))
            raise
        return dataclasses.replace(
            record, way=made.way, detail=made.detail,
            seconds=time.monotonic() - started,
            predicted_seconds=made.predicted_seconds,
            wan_bytes=made.moved.wan_bytes, lan_bytes=made.moved.lan_bytes,
            fallbacks=made.fallbacks, patch_id=made.patch_id,
            apply_seconds=made.moved.apply_seconds)

    def _serve(self, template, output, mode, watch) -> building.Made:
        while True:
            check_output(output)
            with self._contents.shared(template, self._new_pace(), mode,
                                       watch) as content:
                try:
                    self._write(content, output)
                except FileNotFoundError:
                    # The content was evicted meanwhile, or the output's
                    # directory was removed, which is checked next.
                    continue
                except OSError as error:
                    raise exceptions.InvalidInput(
                        f'The output {output} cannot be written: '
                        f'{error.strerror}; choose another path.') from error
                if content.leads:
                    return content.outcome
                return dataclasses.replace(content.outcome,
                                           moved=transfers.Moved())

    def _write(self, content: single_flight.Membership,
               output: pathlib.Path) -> None:
        if self._is_staged(content.path) and self._same_filesystem(output) \
                and content.take():
            files.move(content.path, output, durable=self._durable)
        else:
            with self._pending.noted(output):
                files.copy_file(content.path, output, durable=self._durable)

    def _is_staged(self, path: pathlib.Path) -> bool:
        return path.parent == self._held.root / holdings.STAGING

    def _same_filesystem(self, output: pathlib.Path) -> bool:
        return (output.parent.stat().st_dev
                == (self._held.root / holdings.STAGING).stat().st_dev)


def check_output(output: pathlib.Path) -> None:
    """Refuse an output that cannot be written, before any byte moves.

    :raises InvalidInput: the message says what is wrong
    """
    if not output.is_absolute():
        raise exceptions.InvalidInput(
            f'The output {output} is not an absolute path; give one.')
    if not output.parent.is_dir():
        raise exceptions.InvalidInput(
            f'The directory of the output {output} does not exist; create '
            f'it.')
    if output.is_dir():
        raise exceptions.InvalidInput(
            f'The output {output} is a directory; name a file.')
