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
"""Storing versions in Glance as images of their projects."""

import collections.abc
import dataclasses
import functools
import logging
import pathlib
import typing
import uuid

from oslo_config import cfg

from diffcache_openstack.common import exceptions

if typing.TYPE_CHECKING:
    from diffcache_openstack.cloud import glance

LOG = logging.getLogger(__name__)

# Property of an image: the ID of the image that it was made from.
FAMILY = 'diffcache_base_image'
VERSION = 'diffcache_version'


@dataclasses.dataclass(frozen=True)
class NewImage:
    """An image to be created.

    :param family: the image that it comes from, or None
    :param min_disk: GiB
    """

    id: str
    owner: str
    name: str
    family: str | None
    version_id: str
    min_disk: int


class _Reader:
    """A file that reports how much of it was read."""

    def __init__(self, stream: typing.BinaryIO, size: int,
                 progress: collections.abc.Callable[[int, int], None]):
        self._stream = stream
        self._size = size
        self._progress = progress

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if data:
            self._progress(self._stream.tell(), self._size)
        return data


class VersionImages:
    """Glance, with the credentials of ``[glance]``."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._most = conf.versions.export_limit
        self._most_bytes = conf.versions.export_size_limit

    @functools.cached_property
    def _glance(self) -> 'glance.Glance':
        # Its client is loaded on the few hosts that store a version there.
        from diffcache_openstack.cloud import glance
        return glance.Glance(self._conf)

    def is_there(self, image_id: str) -> bool:
        """Return whether an image can be used.

        :raises ServiceUnavailable: Glance does not answer
        """
        try:
            return self._glance.image(image_id)['status'] == 'active'
        except exceptions.NotFound:
            return False

    def upload(self, file: pathlib.Path, new: NewImage,
               progress: collections.abc.Callable[[int, int], None]) -> str:
        """Create a private image of a qcow2 file; return its id.

        A repeated call returns the image that exists already.

        :raises ServiceUnavailable: Glance does not answer, or cannot store
            it at present
        :raises PermanentError: Glance refuses
        :raises QuotaExceeded: the project has as many such images as it may
        """
        image_id = self._create(new)
        if image_id is None:
            return new.id
        size = file.stat().st_size
        try:
            with open(file, 'rb') as stream:
                self._glance.upload(image_id,
                                    _Reader(stream, size, progress))
        except exceptions.DiffCacheError:
            self._remove(image_id)
            raise
        LOG.info('Version %s is image %s, %d bytes', new.version_id,
                 image_id, size)
        return image_id

    def _admit(self, owner):
        """Refuse what a project has too much of.

        Glance counts what we create as that of our own project.
        """
        exported = self._glance.images_with(owner, VERSION)
        stored = sum(image.get('size') or 0 for image in exported)
        if 0 <= self._most <= len(exported) or \
                0 < self._most_bytes <= stored:
            raise exceptions.QuotaExceeded(
                f'Project {owner} has {len(exported)} images of versions with'
                f' {stored} bytes, and may have {self._most} and'
                f' {self._most_bytes} bytes. Delete some (openstack image'
                f' delete), or ask your cloud administrator for more'
                f' ([versions] export_limit and export_size_limit).')

    def _create(self, new):
        """Create an image record; return its ID, None if it has a file."""
        if self.is_there(new.id):
            return None
        self._admit(new.owner)
        document = {
            'id': new.id, 'name': new.name, 'owner': new.owner,
            'visibility': 'private', 'disk_format': 'qcow2',
            'container_format': 'bare', 'min_disk': new.min_disk,
            VERSION: new.version_id}
        if new.family:
            document[FAMILY] = new.family
        try:
            self._glance.create(document)
            return new.id
        except exceptions.Conflict:
            # An upload was cut off.
            self._remove(new.id)
            document['id'] = str(uuid.uuid4())
            self._glance.create(document)
            return document['id']

    def _remove(self, image_id):
        try:
            self._glance.delete(image_id)
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not delete the unfinished image %s, delete it'
                        ' with "openstack image delete": %s', image_id, error)
