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
"""Objects across the WAN once per site, and from peers.

Whoever needs an object from the repository first asks the object's
coordinator for a claim. The coordinator is the host of the site that ranks
first for the object by rendezvous hashing, so that all hosts name the same
one without talking to each other. The first to ask becomes the holder and
uses the WAN; everybody else reads from the holder while the object is still
arriving there. A holder that does not deliver is named as suspect, and the
one who noticed takes over.
"""

import collections
import contextlib
import dataclasses
import hashlib
import logging
import pathlib
import threading
import time
import typing

from diffcache_openstack.agent.images import throttle
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)

# How long a host that did not answer is not asked again, seconds.
UNREACHABLE_SECONDS = 30.0
# A holder may need a moment between its claim and its first byte, or to take
# up an interrupted transfer; waits between tries, seconds.
HOLDER_PATIENCE = (0.1, 0.3, 0.8)
_PEER_ERRORS = (exceptions.PeerUnavailable, exceptions.ObjectMissing,
                exceptions.IntegrityError, exceptions.PeerRefused)


@dataclasses.dataclass(frozen=True)
class Moved:
    """What bringing an object took.

    :param apply_seconds: applying a patch to local files; 0 if that was not
        done or not timed by itself
    """

    wan_bytes: int = 0
    lan_bytes: int = 0
    apply_seconds: float = 0.0

    def __add__(self, other: 'Moved') -> 'Moved':
        return Moved(self.wan_bytes + other.wan_bytes,
                     self.lan_bytes + other.lan_bytes,
                     self.apply_seconds + other.apply_seconds)


@dataclasses.dataclass(frozen=True)
class Job:
    """An object on its way to a file.

    :param manifest: to verify templates with; None for other kinds
    :param in_place: dest is where the data plane serves the object from
    """

    key: views.Key
    dest: pathlib.Path
    manifest: pathlib.Path | None
    pace: throttle.Pace
    in_place: bool = False


class Unreachable:
    """Hosts that lately did not answer."""

    def __init__(self, seconds: float = UNREACHABLE_SECONDS) -> None:
        self._seconds = seconds
        self._until: dict[str, float] = {}

    def add(self, host: str) -> None:
        """A host did not answer."""
        self._until[host] = time.monotonic() + self._seconds

    def names(self) -> frozenset[str]:
        """Hosts not to be asked now."""
        now = time.monotonic()
        return frozenset(host for host, until in list(self._until.items())
                         if until > now)

    def clear(self) -> None:
        """Ask everybody again."""
        self._until.clear()


def rendezvous_order(key: views.Key, names: typing.Iterable[str]
                     ) -> list[str]:
    """Hosts by rank for an object; the same list wherever it is made."""
    def rank(name: str) -> bytes:
        text = f'{name}\n{key.kind}\n{key.id}'
        return hashlib.sha256(text.encode()).digest()
    return sorted(names, key=rank, reverse=True)


def _arrival(key: views.Key) -> views.Key:
    """What is claimed while an object comes by other hands.

    Hosts know only hashes of objects: this is one of an object that is none.
    """
    text = f'arrival\n{key.kind}\n{key.id}'
    return views.Key(key.kind, hashlib.sha256(text.encode()).hexdigest())


class _Claim(typing.NamedTuple):
    coordinator_url: str | None
    holder: str
    holder_url: str


