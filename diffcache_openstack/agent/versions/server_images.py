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
"""Images of servers, read from versions that are saved for them."""

import dataclasses
import pathlib
import tempfile

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import outputs as output_files
from diffcache_openstack.agent.versions import version_service
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions import version_store


@dataclasses.dataclass(frozen=True)
class NewImage:
    """An image that Nova makes of a server.

    :ivar disk: absolute path of the disk that it is made of
    :ivar output: absolute path of the file to write
    :ivar format: ``raw`` or ``qcow2``
    """

    server_id: str
    project_id: str
    disk: str
    output: str
    format: str


class ServerImages:
    """Writes images of servers for Nova's driver.

    :param service: saves servers
    :param outputs: directories that may be written to
    :param directory: for images that are being written
    """

    def __init__(self, service: version_service.VersionService,
                 outputs: output_files.Outputs, directory: pathlib.Path
                 ) -> None:
        self._service = service
        self._outputs = outputs
        self._directory = directory

    def write(self, new: NewImage, watch: contents.Watch
              ) -> dict[str, object]:
        """Save a server, and write one of its disks to a file.

        The guest is paused for the save alone, which reads what changed since
        the server's last version. The file has no backing file.

        :returns: ``bytes_changed``, ``bytes_stored``, ``pause_ms`` and
            ``quiesced`` of the save
        :raises InvalidInput: the path must not be written, or the server has
            no such disk
        :raises Forbidden: Nova makes no image of the server here
        :raises QuotaExceeded: the project may save no more
        :raises ServiceUnavailable: the server was not saved
        """
        found = self._outputs.open(new.output)
        device = self._service.guests.device_of(new.server_id, new.disk)
        saved = self._service.save_for_image(
            new.server_id, new.project_id, watch.advance)
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory) as name:
            scratch = pathlib.Path(name)
            image = restoring.Output(scratch / 'image', new.format)
            [disk] = (each for each in saved.disks if each.device == device)
            base, base_id = self._service.base_files.bring(
                disk, scratch / 'base', watch.gone)
            self._service.stores.open(new.project_id).export(
                disk.version, image, base, base_id,
                version_store.Job(watch.progress, cancel=watch.gone))
            # Nova repeats what a power failure takes.
            output_files.move(image.path, found, durable=False)
        return {'bytes_changed': saved.bytes_changed,
                'bytes_stored': saved.bytes_stored,
                'pause_ms': saved.pause_ms, 'quiesced': saved.quiesced}
