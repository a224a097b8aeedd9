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
"""Boot sets that diffcached serves, as the agent sees them.

A boot set is an image that is served before any server needs it, of which the
chunks of its profile alone are fetched. It takes what these take of the cache.
A server that boots from the image finds it as any image that is served.
"""

import collections
import collections.abc
import contextlib
import dataclasses
import logging
import pathlib
import time
import typing

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import planned_boot_sets
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.objects import boot_set
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# Mode in which diffcached fetches the chunks of the profile before any read.
PROFILE = 'profile'
# Wait after a failed try, seconds, doubled with each further.
FIRST_RETRY = 2.0
LAST_RETRY = 300.0
# Sets that are fetched at once: they share the WAN, and one that is whole is
# worth more than several that are not.
MOST_FETCHING = 2
# A set of which nothing arrives for this long has failed; it is tried on.
STALLED_SECONDS = 60.0
# What other hosts read through it, as a home of its chunks, is kept up to this
# many times its bytes. Then the set is fetched anew, once nothing has it open.
MOST_GROWTH = 2


class Means(typing.NamedTuple):
    """What serves images at this host.

    :ivar daemon: diffcached
    :ivar describe: returns the document with which diffcached serves a
        content; raises DiffCacheError if no source has it
    :ivar bring_manifest: fetches the manifest of a content, if need be
    :ivar attach: lets peers read a content here, given its folder
    :ivar detach: ends that
    :ivar may_fetch: whether the windows of fills are open
    :ivar turns: of contents
    """

    daemon: diffcached.Diffcached
    describe: collections.abc.Callable[[views.Key], diffcached.Document]
    bring_manifest: collections.abc.Callable[[str], object]
    attach: collections.abc.Callable[[views.Key, pathlib.Path], object]
    detach: collections.abc.Callable[[views.Key], object]
    may_fetch: collections.abc.Callable[[], bool]
    turns: threads.KeyedLocks


@dataclasses.dataclass
class _LazyBootSet:
    """A set that is served.

    :ivar uses: what it takes of this host
    :ivar room: bytes that are set aside
    :ivar present: chunks that were here when some arrived last
    :ivar since: when that was, monotonic
    """

    uses: contextlib.ExitStack
    room: int
    present: int = -1
    since: float = 0.0


@dataclasses.dataclass
class _Failure:
    """Why a set is not served.

    :ivar due: monotonic time of the next try
    :ivar wait: seconds until then from the last
    """

    message: str
    due: float
    wait: float


