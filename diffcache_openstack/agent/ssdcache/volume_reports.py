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
"""What the conductor learns of this host's SSD cache."""

import datetime
import re
import typing

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import volume_cache


class CacheReport(typing.NamedTuple):
    """The state of an SSD cache; ``volumes`` is None if it does not answer."""

    cache: objects.SsdCache
    volumes: list[objects.VolumeCache] | None


def collect(cached: cached_volumes.CachedVolumes) -> CacheReport:
    """Return the state of the cache, its volumes and their curves."""
    rules = cached.rules
    cache = objects.SsdCache(
        state=volume_cache.UNREACHABLE, capacity=0, policy=rules.policy,
        epoch=rules.epoch, decisions=[])
    try:
        status = cached.status()
    except exceptions.DiffCacheError:
        # The end of an epoch logs why.
        return CacheReport(cache, None)
    names = list(status['volumes'])
    decisions = status['decisions']
    cache.capacity = status['capacity']
    cache.state = volume_cache.OK if cache.capacity else volume_cache.FAILED
    cache.decisions = [_decision(each, names) for each in decisions[
        :volume_cache.MOST_DECISIONS]]
    # One that was attached by hand may have any name.
    return CacheReport(cache, [
        _volume(name, each, cached.curve(name),
                _reasons(name, decisions[0], names) if decisions else [])
        for name, each in status['volumes'].items()
        if re.fullmatch(fields.ID_PATTERN, name)])


def volume(cached: cached_volumes.CachedVolumes, name: str
           ) -> objects.VolumeCache:
    """Return the state of one volume.

    :raises NotFound: it is not attached
    """
    for found in collect(cached).volumes or ():
        if found.id == name:
            return found
    raise exceptions.NotFound(
        f'Volume {name} is not attached to the SSD cache of this host.')


def use(cached: cached_volumes.CachedVolumes, name: str
        ) -> objects.VolumeUse:
    """Return how a volume is used, for the host that it moves to.

    :raises NotFound: it is not attached
    """
    curve = cached.curve(name)
    return objects.VolumeUse(curve=curve and _curve(curve),
                             blocks=hot_blocks.pack(cached.hot(name)))


def _decision(decision: dict[str, typing.Any], names: list[str]
              ) -> objects.SizingDecision:
    return objects.SizingDecision(
        time=datetime.datetime.fromisoformat(decision['time']).replace(
            tzinfo=datetime.UTC),
        policy=decision['policy'], changed=decision['changed'],
        explain=_shared(decision, names)[:volume_cache.MOST_LINES])


def _shared(decision: dict[str, typing.Any], names: list[str]) -> list[str]:
    """Return what a decision says about the whole cache."""
    prefixes = tuple(f'{name}: ' for name in names)
    return [line for line in decision['explain']
            if not line.startswith(prefixes)]


def _reasons(name: str, decision: dict[str, typing.Any], names: list[str]
             ) -> list[str]:
    """Return what a decision says about one volume, and about no other.

    The reason why nothing could be decided may name others.
    """
    own = [line.removeprefix(f'{name}: ') for line in decision['explain']
           if line.startswith(f'{name}: ')]
    shared = _shared(decision, names)[:1] if decision['sizes'] else []
    return [*shared, *own][:volume_cache.MOST_LINES]


def _volume(name: str, document: dict[str, typing.Any],
            curve: dict[str, typing.Any] | None, explain: list[str]
            ) -> objects.VolumeCache:
    values = _known(objects.VolumeCache, {
        **document, **document['traffic'], **document['wanted']})
    return objects.VolumeCache(**{
        **values, 'id': name, 'explain': explain,
        'curve': curve and _curve(curve),
        'generation': document['overrides']['generation'],
        'rates': rates.lines(document['rates']),
        'losses': [f'{start}+{length}' for start, length
                   in document['losses'][:volume_cache.MOST_LOSSES]]})


def _curve(curve: dict[str, typing.Any]) -> objects.VolumeCurve:
    return objects.VolumeCurve(**{
        **_known(objects.VolumeCurve, curve),
        'sizes': [size for size, _hits in curve['hits']],
        'hits': [hits for _size, hits in curve['hits']]})


def _known(kind: type[objects.VolumeCache] | type[objects.VolumeCurve],
           document: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Return the values of a document that an object has fields for."""
    return {name: document[name] for name in kind.fields if name in document}
