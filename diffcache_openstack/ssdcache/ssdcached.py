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
"""The cache that ``diffcache ssdcache serve`` runs, by its control socket."""

import collections.abc
import contextlib
import dataclasses
import typing

from diffcache_openstack import _native
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.cached_volumes import rates as volume_rates
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import engines

# A detach waits until the volume's storage has what was written.
TIMEOUT_S = 60.0
# Other volumes wait for a limit; it can take blocks being written back.
LIMIT_TIMEOUT_S = 5.0
_TRAFFIC = tuple(field.name for field in dataclasses.fields(engines.Traffic))


class SsdcachedEngine(engines.Engine):
    """See :class:`.base.Engine`.

    :param control_socket: socket for commands
    :param nbd_socket: socket of the exports
    """

    def __init__(self, control_socket: str, nbd_socket: str,
                 timeout: float = TIMEOUT_S) -> None:
        self.socket = nbd_socket
        self._control = control_socket
        self._timeout = timeout

    def capacity(self) -> int:
        device = self._send('status')['device']
        return 0 if device['state'] == 'failed' else device['blocks']

    def volumes(self) -> collections.abc.Mapping[str, engines.State]:
        return _states(self._send('status'))

    def attach(self, attachment: engines.Attachment) -> engines.State:
        name = attachment.name
        status = self._send(
            'attach', volume=name, origin=attachment.origin,
            mode=attachment.mode, limit=attachment.limit,
            sequential=attachment.sequential,
            **({} if attachment.admission is None
               else {'admission': attachment.admission}),
            rates=dict(attachment.rates))
        return _states(status)[name]

    def detach(self, name: str) -> None:
        try:
            self._send('detach', volume=name)
        except engines.VolumeRefused:
            if name in self.volumes():
                raise

    def open_vhost(self, name: str) -> str:
        status = self._send('vhost-open', volume=name)
        found = _states(status)[name].vhost
        if found is None:
            raise engines.VolumeRefused(f'volume {name} has no socket')
        return found

    def recover(self, name: str, origin: str) -> None:
        self._send('recover', volume=name, origin=origin)

    def discard(self, name: str) -> None:
        state = self.volumes().get(name)
        if state is None or state.state != choices.HELD:
            raise engines.VolumeRefused(f'volume {name} is not held')
        self._send('detach', volume=name, discard_dirty=True)

    def set_limit(self, name: str, limit: int) -> None:
        with _refusals():
            control.send(self._control, 'set', volume=name, limit=limit,
                         timeout=min(self._timeout, LIMIT_TIMEOUT_S))

    def set_mode(self, name: str, mode: str) -> None:
        self._send('set', volume=name, mode=mode)

    def queue(self, name: str, seconds: float) -> None:
        with _refusals():
            control.queue(self._control, name, seconds,
                          timeout=self._timeout)

    def end_queue(self, name: str) -> bool:
        with _refusals():
            return control.queue(self._control, name, 0.0,
                                 timeout=self._timeout)

    def set_filters(self, name: str, sequential: int, admission: int | None
                    ) -> None:
        self._send('set', volume=name, sequential=sequential,
                   admission=admission or 0)

    def set_rates(self, name: str, rates: volume_rates.Rates) -> None:
        self._send('set', volume=name, rates=dict(rates))

    def resize(self, name: str) -> None:
        self._send('resize', volume=name)

    def disconnect(self, name: str) -> None:
        self._send('disconnect', volume=name)

    def end_epoch(self) -> collections.abc.Mapping[str, engines.Epoch]:
        found = {}
        for name in self._send('epoch')['volumes']:
            try:
                epoch = control.curve(self._control, name,
                                      timeout=self._timeout)
            except control.CommandRefused:
                continue  # It was detached.
            if epoch is not None:
                found[name] = _epoch(epoch)
        return found

    def hot(self, name: str, most: int) -> list[hot_blocks.Run]:
        with _refusals():
            return [hot_blocks.Run(*run) for run in control.hot(
                self._control, name, most, timeout=self._timeout)]

    def warm(self, name: str, runs: collections.abc.Sequence[hot_blocks.Run]
             ) -> engines.Warmed:
        with _refusals():
            return engines.Warmed(**control.warm(
                self._control, name, runs, timeout=self._timeout))

    def flush(self, name: str) -> None:
        self._send('flush', volume=name)

    def accept_loss(self, name: str) -> None:
        self._send('accept-loss', volume=name)

    def end_guest(self, name: str) -> None:
        self._send('guest-ended', volume=name)

    def invalidate(self, name: str) -> None:
        self._send('invalidate', volume=name)

    def _send(self, command: str, **fields: typing.Any
              ) -> dict[str, typing.Any]:
        with _refusals():
            return control.send(self._control, command,
                                timeout=self._timeout, **fields)


@contextlib.contextmanager
def _refusals() -> collections.abc.Iterator[None]:
    try:
        yield
    except control.CommandRefused as error:
        raise engines.VolumeRefused(str(error)) from error


def _epoch(document: dict[str, typing.Any]) -> engines.Epoch:
    return engines.Epoch(
        document['seconds'], _native.HitCurve(
            document['references'], document['distinct'],
            [tuple(step) for step in document['hits']]),
        document['sampled'], engines.Requests(**document['hit']),
        engines.Requests(**document['miss']))


def _states(status: dict[str, typing.Any]) -> dict[str, engines.State]:
    return {name: engines.State(
        each['export'], each['mode'], each['limit'], each['blocks'],
        each['dirty'], each['state'],
        engines.Traffic(**{field: each[field] for field in _TRAFFIC}),
        sequential=each['sequential'], admission=each['admission'],
        losses=tuple((start, length) for start, length in each['losses']),
        vhost=each['vhost'], rates=each['rates'])
        for name, each in status['volumes'].items()}
