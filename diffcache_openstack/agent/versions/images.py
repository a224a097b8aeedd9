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
"""Putting versions into Glance as images of their projects."""

import collections.abc
import dataclasses
import logging
import pathlib
import uuid

from keystoneauth1 import exceptions as ksa_exceptions
from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keystone

LOG = logging.getLogger(__name__)

GROUP = 'glance'
# The property by which an image tells from which other one it was made.
FAMILY = 'diffcache_base_template'
VERSION = 'diffcache_version'
_PIECE = 1 << 20


@dataclasses.dataclass(frozen=True)
class New:
    """An image to be.

    :param family: the image that it comes from, or None
    :param min_disk: GiB
    """

    id: str
    owner: str
    name: str
    family: str | None
    version_id: str
    min_disk: int


class Images:
    """Glance, with the rights of ``[glance]``."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._glance = keystone.Service(conf, GROUP)

    def is_there(self, image_id: str) -> bool:
        """Whether an image can be used.

        :raises ServiceUnavailable: Glance does not answer
        """
        try:
            return self._call('get', f'/v2/images/{image_id}').json()[
                'status'] == 'active'
        except ksa_exceptions.NotFound:
            return False

    def upload(self, file: pathlib.Path, new: New,
               progress: collections.abc.Callable[[int, int], None]) -> str:
        """Make a private image of a qcow2 file; returns its id.

        The same again takes what was made before.

        :raises ServiceUnavailable: Glance does not answer, or refuses
        """
        image_id = self._create(new)
        if image_id is None:
            return new.id
        size = file.stat().st_size
        try:
            self._call('put', f'/v2/images/{image_id}/file',
                       data=_pieces(file, size, progress),
                       headers={'Content-Type': 'application/octet-stream'})
        except exceptions.ServiceUnavailable:
            self._remove(image_id)
            raise
        LOG.info('Version %s is image %s, %d bytes', new.version_id,
                 image_id, size)
        return image_id

    def _create(self, new):
        """The id of an image without a file; None if it has one."""
        document = {
            'id': new.id, 'name': new.name, 'owner': new.owner,
            'visibility': 'private', 'disk_format': 'qcow2',
            'container_format': 'bare', 'min_disk': new.min_disk,
            VERSION: new.version_id}
        if new.family:
            document[FAMILY] = new.family
        try:
            self._call('post', '/v2/images', json=document)
            return new.id
        except ksa_exceptions.Conflict:
            if self.is_there(new.id):
                return None
            self._remove(new.id)
            document['id'] = str(uuid.uuid4())
            self._call('post', '/v2/images', json=document)
            return document['id']

    def _remove(self, image_id):
        try:
            self._call('delete', f'/v2/images/{image_id}')
        except (exceptions.ServiceUnavailable,
                ksa_exceptions.NotFound) as error:
            LOG.warning('The unfinished image %s stays: %s', image_id, error)

    def _call(self, method, path, **arguments):
        try:
            return getattr(self._glance.adapter(), method)(path, **arguments)
        except (ksa_exceptions.NotFound, ksa_exceptions.Conflict):
            raise
        except (ksa_exceptions.ClientException, ValueError) as error:
            raise exceptions.ServiceUnavailable(
                f'Glance does not {method} {path}: {error}; check Glance, and'
                f' the options of [glance].') from error


def _pieces(file, size, progress):
    done = 0
    with open(file, 'rb') as stream:
        while data := stream.read(_PIECE):
            done += len(data)
            progress(done, size)
            yield data
