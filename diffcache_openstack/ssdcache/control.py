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
"""Commands to a running cache, over its control socket."""

import collections.abc
import os
import typing

from diffcache_openstack.common import control_socket
from diffcache_openstack.common import exceptions

# A flush waits for the volume's origin.
TIMEOUT_S = 600.0


class CacheUnreachable(exceptions.RetryableError):
    """The cache does not answer on its control socket."""


class CacheSlow(CacheUnreachable):
    """The cache has not executed a command yet; it may do so later."""


class CommandRefused(exceptions.PermanentError):
    """The cache refused a command."""


# What the cache says of a command that is to be repeated.
_KINDS: dict[str, type[exceptions.DiffCacheError]] = {
    'ServiceUnavailable': CacheUnreachable, 'Slow': CacheSlow}


def send(path: str | os.PathLike[str], command: str, *,
         timeout: float = TIMEOUT_S, **fields: typing.Any
         ) -> dict[str, typing.Any]:
    """Send a command, and return the state of the cache after it.

    :param command: ``status``, ``attach``, ``recover``, ``resize``,
        ``disconnect``, ``set``, ``flush``, ``accept-loss``,
        ``guest-ended``, ``invalidate``, ``detach``, ``vhost-open`` or
        ``vhost-close``, which begin and end to serve a volume by vhost-user,
        or ``epoch``, which ends one. While an origin has ``losses`` in the
        state, offsets and lengths of what it lost, flushes of its volume are
        refused; ``accept-loss`` ends them by decision, and ``guest-ended``
        because the guest that had written has no memory any more
    :param fields: ``volume`` and, with ``attach``, ``origin``, ``mode``,
        ``limit``, ``sequential`` and ``admission``, the latter two 0 for
        none of its own, and ``rates``, what it may do per second by
        :data:`~diffcache_openstack.cached_volumes.rates.NAMES`; with
        ``recover``, ``origin``; with ``set``, any of these but the origin;
        with ``invalidate`` and ``detach``, ``discard_dirty``
    :raises CacheUnreachable: no cache answers, or not in time
    :raises CommandRefused: for the reason that the cache gives
    """
    request = {'command': command} | fields
    return _request(path, request, 'status', timeout)


def curve(path: str | os.PathLike[str], volume: str, *,
          timeout: float = TIMEOUT_S) -> dict[str, typing.Any] | None:
    """Return what was requested of a volume in its last epoch.

    :returns: see ``Epoch`` in ``native/ssdcache``; none before the first
        epoch ended
    :raises CacheUnreachable: no cache answers, or not in time
    :raises CommandRefused: it is not attached
    """
    return _request(path, {'command': 'curve', 'volume': volume}, 'curve',
                    timeout)


def hot(path: str | os.PathLike[str], volume: str, most: int, *,
        timeout: float = TIMEOUT_S) -> list[tuple[int, int]]:
    """Return which blocks of a volume would stay in the cache the longest.

    :param most: blocks
    :returns: numbers of first blocks, and how many follow one another from
        there, in ascending order
    :raises CacheUnreachable: no cache answers, or not in time
    :raises CommandRefused: it is not attached, or the cache is older than
        this command
    """
    request = {'command': 'hot', 'volume': volume, 'most': most}
    return [(first, count) for first, count
            in _request(path, request, 'hot', timeout)]


def warm(path: str | os.PathLike[str], volume: str,
         runs: collections.abc.Iterable[tuple[int, int]], *,
         timeout: float = TIMEOUT_S) -> dict[str, typing.Any]:
    """Cache blocks of a volume while there is room for them.

    :param runs: as :func:`hot` returns them; a command has at most 64 KiB
    :returns: ``blocks`` that were not cached before, and whether there is
        ``room`` for more
    :raises CacheUnreachable: no cache answers, or not in time
    :raises CommandRefused: it is not attached, or its origin cannot be read
    """
    request = {'command': 'warm', 'volume': volume, 'runs': list(runs)}
    return _request(path, request, 'warmed', timeout)


def queue(path: str | os.PathLike[str], volume: str, seconds: float, *,
          timeout: float = TIMEOUT_S) -> bool:
    """Have the writes of a volume wait, or go on.

    :param seconds: for which they wait at most; 0 has them go on
    :returns: whether they have waited until now
    :raises CacheUnreachable: no cache answers, or not in time
    :raises CommandRefused: it is not attached
    """
    request = {'command': 'queue', 'volume': volume,
               'milliseconds': round(seconds * 1000)}
    return _request(path, request, 'queued', timeout)


def _request(path: str | os.PathLike[str], request: dict[str, typing.Any],
             field: str, timeout: float) -> typing.Any:
    try:
        return control_socket.ask(path, request, timeout)[field]
    except TimeoutError as error:
        raise CacheSlow(
            f'{os.fspath(path)}: the cache did not answer in {timeout:g} s; a'
            ' storage may hang, see "diffcache ssdcache status"') from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CacheUnreachable(
            f'{os.fspath(path)}: {reason}; is "diffcache ssdcache serve"'
            ' running with this control socket?') from error
    except (ValueError, KeyError) as error:
        raise CacheUnreachable(
            f'{os.fspath(path)}: the answer is not that of a cache; it ended,'
            ' or the socket is another program\'s') from error
    except control_socket.CommandFailed as error:
        raise _KINDS.get(error.kind, CommandRefused)(str(error)) from error
