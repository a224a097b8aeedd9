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
import re
import typing

from oslo_config import cfg

from diffcache_openstack.agent.repository import image_service
from diffcache_openstack.cloud import glance
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import notifications
from diffcache_openstack.common import stand_ins
from diffcache_openstack.objects import fields

LOG = logging.getLogger(__name__)

# What may change whether an image is served, and to whom.
EVENTS = r'^image\.(activate|create|deactivate|delete|reactivate|update' \
         r'|upload|member\.(create|update|delete))$'
DELETED = 'image.delete'
#: Followed by the host's name: each repository gets all notifications.
POOL = 'diffcache-ingest.'
#: The property that names the image from which this one was made.
FAMILY = 'diffcache_base_image'


class GlanceSource:
    """See :class:`.image_service.ImageService`.

    :raises InvalidInput: the options of ``[glance]`` do not suffice
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._largest = conf.glance.largest_image
        self._glance = glance.Glance(conf)
        self._glance.load()
        self._listener: notifications.Listener | None = None

    def images(self) -> typing.Iterable[image_service.ServiceImage]:
        """Return all images of all projects, hidden ones too.

        :raises RetryableError: Glance does not answer, or refuses
        """
        with _retryable():
            return [self._describe(image) for hidden in (False, True)
                    for image in self._glance.images(hidden)]

    def image(self, image_id: str) -> image_service.ServiceImage | None:
        """Return one image, or None if it does not exist (any more).

        :raises RetryableError: Glance does not answer, or refuses
        """
        with _retryable():
            try:
                return self._describe(self._glance.image(image_id))
            except exceptions.NotFound:
                return None

    def download(self, image_id: str) -> collections.abc.Iterator[bytes]:
        """Yield an image's file in pieces.

        :raises RetryableError: Glance does not answer, refuses, or sends
            less than all of it
        """
        with _retryable():
            yield from self._glance.download(image_id)

    def start(self, changed: collections.abc.Callable[[str], None],
              deleted: collections.abc.Callable[[str], None]) -> None:
        """Start to report the IDs of images that changed or were deleted."""
        def report(notification: dict) -> None:
            payload = notification['payload']
            # A member's notification has the image's id under another name.
            image_id = payload.get('id') or payload.get('image_id')
            if isinstance(image_id, str):
                LOG.debug('%s: image %s', notification['event_type'],
                          image_id)
                (deleted if notification['event_type'] == DELETED
                 else changed)(image_id)

        self._listener = notifications.Listener(
            self._conf, [self._conf.notifications.glance_exchange],
            {EVENTS: report}, POOL + self._conf.agent.host)
        self._listener.start()

    def stop(self) -> None:
        """Stop reporting changes."""
        if self._listener is not None:
            self._listener.stop()

    def _describe(self, image: glance.Document) -> image_service.ServiceImage:
        size = max(image.get('size') or 0, image.get('virtual_size') or 0)
        described = image_service.ServiceImage(
            id=image['id'], name=_name(image), status=image['status'],
            disk_format=image.get('disk_format'),
            container_format=image.get('container_format'),
            size=image.get('size'), os_hash_algo=image.get('os_hash_algo'),
            os_hash_value=image.get('os_hash_value'),
            owner=image.get('owner'), visibility=image['visibility'],
            family=_family(image), members=self._members(image))
        if stand_ins.version_of(image, described.os_hash_algo,
                                described.os_hash_value):
            # Its file is no disk.
            return dataclasses.replace(described, status='stand-in')
        if size > self._largest and described.status == 'active':
            LOG.warning('Not caching image %s: its %d bytes exceed [glance]'
                        ' largest_image; it is served by Glance',
                        described.id, size)
            # It exists, but is not to be downloaded.
            return dataclasses.replace(described, status='too large')
        return described

    def _members(self, image: glance.Document) -> list[str]:
        """Return the projects that a shared image is offered to."""
        if image['visibility'] != 'shared':
            return []
        try:
            # No project has another name, and its images no such member.
            return sorted(member['member_id'] for member
                          in self._glance.members(image['id'])
                          if _is_id(member['member_id']))
        except exceptions.NotFound:
            # Deleted or no longer shared, since it was read.
            return []


def _is_id(text: typing.Any) -> bool:
    return isinstance(text, str) and bool(
        re.fullmatch(fields.ID_PATTERN, text))


def _name(image: glance.Document) -> str:
    return re.sub(fields.CONTROL_PATTERN, '?', image.get('name') or '')


def _family(image: glance.Document) -> str | None:
    """Return an image's family; tenants may set it to any text."""
    family = image.get(FAMILY)
    if family is None or _is_id(family):
        return family
    LOG.warning('Ignoring %s of image %s, as it is not the ID of an image',
                FAMILY, image['id'])
    return None


@contextlib.contextmanager
def _retryable() -> collections.abc.Iterator[None]:
    """Convert refusals to retryable errors.

    Granting the service's user a role, or reactivating an image, mends them;
    neither needs a restart of the agent.
    """
    try:
        yield
    except exceptions.PermanentError as error:
        raise exceptions.ServiceUnavailable(
            f'{error} Check the role of the user of [glance].') from error
