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
"""Content ids of base images, each computed once and not for each save."""

import collections.abc
import logging
import pathlib
import threading

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import threads

LOG = logging.getLogger(__name__)

_MAX_ENTRIES = 1000

Progress = collections.abc.Callable[[int, int], object] | None


class BaseIds:
    """A cache of content ids by file, over restarts.

    Nova names a base image after its content, and never writes to it again,
    but changes its times. So path, inode and size identify the file.

    Two images are computed at the same time, one image once.

    :param path: of the state file
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._computing = threads.KeyedLocks()
        known = files.read_json(path)
        self._known: dict[str, list] = known if isinstance(
            known, dict) else {}

    def content_id(self, image: pathlib.Path, progress: Progress = None
                   ) -> str:
        """Return the content id of an image.

        :param progress: of reading it; an error that it raises is passed on
        :raises InvalidInput: the image is refused
        """
        state = image.stat()
        mark = [state.st_dev, state.st_ino, state.st_size]
        with self._computing.of(tuple(mark)):
            found = self._find(image, mark)
            if found is not None:
                return found
            with native_errors.translated():
                content_id = _native.qcow2_content_id(image, progress)
            with self._lock:
                self._known[str(image)] = [*mark, content_id]
                self._write()
            return content_id

    def _find(self, image: pathlib.Path, mark: list[int]) -> str | None:
        with self._lock:
            found = self._known.get(str(image))
            return found[-1] if found and found[:-1] == mark else None

    def _write(self):
        while len(self._known) > _MAX_ENTRIES:
            self._known.pop(next(iter(self._known)))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(self._path, self._known)
        except (OSError, exceptions.NoSpace) as error:
            LOG.warning('Could not store content ids of base images in %s,'
                        ' will compute them again: %s', self._path, error)
