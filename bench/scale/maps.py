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
"""What a host is sent of its site's map, and what that costs.

The database has images in families with all patches between the images of one,
a repository that holds all of them, and hosts that hold some. Bytes are those
of the encoded answer; a change is a new patch at the repository, with the
repository's report that it holds it.
"""

import collections.abc
import functools
import json
import random

import sqlalchemy as sa

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from diffcache_openstack.conf import opts
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.sites import map_changes
from diffcache_openstack import objects
from diffcache_openstack.objects import fingerprints
from diffcache_openstack.objects import versioned
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import maps as site_maps

_SITE = 'edge'
_HUB = 'hub'
_REPORTS = 200


def random_hash(drawn: random.Random) -> str:
    """Return a hash of nothing."""
    return f'{drawn.getrandbits(256):064x}'


def put_catalogue(session, images: int, family: int, drawn: random.Random,
                  ) -> tuple[list[str], list[str]]:
    """Add images, and all patches between those of a family.

    :returns: the contents of the images, and the ids of the patches
    """
    now = versioned.now()
    contents = [random_hash(drawn) for _ in range(images)]
    session.execute(sa.insert(models.Image), [
        {'id': f'{number:08x}-0000-4000-8000-000000000000',
         'name': f'Image {number}', 'content_id': content,
         'size': 10 ** 10, 'data_size': 10 ** 9, 'created_at': now,
         'disk_format': 'qcow2', 'file_size': 5 * 10 ** 8,
         'os_hash_algo': 'sha512', 'os_hash_value': content * 2,
         'owner': '0' * 32, 'visibility': 'public', 'status': 'active',
         'form_id': content, 'form_size': 10 ** 6,
         'record': random_hash(drawn) * 5}
        for number, content in enumerate(contents)])
    patches = [{'id': random_hash(drawn), 'base': base, 'target': target,
                'size': 10 ** 7, 'create_seconds': 1.0,
                'apply_seconds': 1.0, 'created_at': now}
               for first in range(0, images, family)
               for base in contents[first:first + family]
               for target in contents[first:first + family]
               if base != target]
    session.execute(sa.insert(models.Patch), patches)
    return contents, [patch['id'] for patch in patches]


class Site:
    """A database of this many images.

    :ivar statements: that were run
    """

    def __init__(self, run: runs.Run) -> None:
        conf = opts.new_config()
        conf.set_override('connection', f'sqlite:///{run.work}/db.sqlite',
                          'database')
        migration.upgrade(conf)
        self.database = engine.Database(conf)
        self._random = random.Random(1)
        self.database.write(self._fill, run.options.images,
                            run.options.family, run.options.hosts)
        self.maps = site_maps.Maps(conf, self.database)
        self.held = len(self.database.read(
            held_rows.get_host, _HUB).holdings)
        self.statements = 0
        sa.event.listen(self.database.engine, 'before_cursor_execute',
                        self._count)

    def _count(self, *_arguments) -> None:
        self.statements += 1

    def _fill(self, session, images: int, family: int, hosts: int) -> None:
        now = versioned.now()
        for name, site, role in [(_HUB, 'centre', objects.REPOSITORY)] + [
                (f'host-{number}', _SITE, objects.COMPUTE)
                for number in range(hosts)]:
            host_rows.put_host(session, objects.Host(
                name=name, site=site, role=role, url=f'https://{name}:9192'),
                now)
        contents, patches = put_catalogue(session, images, family,
                                          self._random)
        self._pairs = [(base, content) for base in contents[:2]
                       for content in contents[family:]]
        self._hold(session, _HUB, [(objects.IMAGES, each)
                                   for each in contents]
                   + [(objects.PATCHES, each) for each in patches])
        for number in range(hosts):
            self._hold(session, f'host-{number}', [
                (objects.IMAGES, each)
                for each in self._random.sample(contents, 8)])

    def _hold(self, session, host: str, held: list[tuple[str, str]]) -> None:
        number = host_rows.host_id(session, host)
        session.execute(sa.insert(models.Holding), [
            {'host_id': number, 'kind': kind, 'object_id': name,
             'bytes': 1000} for kind, name in held])
        session.execute(
            sa.update(models.Host).where(models.Host.id == number).values(
                held_objects=len(held), held_bytes=1000 * len(held)))

    def new_patch(self) -> collections.abc.Callable[[], None]:
        """Register a patch; return a call that reports it as held."""
        base, target = self._pairs.pop()
        patch = objects.Patch(id=random_hash(self._random), base=base,
                              target=target, size=10 ** 7)
        self.held += 1
        self.database.write(catalogue.put_patch, patch, versioned.now())
        return functools.partial(
            self.database.write, held_rows.change_holdings, _HUB,
            held_rows.HoldingsDelta(
                [objects.Holding(kind=objects.PATCHES, id=patch.id,
                                 bytes=1000)], [], self.held,
                1000 * self.held), versioned.now())


