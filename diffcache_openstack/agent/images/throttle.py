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
"""How fast, and how carefully, work is done, and when it has to wait.

Requests go first: while one of them uses the WAN, fills of the same host
stop using it. A fill that a request turns out to need becomes foreground
work at once.
"""

import contextlib
import threading
import typing

from diffcache_openstack.common import exceptions


class Token(typing.Protocol):
    """What a running transfer looks at; the data plane makes them."""

    def cancel(self) -> None:
        """End the transfer soon."""


class WanGate:
    """Counts requests on the WAN and pauses the background meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._foreground = 0
        self._background: set['BackgroundPace'] = set()

    @contextlib.contextmanager
    def foreground(self) -> typing.Iterator[None]:
        """A request uses the WAN during the block."""
        with self._changed:
            self._foreground += 1
            paused = list(self._background)
        for pace in paused:
            pace.yield_wan()
        try:
            yield
        finally:
            with self._changed:
                self._foreground -= 1
                self._changed.notify_all()

    def wait_free(self, pace: 'BackgroundPace', timeout: float) -> bool:
        """Until no request uses the WAN, or timeout (seconds) is over."""
        with self._changed:
            self._background.add(pace)
            return self._changed.wait_for(lambda: not self._foreground,
                                          timeout)

    def busy(self) -> bool:
        """Whether a request uses the WAN."""
        with self._changed:
            return self._foreground > 0

    def forget(self, pace: 'BackgroundPace') -> None:
        """The background work no longer uses the WAN."""
        with self._changed:
            self._background.discard(pace)


class Pace:
    """The pace of a request: as fast as it goes.

    :param gate: of the host
    :param new_token: makes a token for one transfer
    :param durable: whether what is written must be on the disk, not only in
        memory, before it counts as done
    :ivar excluded: hosts that nothing may be read from
    :ivar progress: told the bytes done and the bytes in all of the transfer
        that is under way
    :ivar abandoned: whether nobody waits for the result any more
    """

    rate: float | None = None
    excluded: frozenset[str] = frozenset()
    progress: typing.Callable[[int, int], None] | None = None
    abandoned: typing.Callable[[], bool] | None = None

    def __init__(self, gate: WanGate,
                 new_token: typing.Callable[[], Token], *,
                 durable: bool = True) -> None:
        self._gate = gate
        self._new_token = new_token
        self.durable = durable

    @contextlib.contextmanager
    def transfer(self, over_wan: bool) -> typing.Iterator[Token]:
        """One transfer; ``over_wan`` tells which link it loads."""
        if not over_wan:
            yield self._new_token()
            return
        with self._gate.foreground():
            yield self._new_token()

    def await_turn(self) -> None:
        """Return once the WAN may be used."""

    def check(self) -> None:
        """Called now and then during a transfer.

        :raises Cancelled: nobody waits for it any more
        """
        if self.abandoned is not None and self.abandoned():
            raise exceptions.Cancelled('Whoever asked for it has gone.')

    def note(self, done: int, total: int) -> None:
        """Called now and then during a transfer, with the bytes it moved.

        :raises Cancelled: nobody waits for it any more
        """
        self.check()
        if self.progress is not None:
            self.progress(done, total)

    def promote(self) -> None:
        """A request waits for this; it is in the foreground already."""

    def may_retry(self) -> bool:
        """Whether a transfer that ended as cancelled is to be taken up."""
        return False

    @property
    def can_wait(self) -> bool:
        """Whether nobody waits for what this is the pace of."""
        return False


class BackgroundPace(Pace):
    """The pace of a fill.

    :param rate: bytes/s, None for no limit
    :param may_run: whether the time windows are open; they bind the WAN
        only, what is at the site already moves at any time
    """

    POLL = 1.0

    def __init__(self, gate: WanGate,
                 new_token: typing.Callable[[], Token], rate: float | None,
                 may_run: typing.Callable[[], bool]) -> None:
        super().__init__(gate, new_token)
        self.rate = rate
        self._may_run = may_run
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._over_wan = False
        self._promoted = threading.Event()
        self._stopped = threading.Event()

    @contextlib.contextmanager
    def transfer(self, over_wan: bool) -> typing.Iterator[Token]:
        """One transfer, begun when it may run.

        :raises Cancelled: the fill was stopped, or its window closed
        """
        token = self._begin(over_wan)
        try:
            if self._promoted.is_set() and over_wan:
                with self._gate.foreground():
                    yield token
            else:
                yield token
        finally:
            with self._lock:
                self._token = None
            self._gate.forget(self)

    def may_retry(self) -> bool:
        """After an interruption, unless that was :meth:`stop`."""
        return not self._stopped.is_set()

    def promote(self) -> None:
        """A request waits for this: no limit, no window, no waiting."""
        self._promoted.set()
        self.rate = None
        self.interrupt()

    @property
    def promoted(self) -> bool:
        """Whether a request waits for this."""
        return self._promoted.is_set()

    @property
    def can_wait(self) -> bool:
        """Whether nobody waits for what this is the pace of."""
        return not self._promoted.is_set()

    def stop(self) -> None:
        """End for good, keeping what has arrived."""
        self._stopped.set()
        self.interrupt()

    def interrupt(self) -> None:
        """End the running transfer; it is taken up again when it may."""
        with self._lock:
            if self._token is not None:
                self._token.cancel()

    def yield_wan(self) -> None:
        """A request needs the WAN: get off it."""
        if self._over_wan and not self._promoted.is_set():
            self.interrupt()

    def check(self) -> None:
        """Called now and then during a transfer: closes with the window."""
        if (self._over_wan and not self._promoted.is_set()
                and not self._may_run()):
            self.stop()

    def await_turn(self) -> None:
        """Return once the WAN may be used.

        :raises Cancelled: the fill was stopped, or its window closed
        """
        self._wait(True)
        self._gate.forget(self)

    def _begin(self, over_wan: bool) -> Token:
        while True:
            self._wait(over_wan)
            token = self._new_token()
            with self._lock:
                self._token, self._over_wan = token, over_wan
            # A request may have come between the wait and the token.
            if (not over_wan or self._promoted.is_set()
                    or not self._gate.busy()):
                return token

    def _wait(self, over_wan: bool) -> None:
        while True:
            if self._stopped.is_set():
                raise exceptions.Cancelled('The fill was stopped.')
            if self._promoted.is_set() or not over_wan:
                return
            if not self._may_run():
                self._stopped.set()
            elif self._gate.wait_free(self, self.POLL):
                return
