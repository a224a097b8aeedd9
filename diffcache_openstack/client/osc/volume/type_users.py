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
"""Volumes in use that follow a volume type which was changed."""

import collections.abc
import dataclasses
import sys
import typing

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client import proxy

_IN_USE = 'in-use'
_UNAVAILABLE = 503


@dataclasses.dataclass
class Outcome:
    """What became of the volumes of a type that are in use.

    :ivar changed: volumes that follow it now
    :ivar uncached: volumes that are in no SSD cache
    :ivar failed: volumes that do not follow it, by the reason
    """

    changed: int = 0
    uncached: int = 0
    failed: dict[str, list[str]] = dataclasses.field(default_factory=dict)


def follow(client: proxy.Proxy, volumes: collections.abc.Iterable[typing.Any],
           specs: dict[str, dict[str, str]]) -> Outcome:
    """Have volumes in use follow their types.

    Hosts that do not answer are called once, not for each of their volumes.

    :param volumes: of the types, as Cinder lists them
    :param specs: what types say of the cache, by their names
    """
    hosts = {each.id: each.host for each in client.volume_caches()}
    silent: dict[str, str] = {}
    outcome = Outcome()
    for volume in volumes:
        if volume.status != _IN_USE:
            continue
        if volume.id not in hosts:
            outcome.uncached += 1
            continue
        host = hosts[volume.id]
        reason = silent.get(host)
        if reason is None:
            reason, is_silent = _follow_one(
                client, volume.id, specs[volume.volume_type])
            if is_silent:
                silent[host] = reason
        if reason:
            outcome.failed.setdefault(f'{host}: {reason}', []).append(
                volume.id)
        else:
            outcome.changed += 1
    return outcome


def _follow_one(client: proxy.Proxy, volume_id: str, specs: dict[str, str]
                ) -> tuple[str, bool]:
    """Have one volume follow its type.

    :returns: why it does not, if so, and whether its host does not answer
    """
    try:
        client.follow_volume_type(volume_id, specs)
    except sdk_exceptions.HttpException as error:
        return commands.http_words(error), error.status_code == _UNAVAILABLE
    return '', False


def report(type_name: str, outcome: Outcome, is_cached: bool) -> None:
    """Report to the user what became of the volumes in use.

    :param is_cached: whether the type says that its volumes are cached
    :raises CommandError: some do not follow their type
    """
    if outcome.changed:
        _say(f'{_volumes(outcome.changed)} of type {type_name} in use'
             f' changed.')
    if outcome.uncached and is_cached:
        _say(f'{_volumes(outcome.uncached)} of type {type_name} in use in no'
             f' SSD cache: cached when attached again, or when the server is'
             f' live-migrated.')
    if not outcome.failed:
        return
    count = sum(map(len, outcome.failed.values()))
    reasons = ''.join(f'\n{reason}: {", ".join(ids)}'
                      for reason, ids in outcome.failed.items())
    raise exceptions.CommandError(
        f'{_volumes(count)} of type {type_name} in use could not be changed;'
        f' repeat it with "openstack volume cache apply {type_name}". Until'
        f' then, or until they are attached again, they are cached as'
        f' before.{reasons}')


def _volumes(count: int) -> str:
    return f'{count} volume{"" if count == 1 else "s"}'


def _say(text: str) -> None:
    # What is shown of the type is on the standard output.
    sys.stderr.write(f'{text}\n')
