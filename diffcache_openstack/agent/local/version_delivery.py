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
"""Delivery of versions to paths that Nova's driver names."""

import pathlib
import tempfile

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import outputs as output_files
from diffcache_openstack.agent.lazy import lazy_images
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.common import files


class VersionDelivery:
    """Writes versions for Nova's driver.

    :param images: has versions served while they arrive
    :param versions: restores them
    :param outputs: directories that may be written to
    :param directory: for versions that are being restored
    :param durable: no power failure takes what was written: Nova would not
        notice
    """

    def __init__(self, images: lazy_images.LazyImages,
                 versions: version_reads.VersionReads,
                 outputs: output_files.Outputs, directory: pathlib.Path,
                 durable: bool) -> None:
        self._images = images
        self._versions = versions
        self._outputs = outputs
        self._directory = directory
        self._durable = durable

    def deliver(self, version_id: str, project_id: str, output: str,
                watch: contents.Watch) -> None:
        """Write a version's raw content to a path.

        One that has arrived for a lazy boot is copied from there.

        :param project_id: of the server that boots from it
        :raises InvalidInput: the path must not be written
        :raises NotFound: the project has no such version
        :raises Conflict: it is not complete, or has several disks
        """
        found = self._outputs.open(output)
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory) as scratch:
            source = self._images.whole_version(version_id, project_id)
            if source is None:
                source = pathlib.Path(scratch) / 'raw'
                self._versions.restore(version_id, project_id, source, watch)
                output_files.move(source, found, self._durable)
                return
            with output_files.unfinished(found) as part:
                with files.space_errors(found.path):
                    files.copy_to(source, part.fd)
                part.publish(durable=self._durable)
