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
"""Read an image's bytes from the first source that has them.

That is the agent, or a concurrent request that reads the store. If either
fails midway, the rest comes from the store, and the client does not notice.
"""

import collections.abc

from diffcache_openstack.common import exceptions
from diffcache_openstack.glance import agents
from diffcache_openstack.glance import fills

Pieces = collections.abc.Iterator[bytes]
#: Bytes of an image from Glance's own store, from an offset on.
Store = collections.abc.Callable[[str, int], collections.abc.Iterable[bytes]]


class Source:
    """Where images come from.

    :param agent: of this host
    :param filling: images that are just read from the store
    :param store: reads Glance's own store
    """

    def __init__(self, agent: agents.HostAgent, filling: fills.Fills,
                 store: Store) -> None:
        self._agent = agent
        self._filling = filling
        self._store = store

    def whole(self, image_id: str, size: int, by_agent: bool) -> Pieces:
        """Read all of an image.

        :param size: bytes of it
        :param by_agent: whether the agent has it, or can get it; otherwise
            another process reads it from the store
        """
        if by_agent:
            return self._with_store(
                image_id, 0, size, self._from_agent(image_id, 0, size))
        return self._with_store(
            image_id, 0, size, self._filling.follow(image_id, size))

    def part(self, image_id: str, start: int, end: int) -> Pieces:
        """Read a range of an image that the site holds.

        :param end: the byte after the last one
        """
        return self._with_store(image_id, start, end, self._from_agent(
            image_id, start, end, site_only=True))

    def _from_agent(self, image_id, start, end, site_only=False):
        if start == end:
            return
        whole = None if not start else end - 1
        if site_only:
            whole = end - 1
        with self._agent.open(image_id, start, whole, site_only) as file:
            yield from file

    def _with_store(self, image_id, start, end, pieces):
        at = start
        try:
            for piece in pieces:
                piece = piece[:end - at]
                at += len(piece)
                yield piece
            if at == end:
                return
            error: Exception = exceptions.ServiceUnavailable(
                f'{at - start} bytes came, not {end - start}')
        except (exceptions.DiffCacheError, fills.BrokenOff,
                OSError) as failure:
            error = failure
        self._agent.fell_back(image_id, type(error).__name__, error)
        for piece in self._store(image_id, at):
            piece = piece[:end - at]
            at += len(piece)
            yield piece
            if at == end:
                return


class Stream:
    """Pieces as a file to read from."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._rest = b''

    def read(self, size: int = -1) -> bytes:
        """Read up to this many bytes; none at the end."""
        if size is None or size < 0:
            found, self._rest = self._rest, b''
            return found + b''.join(self._pieces)
        if not self._rest:
            self._rest = next(self._pieces, b'')
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def close(self) -> None:
        """Read no more."""
        close = getattr(self._pieces, 'close', None)
        if close is not None:
            close()
