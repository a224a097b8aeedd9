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
"""Volumes in use that Cinder reads: held by their hosts meanwhile.

A host that caches a volume in write-back has blocks that the volume lacks.
While an operation reads the volume, the host has written them back, and writes
go through. Holds are leases: they end by themselves when cinder-volume ends.
"""

import collections
import collections.abc
import contextlib
import itertools
import logging
import math
import threading
import time
import typing
import uuid

from cinder import exception
from oslo_config import cfg

from diffcache_openstack.cinder import conductors
from diffcache_openstack.cinder import options
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.remote_calls import conductor_holds_api

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

_AGAIN_S = 0.2
# Of a lease, after which it is renewed.
_RENEWED = 1 / 3


class Place(typing.NamedTuple):
    """A volume, and a host that it is attached to."""

    volume_id: str
    host: str

    def __str__(self) -> str:
        return f'volume {self.volume_id} on host {self.host}'


def places_of(volume: typing.Any) -> list[Place]:
    """Return where a volume may be in write-back.

    An attachment whose connection Cinder does not keep may be marked.

    :param volume: an object of Cinder's
    """
    found = []
    for attachment in volume.volume_attachment or ():
        connection = attachment.connection_info
        host = (attachment.connector or {}).get('host') \
            or attachment.attached_host
        if host and (not connection or volume_specs.MARK in connection):
            found.append(Place(volume.id, host))
    return found


