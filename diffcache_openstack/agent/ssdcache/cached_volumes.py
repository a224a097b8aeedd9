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
"""Volumes of this host's servers, each in its partition of the SSD cache."""

import collections.abc
import contextlib
import dataclasses
import logging
import pathlib
import threading
import time
import typing

from diffcache_openstack.agent.ssdcache import attached
from diffcache_openstack.agent.ssdcache import division
from diffcache_openstack.agent.ssdcache import early_ends
from diffcache_openstack.agent.ssdcache import guest_paths
from diffcache_openstack.agent.ssdcache import partition_limits
from diffcache_openstack.agent.ssdcache import volume_filters
from diffcache_openstack.agent.ssdcache import volume_moves
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.agent.ssdcache import wear_budget
from diffcache_openstack.agent.ssdcache import write_back
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.cached_volumes import origins
from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import engines

LOG = logging.getLogger(__name__)

# Seconds for which a volume waits for a live migration that was only checked.
CHECKED_S = 600.0


@dataclasses.dataclass(frozen=True)
class CacheOptions:
    """The host's options.

    :ivar origins: directories that volumes' origins have to be in, and pools
        of Ceph as ``rbd:POOL``
    :ivar sequential: of volumes that do not have a number of their own
    :ivar reconnect_delay: seconds for which guests wait for the cache
    :ivar admission: of volumes that do not have a number of their own
    :ivar guest_path: how servers reach volumes, where both ways are possible
    """

    origins: tuple[str, ...] = ('/dev',)
    sequential: int = 0
    reconnect_delay: int = 600
    admission: int = 1
    guest_path: str = choices.NBD


