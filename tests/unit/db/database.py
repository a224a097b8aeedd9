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
"""An empty database with the schema, in a file."""

import collections.abc
import contextlib
import datetime
import functools
import pathlib
import sqlite3
import tempfile

from oslo_config import cfg
import sqlalchemy as sa

from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db import migration
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from tests import base

START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
SITE = 'edge'


def at(seconds: float) -> datetime.datetime:
    """An instant, by its distance from the start of the test's time."""
    return START + datetime.timedelta(seconds=seconds)


def content(number: int) -> str:
    """A content id."""
    return f'{number:064x}'


def host(name: str, **values) -> objects.Host:
    """A compute host."""
    return objects.Host(**{'name': name, 'site': SITE,
                           'role': objects.COMPUTE, 'capacity': 1000,
                           **values})


def put_wanted(opened: engine.Database, hosts: list[str],
               wanted: list[boot_sets.PlannedSet], when: datetime.datetime
               ) -> None:
    """Write boot sets that were chosen beside the current plan."""
    opened.write(boot_sets.put_wanted,
                 plans.Basis(SITE, opened.read(plans.generation, SITE)),
                 hosts, wanted, when)


def image(number: int, **values) -> objects.Image:
    """An image."""
    return objects.Image(**{
        'id': f't{number}', 'name': f'Image {number}',
        'content_id': content(number), 'size': 100, 'data_size': 50,
        'created_at': at(0),
        **values})


def patch(source: int, target: int, **values) -> objects.Patch:
    """A patch between two images."""
    return objects.Patch(**{
        'id': content(1000 + 100 * source + target), 'size': 5,
        'base': content(source), 'target': content(target), **values})


def request(number: int, **values) -> objects.Request:
    """A request for image 1 at host h1."""
    return objects.Request(**{
        'id': f'00000000-0000-0000-0000-{number:012d}', 'host': 'h1',
        'image_id': 't1', 'started_at': at(number), **values})


def holding_host(session, name: str) -> objects.Host:
    """Return a host with the objects that it holds.

    :raises NotFound: the host is not registered
    """
    host_rows.need_host(session, name)
    return next(host for host in held_rows.holding_hosts(session)
                if host.name == name)


def requests(session, limit: int) -> list[objects.Request]:
    """Return the latest requests, newest first."""
    table = models.Request
    names = objects.Request.fields.keys() & table.__mapper__.columns.keys()
    return [objects.Request(**{name: getattr(row, name) for name in names})
            for row in session.scalars(sa.select(table).order_by(
                table.started_at.desc(), table.id).limit(limit))]


def holding(number: int, **values) -> objects.Holding:
    """An image on a host."""
    return objects.Holding(**{'kind': objects.IMAGES,
                              'id': content(number), 'bytes': 50, **values})


@functools.cache
def migrated() -> bytes:
    """A file with the schema and nothing else.

    Migrating takes a quarter of a second, which hundreds of tests would pay.
    """
    return made(migration.upgrade)


def made(make: collections.abc.Callable[[cfg.ConfigOpts], None],
         begin: bytes = b'') -> bytes:
    """A file as a function leaves it.

    :param make: called with a configuration that names the file
    :param begin: what the file has before
    """
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, 'db.sqlite')
        path.write_bytes(begin)
        conf = opts.new_config()
        conf.set_override('connection', f'sqlite:///{path}', 'database')
        make(conf)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return connection.serialize()


class DatabaseTest(base.TestCase):
    """Has a database of its own, and its configuration."""

    # What its file has when a test begins.
    contents = staticmethod(migrated)

    def setUp(self):
        super().setUp()
        self.conf = opts.new_config()
        path = pathlib.Path(self.directory, 'db.sqlite')
        path.write_bytes(self.contents())
        self.conf.set_override('connection', f'sqlite:///{path}', 'database')
        self.database = engine.Database(self.conf)
        self.addCleanup(self.database.close)

    def write(self, function, *args):
        """Run a function in a transaction."""
        return self.database.write(function, *args)

    def read(self, function, *args):
        """Run a function in a transaction that reads."""
        return self.database.read(function, *args)


def silence(db, *names):
    """Have hosts count as dead."""
    db.write(lambda session: session.execute(
        sa.update(models.Host).where(models.Host.name.in_(names)).values(
            alive=False)))
