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
"""Raw content of images as files of this host, shared by all who need it."""

import collections.abc
import contextlib
import pathlib
import threading
import uuid

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import retention
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import throttle
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import files
from diffcache_openstack.sites import view as views


class Watch:
    """A client that waits for long work.

    :ivar gone: set once the client has disconnected
    """

    def __init__(self) -> None:
        self.done, self.total = 0, 0
        self.gone = threading.Event()

    def progress(self, done: int, total: int) -> None:
        """Note the bytes done and the bytes in all."""
        self.done, self.total = done, total


class Contents:
    """Builds raw content, once for all requests that are waiting for it.

    :param maker: builds objects at this host
    :param held: what this host holds
    :param flights: single flight of this host
    :param keep: keeps what was built, if there is room
    """

    def __init__(self, maker: building.Maker, held: holdings.Holdings,
                 flights: single_flight.SingleFlight,
                 keep: retention.Keep = retention.leave) -> None:
        self._maker = maker
        self._held = held
        self._single_flight = flights
        self._keep = keep

    @contextlib.contextmanager
    def shared(self, template: views.TemplateRef, pace: throttle.Pace,
               mode: str = building.ON_THE_FLY, watch: Watch | None = None
               ) -> collections.abc.Iterator[single_flight.Membership]:
        """Give an image's verified raw content as a file, during the block.

        :param mode: one of building.MODES, of the request that leads
        :param watch: the client; the work is cancelled once it has gone and
            no other request shares it
        :raises DiffCacheError: no source delivers it
        """
        key = views.Key(views.TEMPLATES, template.content_id)

        def build(member: single_flight.Membership
                  ) -> tuple[pathlib.Path, building.Made]:
            if watch is not None:
                pace.progress = watch.progress
                pace.abandoned = lambda: (watch.gone.is_set()
                                          and not member.is_shared())
            staged = self._held.staging(f'{key.id}.{uuid.uuid4().hex}')
            try:
                made = self._maker.make(key, staged, pace, mode)
            except BaseException:
                files.discard(staged)
                raise
            return self._keep(template, staged), made

        with self._single_flight.share(key, pace, build) as member:
            yield member
