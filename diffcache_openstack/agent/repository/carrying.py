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
"""Carrying profiles to images that no server has read yet.

A repository has both images, the one that was read and the similar one that is
new, so that nothing crosses the WAN but the rows of the profiles. Where the
chunks that were read have gone is found by comparing blocks, which reads the
new image once; the file systems of both say where changed files have gone.
"""

import collections
import logging

from diffcache_openstack.agent.repository import common_content
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.prefetch import carry
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import conductor_lazy_api

LOG = logging.getLogger(__name__)

# What became of a profile.
CARRIED = 'carried'
OUTDATED = 'outdated'
UNLIKE = 'unlike'
FAILED = 'failed'
OUTCOMES = (CARRIED, OUTDATED, UNLIKE, FAILED)


# An image, and the profile to carry to it.
Key = tuple[str, str]


class Carrying(threads.Rounds):
    """Carries profiles between images of this repository, from a thread.

    :param host: name of this repository
    :param conductor: RPC client
    :param content: finds what two images have in common
    :param interval: seconds between two searches for profiles to carry, and
        until what failed is tried again
    """

    def __init__(self, host: str, conductor: conductor_lazy_api.LazyAPI,
                 content: common_content.CommonContent, interval: float
                 ) -> None:
        # NotFound: this host was not registered yet.
        super().__init__('carry-profiles', self.carry_missing, interval,
                         'Could not carry profiles',
                         exceptions.RetryableError, exceptions.NotFound)
        self._host = host
        self._conductor = conductor
        self._content = content
        self._context = contexts.RequestContext.for_service('diffcache-agent')
        self._counts = collections.Counter(dict.fromkeys(OUTCOMES, 0))
        self._problems: dict[Key, str] = {}
        # What another comparison would say the same of.
        self._settled: dict[Key, profiles.Rows] = {}
        self._seen: set[Key] = set()

    def stop(self) -> None:
        """End; a profile that is being carried is carried later."""
        self._stopped.set()
        self._content.stop()
        super().stop()

    def counts(self) -> dict[str, int]:
        """Return the number of profiles by outcome."""
        return dict(self._counts)

    @property
    def without_files(self) -> int:
        """How often files of images could not be compared."""
        return self._content.without_files

    def carry_missing(self) -> int:
        """Carry the profiles that the conductor requests; return their number.

        What fails is logged once, and left for the next time; images that
        have nothing in common are compared again when the profile changes.

        :raises RetryableError: the conductor does not answer
        :raises NotFound: this host is not registered yet
        """
        before = self._counts[CARRIED]
        self._seen.clear()
        after = None
        while not self._stopped.is_set():
            work = self._conductor.carry_work(self._context, self._host,
                                              after)
            if work is None:
                break
            for content_id in dict.fromkeys(
                    source.content_id for source in work.sources):
                self._carry_from(content_id, work)
            after = work.image_id
        if not self._stopped.is_set():
            self._forget()
        return self._counts[CARRIED] - before

    # -- inside

    def _forget(self) -> None:
        """Forget problems with what is not wanted any more."""
        for memory in (self._problems, self._settled):
            for key in memory.keys() - self._seen:
                del memory[key]

    def _carry_from(self, content_id: str,
                    work: conductor_lazy_api.CarryWork) -> None:
        """Carry the profiles of one image, which is compared once."""
        sources = [source for source in work.sources
                   if source.content_id == content_id
                   and not self._is_settled(work, source)]
        if not sources:
            return
        chunks = sorted({chunk for source in sources for chunk in source.rows})
        try:
            ways = self._content.find(content_id, work.content_id, chunks)
        except (exceptions.DiffCacheError, OSError) as error:
            if not self._stopped.is_set():
                for source in sources:
                    self._note(FAILED, work, source, str(error))
            return
        for source in sources:
            self._report(work, source,
                         carry.carry_in_turn(source.rows, ways))

    def _report(self, work: conductor_lazy_api.CarryWork,
                source: conductor_lazy_api.CarrySource, rows: profiles.Rows
                ) -> None:
        if not rows:
            self._settle(work, source)
            self._note(UNLIKE, work, source, 'the images have nothing of its'
                       ' chunks in common')
            return
        try:
            wanted = self._conductor.report_carried(
                self._context, self._host, work.image_id, source.profile_id,
                rows)
        except exceptions.PermanentError as error:
            self._settle(work, source)
            self._note(FAILED, work, source, str(error))
            return
        self._problems.pop((work.image_id, source.profile_id), None)
        if not wanted:
            # Also where the image has no room for another label.
            self._settle(work, source)
        self._counts[CARRIED if wanted else OUTDATED] += 1
        LOG.info('Carried profile %s to image %s: %d chunks from %d%s',
                 source.profile_id, work.image_id, len(rows),
                 len(source.rows), '' if wanted else ', which is not wanted'
                 ' any more')

    def _is_settled(self, work: conductor_lazy_api.CarryWork,
                    source: conductor_lazy_api.CarrySource) -> bool:
        """Return whether a profile was not carried, and is as it was."""
        key = (work.image_id, source.profile_id)
        self._seen.add(key)
        return self._settled.get(key) == source.rows

    def _settle(self, work: conductor_lazy_api.CarryWork,
                source: conductor_lazy_api.CarrySource) -> None:
        """Leave a profile alone until it changes: a comparison takes long."""
        self._settled[work.image_id, source.profile_id] = source.rows

    def _note(self, outcome: str, work: conductor_lazy_api.CarryWork,
              source: conductor_lazy_api.CarrySource, problem: str) -> None:
        """Count and log, once, why a profile is not carried."""
        key = (work.image_id, source.profile_id)
        if self._problems.get(key) != problem:
            self._counts[outcome] += 1
            LOG.warning('Could not carry profile %s to image %s, will retry'
                        ' %s: %s', source.profile_id, work.image_id,
                        'when it changes' if key in self._settled
                        else f'every {self._interval:g} s', problem)
        self._problems[key] = problem
