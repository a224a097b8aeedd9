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
"""Having the agent make images of servers, from versions of them."""

import logging
import pathlib
import typing

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import tallies
import nova.conf
from nova.virt.libvirt import utils as libvirt_utils

LOG = logging.getLogger(__name__)

CONF = nova.conf.CONF

_QCOW2 = 'qcow2'
_FORMATS = ('raw', _QCOW2)
_STORED = 'stored'


class Snapshots:
    """Makes the files that Nova uploads as images of servers.

    :param stall_timeout: seconds without a sign of life from the agent
    """

    def __init__(self, client: local_client.LocalClient,
                 tally: tallies.Tally, stall_timeout: float) -> None:
        self._client = client
        self._tally = tally
        self._stall_timeout = stall_timeout

    def write(self, instance: typing.Any, disk: str, output: str,
              image_format: str, quiesced: bool = False) -> bool:
        """Save a server as a version, and write one of its disks to a file.

        :param instance: Nova's
        :param disk: absolute path of the disk
        :param output: absolute path
        :param quiesced: the guest has to be
        :returns: False if Nova has to make the file, which is logged and
            counted
        """
        if image_format not in _FORMATS:
            return False
        compresses = (image_format == _QCOW2
                      and CONF.libvirt.snapshot_compression)
        plain = f'{output}.plain' if compresses else output
        try:
            written = self._client.write_server_image(instance.uuid, {
                'project_id': instance.project_id, 'disk': disk,
                'output': plain, 'format': image_format}, self._stall_timeout)
            if quiesced and not written['quiesced']:
                raise exceptions.ServiceUnavailable(
                    'its guest was not quiesced')
            if compresses:
                libvirt_utils.extract_snapshot(plain, _QCOW2, output, _QCOW2)
                pathlib.Path(plain).unlink()
        except Exception as error:
            # The edge to another project's code: the user gets the image.
            self._tally.snapshot(type(error).__name__)
            LOG.warning('Nova makes the image of server %s itself (%s: %s)',
                        instance.uuid, type(error).__name__, error)
            for path in {plain, output}:
                pathlib.Path(path).unlink(missing_ok=True)
            return False
        self._tally.snapshot(_STORED)
        LOG.info('The image of server %s is that of a version: paused for'
                 ' %.0f ms, %d bytes changed, %d stored', instance.uuid,
                 written['pause_ms'], written['bytes_changed'],
                 written['bytes_stored'])
        return True