class Holds:
    """Holds volumes for operations of this service.

    :param api: of the conductor; None to connect when it is needed
    :param clock: seconds, growing
    :ivar unheld: operations that went on although a host did not answer
    """

    def __init__(self, api: conductor_holds_api.HoldsAPI | None = None,
                 clock: collections.abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self._api = api
        self._clock = clock
        self._context = contexts.RequestContext.for_service('cinder-volume')
        self._mine: threading.local = threading.local()
        # Hosts that did not answer for a lease, and until when they are not
        # waited for again: other volumes of theirs would wait as long.
        self._silent: dict[str, float] = {}
        self.unheld: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def of(self, volumes: collections.abc.Iterable[typing.Any],
           operation: str) -> collections.abc.Iterator[None]:
        """Hold volumes for a ``with`` block; one within another is nothing.

        :param volumes: objects of Cinder's
        :param operation: that reads them, for messages
        :raises VolumeBackendAPIException: one cannot be held, or was not to
            the end of the block; what was made of it may lack something
        """
        times = [time.monotonic()]
        held = self._held()
        places = [place for volume in volumes for place in places_of(volume)
                  if place not in held]
        if not places:
            yield
            return
        lease = _Lease(self, operation, CONF.diffcache.hold_timeout)
        held.update(places)
        try:
            with lease:
                for place in places:
                    lease.begin(place)
                times.append(time.monotonic())
                yield
                times.append(time.monotonic())
        finally:
            held.difference_update(places)
        times.append(time.monotonic())
        LOG.info('Held %s for a %s: %.3f s until they were written back, %.3f'
                 ' s of the backend, %.3f s to end it',
                 ', '.join(map(str, places)), operation,
                 *(end - begin for begin, end in itertools.pairwise(times)))
        lease.check()

    @contextlib.contextmanager
    def queued(self, volumes: collections.abc.Iterable[typing.Any]
               ) -> collections.abc.Iterator[None]:
        """Have the writes of volumes wait for a ``with`` block.

        :param volumes: objects of Cinder's, which are held
        :raises VolumeBackendAPIException: they did not wait to the end of the
            block, so that it is not of one moment
        """
        queued: list[Place] = []
        try:
            for volume in volumes:
                queued += [place for place in places_of(volume)
                           if self._begin_queue(place)]
            yield
        finally:
            late = [place for place in queued if not self._end_queue(place)]
        if late:
            raise exception.VolumeBackendAPIException(data=(
                f'The writes of {", ".join(map(str, late))} could not wait'
                f' until all volumes of the group had a snapshot: these are'
                f' not of one moment. Repeat this, or raise [diffcache]'
                f' queue_timeout, {CONF.diffcache.queue_timeout:g} s.'))

    def _begin_queue(self, place: Place) -> bool:
        try:
            self.api.begin_queue(self._context, place.host, place.volume_id,
                                 CONF.diffcache.queue_timeout)
        except exceptions.NotFound:
            return False  # It is not cached there.
        except exceptions.DiffCacheError as error:
            raise self._refused(place, 'snapshot of a group', error) from error
        return True

    def _end_queue(self, place: Place) -> bool:
        try:
            self.api.end_queue(self._context, place.host, place.volume_id)
        except exceptions.DiffCacheError as error:
            LOG.warning('The writes of %s did not wait for a snapshot of its'
                        ' group: %s', place, error)
            return False
        return True

    def follow(self, volume: typing.Any, settings: dict[str, typing.Any]
               ) -> None:
        """Have hosts cache a volume as its new type says.

        What does not answer is logged: Cinder migrates volumes whose retype
        fails.

        :param volume: an object of Cinder's
        :param settings: see :func:`.volume_specs.settings`
        """
        for place in places_of(volume):
            try:
                self.api.follow_type(self._context, place.host,
                                     place.volume_id, settings)
            except exceptions.NotFound:
                continue  # It is not cached there.
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not have %s cached as its new type says,'
                            ' until it is attached again: %s', place, error)

    @property
    def api(self) -> conductor_holds_api.HoldsAPI:
        """The conductor's client."""
        if self._api is None:
            self._api = conductors.connect(conductor_holds_api.HoldsAPI)
        return self._api

    def until(self, volume: typing.Any, operation: str,
              goes_on: collections.abc.Callable[[], bool],
              failed: collections.abc.Callable[[str], object]) -> None:
        """Hold a volume that another service reads after this operation.

        :param volume: an object of Cinder's
        :param goes_on: returns whether it may still read it
        :param failed: called with a message if it was not held to the end
        :raises VolumeBackendAPIException: it cannot be held
        """
        lease = _Lease(self, operation, math.inf)
        with contextlib.ExitStack() as stack:
            stack.enter_context(lease)
            for place in places_of(volume):
                lease.begin(place)
            if lease.holds:
                ended = stack.pop_all()
                threading.Thread(
                    target=self._until, args=(lease, ended, goes_on, failed),
                    daemon=True, name='diffcache-hold-until').start()

    @staticmethod
    def _until(lease: '_Lease', ended: contextlib.ExitStack,
               goes_on: collections.abc.Callable[[], bool],
               failed: collections.abc.Callable[[str], object]) -> None:
        with ended:
            while goes_on():
                time.sleep(CONF.diffcache.hold_lease * _RENEWED)
        try:
            lease.check()
        except exception.VolumeBackendAPIException as error:
            failed(str(error))

    def _held(self) -> set[Place]:
        """Return what the operation that runs in this thread holds."""
        if not hasattr(self._mine, 'places'):
            self._mine.places = set()
        return self._mine.places

    def begin(self, place: Place, operation: str, hold_id: str) -> bool:
        """Begin a hold, once the host has written back what is missing.

        :returns: whether it is held; the host may have no cache
        :raises VolumeBackendAPIException: it cannot be held
        """
        group = CONF.diffcache
        begun = answered = self._clock()
        while True:
            try:
                self.api.begin_hold(self._context, place.host,
                                    place.volume_id, hold_id,
                                    group.hold_lease)
                return True
            except exceptions.NotFound:
                return False
            except exceptions.ServiceUnavailable as error:
                # It may be restarted.
                now = self._clock()
                if now >= answered + group.hold_lease \
                        or now < self._silent.get(place.host, 0.0):
                    self._check_unreachable(place, operation, error)
                    self._silent[place.host] = now + group.hold_lease
                    return False
            except exceptions.RetryableError as error:
                answered = self._clock()
                if answered >= begun + group.hold_timeout:
                    raise self._refused(place, operation, error) from error
            except exceptions.DiffCacheError as error:
                raise self._refused(place, operation, error) from error
            time.sleep(_AGAIN_S)

    def _check_unreachable(self, place: Place, operation: str,
                           error: exceptions.DiffCacheError) -> None:
        """Check that an operation may go on without an answer of the host.

        :raises VolumeBackendAPIException: it may not
        """
        if CONF.diffcache.on_unreachable == options.FAIL:
            raise self._refused(place, operation, error) from error
        self.unheld[operation] += 1
        LOG.error('Continue %s of %s, which may lack what its server wrote'
                  ' last, since [diffcache] on_unreachable is proceed (%d'
                  ' times since the start): %s', operation, place,
                  self.unheld[operation], error)

    def renew(self, place: Place, hold_id: str) -> None:
        """Have a hold last longer.

        :raises DiffCacheError: it has lapsed, or there is no answer
        """
        self.api.renew_hold(self._context, place.host, place.volume_id,
                            hold_id, CONF.diffcache.hold_lease)

    def end(self, place: Place, hold_id: str) -> None:
        """End a hold.

        :raises DiffCacheError: it has lapsed, or there is no answer
        """
        self.api.end_hold(self._context, place.host, place.volume_id, hold_id)

    @staticmethod
    def _refused(place: Place, operation: str, error: Exception
                 ) -> exception.VolumeBackendAPIException:
        return exception.VolumeBackendAPIException(data=(
            f'Cannot have {place} written back for a {operation}: {error}'
            f' Check the DiffCache agent of the host and the conductor, and'
            f' repeat this; "openstack volume cache show {place.volume_id}"'
            f' shows what the volume lacks.'))