def size_of(message: object) -> int:
    """Return the bytes of an encoded message."""
    return len(json.dumps(message))


class Follower:
    """A host that follows the map, and rows of what that takes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.rows: list[tuple] = []
        with processes.spending() as spent:
            whole = site.maps.update(_SITE, None)
        self.rows.append(('whole map', size_of(whole.obj_to_primitive()),
                          '-', f'{spent.cpu_s:.3f}', '-'))
        self._state = map_state.MapState(whole)

    def follow(self, what: str) -> None:
        """Ask for what changed.

        :raises BenchError: the state is not that of the conductor
        """
        before = self._site.statements
        with processes.spending() as conductor:
            found = self._site.maps.update(_SITE, self._state.generation)
            size = size_of(found.obj_to_primitive())
        statements = self._site.statements - before
        with processes.spending() as host:
            if not isinstance(found, objects.MapChange):
                self._state = map_state.MapState(found)
            elif not self._state.apply(found):
                raise errors.BenchError(f'{what}: the map differs')
            self._state.view()
        self.rows.append((what, size, statements, f'{conductor.cpu_s:.3f}',
                          f'{host.cpu_s:.3f}'))


def compare(site: Site) -> dict[str, object]:
    """Compare a repository's images and patches with the catalogue."""
    with processes.spending() as repository:
        images = {image.id: fingerprints.of_image(image)
                  for image in site.database.read(
                      catalogue.known_images)}
        patches = site.database.read(catalogue.list_patches)
        size = size_of([[name, *hashes] for name, hashes in images.items()])
        size += size_of([[patch.id, patch.base, patch.target]
                         for patch in patches])
    with processes.spending() as conductor:
        site.database.read(catalogue.find_unregistered_images, images,
                           lambda session, known: False)
        site.database.read(catalogue.find_unregistered_patches, patches)
    return {'comparing images, patches': f'{len(images)}, {len(patches)}',
            'bytes that are compared': size,
            'repository, CPU s': f'{repository.cpu_s:.2f}',
            'conductor, CPU s': f'{conductor.cpu_s:.2f}'}


def reports(site: Site, count: int) -> dict[str, object]:
    """Report objects of the repository, one at a time."""
    seconds = 0.0
    for _ in range(count):
        report = site.new_patch()
        before = site.statements
        with processes.spending() as spent:
            report()
        seconds += spent.cpu_s
        statements = site.statements - before
    held = [{'kind': held.kind, 'id': held.id, 'bytes': held.bytes}
            for held in site.database.read(held_rows.get_host, _HUB).holdings]
    milliseconds = 1000 * seconds / count
    return {'report of one new object, bytes': size_of(held[:1]),
            'its statements': statements,
            'its work at the conductor, CPU ms': f'{milliseconds:.2f}',
            'report of all objects, bytes': size_of(held)}


def maps(run: runs.Run) -> None:
    """Follow changes, and report objects."""
    site = Site(run)
    follower = Follower(site)
    for count in run.options.changes:
        for _ in range(count):
            site.new_patch()()
        run.say(f'{count} changes')
        follower.follow(f'{count} changes')
    for _ in range(12):
        site.new_patch()()
    site.database.write(map_changes.prune, 10)
    follower.follow('away for longer than changes last')
    run.table(f'Maps of {run.options.images} images', (
        'What', 'Bytes', 'Statements', 'Conductor, CPU s', 'Host, CPU s'),
        follower.rows)
    found = compare(site) | reports(site, 2 if run.quick else _REPORTS)
    run.table('Registration and reports', ('What', 'Value'), found.items())