class Transfers:
    """Moves objects to this host.

    :param plane: this host's data plane
    :param current_view: gives the site map
    :param lend_seconds: how long a delivered file stays readable to peers
    :param claim_ttl: seconds a claim lives without renewal
    """

    def __init__(self, plane, current_view: typing.Callable[
            [], views.SiteView], lend_seconds: float,
            claim_ttl: float) -> None:
        self._plane = plane
        self._view = current_view
        self._lend_seconds = lend_seconds
        self._claim_ttl = claim_ttl
        self._lent: dict[views.Key, float] = {}
        self._lock = threading.Lock()
        self._expected: collections.Counter[views.Key] = (
            collections.Counter())
        self.unreachable = Unreachable()

    def stop_lending(self) -> bool:
        """Lend nothing any more: the space is needed.

        :returns: whether something was lent
        """
        now, lent = time.monotonic(), dict(self._lent)
        for key in lent:
            self._plane.end_lending(key)
            self._lent.pop(key, None)
        return any(until > now for until in lent.values())

    @contextlib.contextmanager
    def expecting(self, key: views.Key) -> typing.Iterator[None]:
        """During the block an object comes to the site by other hands.

        Fills of the site leave it to them. Requests do not: whoever reads it
        may take his time.
        """
        arrival = _arrival(key)
        with self._lock:
            self._expected[key] += 1
        claim = None
        try:
            claim = self._claim_soon(arrival)
            with self._renewed(claim, arrival):
                yield
        finally:
            with self._lock:
                self._expected[key] -= 1
                last = not self._expected[key]
                if last:
                    del self._expected[key]
            if last and claim and claim.holder == self._plane.name:
                self._release(claim, arrival)

    def lend(self, key: views.Key, path: pathlib.Path) -> None:
        """Let peers read a file for a while, or until it changes."""
        self._plane.lend(key, path, self._lend_seconds)

    def offer(self, key: views.Key) -> None:
        """Have the site read from here, for a while, what is here now.

        The site map tells later, and of what is held only.
        """
        self._claim(key, None)

    def url_of(self, host: str) -> str:
        """Where a host's data plane listens.

        :raises PeerUnavailable: the site map does not know
        """
        found = self._view().host(host)
        if found is None or not found.url:
            raise exceptions.PeerUnavailable(
                f'The site map has no address for host {host}; another '
                f'source is used.')
        return found.url

    def from_peer(self, host: str, job: Job) -> Moved:
        """Fetch from a host that holds the object.

        :raises DiffCacheError: by what happened; dest is untouched
        """
        while True:
            try:
                return Moved(lan_bytes=self._fetch(
                    self.url_of(host), job, over_wan=False))
            except exceptions.Cancelled:
                if not job.pace.may_retry():
                    raise
            except exceptions.PeerUnavailable:
                self.unreachable.add(host)
                raise

    def from_repository(self, job: Job) -> Moved:
        """Fetch across the WAN, or behind the host that already does.

        :raises DiffCacheError: by what happened; dest is untouched
        """
        suspects: set[str] = set()
        suspect = None
        while True:
            job.pace.await_turn()
            self._leave_to_others(job)
            claim = self._claim(job.key, suspect)
            if claim.holder == self._plane.name or claim.holder in suspects:
                try:
                    return self._as_holder(claim, job)
                except exceptions.Cancelled:
                    if not job.pace.may_retry():
                        raise
                    continue
            try:
                return self._behind(claim, job)
            except _PEER_ERRORS as error:
                LOG.warning('Host %s does not deliver %s (%s); taking over',
                            claim.holder, job.key, error)
                suspect = claim.holder
                suspects.add(suspect)

    def _leave_to_others(self, job: Job) -> None:
        """Let a fill look again later if its object comes by other hands.

        :raises Cancelled: it does
        """
        if job.pace.can_wait and self._arrives(job.key):
            raise exceptions.Cancelled(
                f'{job.key} is just being brought to the site by other'
                f' hands; its fill looks again later.')

    def _arrives(self, key: views.Key) -> bool:
        if key.kind != views.TEMPLATES:
            return False
        if self._expected[key]:
            return True
        arrival = _arrival(key)
        claim = self._claim(arrival, None)
        if claim.holder != self._plane.name:
            return True
        self._release(claim, arrival)
        return False

    def _claim_soon(self, arrival: views.Key) -> _Claim:
        """A claim that a fill which only looked may have for a moment."""
        for wait in HOLDER_PATIENCE:
            claim = self._claim(arrival, None)
            if claim.holder == self._plane.name:
                break
            time.sleep(wait)
        return claim

    def _behind(self, claim: _Claim, job: Job) -> Moved:
        patience = iter(HOLDER_PATIENCE)
        while True:
            try:
                return Moved(lan_bytes=self._fetch(
                    claim.holder_url, job, over_wan=False))
            except exceptions.Cancelled:
                if not job.pace.may_retry():
                    raise
            except (exceptions.ObjectMissing, exceptions.PeerUnavailable):
                wait = next(patience, None)
                if wait is None:
                    raise
                time.sleep(wait)

    def _as_holder(self, claim: _Claim, job: Job) -> Moved:
        repository = self._view().repository()
        if repository is None:
            raise exceptions.PeerUnavailable(
                f'The site map names no repository to fetch {job.key} from; '
                f'start the repository\'s agent.')
        try:
            with self._renewed(claim, job.key):
                count = self._fetch(repository.url, job, over_wan=True)
        except exceptions.DiffCacheError as error:
            self._release(claim, job.key)
            if isinstance(error, exceptions.PeerUnavailable):
                self.unreachable.add(repository.name)
            raise
        # If the file is lent, the claim is left to lapse: until then
        # late-comers are sent here and not over the WAN.
        if not self._lend_seconds:
            self._release(claim, job.key)
        elif not job.in_place:
            self._lent[job.key] = time.monotonic() + self._lend_seconds
        return Moved(wan_bytes=count)

    def _fetch(self, url: str, job: Job, over_wan: bool) -> int:
        with job.pace.transfer(over_wan) as cancel:
            result = self._plane.fetch(
                url, job.key, job.dest, manifest=job.manifest,
                rate=job.pace.rate, cancel=cancel,
                durable=job.pace.durable,
                lend=0.0 if job.in_place or not over_wan
                else self._lend_seconds,
                progress=job.pace.note)
        return result['bytes']

    def _claim(self, key: views.Key, suspect: str | None) -> _Claim:
        """The answer of the first coordinator that answers.

        If none does, this host is the holder by its own right: better two
        transfers than none.
        """
        for name, url in self._coordinators(key):
            try:
                return _Claim(url, *self._plane.claim(url, key, suspect))
            except (exceptions.PeerUnavailable,
                    exceptions.PeerRefused) as error:
                LOG.warning('Coordinator %s of %s: %s', name, key, error)
                self.unreachable.add(name)
        return _Claim(None, self._plane.name, self._plane.url)

    def _coordinators(self, key: views.Key
                      ) -> typing.Iterator[tuple[str, str]]:
        urls = {host.name: host.url for host in self._view().compute_hosts()
                if host.alive and host.url}
        urls[self._plane.name] = self._plane.url
        for name in rendezvous_order(key, urls):
            if name not in self.unreachable.names():
                yield name, urls[name]

    @contextlib.contextmanager
    def _renewed(self, claim: _Claim, key: views.Key
                 ) -> typing.Iterator[None]:
        if claim.coordinator_url is None:
            yield
            return
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(self._claim_ttl / 3):
                try:
                    self._plane.claim(claim.coordinator_url, key, None)
                except exceptions.DiffCacheError as error:
                    LOG.info('Claim of %s is not renewed: %s', key, error)

        thread = threading.Thread(target=renew, daemon=True,
                                  name=f'claim-{key.id[:8]}')
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _release(self, claim: _Claim, key: views.Key) -> None:
        if claim.coordinator_url is None:
            return
        try:
            self._plane.release(claim.coordinator_url, key)
        except exceptions.DiffCacheError as error:
            LOG.info('Claim of %s is left to lapse: %s', key, error)