class _Lease:
    """Holds of one operation, which a thread renews until it has ended.

    :param longest: seconds for which it does so
    """

    def __init__(self, holds: Holds, operation: str, longest: float) -> None:
        self._holds = holds
        self._operation = operation
        self._longest = longest
        self._hold_id = str(uuid.uuid4())
        self._places: list[Place] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._lapsed: dict[Place, exceptions.DiffCacheError] = {}

    @property
    def holds(self) -> bool:
        """Whether a volume is held."""
        return bool(self._places)

    def begin(self, place: Place) -> None:
        """Hold a volume."""
        if self._holds.begin(place, self._operation, self._hold_id):
            self._places.append(place)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew, daemon=True, name='diffcache-hold')
                self._thread.start()

    def __enter__(self) -> '_Lease':
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        for place in self._places:
            self._end(place)

    def check(self) -> None:
        """Check that all volumes were held until now.

        :raises VolumeBackendAPIException: one was not
        """
        if self._lapsed:
            place, error = next(iter(self._lapsed.items()))
            raise exception.VolumeBackendAPIException(data=(
                f'The {self._operation} of {place} may lack what its server'
                f' wrote: it was not held out of write-back to the end.'
                f' {error} Delete what was made, and repeat this.'))

    def _renew(self) -> None:
        end = time.monotonic() + self._longest
        while not self._ended.wait(CONF.diffcache.hold_lease * _RENEWED):
            if time.monotonic() >= end:
                return  # The end finds out that it has lapsed.
            for place in list(self._places):
                try:
                    self._holds.renew(place, self._hold_id)
                except exceptions.DiffCacheError as error:
                    LOG.warning('Could not renew the hold of %s for a %s: %s',
                                place, self._operation, error)

    def _end(self, place: Place) -> None:
        """End a hold; an agent that is being restarted has kept it."""
        end = time.monotonic() + CONF.diffcache.hold_lease
        while True:
            try:
                self._holds.end(place, self._hold_id)
                return
            except exceptions.RetryableError as error:
                if time.monotonic() >= end:
                    self._lapsed[place] = error
                    return
                time.sleep(_AGAIN_S)
            except exceptions.DiffCacheError as error:
                self._lapsed[place] = error
                return
