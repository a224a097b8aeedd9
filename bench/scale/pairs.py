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
"""Which patches of many small images are created, and at what cost.

A repository's agent and the conductor's endpoint work on a real database and
real images, in families: each image is its predecessor with some blocks
changed. Messages are encoded as they are for the broker, and counted.

Worthwhile are all patches between images of a family, from the nearest bases.
Shown are how many of them were created, the images that have no patch although
they have relatives, when each image had the patch from its best base, and what
the conductor did for it.
"""

import collections
import json
import pathlib
import random
import resource
import time
import types

import sqlalchemy as sa

from bench.harness import processes
from bench.harness import runs
from diffcache_openstack.agent.data_plane import inspector
from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import conductor_catalogue
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import contexts
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.conductor.endpoints import agents
from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db.patches import pairs as patch_pairs
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.sites import maps
from diffcache_openstack.sites import views

_BLOCK = 4096
_BLOCKS = 48
_CHANGED = 3
_HUB = 'hub'
_ARGUMENTS = {
    'register_image': ('image',), 'register_patch': ('patch',),
    'report_holdings': ('host', 'holdings'),
    'patch_work': ('host', 'terms', 'creations'),
    'report_sketches': ('host', 'sketches'),
    'report_pairs': ('host', 'terms', 'pairs'),
}


class Conductor:
    """The conductor's endpoint, called through encoded messages."""

    def __init__(self, directory: pathlib.Path) -> None:
        conf = opts.new_config()
        conf.set_override('connection', f'sqlite:///{directory}/db.sqlite',
                          'database')
        migration.upgrade(conf)
        self.database = engine.Database(conf)
        self._manager = agents.ConductorManager(
            self.database, maps.Maps(conf, self.database), None,
            types.SimpleNamespace(maps_changed=lambda changed: None),
            signatures.Security(), None)
        self._wire = versioned.Serializer()
        self._context = contexts.RequestContext.for_service('bench')
        self.forget()
        sa.event.listen(self.database.engine, 'before_cursor_execute',
                        self._count)

    def forget(self) -> None:
        """Count from now on."""
        self.calls: collections.Counter = collections.Counter()
        self.bytes: collections.Counter = collections.Counter()
        self.cpu: collections.Counter = collections.Counter()
        self.queries = 0

    def _count(self, *_arguments) -> None:
        self.queries += 1

    def call(self, name: str, **arguments):
        """Call a method, and count what that takes."""
        sent = self._encode(arguments)
        started = time.thread_time()
        result = getattr(self._manager, name)(
            self._context, **self._decode(sent))
        answer = self._encode({'result': result})
        self.cpu[name] += time.thread_time() - started
        self.calls[name] += 1
        self.bytes[name] += len(sent) + len(answer)
        return self._decode(answer)['result']

    def _encode(self, values: dict) -> str:
        return json.dumps({
            name: self._wire.serialize_entity(None, value)
            for name, value in values.items()})

    def _decode(self, text: str) -> dict:
        return {name: self._wire.deserialize_entity(None, value)
                for name, value in json.loads(text).items()}

    def __getattr__(self, name: str):
        return lambda _context, *values, **named: self.call(
            name, **dict(zip(_ARGUMENTS.get(name, ()), values)), **named)


