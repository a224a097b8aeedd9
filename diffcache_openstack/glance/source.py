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
"""Glance as the source of a repository's images."""

import collections.abc
import contextlib
import dataclasses
import logging
import typing

from keystoneauth1 import exceptions as auth_exceptions
from openstack import connection
from openstack import exceptions as sdk_exceptions
from oslo_config import cfg
import requests

from diffcache_openstack.agent.repository import ingest
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keystone
from diffcache_openstack.common import notifications

LOG = logging.getLogger(__name__)

GROUP = 'glance'
# What may change whether an image is served, and to whom.
EVENTS = r'^image\.(activate|create|deactivate|delete|reactivate|update' \
         r'|upload|member\.(create|update|delete))$'
POOL = 'diffcache-ingest'
#: The property by which a user tells from which image another one was made.
FAMILY = 'diffcache_base_template'
_PIECE = 1 << 20


class GlanceSource:
    """See :class:`diffcache_openstack.agent.repository.ingest.Source`.

    :raises InvalidInput: the options of ``[glance]`` do not suffice
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._largest = conf.glance.largest_image
        self._images: typing.Any = connection.Connection(
            session=keystone.session(conf, GROUP), oslo_conf=conf,
            service_types=['image']).image
        self._listener: notifications.Listener | None = None

    def images(self) -> typing.Iterable[ingest.Image]:
        """All images of all projects, hidden ones too.

        :raises RetryableError: Glance does not answer
        """
        with _errors('the list of images'):
            return [self._describe(image) for hidden in (False, True)
                    for image in self._images.images(is_hidden=hidden)]

    def image(self, image_id: str) -> ingest.Image | None:
        """One image; None if there is none (any more).

        :raises RetryableError: Glance does not answer
        """
        with _errors(f'image {image_id}'):
            try:
                return self._describe(self._images.get_image(image_id))
            except sdk_exceptions.NotFoundException:
                return None

    def download(self, image_id: str) -> collections.abc.Iterator[bytes]:
        """An image's file, in pieces.

        :raises RetryableError: Glance does not answer, or broke off
        """
        with _errors(f'the file of image {image_id}'):
            with contextlib.closing(self._images.download_image(
                    image_id, stream=True)) as answer:
                yield from answer.iter_content(_PIECE)

    def start(self, changed: collections.abc.Callable[[str], None]) -> None:
        """Begin to tell the ids of images that changed."""
        def tell(notification: dict) -> None:
            payload = notification['payload']
            # That of a member names the image otherwise.
            image_id = payload.get('id') or payload.get('image_id')
            if isinstance(image_id, str):
                LOG.debug('%s: image %s', notification['event_type'],
                          image_id)
                changed(image_id)

        self._listener = notifications.Listener(
            self._conf, [self._conf.notifications.glance_exchange],
            {EVENTS: tell}, POOL)
        self._listener.start()

    def stop(self) -> None:
        """Tell no more."""
        if self._listener is not None:
            self._listener.stop()

    def _describe(self, image) -> ingest.Image:
        size = max(image.size or 0, image.virtual_size or 0)
        described = ingest.Image(
            id=image.id, name=image.name or '', status=image.status,
            disk_format=image.disk_format,
            container_format=image.container_format, size=image.size,
            os_hash_algo=image.hash_algo, os_hash_value=image.hash_value,
            owner=image.owner_id or image.owner,
            visibility=image.visibility,
            family=(image.properties or {}).get(FAMILY),
            members=self._members(image))
        if size > self._largest and described.status == 'active':
            LOG.warning('Image %s has %d bytes, more than [glance]'
                        ' largest_image; it is left to Glance', image.id,
                        size)
            # Not gone, and not to be taken in either.
            return dataclasses.replace(described, status='too large')
        return described

    def _members(self, image) -> list[str]:
        """Projects that may have a shared image, accepted or not."""
        if image.visibility != 'shared':
            return []
        try:
            return sorted(member.member_id
                          for member in self._images.members(image.id))
        except sdk_exceptions.NotFoundException:
            # It was deleted, or shared no more, since it was looked at.
            return []


@contextlib.contextmanager
def _errors(what: str) -> collections.abc.Iterator[None]:
    """Glance's errors as this suite's.

    :raises ServiceUnavailable: whatever it is, it may be better later
    """
    try:
        yield
    except (sdk_exceptions.SDKException, auth_exceptions.ClientException,
            requests.RequestException) as error:
        raise exceptions.ServiceUnavailable(
            f'Glance does not give {what}: {error}; check Glance, and the'
            f' options of [glance].') from error
