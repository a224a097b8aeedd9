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
import contextlib

import hypothesis
from hypothesis import strategies
import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.views import host_views
from diffcache_openstack import objects
from tests.unit.db import database

HOSTS, OBJECTS = 100, 20
# Objects that the plan places on each host.
PLACED = 5
_NAMES = ('a', 'a.b', 'a.b.c', 'a-b', 'B', 'b')
_KINDS = (objects.MANIFESTS, objects.PATCHES, objects.IMAGES)
_HELD = strategies.sets(strategies.tuples(
    strategies.sampled_from(_NAMES), strategies.sampled_from(_KINDS),
    strategies.integers(0, 3)))


class HoldingsTest(database.DatabaseTest):
    """Has a database in which hosts hold much."""

    def holdings(self, limit=1000, marker=None, **filters):
        return self.database.look(host_views.list_holdings, filters,
                                  listing.Page(limit, marker))

    @contextlib.contextmanager
    def statements(self):
        """Statements by which the block reads the database."""
        seen = []

        def note(_connection, _cursor, statement, *_rest):
            if statement.startswith('SELECT'):
                seen.append(statement)

        sa.event.listen(self.database.engine, 'before_cursor_execute', note)
        try:
            yield seen
        finally:
            sa.event.remove(self.database.engine, 'before_cursor_execute',
                            note)


class TestParts(HoldingsTest):

    def fill(self, held):
        """Have hosts hold these and nothing else."""
        when = database.at(0)
        self.write(lambda session: session.execute(sa.delete(models.Host)))
        for name in _NAMES:
            self.write(host_rows.put_host, database.host(name), when)
            self.write(held_rows.put_holdings, name, [
                objects.Holding(kind=kind, id=database.content(number),
                                bytes=number)
                for host, kind, number in held if host == name], when)

    @hypothesis.settings(max_examples=15)
    @hypothesis.given(_HELD, strategies.integers(1, 6))
    def test_are_the_whole_in_order(self, held, limit):
        self.fill(held)
        marker, found = None, []
        while True:
            part = self.holdings(limit, marker, site=database.SITE)
            self.assertLessEqual(len(part.entries), limit)
            found += part.entries
            marker = part.next_marker
            if marker is None:
                break
            self.assertEqual(limit, len(part.entries))
            self.assertEqual(marker, part.entries[-1]['id'])
        self.assertEqual(
            sorted((host.encode(), kind, database.content(number))
                   for host, kind, number in held),
            [(each['host'].encode(), each['kind'], each['object_id'])
             for each in found])

    def test_of_a_marker_that_is_no_id(self):
        for marker in ('a', 'a.images'):
            self.assertRaises(exceptions.InvalidInput, self.holdings,
                              marker=marker)


class TestManyRows(HoldingsTest):
    """2000 holdings, some with a place in a plan."""

    def setUp(self):
        super().setUp()
        self.put_all()

    def put_all(self):
        when = database.at(0)
        for number in range(3):
            self.write(catalogue.put_image, database.image(number),
                       when)
        self.write(host_rows.put_host, database.host('hub', site='centre'),
                   when)
        self.write(host_rows.put_host, database.host('h000'), when)
        self.write(self.put_holdings)
        self.plan = self.write(self.put_plan)

    def put_holdings(self, session):
        session.execute(sa.insert(models.Host), [
            {'id': 1000 + number, 'name': f'h{number:03}', 'capacity': 10,
             'site': database.SITE, 'role': objects.COMPUTE, 'alive': True,
             'plan_generation': 0, 'seen_at': database.at(0)}
            for number in range(1, HOSTS)])
        ids = session.scalars(sa.select(models.Host.id).where(
            models.Host.site == database.SITE)).all()
        session.execute(sa.insert(models.Holding), [
            {'host_id': host_id, 'kind': kind, 'bytes': 7,
             'object_id': database.content(number)}
            for host_id in ids for number in range(OBJECTS // 2)
            for kind in (objects.IMAGES, objects.MANIFESTS)])

    def put_plan(self, session):
        """Make a plan that places some images; return its ID."""
        names = [f'h{number:03}' for number in range(HOSTS)]
        plans.put_plan(session, objects.Plan(
            site=database.SITE, hosts=names, solver='x', cost_s=1.0,
            lower_bound_s=1.0, proved_optimal=True, solver_seconds=0.0,
            created_at=database.at(0), items=[
                objects.PlanItem(
                    host=name, kind=objects.IMAGES, bytes=7, priority=0,
                    id=database.content(number), saved_seconds=0.0)
                for name in names for number in range(PLACED)]), 0)
        return session.scalar(sa.select(models.Plan.uuid))

    def test_a_part_takes_two_statements(self):
        for marker in (None, f'h040.images.{database.content(3)}'):
            with self.statements() as seen:
                part = self.holdings(1000, marker, site=database.SITE)
            self.assertEqual(1000, len(part.entries))
            self.assertIsNotNone(part.next_marker)
            self.assertEqual(2, len(seen), seen)

    def test_what_a_plan_does_not_place(self):
        with self.statements() as seen:
            part = self.holdings(1000, not_in_plan=self.plan)
        self.assertEqual(3, len(seen), seen)
        self.assertEqual(
            [(f'h{host:03}', database.content(number))
             for host in range(HOSTS) for number in range(PLACED,
                                                          OBJECTS // 2)],
            [(each['host'], each['object_id']) for each in part.entries])
        self.assertIsNone(part.next_marker)

    def test_images_of_contents(self):
        part = self.holdings(4, kind=objects.IMAGES)
        self.assertEqual([['t0'], ['t1'], ['t2'], []],
                         [each['images'] for each in part.entries])

    def test_a_plan_that_does_not_exist(self):
        self.assertRaises(exceptions.NotFound, self.holdings,
                          not_in_plan='x')