class LazyBootSets:
    """Has boot sets served, and accounts for them.

    For the thread that looks alone, but for :meth:`hand_over` and
    :meth:`owns`; what is done with a content takes its turn.

    :param host: this host's state
    :param sets: those planned for this host, and those that it has
    :param means: of this host
    """

    def __init__(self, host: host_state.HostState,
                 sets: planned_boot_sets.PlannedBootSets,
                 means: Means) -> None:
        self._host = host
        self._sets = sets
        self._means = means
        self._served: dict[str, _LazyBootSet] = {}
        # What diffcached served at the last look.
        self._found: frozenset[str] = frozenset()
        self._failures: dict[str, _Failure] = {}
        #: Sets served, dropped and failed since the agent started.
        self.counts: collections.Counter[str] = collections.Counter(
            served=0, dropped=0, failed=0)

    def owns(self, content_id: str) -> bool:
        """Return whether a content is served for its set alone."""
        return content_id in self._sets.alone()

    def close(self) -> None:
        """Give back what sets take; they are served all the same."""
        for use in self._served.values():
            use.uses.close()
        self._served.clear()

    def hand_over(self, content_id: str) -> None:
        """Leave a content to a server that boots from it.

        The caller accounts for all of it before.
        """
        self._sets.forget_alone(content_id)
        self._give_back(content_id)

    def look(self, found: dict[str, diffcached.Document]) -> None:
        """Serve sets that are planned, drop others, update the account.

        :param found: status of each content that diffcached serves
        """
        for content_id in self._sets.alone().keys() - found.keys():
            # diffcached lost it: it is served anew.
            self.hand_over(content_id)
        wanted = self._wanted()
        alone = self._sets.alone()
        standing = {}
        for content_id, status in found.items():
            if content_id in alone:
                standing[content_id] = self._tend_in_turn(
                    content_id, status, wanted.get(content_id))
            elif content_id in wanted:
                standing[content_id] = planned_boot_sets.Standing(
                    _present(status), boot_set.USED)
        self._found = frozenset(found)
        fetching = [each for each in standing.values()
                    if each is not None and each.state == boot_set.FETCHING]
        self._begin_some(wanted, len(fetching) < MOST_FETCHING)
        for content_id in self._sets.wanted().keys() - standing.keys():
            standing[content_id] = self._absent(content_id)
        if self._sets.note({key: each for key, each in standing.items()
                            if each is not None}):
            self._host.report_due.set()

    def _wanted(self) -> dict[str, planned_boot_sets.PlannedBootSet]:
        """Return the sets of images that may be served and are not here."""
        view, held = self._host.site_map.current(), self._host.held
        active = {each.content_id for each in view.images
                  if each.status == views.ACTIVE}
        return {content_id: each for content_id, each
                in self._sets.wanted().items() if content_id in active
                and views.Key(views.IMAGES, content_id) not in held}

    def _absent(self, content_id):
        """Describe a set that is not served."""
        if views.Key(views.IMAGES, content_id) in self._host.held:
            return planned_boot_sets.Standing(0, boot_set.READY)
        failure = self._failures.get(content_id)
        if failure is None:
            return planned_boot_sets.Standing()
        return planned_boot_sets.Standing(0, boot_set.FAILED, failure.message)

    # -- those that are served

    def _tend_in_turn(self, content_id, status, wanted):
        with self._means.turns.attempt(content_id) as is_mine:
            # A server may have begun to boot from it.
            if is_mine and self.owns(content_id):
                return self._tend(content_id, status, wanted)
            return planned_boot_sets.Standing(_present(status), boot_set.USED)

    def _tend(self, content_id, status, wanted):
        """Update a set; return its state, or None if it is not served."""
        try:
            if wanted is None or _has_outgrown(status, wanted):
                if self._drop(content_id, wanted is None):
                    return None
            elif 'error' not in status:
                self._keep(content_id, status, wanted)
        except exceptions.NoSpace as error:
            # What the plan places goes first.
            self._fail(content_id, error)
            if self._drop(content_id, True):
                return None
        except (exceptions.DiffCacheError, OSError) as error:
            self._fail(content_id, error)
        failure = self._failures.get(content_id)
        if failure is not None and content_id not in self._served:
            return planned_boot_sets.Standing(_present(status),
                                              boot_set.FAILED,
                                              failure.message)
        return self._describe(content_id, status)

    def _keep(self, content_id, status, wanted):
        """Account for a set, also after a restart, and renew its profile."""
        if self._is_left_alone(content_id):
            return
        use = self._served.get(content_id)
        room = max(wanted.bytes, _present(status))
        if use is None:
            use = self._take(content_id, room)
            self._attach(content_id, status, use)
        elif use.room < room:
            self._set_aside(content_id, room, use)
        if self._sets.alone()[content_id] != wanted.digest:
            self._means.daemon.change(content_id, {
                'hydrate': PROFILE,
                'profile': str(self._sets.profile(content_id))})
            self._sets.note_alone(content_id, wanted.digest)
        self._failures.pop(content_id, None)

    def _is_left_alone(self, content_id):
        failure = self._failures.get(content_id)
        return failure is not None and failure.due > time.monotonic()

    def _take(self, content_id, room):
        use = _LazyBootSet(contextlib.ExitStack(), 0)
        self._set_aside(content_id, room, use)
        self._served[content_id] = use
        return use

    def _set_aside(self, content_id, room, use):
        """Set room aside; the largest of one object counts.

        :raises NoSpace: the cache is full of what the plan places
        """
        key = views.Key(views.IMAGES, content_id)
        use.uses.enter_context(self._host.held.room_for(key, room))
        use.room = room

    def _attach(self, content_id, status, use):
        """Let peers read a set here."""
        key = views.Key(views.IMAGES, content_id)
        try:
            self._means.attach(key, pathlib.Path(status['data_path']).parent)
        except (exceptions.DiffCacheError, OSError) as error:
            # Boots of this host do not depend on it.
            LOG.warning('Peers cannot read the boot set of content %s here:'
                        ' %s', content_id, error)
            return
        use.uses.callback(self._means.detach, key)

    def _describe(self, content_id, status):
        present, now = _present(status), time.monotonic()
        if 'error' in status:
            return planned_boot_sets.Standing(present, boot_set.FAILED,
                                              str(status['error']))
        counts = status.get('profile') or {}
        if status['complete'] or counts and (
                counts['present'] >= counts['chunks']):
            return planned_boot_sets.Standing(present, boot_set.READY)
        use = self._served.get(content_id)
        if use is None or status['present'] != use.present:
            if use is not None:
                use.present, use.since = status['present'], now
            return planned_boot_sets.Standing(present, boot_set.FETCHING)
        if now - use.since < STALLED_SECONDS:
            return planned_boot_sets.Standing(present, boot_set.FETCHING)
        return planned_boot_sets.Standing(
            present, boot_set.FAILED,
            f'Nothing arrived for {STALLED_SECONDS:.0f} s: no source answers,'
            f' or the disk below [lazy] state_dir is full.')

    def _drop(self, content_id, for_good):
        """Have a set served no longer; return whether it is gone."""
        try:
            self._means.daemon.remove(content_id)
        except exceptions.Conflict:
            # A process reads it; it is tried again.
            return False
        self.hand_over(content_id)
        if for_good:
            self.counts['dropped'] += 1
            LOG.info('The boot set of content %s is no longer wanted here',
                     content_id)
        return True

    def _give_back(self, content_id):
        use = self._served.pop(content_id, None)
        if use is not None:
            use.uses.close()

    # -- sets that are not served yet

    def prepare(self) -> None:
        """Bring the manifest of the set that is served next.

        It may take a while, and needs no lock: only the thread that looks
        changes what it reads.
        """
        found = self._next(self._wanted())
        if found is None:
            return
        try:
            self._means.bring_manifest(found.content_id)
        except (exceptions.DiffCacheError, OSError) as error:
            self._fail(found.content_id, error)

    def _next(self, wanted):
        """Return the set to serve next, if there is one and it may be."""
        if not self._means.may_fetch():
            return None
        return next((each for content_id, each in sorted(wanted.items())
                     if content_id not in self._found
                     and not self._is_left_alone(content_id)), None)

    def _begin_some(self, wanted, is_idle):
        """Begin to serve one set at most, where few are fetched."""
        for content_id in self._failures.keys() - wanted.keys():
            del self._failures[content_id]
        each = self._next(wanted) if is_idle else None
        if each is None:
            return
        with self._means.turns.attempt(each.content_id) as is_mine:
            if not is_mine:
                return
            try:
                self._begin(each.content_id, each)
            except (exceptions.DiffCacheError, OSError) as error:
                self._fail(each.content_id, error)

    def _begin(self, content_id, wanted):
        key = views.Key(views.IMAGES, content_id)
        document = {**self._means.describe(key), 'hydrate': PROFILE,
                    'profile': str(self._sets.profile(content_id))}
        use = self._take(content_id, wanted.bytes)
        # Before it is served, so that it is never taken for a server's image.
        self._sets.note_alone(content_id, wanted.digest)
        try:
            status = self._means.daemon.add(content_id, document)
        except BaseException:
            # It may be served all the same: the next look shows.
            self._give_back(content_id)
            raise
        self._attach(content_id, status, use)
        self._failures.pop(content_id, None)
        self.counts['served'] += 1
        LOG.info('Fetching the boot set of image %s: %d bytes',
                 wanted.image_id, wanted.bytes)

    def _fail(self, content_id, error):
        last = self._failures.get(content_id)
        wait = min(2 * last.wait, LAST_RETRY) if last else FIRST_RETRY
        self._failures[content_id] = _Failure(
            str(error), time.monotonic() + wait, wait)
        self.counts['failed'] += 1
        LOG.warning('Could not have the boot set of content %s, will retry'
                    ' in %.0f s: %s', content_id, wait, error)


def _has_outgrown(status: diffcached.Document,
                  wanted: planned_boot_sets.PlannedBootSet
                  ) -> bool:
    return _present(status) > MOST_GROWTH * max(wanted.bytes,
                                                status.get('chunk', 0))


def _present(status: diffcached.Document) -> int:
    return status.get('present', 0) * status.get('chunk', 0)
