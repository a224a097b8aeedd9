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
"""Reports of SSD caches, for tests."""

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests.unit.ssdcache import fakes

VOLUME = '7a1dbe2a-4a4e-4a6c-9f0e-0d3f3e5f6a01'
OTHER_VOLUME = '7a1dbe2a-4a4e-4a6c-9f0e-0d3f3e5f6a02'


def cached(test, *names):
    """Volumes in the SSD cache of a host, with an engine in memory."""
    found = cached_volumes.CachedVolumes(
        fakes.FakeEngine(1000),
        cached_volumes.CacheOptions((str(test.directory), )),
        test.directory / 'ssd_cache.json')
    for name in names:
        origin = test.directory / name
        origin.write_bytes(bytes(4096))
        found.attach(name, volume_settings.VolumeSettings(str(origin),
                                                          'write-through'))
    return found


def cache(**values):
    """The SSD cache of a host."""
    return objects.SsdCache(**{
        'state': 'ok', 'capacity': 1024, 'policy': 'latency', 'epoch': 120,
        'decisions': [objects.SizingDecision(
            time=versioned.now(), policy='latency', changed=True,
            explain=['412 blocks move to other volumes'])], **values})


def volume(volume_id=VOLUME, **values):
    """A volume in it."""
    return objects.VolumeCache(**{
        'id': volume_id, 'mode': 'write-through', 'state': 'ok', 'limit': 100,
        'blocks': 90, 'dirty': 0, 'reads': 5000, 'writes': 1000,
        'hits': 4500, 'misses': 1500, 'evictions': 20, 'bypassed': 7,
        'min': 0, 'max': 512, 'weight': 1.0, 'priority': None,
        'sla': 'hit=0.9', 'admission': 2, 'generation': 2,
        'losses': ['1048576+4096'],
        'explain': ['412 blocks move to other volumes',
                    '100 of 120 blocks, 75.0% hits'],
        'curve': objects.VolumeCurve(
            seconds=120.0, references=1000, distinct=120, sampled=1.0,
            hit_us=100.0, miss_us=2100.0, sizes=[50, 100, 120],
            hits=[500, 750, 880]), **values})
