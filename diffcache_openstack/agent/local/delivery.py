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

import pathlib

from diffcache_openstack.agent.images import borrowing as borrowings
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import outputs as output_files
from diffcache_openstack.agent.images.delivery import serving
from diffcache_openstack.agent.state import site_map as maps
from diffcache_openstack import objects


class Delivery:
    """Writes images for local services.

    :param site_map: names the images
    :param server: delivers images
    :param outputs: directories that may be written to
    :param borrowing: uses files of local services; None uses none
    """

    def __init__(self, site_map: maps.SiteMap, server: serving.ImageServer,
                 outputs: output_files.Outputs,
                 borrowing: borrowings.Borrowing | None = None) -> None:
        self._site_map = site_map
        self._server = server
        self._outputs = outputs
        self._borrowing = borrowing

    def deliver(self, image_id: str, output: str, mode: str | None,
                watch: contents.Watch) -> objects.Request:
        """Write an image's raw content to a path, for its directory's owner.

        :raises InvalidInput: the path must not be written
        :raises DiffCacheError: no source delivers the image; there is no
            output
        """
        found = self._outputs.open(output)
        template = self._site_map.find(image_id)
        watch.progress(0, template.size)
        return self._server.deliver_to(template, found, mode, watch)

    def lend(self, image_id: str, path: str) -> bool:
        """Use a service's file with an image's raw content, if that is on.

        :returns: whether it is used already; it may be verified first
        :raises NotFound: the catalogue does not have it, or it was withdrawn
        :raises InvalidInput: the file must not be used
        """
        template = self._site_map.find(image_id)
        if self._borrowing is None:
            return False
        return self._borrowing.offer(template, pathlib.Path(path))
