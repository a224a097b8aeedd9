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
"""Demand that agents do not see, from notifications of Nova and Glance.

Nova keeps base images on its hosts: most servers start without a request for
their image. Glance serves users and other services. Both send notifications.
"""

import datetime
import typing
import uuid

from oslo_db import exception as db_exception
from oslo_log import log

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import notifications
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import history
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned

LOG = log.getLogger(__name__)

# Nova's two formats have their own names for it.
BOOTED = r'^(compute\.)?instance\.create\.end$'
SENT = r'^image\.send$'
# The ids of what is noticed twice are the same twice.
_NAMESPACE = uuid.UUID('5d3a2f64-6b38-4c53-9d2b-6d4f1f0d3a11')


class History:
    """Stores the requests found in notifications.

    :param database: the conductor's
    """

    def __init__(self, database: engine.Database) -> None:
        self._database = database

    def handlers(self) -> dict[str, notifications.Handler]:
        """Return what processes which notifications."""
        return {BOOTED: self.booted, SENT: self.sent}

    def booted(self, notification: dict) -> None:
        """Record that a server was created."""
        boot = boot_of(notification['payload'])
        if boot is None:
            return
        if self._write(history.put_boot, boot):
            LOG.debug('Host %s started a server from image %s', boot.host,
                      boot.image_id)

    def sent(self, notification: dict) -> None:
        """Record that Glance sent an image."""
        download = download_of(notification)
        if download is None:
            return
        address = notification['payload'].get('destination_ip')
        if self._write(history.put_download, download, address):
            LOG.debug('Glance at %s sent image %s', download.host,
                      download.image_id)

    def _write(self, function, *args) -> bool:
        """Write, or have the notification come again.

        :raises ServiceUnavailable: the database does not answer
        """
        try:
            return self._database.write(function, *args)
        except db_exception.DBConnectionError as error:
            raise exceptions.ServiceUnavailable(
                f'The database does not answer: {error}; check it.'
            ) from error


def boot_of(payload: dict) -> objects.Request | None:
    """Parse a boot from a notification of Nova, in either format.

    :returns: None if the server was not made from an image
    :raises KeyError: it is no such notification
    """
    data = payload.get('nova_object.data')
    if data is None:
        meta = payload.get('image_meta') or {}
        server, host = payload['instance_id'], payload['host']
        image = meta.get('base_image_ref')
        if not image:
            image = (payload.get('image_ref_url') or '').rpartition('/')[2]
    else:
        server, host, image = data['uuid'], data['host'], data['image_uuid']
        payload = data
    if not image or not host:
        return None
    started = _instant(payload['created_at'])
    if started is None:
        raise KeyError('created_at')
    ended = _instant(payload.get('launched_at')) or versioned.now()
    return objects.Request(
        id=str(uuid.uuid5(_NAMESPACE, f'boot {server}')), image_id=image,
        host=host, way=history.BOOT, detail=f'server {server}',
        started_at=started,
        seconds=max(0.0, (ended - started).total_seconds()))


def download_of(notification: dict) -> objects.Request | None:
    """Parse a download from a notification of Glance.

    The host is what follows the first dot of the sender's
    ``default_publisher_id``.

    :returns: None if the sender does not say where it is
    :raises KeyError: it is no such notification
    """
    payload = notification['payload']
    host = (notification.get('publisher_id') or '').partition('.')[2]
    if not host or host == 'localhost':
        return None
    return objects.Request(
        id=str(uuid.uuid5(_NAMESPACE,
                          f'download {notification["message_id"]}')),
        image_id=payload['image_id'], host=host, way=history.DOWNLOAD,
        detail=f'{payload.get("bytes_sent")} bytes to'
               f' {payload.get("destination_ip")}',
        started_at=_instant(notification.get('timestamp')) or versioned.now())


def _instant(text: typing.Any) -> datetime.datetime | None:
    """Parse a time with its zone; services mean UTC if they give none."""
    if not text:
        return None
    found = datetime.datetime.fromisoformat(str(text))
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