class Images:
    """An agent's repository that knows the conductor, and its images."""

    def __init__(self, directory: pathlib.Path, conductor: Conductor,
                 may_run) -> None:
        held = holdings.Holdings(directory / 'objects', None,
                                 inspector.NativeInspector(),
                                 lambda kind, object_id: 0)
        held.scan()
        self._directory = directory
        self.repository = catalogue.Repository(
            host_state.HostState(_HUB, held, None), directory,
            image_tools.ImageTools(),
            conductor_catalogue.ConductorCatalogue(conductor, None, _HUB,
                                                   None),
            catalogue.PatchOptions(3, 0.5, may_run, 60))

    def register(self, sizes: list[int], seed: int) -> list[list[str]]:
        """Register families in turn; return the contents of each."""
        chance, families, number = random.Random(seed), [], 0
        path = self._directory / 'image.raw'
        for size in sizes:
            blocks = [chance.randbytes(_BLOCK // 2) * 2
                      for _ in range(_BLOCKS)]
            families.append([])
            for _ in range(size):
                for place in chance.sample(range(_BLOCKS), _CHANGED):
                    blocks[place] = chance.randbytes(_BLOCK // 2) * 2
                path.write_bytes(b''.join(blocks))
                families[-1].append(self.repository.register(
                    path, f'image-{number}', f'Image {number}').content_id)
                number += 1
        return families


def watch(repository, made: dict) -> None:
    """Note when, in CPU seconds of the process, each patch was created."""
    make_patch = repository.make_patch

    def noted(base: str, target: str):
        result = make_patch(base, target)
        made[base, target] = time.process_time()
        return result

    repository.make_patch = noted


def nearest_bases(family: list[str]) -> dict[str, list[str]]:
    """Return the bases of each image whose patches are worthwhile."""
    return {target: [family[other] for other in sorted(
        (other for other in range(len(family)) if other != place),
        key=lambda other: abs(other - place))[:patch_pairs.NEAREST]]
        for place, target in enumerate(family)}


def summarize(families: list[list[str]], made: dict, started: float
              ) -> dict[str, object]:
    """Return which of the worthwhile patches were created, and when."""
    wanted, first_at, bare = set(), [], 0
    for family in families:
        for target, bases in nearest_bases(family).items():
            pairs = [(base, target) for base in bases]
            wanted.update(pairs)
            place = family.index(target)
            times = [made[base, target] for base, _ in pairs
                     if abs(family.index(base) - place) == 1
                     and (base, target) in made]
            first_at += [min(times) - started] if times else []
            bare += bool(pairs) and not any(pair in made for pair in pairs)
    found = len(wanted & set(made))
    return {'images in families': f'{sum(map(len, families))} in'
                                  f' {len(families)}',
            'patches': len(made),
            'of the worthwhile ones': f'{found} of {len(wanted)}',
            'images without a patch': bare,
            'images with the patch from the best base': len(first_at),
            'the last of them after, CPU s': f'{max(first_at, default=0):.0f}'}


def measure(run: runs.Run) -> dict:
    """Register images, and create their patches."""
    options, made = run.options, {}
    count = max(options.images // options.family, 1)
    sizes = [options.images // count + (number < options.images % count)
             for number in range(count)]
    conductor = Conductor(run.work)
    conductor.database.write(host_rows.put_host, objects.Host(
        name=_HUB, site='centre', role=objects.REPOSITORY), versioned.now())
    images = Images(run.work / 'repository', conductor,
                    lambda: len(made) < options.limit)
    with processes.spending() as registering:
        families = images.register(sizes, options.seed)
    conductor.call('report_holdings', host=_HUB, holdings=[
        objects.Holding(kind=views.IMAGES, id=content,
                        bytes=_BLOCK * _BLOCKS)
        for family in families for content in family])
    conductor.forget()
    started = time.process_time()
    watch(images.repository, made)
    images.repository.make_missing()
    spent = time.process_time() - started
    calls = sum(conductor.calls.values())
    return {
        'summary': {
            'registering, CPU s of both': f'{registering.cpu_s:.1f}',
            **summarize(families, made, started),
            'all patches, CPU s of both': f'{spent:.0f}',
            'statements of each call': f'{conductor.queries / calls:.1f}',
            'statements of each patch':
                f'{conductor.queries / max(len(made), 1):.1f}',
            'peak memory of both, MB': resource.getrusage(
                resource.RUSAGE_SELF).ru_maxrss // 1024},
        'calls': [[name, number, f'{conductor.bytes[name] / 1e6:.2f}',
                   f'{conductor.bytes[name] / number:.0f}',
                   f'{conductor.cpu[name]:.1f}']
                  for name, number in sorted(conductor.calls.items())]}


def pairs(run: runs.Run) -> None:
    """Create the patches of many images."""
    found = run.keep('patches', lambda: measure(run))
    run.table('Patches', ('What', 'Value'), found['summary'].items())
    run.table("The conductor's work", ('Method', 'Calls', 'MB', 'B/call',
                                       'CPU s'), found['calls'])