class CachedVolumes:
    """Attaches and detaches volumes, and divides the cache among them.

    :param engine: the cache
    :param options: of the host
    :param path: file where it is kept how volumes want to be cached
    :param rules: how sizes are decided
    :param wear: bounds what is written to the SSD, if it is to
    :param moves: knows how volumes of other hosts were used there, if it is
        to be used
    :ivar revision: changes when there is something new to report
    :ivar flushes: flushes of volumes in write-back, by what became of them
    """

    def __init__(self, engine: engines.Engine, options: CacheOptions,
                 path: pathlib.Path,
                 rules: volume_sizes.SizeRules = volume_sizes.SizeRules(),
                 wear: wear_budget.Wear | None = None,
                 moves: volume_moves.Moves | None = None) -> None:
        self._engine = engine
        self._options = options
        self._store = volume_settings.SettingsStore(path)
        self._write_back = write_back.WriteBack(
            engine, write_back_notes.Notes(
                path.with_name(write_back_notes.NAME)))
        self._guest_paths = guest_paths.GuestPaths(engine, self._store,
                                                   options.guest_path)
        self._sizes = volume_sizes.Sizes(rules)
        self._filters = volume_filters.Filters(
            engine, options.sequential, options.admission, wear)
        self._limits = partition_limits.PartitionLimits(engine)
        self._division = division.Division(engine, self._sizes, self._limits)
        self._moves = moves
        self._early_ends = early_ends.EarlyEnds(rules.changes.hysteresis)
        self._has_curves = True
        # One volume's commands may wait for its storage, which may hang: they
        # are under its lock. The other one, taken after it, is that of the
        # division among volumes, and waits for no storage.
        self._alone = threads.KeyedLocks()
        self._lock = threading.Lock()
        self._on_change: collections.abc.Callable[[], object] = lambda: None
        self.revision = 0
        self.flushes = {'done': 0, 'failed': 0}

    def on_change(self, call: collections.abc.Callable[[], object]) -> None:
        """Register a function to call when there is something to report."""
        self._on_change = call

    def _changed(self) -> None:
        self.revision += 1
        self._on_change()

    @property
    def rules(self) -> volume_sizes.SizeRules:
        """How sizes are decided."""
        return self._sizes.rules

    def status(self) -> dict[str, typing.Any]:
        """Return the cache's capacity and its volumes, in blocks.

        :returns: ``capacity``, ``policy``, ``epoch`` in seconds, ``decisions``
            (see :meth:`.sizes.Sizes.decisions`), ``wear`` (see
            :meth:`.wear.Wear.status`; none without a budget), ``moves`` (see
            :meth:`.moves.Moves.status`), ``flushes`` of volumes in
            write-back by what became of them, and ``volumes``, each with
            what the engine has of it, what is ``wanted``, what of this is in
            ``overrides``, ``guest_path`` and ``guest_path_reason``
        :raises RetryableError: the cache cannot be reached
        """
        rules = self.rules
        return {'capacity': self._engine.capacity(), 'policy': rules.policy,
                'epoch': rules.epoch,
                'decisions': self._sizes.decisions(),
                'wear': self._filters.wear and self._filters.wear.status(),
                'moves': self._moves and self._moves.status(),
                'flushes': dict(self.flushes),
                'volumes': self._described()}

    def _described(self) -> dict[str, typing.Any]:
        states = self._engine.volumes()
        known = self._known(states)
        return {name: {
            **dataclasses.asdict(state),
            **guest_paths.shown(state, known[name]),
            'wanted': dataclasses.asdict(known[name]),
            'overrides': dataclasses.asdict(self._store.overrides(name))}
            for name, state in states.items()}

    def curve(self, name: str) -> dict[str, typing.Any] | None:
        """Return what was requested of a volume in the last epoch, if known.

        See :meth:`.sizes.Sizes.requested`.
        """
        return self._sizes.requested(name)

    def hot(self, name: str) -> list[hot_blocks.Run]:
        """Return the blocks that would stay in the cache the longest.

        :raises NotFound: it is not attached
        :raises RetryableError: the cache cannot be reached
        """
        attached.find(self._engine.volumes(), name)
        return self._engine.hot(name, hot_blocks.MOST_BLOCKS)

    def attach(self, name: str, wanted: volume_settings.VolumeSettings
               ) -> dict[str, typing.Any]:
        """Attach a volume, without cached blocks, and make room for it.

        One of this name, or with this origin, is detached before: it may have
        been changed elsewhere since it was attached.

        :returns: ``export``, its name; ``socket``, where clients find it;
            ``vhost``, the socket for its server, which is to use no other way
            if there is one;
            ``reconnect_delay``, seconds for which they wait for the cache;
            ``noted``, whether there is a note of it for
            nova-compute; ``rates`` that the cache enforces
        :raises InvalidInput: the origin is not where it may be
        :raises NoSpace: the least sizes of all volumes exceed the cache, or
            its device failed
        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: the cache does not take the volume
        """
        self._check_origin(wanted.origin)
        wanted = self._guest_paths.choose(wanted)
        others = self._others(name, wanted.origin)
        with contextlib.ExitStack() as stack:
            # In one order, as two attachments may concern the same volumes.
            for each in sorted({name, *others}):
                stack.enter_context(self._alone.of(each))
            self._write_back.arrive(name, wanted,
                                    self._store.wanted().get(name),
                                    self._engine.volumes())
            self._detach(name)
            self._detach_others(others, name, wanted.origin)
            if wanted.attachment is None:
                # It may be another one, for which Cinder has read the type.
                self._store.forget_of_type(name)
            state = self._attach(name, wanted)
            vhost = self._open_vhost(name, wanted)
            self._changed()
        LOG.info('Attached volume %s (%s) to the SSD cache with up to %d'
                 ' blocks', name, wanted.origin, state.limit)
        return {'export': state.export, 'socket': self._engine.socket,
                'vhost': vhost,
                'reconnect_delay': self._options.reconnect_delay,
                'noted': self._write_back.is_noted(name),
                'rates': dict(state.rates)}

    def _attach(self, name: str, wanted: volume_settings.VolumeSettings
                ) -> engines.State:
        """Attach a volume that is not attached, and divide the cache."""
        changed = self._store.settled(name, wanted)
        with self._lock:
            states = self._engine.volumes()
            known = self._known(states)
            sizes = self._division.shares({**known, name: changed}, states)
            self._limits.make_room(sizes)
            room = self._limits.room_for(name, sizes[name])
            if room < min(changed.min, sizes[name]):
                raise exceptions.NoSpace(
                    f'The SSD cache has {room} blocks left, fewer than volume'
                    f' {name} needs, until volumes whose storage hangs give'
                    f' others back.')
            try:
                state = self._engine.attach(engines.Attachment(
                    name, wanted.origin, _begins_in(changed.mode), room,
                    *self._filters.of(name, changed), changed.rates))
            except exceptions.DiffCacheError:
                self._division.renew(known)
                raise
            self._filters.note_attached(name, changed)
            self._store.keep_wanted(name, wanted)
            self._division.renew({**known, name: changed})
        try:
            return self._write_back.enter(name, state, changed.mode)
        except exceptions.DiffCacheError:
            with self._lock:
                self._forget_detached()
            raise

    def _open_vhost(self, name: str, wanted: volume_settings.VolumeSettings
                    ) -> str | None:
        """Serve a volume that was attached by vhost-user, if it is to be."""
        try:
            return self._guest_paths.open(name, wanted)
        except exceptions.DiffCacheError:
            # It may be served, and its server does not get to know.
            self._detach(name)
            with self._lock:
                self._forget_detached()
            raise

    def reopen_vhost(self) -> None:
        """Serve volumes by vhost-user again after the cache was stopped.

        To be called again and again.

        :raises RetryableError: the cache cannot be reached
        """
        for name in self._guest_paths.closed():
            with self._alone.attempt(name) as is_free:
                if is_free and name in self._guest_paths.closed():
                    self._guest_paths.reopen(name)

    def _forget_detached(self) -> None:
        known = self._known(self._engine.volumes())
        self._store.keep_only(known)
        self._division.renew(known)

    def detach(self, name: str) -> None:
        """Detach a volume, if it is attached; others get its blocks.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: what was written cannot be made durable
        """
        with self._alone.of(name):
            self._detach(name)
            with self._lock:
                self._forget_detached()
            self._changed()
        LOG.info('Detached volume %s from the SSD cache', name)

    def _detach(self, name: str) -> None:
        self._write_back.leave(name, self._engine.volumes())
        if self._moves is not None:
            self._moves.take(name)
        with self._lock:
            self._filters.note_detaching(name)
        self._engine.detach(name)
        self._store.end_leave(name)

    def _others(self, name: str, origin: str) -> list[str]:
        """Return volumes that are attached with another ID and this origin.

        Cinder exchanges the IDs of the two when it has migrated one that is in
        use. One that lacks something may be another volume, whose device had
        the same name.
        """
        kept = self._store.wanted()
        return [other for other, state in self._engine.volumes().items()
                if other != name and other in kept
                and kept[other].origin == origin and not state.dirty
                and state.mode != volume_specs.WRITE_BACK]

    def _detach_others(self, others: list[str], name: str, origin: str
                       ) -> None:
        """Detach those of the volumes that still have this origin."""
        for other in set(others).intersection(self._others(name, origin)):
            self._detach(other)
            LOG.info('Detached volume %s from the SSD cache: its origin %s is'
                     ' that of volume %s now', other, origin, name)

    def forget(self, name: str) -> None:
        """Detach a volume whose server runs on another host since this ended.

        Blocks that it lacks there are lost: to write them back would replace
        what that host wrote.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: what was written cannot be made durable
        """
        with self._alone.of(name):
            if self._write_back.forget(name, self._engine.volumes()):
                self._store.end_leave(name)
                self._changed()
                return
        self.detach(name)

    def drain(self, name: str, seconds: float, is_leaving: bool) -> None:
        """Keep a volume out of write-back, as its server is to leave.

        Its dirty blocks are written back. It stays so over restarts of the
        agent and changes of its settings, until it is given back or attached.

        :param seconds: to wait; writing back continues after that
        :param is_leaving: the server leaves now; otherwise it may, and the
            volume is given back after :data:`CHECKED_S`
        :raises NotFound: it is not attached
        :raises Busy: it takes longer
        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: dirty blocks cannot be written back
        """
        with self._alone.of(name):
            state = attached.find(self._engine.volumes(), name)
            self._store.keep_leave(name, volume_settings.Leave(
                None if is_leaving else time.time() + CHECKED_S))
            self._changed()
            if not self._write_back.may_lack(name, state):
                return
            done = self._write_back.begin_drain(name)
        self._write_back.wait(name, done, seconds)

    def give_back(self, name: str) -> None:
        """Let a volume be in write-back again, as its server stays.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: the cache does not take the mode
        """
        with self._alone.of(name):
            if name not in self._store.leaves():
                return
            if self._write_back.is_draining(name):
                # Then :meth:`give_back_unused` does it.
                self._store.keep_leave(name,
                                       volume_settings.Leave(time.time()))
                return
            self._give_back(name)

    def _give_back(self, name: str) -> None:
        state = self._engine.volumes().get(name)
        wanted = self._store.wanted().get(name)
        if state is not None and state.state != choices.HELD \
                and wanted is not None and not self._store.holds.is_held(name):
            mode = self._store.changed(name, wanted).mode
            if mode != state.mode:
                self._write_back.set_mode(name, mode)
        # Last: it is repeated if the mode could not be changed.
        self._store.end_leave(name)
        self._changed()

    def give_back_unused(self) -> None:
        """Give volumes back whose servers did not leave, or holds lapsed.

        To be called again and again.

        :raises RetryableError: the cache cannot be reached
        """
        names = {*self._store.holds.names(), *self._store.leaves()}
        if names:
            self._engine.volumes()
        for name in sorted(names):
            with self._alone.attempt(name) as is_free:
                if is_free:
                    self._return_alone(name)

    def hold(self, name: str, hold_id: str, lease: float, seconds: float
             ) -> None:
        """Keep a volume out of write-back while Cinder reads it.

        Its dirty blocks are written back, and it stays so until all of its
        holds have ended or lapsed, also over restarts of the agent. One that
        is attached meanwhile begins so.

        :param hold_id: of the operation; one that is repeated lasts longer
        :param lease: seconds for which it lasts
        :param seconds: to wait; writing back continues after that
        :raises Busy: it takes longer; or too many operations hold it
        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: what the volume lacks cannot be written back
        """
        with self._alone.of(name):
            self._store.holds.begin(name, hold_id, lease)
            done = self._write_back.begin_hold(
                name, self._engine.volumes().get(name))
        if done is not None:
            self._write_back.wait(name, done, seconds)

    def renew_hold(self, name: str, hold_id: str, lease: float) -> None:
        """Have a hold last longer.

        :raises NotFound: it has lapsed
        """
        self._store.holds.renew(name, hold_id, lease)

    def end_hold(self, name: str, hold_id: str) -> threading.Thread:
        """End a hold; a volume that nothing else holds returns to its mode.

        :returns: what returns it, as Cinder need not wait for that
        :raises NotFound: it has lapsed before
        """
        self._store.holds.end(name, hold_id)
        returning = threading.Thread(target=self._return, args=(name,),
                                     daemon=True, name='ssd-cache-return')
        returning.start()
        return returning

    def queue(self, name: str, seconds: float) -> None:
        """Have a volume's writes wait for some time, or until they go on.

        :raises NotFound: it is not attached
        :raises RetryableError: the cache cannot be reached
        """
        attached.find(self._engine.volumes(), name)
        self._engine.queue(name, seconds)

    def end_queue(self, name: str) -> None:
        """Have a volume's writes go on.

        :raises NotFound: it is not attached, or they have gone on before
        :raises RetryableError: the cache cannot be reached
        """
        attached.find(self._engine.volumes(), name)
        if not self._engine.end_queue(name):
            raise exceptions.NotFound(
                f'The writes of volume {name} waited for the maximum time and'
                ' were resumed; repeat the snapshot.')

    def _return(self, name: str) -> None:
        with self._alone.of(name):
            self._return_alone(name)

    def _return_alone(self, name: str) -> None:
        """Return a volume to its mode, if nothing keeps it out of that.

        What fails is repeated by :meth:`give_back_unused`.
        """
        if self._write_back.is_draining(name):
            return
        leave = self._store.leaves().get(name)
        is_held = self._store.holds.is_held(name)
        lasts = is_held if leave is None else leave.lasts(time.time())
        try:
            if not lasts:
                self._give_back(name)
            if not is_held:
                self._store.holds.forget(name)
        except exceptions.DiffCacheError as error:
            LOG.warning('Volume %s does not return to its mode yet: %s',
                        name, error)

    def resize(self, name: str) -> None:
        """Give a volume the size that its origin has now.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: it is not attached, or became smaller
        """
        self._engine.resize(name)

    def disconnect(self, name: str) -> None:
        """End the connections to a volume, so that its size is seen.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: it is not attached, or has no connections
        """
        self._engine.disconnect(name)

    def set_mode(self, name: str, mode: str) -> None:
        """Change the mode that a volume was attached with.

        One that an operator has set takes its place, unless nothing is to be
        cached because another host writes to the volume.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: it is not attached, or there is no such mode
        """
        with self._alone.of(name):
            kept = self._store.wanted().get(name)
            if kept is not None:
                kept = dataclasses.replace(kept, mode=mode)
                mode = self._store.settled(name, kept).mode
            self._write_back.set_mode(name, mode)
            if kept is not None:
                self._store.keep_wanted(name, kept)
            if mode != volume_specs.PASS_THROUGH:
                self._take_over(name)
            self._changed()

    def expect(self, name: str, host: str) -> None:
        """Learn how a volume is used on the host that it comes from.

        :raises NotFound: it is not attached
        :raises RetryableError: the cache cannot be reached
        """
        attached.find(self._engine.volumes(), name)
        if self._moves is not None:
            self._moves.expect(name, host)

    def _take_over(self, name: str) -> None:
        """Have a volume cached as on the host that it came from, if any."""
        use = self._moves and self._moves.take(name)
        if not self._moves or not use:
            return
        if use.epoch is not None:
            with self._lock:
                states = self._engine.volumes()
                self._division.arrive(name, use.epoch, self._known(states),
                                      states)
        self._moves.warm(name, use.hot)

    def change(self, name: str, generation: int,
               fields: dict[str, typing.Any]) -> None:
        """Change settings of a volume, in place of what its type says.

        They stay while it is detached. With a new limit, minimum, maximum or
        weight the cache is divided anew at once.

        :param generation: of the settings that the caller knows
        :param fields: of :class:`.wanted.Overrides`; none removes one
        :raises NotFound: it is not attached
        :raises Busy: its settings were changed since
        :raises InvalidInput: a field is unknown, or out of range
        :raises NoSpace: the least sizes exceed the cache
        :raises RetryableError: the cache cannot be reached
        """
        with self._alone.of(name):
            states = self._engine.volumes()
            state = attached.find(states, name)
            before = self._store.overrides(name)
            if before.generation != generation:
                raise exceptions.Busy(
                    f'Settings of volume {name} have generation'
                    f' {before.generation}, not {generation}: they were'
                    ' changed. Read them again.')
            overrides = before.changed(fields)
            wanted = self._store.wanted().get(name) or attached.as_it_is(state)
            self._switch(name, states, volume_settings.settled(
                wanted, self._store.of_type(name), overrides),
                lambda: self._store.keep_overrides(name, overrides))
        LOG.info('Settings of volume %s in the SSD cache are %s', name,
                 overrides)

    def follow_type(self, name: str, fields: dict[str, typing.Any]) -> None:
        """Have a volume follow its type, which was changed since it attached.

        What an operator set for this volume stays. What Cinder keeps with
        the attachment is no longer used, also after a hard reboot.

        :param fields: of :class:`.wanted.TypeSettings`
        :raises NotFound: it is not attached
        :raises Conflict: it was attached by hand
        :raises NoSpace: the least sizes exceed the cache
        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: dirty blocks cannot be written back
        """
        with self._alone.of(name):
            states = self._engine.volumes()
            attached.find(states, name)
            wanted = self._store.wanted().get(name)
            if wanted is None:
                raise exceptions.Conflict(
                    f'Volume {name} was not attached to the SSD cache by Nova,'
                    f' and follows no type.')
            settings = volume_settings.TypeSettings(
                **fields, attachment=wanted.attachment)
            self._switch(name, states, volume_settings.settled(
                wanted, settings, self._store.overrides(name)),
                lambda: self._store.keep_of_type(name, settings))
        LOG.info('Volume %s in the SSD cache follows its type, which was'
                 ' changed: %s', name, settings)

    def _switch(self, name: str, states: attached.States,
                wanted: volume_settings.VolumeSettings,
                keep: collections.abc.Callable[[], None]) -> None:
        """Have an attached volume cached in another way.

        :param keep: keeps why, once the cache does so
        :raises Conflict: it cannot be in write-back
        """
        if wanted.mode == volume_specs.WRITE_BACK and not wanted.holdable:
            raise exceptions.Conflict(
                f'Volume {name} cannot be in write-back: Cinder would not'
                f' have its host write back what it lacks before a snapshot.'
                f' Set volume_driver ='
                f' diffcache_openstack.cinder.driver.load for its backend, and'
                f' attach it again.')
        wanted = self._store.allowed(name, wanted)
        known = self._known(states)
        before, known[name] = known[name], wanted
        with self._lock:
            self._division.shares(known, states)
            self._filters.change(name, before, wanted)
        if wanted.rates != before.rates:
            self._engine.set_rates(name, wanted.rates)
        if wanted.mode != states[name].mode:
            self._write_back.set_mode(name, wanted.mode)
        keep()
        with self._lock:
            states = self._engine.volumes()
            self._limits.change(self._division.shares(
                {**self._known(states), name: wanted}, states))
        self._changed()

    def flush(self, name: str) -> None:
        """Write a volume's dirty blocks back, and make its writes durable.

        :raises NotFound: it is not attached
        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: its origin cannot be written
        """
        mode = attached.find(self._engine.volumes(), name).mode
        try:
            self._engine.flush(name)
        except exceptions.DiffCacheError:
            self.flushes['failed'] += mode == volume_specs.WRITE_BACK
            raise
        self.flushes['done'] += mode == volume_specs.WRITE_BACK

    def accept_loss(self, name: str) -> None:
        """Have a volume's flushes succeed although its storage lost blocks.

        :raises NotFound: it is not attached
        :raises RetryableError: the cache cannot be reached
        """
        lost = attached.find(self._engine.volumes(), name).losses
        self._engine.accept_loss(name)
        LOG.warning('An operator accepts that the storage of volume %s lost'
                    ' %d bytes: %s', name, sum(length for _, length in lost),
                    ', '.join(f'{length} at {start}'
                              for start, length in lost[:10]))
        self._changed()

    def end_guest(self, name: str) -> None:
        """Forget what a volume's storage lost, as its server has ended.

        It expects to have lost what it had not flushed.

        :raises NotFound: it is not attached
        :raises RetryableError: the cache cannot be reached
        """
        attached.find(self._engine.volumes(), name)
        self._engine.end_guest(name)
        self._changed()

    def invalidate(self, name: str) -> None:
        """Forget what is cached of a volume.

        :raises NotFound: it is not attached
        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: dirty blocks cannot be written back
        """
        attached.find(self._engine.volumes(), name)
        self._engine.invalidate(name)

    def end_epoch(self) -> None:
        """End an epoch, and give volumes the sizes that its requests suit.

        With the policy ``static`` they keep their sizes.

        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: a size cannot be changed
        """
        self._settle()
        with self._lock:
            self._end_epoch([])

    def end_epoch_early(self) -> bool:
        """End an epoch if hits are no longer those that were predicted.

        To be called again and again, twice in the time of the shortest epoch.

        :returns: whether it ended
        :raises RetryableError: the cache cannot be reached
        :raises VolumeRefused: a size cannot be changed
        """
        with self._lock:
            if not (self._has_curves and self._sizes.may_change):
                return False
            reasons = self._early_ends.look(self._engine.volumes())
            if reasons:
                self._end_epoch(reasons)
            return bool(reasons)

    def _settle(self) -> None:
        """Have modes noted that were changed without this agent."""
        for name, state in self._engine.volumes().items():
            if self._write_back.is_settled(name, state):
                continue
            with self._alone.attempt(name) as is_free:
                found = self._engine.volumes().get(name)
                if is_free and found is not None:
                    self._settle_alone(name, found)

    def _settle_alone(self, name: str, state: engines.State) -> None:
        try:
            self._write_back.settle(name, state)
        except (control.CacheSlow, engines.VolumeRefused) as error:
            LOG.warning('Volume %s stays noted as one in write-back: %s',
                        name, error)

    def _end_epoch(self, early: list[str]) -> None:
        """End an epoch.

        :param early: why it ends early, if it does
        """
        self._changed()
        found = self._engine.end_epoch()
        states = self._engine.volumes()
        cache = self._division.cache()
        # Without volumes it is not known.
        self._has_curves = bool(found) if states else self._has_curves
        if not found or not cache.capacity:
            return
        limits = {name: state.limit for name, state in states.items()}
        curves = {name: epoch.curve for name, epoch in found.items()}
        self._early_ends.end(curves, states)
        try:
            sizes = self._sizes.decide(self._known(states), limits, found,
                                       cache)
            self._limits.change(sizes)
        except exceptions.DiffCacheError as error:
            self._sizes.note_failure(error)
            raise
        finally:
            states = self._engine.volumes()
            self._early_ends.begin(curves, states)
            self._sizes.add_reasons([
                *early, *self._filters.end_epoch(
                    states, self._known(states), self._sizes.saved_us)])
        if sizes != limits:
            LOG.info('Sizes of volumes in the SSD cache are %s', sizes)

    def _check_origin(self, origin: str) -> None:
        if origins.is_allowed(origin, self._options.origins):
            return
        raise exceptions.InvalidInput(
            f'{origin!r} is in none of {", ".join(self._options.origins)};'
            ' see [ssd_cache] origins.')

    def _known(self, states: attached.States
               ) -> dict[str, volume_settings.VolumeSettings]:
        return attached.known(self._store, states)


def _begins_in(mode: str) -> str:
    """Return the mode to attach a volume with, before it is noted."""
    return volume_specs.WRITE_THROUGH if mode == volume_specs.WRITE_BACK \
        else mode
