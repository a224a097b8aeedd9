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
"""Volumes that enter and leave write-back, so that no block is lost."""

import collections.abc
import concurrent.futures
import contextlib
import logging
import threading

from diffcache_openstack.agent.ssdcache import attached
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.ssdcache import engines

LOG = logging.getLogger(__name__)

# Volumes that are drained at the same time.
_DRAINS = 8
# A detach waits this long for one that was begun before.
_PATIENCE_S = 60.0


class WriteBack:
    """Changes modes so that no newer block of a volume is left behind.

    :param engine: the cache
    :param notes: for nova-compute
    """

    def __init__(self, engine: engines.Engine,
                 notes: write_back_notes.Notes) -> None:
        self._engine = engine
        self._notes = notes
        self._places = threading.BoundedSemaphore(_DRAINS)
        self._drains: dict[str, concurrent.futures.Future[None]] = {}

    def is_noted(self, name: str) -> bool:
        """Return whether the cache may have newer blocks of a volume.

        :raises PermanentError: it cannot be found out
        """
        with self._errors(name):
            return self._notes.has(name)

    def _begin(self, name: str) -> None:
        """Note that the cache may have newer blocks of a volume.

        :raises PermanentError: it cannot be noted
        """
        with self._errors(name):
            self._notes.begin(name)

    def _end(self, name: str) -> None:
        """Note that a volume has all of its blocks.

        :raises PermanentError: it cannot be noted
        """
        with self._errors(name):
            self._notes.end(name)

    @contextlib.contextmanager
    def _errors(self, name: str) -> collections.abc.Iterator[None]:
        try:
            yield
        except OSError as error:
            raise exceptions.PermanentError(
                f'The note {self._notes.path(name)} of a volume in write-back'
                f' cannot be read or written: {error}. Check the disk.'
            ) from error

    def enter(self, name: str, state: engines.State, mode: str
              ) -> engines.State:
        """Put a volume in write-back that the cache knows, if it is to be.

        A note of a volume that the cache does not know means that its device
        was lost. A volume that cannot have the mode is detached again.

        :raises PermanentError: write-back cannot be noted
        :raises RetryableError: the cache does not answer, or not in time
        :raises VolumeRefused: the cache does not take the mode
        """
        if mode != volume_specs.WRITE_BACK:
            return state
        try:
            self.set_mode(name, mode)
        except exceptions.DiffCacheError:
            self.leave(name, self._engine.volumes())
            self._engine.detach(name)
            raise
        return state

    def set_mode(self, name: str, mode: str) -> None:
        """Change the mode of a volume.

        :raises PermanentError: write-back cannot be noted
        :raises RetryableError: the cache does not answer, or not in time
        :raises VolumeRefused: dirty blocks cannot be written back, or there
            is no such mode
        """
        if mode == volume_specs.WRITE_BACK:
            self._begin(name)
        self._engine.set_mode(name, mode)
        if mode != volume_specs.WRITE_BACK:
            self._end(name)

    def leave(self, name: str, states: attached.States) -> None:
        """Write a volume's dirty blocks back before it is detached.

        :raises RetryableError: the cache does not answer, or not in time
        :raises VolumeRefused: they cannot be written back
        """
        state = states.get(name)
        if state is None:
            self._check_lost(name)
            return
        if self.is_draining(name):
            self.wait(name, self._drains[name], _PATIENCE_S)
        self._drains.pop(name, None)
        if state.state == choices.HELD and state.dirty:
            raise engines.VolumeRefused(
                f'Volume {name} has {state.dirty} blocks in the SSD cache that'
                f' its storage lacks, and is held since this host was started.'
                f' Start its server, which has them written back, and repeat'
                f' this; or lose them with "diffcache ssdcache detach'
                f' --discard-dirty".')
        if state.mode == volume_specs.WRITE_BACK:
            self._engine.set_mode(name, volume_specs.WRITE_THROUGH)
        self._end(name)

    def arrive(self, name: str, wanted: volume_settings.VolumeSettings,
               before: volume_settings.VolumeSettings | None,
               states: attached.States) -> None:
        """Take over what the cache has of a volume that is attached.

        :param before: how it was attached to this host, if it was
        :raises RetryableError: the cache does not answer, or not in time
        :raises VolumeRefused: what the cache has or had of it cannot be used
        """
        state = states.get(name)
        if state is None:
            self._check_lost(name)
        elif state.state == choices.HELD and state.dirty:
            _check_same(name, state.dirty, wanted, before)
            self._engine.recover(name, wanted.origin)
            LOG.info('Wrote %d blocks of volume %s back, which it lacked when'
                     ' this host ended', state.dirty, name)

    def _check_lost(self, name: str) -> None:
        """Refuse a volume whose blocks were lost with the cache's device.

        :raises VolumeRefused: they may be
        """
        if self.is_noted(name):
            raise engines.VolumeRefused(
                f'Volume {name} was in write-back, and the SSD cache does not'
                f' know it any more: blocks that its storage lacks may be lost'
                f' with the device. Start the cache with that device, or'
                f' remove {self._notes.path(name)} to use the volume as its'
                f' storage has it.')

    def forget(self, name: str, states: attached.States) -> bool:
        """Lose what a held volume lacks, as its server is elsewhere now.

        :returns: whether it was held
        :raises RetryableError: the cache does not answer, or not in time
        """
        state = states.get(name)
        if state is None and self.is_noted(name):
            LOG.error('Volume %s is used on another host since this one ended:'
                      ' blocks that it lacks there are lost with the device of'
                      ' the SSD cache', name)
            self._end(name)
        if state is None or state.state != choices.HELD:
            return False
        LOG.error('Volume %s is used on another host since this one ended: %d'
                  ' blocks that it lacks there are lost', name, state.dirty)
        self._engine.discard(name)
        self._end(name)
        return True

    def begin_hold(self, name: str, state: engines.State | None
                   ) -> concurrent.futures.Future[None] | None:
        """Begin to write back what a volume lacks that is read elsewhere.

        :param state: None if it is not attached
        :returns: its end; None if the volume lacks nothing
        :raises VolumeRefused: what it lacks cannot be written back
        """
        if state is None:
            self._check_lost(name)
            return None
        if state.state == choices.HELD and state.dirty:
            raise engines.VolumeRefused(
                f'Volume {name} has {state.dirty} blocks in the SSD cache that'
                f' its storage lacks, and is held since this host was started.'
                f' Start its server, which has them written back, and repeat'
                f' this.')
        return self.begin_drain(name) if self.may_lack(name, state) else None

    def may_lack(self, name: str, state: engines.State) -> bool:
        """Return whether a volume lacks blocks, or will.

        A cache that did not answer in time may put it in write-back later.

        :raises PermanentError: it cannot be found out
        """
        return state.mode == volume_specs.WRITE_BACK or state.dirty > 0 \
            or self.is_noted(name)

    def begin_drain(self, name: str) -> concurrent.futures.Future[None]:
        """Begin to write a volume's dirty blocks back, and leave write-back.

        :returns: its end, also of one that was begun before
        """
        done = self._drains.get(name)
        if done is None or done.done():
            done = self._drains[name] = concurrent.futures.Future()
            # Not one of a pool, whose work a stop would wait for.
            threading.Thread(target=self._drain, args=(name, done),
                             daemon=True, name='ssd-cache-drain').start()
        return done

    def _drain(self, name: str, done: concurrent.futures.Future[None]
               ) -> None:
        try:
            with self._places:
                self.set_mode(name, volume_specs.WRITE_THROUGH)
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def wait(self, name: str, done: concurrent.futures.Future[None],
             seconds: float) -> None:
        """Wait until a volume was written back.

        :param done: its end
        :param seconds: to wait; it continues after that
        :raises Busy: it takes longer
        :raises VolumeRefused: dirty blocks cannot be written back
        """
        try:
            done.result(seconds)
        except (TimeoutError, exceptions.RetryableError) as error:
            state = attached.find(self._engine.volumes(), name)
            raise exceptions.Busy(
                f'Volume {name} has {state.dirty} blocks in the SSD cache that'
                f' its storage lacks. They are being written back; repeat this'
                f' when they are.') from error

    def is_draining(self, name: str) -> bool:
        """Return whether a volume is being drained in the background."""
        done = self._drains.get(name)
        return done is not None and not done.done()

    def is_settled(self, name: str, state: engines.State) -> bool:
        """Return whether a volume is noted as its state wants it.

        Modes change without this agent, too: by commands to the cache.

        :raises PermanentError: it cannot be found out
        """
        if state.mode == volume_specs.WRITE_BACK or state.dirty:
            return self.is_draining(name) or self.is_noted(name)
        return not self.is_noted(name)

    def settle(self, name: str, state: engines.State) -> None:
        """Have a volume noted if it is in write-back, and only then.

        :raises PermanentError: it cannot be noted
        :raises RetryableError: the cache does not answer, or not in time
        """
        if self.is_settled(name, state):
            return
        if state.mode == volume_specs.WRITE_BACK or state.dirty:
            self._begin(name)
        else:
            # Not a later mode any more that the cache did not reach in time.
            self.set_mode(name, state.mode)


def _check_same(name: str, dirty: int, wanted: volume_settings.VolumeSettings,
                before: volume_settings.VolumeSettings | None) -> None:
    """Refuse to write blocks back that are older than the volume.

    :raises VolumeRefused: the volume may have been attached to another server
        or host since they were written
    """
    if before is not None and before.attachment is not None \
            and before.attachment == wanted.attachment:
        return
    raise engines.VolumeRefused(
        f'Volume {name} has {dirty} blocks in the SSD cache that were not'
        f' written back before this host was started, and may have been'
        f' changed elsewhere since: its attachment is another one, or unknown.'
        f' Write them back with "diffcache ssdcache recover" if it was not;'
        f' otherwise lose them with "diffcache ssdcache detach'
        f' --discard-dirty".')
