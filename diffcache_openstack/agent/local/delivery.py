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
"""Delivery of images to paths that local services name."""

import contextlib
import logging
import os
import pathlib
import stat

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images import serving
from diffcache_openstack.agent.state import site_map as maps
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects

LOG = logging.getLogger(__name__)

OUTPUT_MODE = 0o644


class Outputs:
    """Directories that clients may have images written to.

    :param directories: allowed, with their subdirectories
    """

    def __init__(self, directories: list[str]) -> None:
        self._directories = [pathlib.Path(name) for name in directories]

    def check(self, output: str) -> pathlib.Path:
        """Return the output's real path.

        :raises InvalidInput: it must not be written; the message names the
            option
        """
        path = pathlib.Path(output)
        if not path.is_absolute() or path.name in ('', '.', '..'):
            raise exceptions.InvalidInput(
                f'The output {output} is not an absolute path of a file.')
        parent = pathlib.Path(os.path.realpath(path.parent))
        if not any(parent.is_relative_to(os.path.realpath(directory))
                   for directory in self._directories):
            raise exceptions.InvalidInput(
                f'The output {output} is below none of [agent]'
                f' output_directories; add its directory there.')
        path = parent / path.name
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise exceptions.InvalidInput(
                    f'The output {output} exists and is no regular file; name'
                    f' another one.')
        return path

    @staticmethod
    def hand_over(path: pathlib.Path) -> None:
        """Change the file's owner to that of its directory, and its mode.

        That owner may have put a link to another user's file in its place.

        :raises Conflict: it is no longer the file that was written
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                         | os.O_CLOEXEC)
        except OSError as error:
            raise _replaced(path) from error
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise _replaced(path)
            os.fchmod(fd, OUTPUT_MODE)
            owner = path.parent.stat()
            if (owner.st_uid, owner.st_gid) != (found.st_uid, found.st_gid):
                # Only root and CAP_CHOWN may; others can read it all the same.
                with contextlib.suppress(PermissionError):
                    os.fchown(fd, owner.st_uid, owner.st_gid)
        finally:
            os.close(fd)


def _replaced(path: pathlib.Path) -> exceptions.Conflict:
    return exceptions.Conflict(
        f'The output {path} was replaced while it was handed over; check'
        f' which other process writes to its directory.')


class Delivery:
    """Writes images for local services.

    :param site_map: names the images
    :param server: delivers images
    :param outputs: directories that may be written to
    """

    def __init__(self, site_map: maps.SiteMap, server: serving.ImageServer,
                 outputs: Outputs) -> None:
        self._site_map = site_map
        self._server = server
        self._outputs = outputs

    def deliver(self, image_id: str, output: str, mode: str | None,
                watch: contents.Watch) -> objects.Request:
        """Write an image's raw content to a path, for its directory's owner.

        :raises InvalidInput: the path must not be written
        :raises DiffCacheError: no source delivers the image; there is no
            output
        """
        path = self._outputs.check(output)
        template = self._site_map.find(image_id)
        watch.progress(0, template.size)
        request = self._server.deliver(template, path, mode, watch)
        if watch.gone.is_set():
            LOG.info('Removing %s: its client has disconnected', path)
            path.unlink(missing_ok=True)
        else:
            self._outputs.hand_over(path)
        return request
