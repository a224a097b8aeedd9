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
"""Single flight: callers that need the same object at once share one transfer.

The first caller of a key leads: it does the work. Callers that come meanwhile
follow: they wait for the leader's result. All of them are members of the
flight until they leave the block; the last one removes the file if it is in
the staging area, and closes an outcome that can be closed.
"""

import collections.abc
import contextlib
import pathlib
import threading
import typing

from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import views


class Flight:
    """Work on one object, shared by the callers that joined it.

    :ivar path: the object, whole and verified, or None if the work has no
        file
    :ivar outcome: what else the work returned
    :ivar pulse: shows whether the work makes progress
    """

    def __init__(self, key: views.Key, throttle: throttles.Throttle) -> None:
        self.key = key
        self.path: pathlib.Path | None = None
        self.outcome: typing.Any = None
        self.members = 1
        self.leader = threading.get_ident()
        self.pulse = throttle.pulse
        self._throttle = throttle
        self._error: BaseException | None = None
        self._done = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether the work has ended, successfully or not."""
        return self._done.is_set()

    def land(self, path: pathlib.Path | None, outcome: typing.Any) -> None:
        """Publish the result of the work."""
        self.path, self.outcome = path, outcome
        self._done.set()

    def fail(self, error: BaseException) -> None:
        """Publish the error of the work.

        The leader may have been denied sources that its followers can use:
        they start over then, as they do where the leader has a cheaper way
        of its own.
        """
        is_the_leaders = (self._throttle.excluded
                          or isinstance(error, exceptions.DownloadCheaper))
        self._error = (exceptions.Cancelled(str(error))
                       if is_the_leaders else error)
        self._done.set()

    def promote(self) -> None:
        """Lift the limits of a background leader: a request waits for it."""
        self._throttle.promote()

    def wait(self) -> None:
        """Wait for the result.

        :raises BaseException: the error that the work ended with
        """
        self._done.wait()
        if self._error is not None:
            raise self._error


class Membership:
    """One caller's part in a flight.

    :ivar leads: whether the caller did the work
    """

    def __init__(self, flights: 'SingleFlight', flight: Flight,
                 leads: bool) -> None:
        self._flights = flights
        self._flight = flight
        self.leads = leads

    @property
    def path(self) -> pathlib.Path:
        """The object, whole and verified.

        :raises RuntimeError: the work has not landed, or has no file; a
            programming error
        """
        if self._flight.path is None:
            raise RuntimeError(f'{self._flight.key} has no file')
        return self._flight.path

    @property
    def outcome(self) -> typing.Any:
        """What the work returned beside the path."""
        return self._flight.outcome

    def is_shared(self) -> bool:
        """Return whether the flight has other members."""
        return self._flights.count(self._flight) > 1

    def take(self) -> bool:
        """Take sole ownership of the file, if no other member uses it.

        :returns: whether this caller is the only member; no caller can join
            any more then
        """
        return self._flights.retire(self._flight)


# Done by the leader; returns the object's path, and an outcome for all.
Work = collections.abc.Callable[
    [Membership], tuple[pathlib.Path | None, typing.Any]]


class SingleFlight:
    """The flights of one host.

    :param staging: directory whose files are removed with their flight
    """

    def __init__(self, staging: pathlib.Path) -> None:
        self._staging = staging
        self._lock = threading.Lock()
        self._flights: dict[views.Key, Flight] = {}
        self._waiting: dict[int, Flight] = {}

    @contextlib.contextmanager
    def share(self, key: views.Key, throttle: throttles.Throttle, work: Work
              ) -> collections.abc.Iterator[Membership]:
        """Lead the flight of an object, or follow the one under way.

        If the leader's work is cancelled, a follower starts over, and may
        become the leader.

        :param throttle: of the caller; a leader's is promoted by followers
            that cannot wait
        :raises Busy: the leader needs an object that this thread is leading
        :raises DiffCacheError: the error of the work
        """
        while True:
            flight, leads = self._join(key, throttle)
            member = Membership(self, flight, leads)
            if leads:
                self._lead(member, flight, work)
            elif not self._follow(flight, throttle):
                continue
            break
        try:
            yield member
        finally:
            self._leave(flight)

    def is_under_way(self, key: views.Key) -> bool:
        """Return whether an object is being brought to this host."""
        with self._lock:
            flight = self._flights.get(key)
            return flight is not None and not flight.is_done

    def count(self, flight: Flight) -> int:
        """Return the number of members of a flight."""
        with self._lock:
            return flight.members

    def retire(self, flight: Flight) -> bool:
        """Admit no further members to a flight that has a single one."""
        with self._lock:
            if flight.members > 1:
                return False
            self._forget(flight)
            return True

    def _join(self, key, throttle):
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                flight.members += 1
                return flight, False
            flight = self._flights[key] = Flight(key, throttle)
            return flight, True

    def _lead(self, member, flight, work):
        try:
            path, outcome = work(member)
        except BaseException as error:
            with self._lock:
                self._forget(flight)
            flight.fail(error)
            raise
        flight.land(path, outcome)

    def _follow(self, flight, throttle):
        """Wait for the leader; return False if its work was cancelled."""
        if not throttle.can_wait:
            flight.promote()
        me = threading.get_ident()
        with self._lock:
            if self._waits_for(flight, me):
                flight.members -= 1
                raise exceptions.Busy(
                    f'{flight.key} is being built from an object that needs'
                    f' it; another source is tried.')
            self._waiting[me] = flight
        try:
            with throttle.pulse.following(flight.pulse):
                flight.wait()
        except exceptions.Cancelled:
            return False
        finally:
            with self._lock:
                del self._waiting[me]
        return True

    def _leave(self, flight):
        with self._lock:
            flight.members -= 1
            if flight.members:
                return
            self._forget(flight)
        if flight.path is not None and flight.path.parent == self._staging:
            files.discard(flight.path)
        close = getattr(flight.outcome, 'close', None)
        if close is not None:
            close()

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def _waits_for(self, flight, thread):
        """Return whether a flight cannot end before a thread continues."""
        # A follower of a flight that is done waits no longer, even if it is
        # not awake yet.
        while flight is not None and not flight.is_done:
            if flight.leader == thread:
                return True
            flight = self._waiting.get(flight.leader)
        return False
