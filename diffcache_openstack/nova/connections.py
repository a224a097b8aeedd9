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
"""What Nova knows of the connection of a volume."""

import logging
import typing

import oslo_messaging

from diffcache_openstack.cached_volumes import origins
from diffcache_openstack.cached_volumes import rates as volume_rates
from diffcache_openstack.objects import volume_specs as qos
from nova import context as nova_context
from nova import exception as nova_exception
from nova.objects import block_device
from nova.virt import block_device as driver_block_device

LOG = logging.getLogger(__name__)

# In the data of a connection, which Nova keeps with the server: how QEMU
# reaches the volume through the cache.
KEY = 'diffcache_ssd_cache'

Connection = dict[str, typing.Any]


def specs(connection: Connection) -> dict[str, str]:
    """Return what the type of a volume says.

    Cinder's driver of this suite adds what its extra specs say.
    """
    found = mark(connection).get(
        'specs', connection.get('data', {}).get('qos_specs'))
    return found if isinstance(found, dict) else {}


def rates(connection: Connection) -> volume_rates.Rates:
    """Return what a volume may do per second.

    As Nova, which has libvirt know nothing else.

    :raises InvalidInput: the cache cannot enforce it
    """
    found = connection.get('data', {}).get('qos_specs')
    return volume_rates.parse(found if isinstance(found, dict) else {})


def is_held(connection: Connection) -> bool:
    """Return whether Cinder has a volume held before it reads it."""
    return mark(connection).get('held') is True


def unsuitable(connection: Connection) -> str | None:
    """Return why a volume cannot be cached, if it cannot."""
    data = connection.get('data', {})
    if connection.get('multiattach'):
        return 'multi-attach'
    if data.get('encrypted'):
        return 'encrypted'
    if data.get('access_mode') == 'ro':
        return 'read-only'
    if data.get('format', 'raw') != 'raw':
        return 'not raw'
    # A file on a share. Without Cinder's word, Nova may have to put another
    # file in front of it, which it cannot where QEMU reaches it over NBD.
    if 'export' in data and mark(connection).get('snapshots') != 'cinder':
        return 'its snapshots are made by Nova'
    return None


def mark(connection: Connection) -> dict[str, typing.Any]:
    """Return what Cinder's driver of this suite says of a volume."""
    found = connection.get('data', {}).get(qos.MARK)
    return found if isinstance(found, dict) else {}


def origin(connection: Connection) -> str | None:
    """Return what the cache reads of a volume that is connected."""
    data = connection['data']
    if connection.get('driver_volume_type') != 'rbd':
        return data.get('device_path')
    user = data.get('auth_username') if data.get('auth_enabled') else None
    return origins.rbd(data['name'], user, zip(data.get('hosts') or (),
                                               data.get('ports') or ()))


def mapping(connection: Connection, instance: typing.Any
            ) -> block_device.BlockDeviceMapping | None:
    """Return how a server has a volume; None if Nova cannot tell now.

    Nova removes the ID of the attachment from what Cinder says of a
    connection.
    """
    try:
        return block_device.BlockDeviceMapping.get_by_volume_and_instance(
            nova_context.get_admin_context(), volume_id(connection),
            instance.uuid)
    except (nova_exception.NovaException,
            oslo_messaging.MessagingException) as error:
        LOG.warning('Could not find the attachment of volume %s: a change of'
                    ' its type holds until a hard reboot: %s',
                    volume_id(connection), error)
        return None


def cached_as(connection: Connection) -> str:
    """Return the ID that a volume was attached to the cache with.

    Cinder exchanges the IDs of the two when it has migrated one that is in
    use, and Nova those of its connection.
    """
    return str(connection['data'].get(KEY, {}).get('volume')
               or volume_id(connection))


def volume_id(connection: Connection) -> str:
    """Return the ID of the volume."""
    return str(driver_block_device.get_volume_id(connection))
