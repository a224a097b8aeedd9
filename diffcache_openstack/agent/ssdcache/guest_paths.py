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
"""How guests reach their volumes in the SSD cache: by NBD or vhost-user."""

import dataclasses
import logging

from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.ssdcache import engines

LOG = logging.getLogger(__name__)

# Characters of a reason that is reported.
_LONGEST = 250
_DISABLED = '[ssd_cache] guest_path of this host is nbd'


class GuestPaths:
    """Has the cache serve volumes by vhost-user, where that is wanted.

    :param engine: the cache
    :param store: keeps which volumes it serves so
    :param preferred: one of
        :data:`~diffcache_openstack.cached_volumes.choices.GUEST_PATHS`
    """

    def __init__(self, engine: engines.Engine,
                 store: volume_settings.SettingsStore, preferred: str
                 ) -> None:
        self._engine = engine
        self._store = store
        self._preferred = preferred
        self._refused: set[str] = set()

    def choose(self, wanted: volume_settings.VolumeSettings
               ) -> volume_settings.VolumeSettings:
        """Return the settings of a volume that is attached, as allowed here.

        :param wanted: with what keeps its server from vhost-user
        """
        if wanted.nbd_reason is None and self._preferred == choices.NBD:
            return dataclasses.replace(wanted, nbd_reason=_DISABLED)
        return wanted

    def open(self, name: str, wanted: volume_settings.VolumeSettings
             ) -> str | None:
        """Serve a volume by vhost-user, if it is to be.

        Its guest uses the volume only after that.

        :returns: path of the socket; none if its guest has to use NBD
        :raises RetryableError: the cache does not answer
        """
        if wanted.nbd_reason is not None:
            return None
        try:
            return self._engine.open_vhost(name)
        except engines.VolumeRefused as error:
            LOG.warning('Volume %s is reached by NBD: %s', name, error)
            self._store.keep_wanted(name, dataclasses.replace(
                wanted, nbd_reason=str(error)))
            return None

    def closed(self) -> list[str]:
        """Return volumes that are to be served by vhost-user and are not.

        A cache that was killed or restarted has its sockets still, and serves
        them itself; one that was stopped has not.

        :raises RetryableError: the cache does not answer
        """
        kept = {name for name, wanted in self._store.wanted().items()
                if wanted.nbd_reason is None}
        if not kept:
            return []
        return [name for name, state in self._engine.volumes().items()
                if name in kept and state.vhost is None
                and state.state != choices.HELD]

    def reopen(self, name: str) -> None:
        """Serve a volume again whose guest tries to connect.

        :raises RetryableError: the cache does not answer
        """
        try:
            self._engine.open_vhost(name)
        except engines.VolumeRefused as error:
            if name not in self._refused:
                LOG.error('The server with volume %s waits for it: the SSD'
                          ' cache cannot serve it by vhost-user: %s. Mend'
                          ' that, or reboot the server hard', name, error)
            self._refused.add(name)
        else:
            self._refused.discard(name)
            LOG.info('Volume %s is served by vhost-user again', name)


def shown(state: engines.State, wanted: volume_settings.VolumeSettings
          ) -> dict[str, str | None]:
    """Return how a guest reaches its volume, and why, for reports."""
    is_vhost = state.vhost is not None or wanted.nbd_reason is None
    return {'guest_path': choices.VHOST_USER if is_vhost else choices.NBD,
            'guest_path_reason': None if is_vhost else
            (wanted.nbd_reason or '')[:_LONGEST]}
