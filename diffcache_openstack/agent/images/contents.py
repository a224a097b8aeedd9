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
"""Raw content of images at this host: shared, expected, taken, released."""

import collections.abc
import contextlib
import pathlib
import threading
import typing
import uuid

from diffcache_openstack.agent.images import arriving_bases
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.images.limits import pulses
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import patch_requests
from diffcache_openstack.agent.images import retention
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views


# A client's own download is cheaper below this share of what crosses here:
# manifests do not decide, and what is brought here serves other hosts at once.
_CHEAPER = 0.95


class Watch:
    """A client that waits for long work.

    :ivar gone: set once the client has disconnected
    :ivar pulse: of the work
    :param own_bytes: bytes that the client could download instead; None if
        it has no other way
    """

    def __init__(self, own_bytes: int | None = None) -> None:
        self.own_bytes = own_bytes
        self.done, self.total = 0, 0
        self.gone = threading.Event()
        self.pulse = pulses.Pulse()
        self._shown = -1

    def progress(self, done: int, total: int) -> None:
        """Note the bytes done and the bytes in all."""
        self.done, self.total = done, total

    def shows_life(self) -> bool:
        """Return whether the work is local, or advanced since last asked."""
        local, beats = self.pulse.state()
        alive, self._shown = local or beats != self._shown, beats
        return alive

    def advance(self, done: int, total: int) -> bool:
        """Note progress; return whether the client still waits."""
        self.progress(done, total)
        return not self.gone.is_set()


class Alternatives(typing.NamedTuple):
    """What may be better than building an image at once from present objects.

    :ivar patches: requests patches that there are not yet
    :ivar costs: what images cost here, for clients with another way to them
    :ivar arrivals: finds bases that are arriving
    """

    patches: patch_requests.PatchRequests
    costs: image_costs.ImageCosts
    arrivals: arriving_bases.Arrivals


class Contents:
    """Builds raw content, and accounts for content that comes otherwise.

    :param builder: builds objects at this host
    :param host: this host's state
    :param flights: single flight of this host
    :param kept: keeps content, if there is room
    :param moved: transfers of this host
    :param alternatives: considered before content is built
    """

    def __init__(self, builder: building.Builder, host: host_state.HostState,
                 flights: single_flight.SingleFlight,
                 kept: retention.Retention,
                 moved: site_transfers.Transfers, alternatives: Alternatives
                 ) -> None:
        self._patches, self._costs, self._arrivals = alternatives
        self._builder = builder
        self._host = host
        self._single_flight = flights
        self._retention = kept
        self._transfers = moved

    @contextlib.contextmanager
    def shared(self, image: views.ImageRef, throttle: throttles.Throttle,
               mode: str = building.ON_THE_FLY, watch: Watch | None = None
               ) -> collections.abc.Iterator[single_flight.Membership]:
        """Yield an image's verified raw content as a file.

        :param mode: one of building.MODES, of the request that leads
        :param watch: the client; the work is cancelled once it has gone and
            no other request shares it
        :raises DownloadCheaper: the image would cross the WAN whole, in more
            bytes than the client can download it with
        :raises DiffCacheError: no source delivers it
        """
        key = _key_of(image)
        if watch is not None:
            watch.pulse = throttle.pulse

        def build(member: single_flight.Membership
                  ) -> tuple[pathlib.Path, building.Built]:
            if watch is not None:
                throttle.progress = watch.progress
                throttle.abandoned = lambda: (watch.gone.is_set()
                                              and not member.is_shared())
            with contextlib.ExitStack() as stack:
                with tracing.span('decision', image=image.id) as span:
                    self._patches.request(key.id, throttle)
                    route = stack.enter_context(
                        self._arrivals.awaited(key.id, throttle))
                    span.note(awaited=route and route.describe())
                    if route is None and watch is not None \
                            and not member.is_shared():
                        self._check_worth(image, watch.own_bytes)
                return self._build(image, throttle, mode, route)

        with self._single_flight.share(key, throttle, build) as member:
            yield member

    def _build(self, image: views.ImageRef,
               throttle: throttles.Throttle, mode: str,
               route: routes.Route | None
               ) -> tuple[pathlib.Path, building.Built]:
        """Build content in the staging area; keep it if there is room.

        :param route: to try first
        """
        key = _key_of(image)
        staged = self._host.held.staging(f'{key.id}.{uuid.uuid4().hex}')
        try:
            built = self._builder.build(key, staged, throttle, mode, route)
        except BaseException:
            files.discard(staged)
            raise
        return self._retention.keep(image, staged), built

    def _check_worth(self, image: views.ImageRef,
                     own_bytes: int | None) -> None:
        """Refuse to bring an image that its client gets more cheaply.

        What the plan places here is brought in any case.

        :raises DownloadCheaper: as the name says
        """
        if own_bytes is None or self._costs.planned(image):
            return
        cost = self._costs.content(image)
        if cost.way == image_costs.REPOSITORY and (
                own_bytes < _CHEAPER * cost.wan_bytes):
            raise exceptions.DownloadCheaper(
                f'Image {image.id} would cross the WAN whole, in'
                f' {cost.wan_bytes} bytes, and its file has {own_bytes};'
                f' download the file.')

    def expecting(self, image: views.ImageRef
                  ) -> contextlib.AbstractContextManager[None]:
        """Note, during the block, that another service brings an image.

        Fills of the site do not bring the same content over the WAN
        meanwhile.
        """
        return self._transfers.expecting(_key_of(image))

    def take(self, image: views.ImageRef, path: pathlib.Path,
             throttle: throttles.Throttle) -> None:
        """Cache raw content that another service fetched, or lend it.

        :param path: a verified file of the staging area; it may be moved
        :raises RetryableError: no host has the manifest
        """
        key = _key_of(image)
        self._builder.manifest(key.id, throttle)
        if self._retention.keep(image, path) == path:
            self._transfers.lend(key, path)
        self._transfers.offer(key)

    def release(self, image: views.ImageRef) -> None:
        """Drop an image's content, unless the plan places it or it is used."""
        if self._host.held.release(_key_of(image)):
            self._host.report_due.set()


def _key_of(image: views.ImageRef) -> views.Key:
    return views.Key(views.IMAGES, image.content_id)
