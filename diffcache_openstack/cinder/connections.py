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
"""How hosts learn what the type of a volume says, and when that changes."""

import logging
import typing

from cinder import context as cinder_context
from cinder.volume.drivers import remotefs

from diffcache_openstack.cinder import reading
from diffcache_openstack.cinder import type_checks
from diffcache_openstack.objects import volume_specs

LOG = logging.getLogger(__name__)

Proceed = typing.Callable[[], typing.Any]


def _initialize_connection(driver: typing.Any, proceed: Proceed,
                           volume: typing.Any, *_connector: typing.Any,
                           **_more: typing.Any) -> dict[str, typing.Any]:
    """Mark a connection, so that Nova allows write-back.

    Cinder itself tells hosts QoS specs only.
    """
    found = proceed()
    mark = {volume_specs.MARK: {
        'held': True, 'specs': specs_of(volume),
        'snapshots': 'nova' if are_snapshots_novas(driver) else 'cinder'}}
    return {**found, 'data': {**found['data'], **mark}}


def are_snapshots_novas(driver: typing.Any) -> bool:
    """Return whether Nova makes the snapshots of volumes in use.

    Drivers of files on shares have it put a file of differences in front of
    the volume's; NFS's only if it is configured to.
    """
    return isinstance(driver, remotefs.RemoteFSSnapDriverBase) and \
        driver.configuration.safe_get('nfs_snapshot_support') is not False


def specs_of(volume: typing.Any) -> dict[str, str]:
    """Return what the type of a volume says of the SSD cache."""
    if not volume.volume_type_id:
        return {}
    return _specs_of_type(volume.volume_type_id, volume)


def _specs_of_type(type_id: str, volume: typing.Any) -> dict[str, str]:
    try:
        return volume_specs.merged(*type_checks.of_type(
            cinder_context.get_admin_context(), type_id))
    except volume_specs.SpecsError as error:
        LOG.warning('Volume %s is not cached: %s', volume.id, error)
        return {}


def _retype(_driver: typing.Any, proceed: Proceed, _context: typing.Any,
            volume: typing.Any, new_type: typing.Any,
            diff: dict[str, typing.Any], host: dict[str, typing.Any]
            ) -> typing.Any:
    """Retype without the backend if it has nothing to do with the change.

    An error here would have Cinder migrate the volume.
    """
    if not is_ours(diff) or volume.host != host['host']:
        return proceed()
    try:
        reading.HOLDS.follow(volume, volume_specs.settings(
            volume_specs.parse(_specs_of_type(new_type['id'], volume))))
    except volume_specs.SpecsError as error:
        LOG.warning('Volume %s is cached as before: %s', volume.id, error)
    return True


def is_ours(diff: dict[str, typing.Any]) -> bool:
    """Return whether two types differ in what concerns the SSD cache alone.

    :param diff: of types, see ``cinder.volume.volume_types``
    """
    extra = _changed(diff.get('extra_specs'))
    qos = _changed(diff.get('qos_specs')) - {'consumer'}
    return bool(extra | qos) and not _changed(diff.get('encryption')) \
        and all(map(volume_specs.is_ours, extra | qos))


def _changed(values: dict[str, tuple] | None) -> set[str]:
    return {key for key, (before, after) in (values or {}).items()
            if before != after}


AROUND: dict[str, typing.Callable[..., typing.Any]] = {
    'initialize_connection': _initialize_connection,
    'retype': _retype,
}
