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
"""The service diffcached of this host, which serves images as they arrive."""

import typing

from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import control_socket
from diffcache_openstack.common import exceptions

# Until a new image can be read, and until one that was removed is gone.
_WORK_SECONDS = 60.0
# A restart of diffcache-lazy takes a few on a busy host. Without it an image
# is delivered whole, which takes longer.
_RESTART_SECONDS = 15.0
_BY_TYPE: dict[str, type[exceptions.DiffCacheError]] = {
    'InvalidInput': exceptions.InvalidInput,
    'NotFound': exceptions.NotFound,
    'Conflict': exceptions.Conflict,
}

Document = control_socket.Document


class Diffcached:
    """diffcached behind a socket; every call makes its own connection.

    All methods raise ServiceUnavailable if it does not answer.

    :param path: the socket, ``[lazy] socket``
    :param patience: waits for a diffcached that is restarted
    """

    def __init__(self, path: str, patience: restarts.Restarts | None = None
                 ) -> None:
        self._path = path
        self._patience = patience or restarts.Restarts(_RESTART_SECONDS)

    def images(self) -> list[Document]:
        """Return the status of all images that are served."""
        return self._ask('list', 'images')

    def image(self, content_id: str) -> Document:
        """Return the status of an image.

        :raises NotFound: it is not served
        """
        return self._ask('show', image=content_id)

    def add(self, content_id: str, wanted: Document) -> Document:
        """Serve an image; return its status when it can be read.

        A restart of diffcached is waited for.

        :param wanted: ``manifest`` (a path), ``sources`` in the order in
            which they are asked, ``wait`` in seconds, and may be ``homes``
            (``own``, the name of this host, and ``hosts``, each with ``name``
            and ``url``), ``hydrate``, ``rate`` in bytes per second and
            ``profile`` (a path). If the image is served already, its manifest,
            ``hydrate`` and ``rate`` stay
        :raises InvalidInput: it cannot be served as wanted
        """
        return self._patience.over(
            lambda: self._ask('add', image=content_id, wanted=wanted))

    def change(self, content_id: str, changed: Document) -> Document:
        """Change sources, homes, hydration, waiting or profile of an image.

        :param changed: ``sources``, ``homes``, ``hydrate``, ``rate``,
            ``wait`` or ``profile``, as for :meth:`add`; what is left out
            stays, and ``rate`` None removes the limit. A profile is used at
            once, and guests notice nothing. With ``verify`` true all that is
            kept is verified, and fetched where it is wrong
        :raises InvalidInput: it cannot be changed like that
        :raises NotFound: it is not served
        """
        return self._ask('change', image=content_id, changed=changed)

    def profile(self, content_id: str) -> Document:
        """Return what instances on this host have read of an image.

        An instance is a handle that was open since the image is served here.

        :returns: ``chunk``, its size in bytes; ``instances``, how many have
            read anything; ``profile``, a list of [chunk, number of instances
            that read it, mean microseconds from opening to the first read]
        :raises NotFound: it is not served
        """
        return self._ask('profile', 'profile', image=content_id)

    def remove(self, content_id: str) -> None:
        """Stop serving an image, and delete what has arrived of it.

        :raises Conflict: a process has it open
        :raises NotFound: it is not served
        """
        self._ask('remove', 'removed', image=content_id)

    def _ask(self, command: str, field: str = 'image',
             **fields: typing.Any) -> typing.Any:
        try:
            return control_socket.ask(
                self._path, {'command': command} | fields,
                _WORK_SECONDS)[field]
        except (OSError, ValueError, KeyError) as error:
            raise exceptions.ServiceUnavailable(
                f'diffcached does not answer at {self._path}: {error};'
                f' check that it runs ([lazy] socket).') from error
        except control_socket.CommandFailed as error:
            kind = _BY_TYPE.get(error.kind, exceptions.ServiceUnavailable)
            of = fields.get('image', 'images')
            raise kind(
                f'diffcached refused to {command} {of}: {error}') from error
