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
"""Keys that stores of versions are sealed with, kept by a key manager.

The key manager is that of castellan, which is Barbican unless the
configuration's group ``key_manager`` says otherwise. A store has one key; what
is to be remembered of it is the id that the key manager gave it.
"""

from typing import Any

from castellan.common import exception as castellan_exceptions
from castellan.common.objects import symmetric_key
from castellan import key_manager
from oslo_config import cfg
from oslo_context import context as oslo_context

from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import groups
from diffcache_openstack.versions.store.keys import key_files

_ALGORITHM = 'AES'
# The group of options with the credentials for Barbican.
GROUP = 'barbican'
_REFUSED = (401, 403)


class Caller(oslo_context.RequestContext):
    """The credentials with which this service calls the key manager.

    Barbican is called as the user that ``[barbican]`` names. Other key
    managers have options of their own, and need no user.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self._conf = conf
        self._auth: Any = None

    def get_auth_plugin(self) -> Any:
        """Return the authentication plugin for castellan.

        :raises InvalidInput: the options do not suffice
        """
        if self._auth is None:
            # Only where Barbican is used: it loads keystoneauth.
            from diffcache_openstack.common import keystone
            groups.register_access(self._conf, [GROUP])
            self._auth = keystone.auth(self._conf, GROUP)
        return self._auth


class VersionKeys:
    """The keys of projects.

    Every method takes the request's context, by which the key manager knows
    the caller: an ``oslo_context`` with a token, or a castellan credential.

    :param manager: a key manager of castellan; the configured one if None
    """

    def __init__(self, conf: cfg.ConfigOpts, manager: Any = None) -> None:
        self._manager = manager or key_manager.API(conf)

    def create(self, context: Any, name: str) -> str:
        """Create a key.

        :returns: its id
        :raises PermanentError: the key manager refuses
        :raises ServiceUnavailable: the key manager did not do it
        """
        try:
            return self._manager.create_key(
                context, algorithm=_ALGORITHM,
                length=key_files.KEY_BYTES * 8, name=name)
        except castellan_exceptions.CastellanException as exc:
            raise _translated(exc) from exc

    def get(self, context: Any, key_id: str) -> bytes:
        """Return the 32 bytes of a key.

        :raises NotFound: there is no such key
        :raises InvalidInput: it is none that a store can have
        :raises PermanentError: this user may not have it
        :raises ServiceUnavailable: the key manager did not answer
        """
        try:
            key = self._manager.get(context, key_id)
        except (castellan_exceptions.ManagedObjectNotFoundError,
                KeyError) as exc:
            raise exceptions.NotFound(
                f'The key manager has no key {key_id}: versions sealed with '
                f'it cannot be read without it; restore it there.') from exc
        except castellan_exceptions.CastellanException as exc:
            raise _translated(exc) from exc
        data = key.get_encoded()
        if (not isinstance(key, symmetric_key.SymmetricKey)
                or data is None or len(data) != key_files.KEY_BYTES):
            raise exceptions.InvalidInput(
                f'Key {key_id} is not a symmetric key of '
                f'{key_files.KEY_BYTES * 8} bits: create one for the '
                f'store.')
        return data

    def delete(self, context: Any, key_id: str) -> None:
        """Destroy a key, and with it all that was sealed with it.

        :raises NotFound: there is no such key
        :raises ServiceUnavailable: the key manager did not do it
        """
        try:
            self._manager.delete(context, key_id)
        except (castellan_exceptions.ManagedObjectNotFoundError,
                KeyError) as exc:
            raise exceptions.NotFound(
                f'The key manager has no key {key_id}.') from exc
        except castellan_exceptions.CastellanException as exc:
            raise _translated(exc) from exc


def _translated(error: Exception) -> exceptions.DiffCacheError:
    """Map an error of castellan's, by its cause, to one of this suite."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, exceptions.DiffCacheError):
            return cause
        status = getattr(cause, 'status_code',
                         getattr(cause, 'http_status', None))
        if (isinstance(cause, castellan_exceptions.Forbidden)
                or status in _REFUSED):
            return exceptions.PermanentError(
                f'The key manager refuses this service: {cause}; look at '
                f'[{GROUP}], and give its user a role that may create and '
                f'read secrets.')
        cause = cause.__cause__ or cause.__context__
    return exceptions.ServiceUnavailable(
        f'The key manager: {error}; look whether it runs and try again.')
