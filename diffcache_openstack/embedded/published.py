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
"""Compressed image files, as in Glance, and what plain Nova does.

Plain Nova downloads the compressed qcow2 file from Glance, and converts it.
"""

import pathlib
import time

from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent import service as agents
from diffcache_openstack.blocks import qemu_img
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.sites import views


class PublishedImages:
    """Compressed qcow2 files of raw images.

    :param directory: of the files, which later runs use again
    :param method: of compression; distributions use zlib, and zstd is as
        small, and faster to create and to convert
    """

    def __init__(self, directory: pathlib.Path, method: str = 'zlib') -> None:
        self._directory = directory
        self._method = method

    def file(self, sha256: str) -> pathlib.Path:
        """Return the path of an image's file.

        :param sha256: of the raw image
        """
        return self._directory / f'{sha256}.qcow2'

    def publish(self, raw: pathlib.Path, sha256: str) -> int:
        """Create an image's file, unless it exists; return its bytes.

        :raises DiffCacheError: ``qemu-img`` is missing or failed
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self.file(sha256)
        if not path.exists():
            with files.replacing(path, durable=False) as unfinished:
                qemu_img.compress(str(raw), str(unfinished), self._method)
        return path.stat().st_size


def download(agent: agents.Agent, image: views.ImageRef,
             output: pathlib.Path) -> objects.Request:
    """Have an image's file cross the WAN, and convert it.

    :param image: the file, registered as if it were an image
    :returns: the request, with the seconds of the conversion
    :raises DiffCacheError: it cannot be downloaded or converted
    """
    with files.beside(str(output)) as packed:
        request = agent.server.deliver(
            image, outputs.LocalOutput(packed))
        started = time.monotonic()
        qemu_img.expand(str(packed), str(output))
    request.seconds += time.monotonic() - started
    return request
