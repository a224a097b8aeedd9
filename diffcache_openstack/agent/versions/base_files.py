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
"""Base images of versions, as files of this host."""

import contextlib
import pathlib
import threading
import typing

from diffcache_openstack.agent.versions import bases
from diffcache_openstack.agent.versions import guests
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects


class ImageSource(typing.Protocol):
    """Source of base images: see :class:`.delivery.serving.ImageServer`."""

    def deliver_content(self, content_id: str | None, output: pathlib.Path,
                        gone: threading.Event | None = None) -> bool:
        """Write the content with an id; False if no image has it."""


class BaseFiles:
    """Finds base images of versions.

    :param agent: delivers contents of the catalogue
    :param found: checks paths of this host
    :param ids: content ids of files
    """

    def __init__(self, agent: ImageSource, found: guests.Guests,
                 ids: bases.BaseIds) -> None:
        self._agent = agent
        self._guests = found
        self._ids = ids

    def deliver(self, content_id: str, path: pathlib.Path,
                gone: threading.Event) -> bool:
        """Write a base image of the catalogue to a path.

        :param gone: set once it is not needed any more
        :returns: False if no image that may be served has that content
        :raises ServiceUnavailable: it cannot be read at present
        """
        try:
            return self._agent.deliver_content(content_id, path, gone)
        except (exceptions.Cancelled, exceptions.Interrupted,
                exceptions.NoSpace):
            raise
        except exceptions.DiffCacheError as error:
            raise exceptions.ServiceUnavailable(
                f'The base image with content {content_id} cannot be read:'
                f' {error}') from error

    def bring(self, disk: objects.VersionDisk, path: pathlib.Path,
              gone: threading.Event | None = None
              ) -> tuple[pathlib.Path | None, str | None]:
        """Return the file of a disk's base image, and its content id.

        :param path: where it may be delivered to
        :param gone: set once it is not needed any more
        :returns: None and None if the disk has none
        :raises ObjectMissing: neither the site nor this host has it
        """
        if disk.base_name is None:
            return None, None
        if self._agent.deliver_content(disk.base_id, path, gone):
            return path, disk.base_id
        with contextlib.suppress(exceptions.InvalidInput):
            path = self._guests.check(pathlib.Path(disk.base_name))
            if files.is_there(path) and path.is_file():
                return path, self._ids.content_id(path)
        raise exceptions.ObjectMissing(
            f'The base image {disk.base_name} (content {disk.base_id}) of the'
            f' version is missing in the catalogue and on this host: restore'
            f' that image.')
