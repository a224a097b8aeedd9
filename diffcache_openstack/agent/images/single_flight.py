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
"""One making of an object per host, however many ask for it at once."""

import pathlib
import threading
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view as views


class Flight:
    """The making of one object, shared by those who joined it.

    Whoever joined must leave; the last one out may take the file away.
    """

    def __init__(self, key: views.Key,
                 promote: typing.Callable[[], None]) -> None:
        self.key = key
        self.promote = promote
        self.outcome: typing.Any = None
        self.path: pathlib.Path | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._members = 1
        self._leader = threading.get_ident()

    @property
    def landed_at(self) -> pathlib.Path:
        """Where the object is, whole and verified.

        :raises RuntimeError: it has not landed; that is a mistake of ours
        """
        if self.path is None:
            raise RuntimeError(f'{self.key} has not landed')
        return self.path

    @property
    def done(self) -> bool:
        """Whether it has ended, one way or the other."""
        return self._done.is_set()

    def wait(self) -> None:
        """Until the object is there.

        :raises BaseException: what the making ended with
        """
        self._done.wait()
        if self._error is not None:
            raise self._error


class Flights:
    """All makings of one host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[views.Key, Flight] = {}
        self._waiting: dict[int, Flight] = {}

    def join(self, key: views.Key, promote: typing.Callable[[], None]
             ) -> tuple[Flight, bool]:
        """Take part in the making of an object.

        :param promote: if the caller is the one to make it: what others call
            who wait for it in the foreground
        :returns: the flight, and whether the caller is the one to make it
            and to call :meth:`landed` or :meth:`failed`
        """
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                flight._members += 1
                return flight, False
            flight = self._flights[key] = Flight(key, promote)
            return flight, True

    def landed(self, flight: Flight, path: pathlib.Path,
               outcome: typing.Any) -> None:
        """The object is whole and verified at path."""
        flight.path, flight.outcome = path, outcome
        flight._done.set()

    def failed(self, flight: Flight, error: BaseException) -> None:
        """There will be no object; later callers start anew."""
        with self._lock:
            self._flights.pop(flight.key, None)
        flight._error = error
        flight._done.set()

    def leave(self, flight: Flight) -> bool:
        """Leave; true for the last one, who owns the file from then on."""
        with self._lock:
            flight._members -= 1
            if flight._members:
                return False
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
            return True

    def alone(self, flight: Flight) -> bool:
        """Whether the caller is the only one left; if so, nobody can join."""
        with self._lock:
            if flight._members > 1:
                return False
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
            return True

    def shared(self, flight: Flight) -> bool:
        """Whether others wait for it beside the one who makes it."""
        with self._lock:
            return flight._members > 1

    def under_way(self, key: views.Key) -> bool:
        """Whether an object is just being made here."""
        with self._lock:
            flight = self._flights.get(key)
            return flight is not None and not flight.done

    def follow(self, flight: Flight) -> bool:
        """Wait for another's making.

        :returns: False if it was cancelled, so that the caller starts anew
        :raises Busy: the other waits for something that the caller makes;
            the caller has left the flight
        :raises DiffCacheError: it failed
        """
        me = threading.get_ident()
        with self._lock:
            if not flight.done and self._waits_for(flight, me):
                flight._members -= 1
                raise exceptions.Busy(
                    f'{flight.key} is just being made from what it is '
                    f'needed for; another way is taken.')
            self._waiting[me] = flight
        try:
            flight.wait()
        except exceptions.Cancelled:
            return False
        finally:
            with self._lock:
                del self._waiting[me]
        return True

    def _waits_for(self, flight: Flight | None, thread: int) -> bool:
        """Whether a flight's end needs a thread to go on."""
        while flight is not None:
            if flight._leader == thread:
                return True
            flight = self._waiting.get(flight._leader)
        return False
