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
"""How MariaDB finds rows for the statements of conductor and API.

Tables that grow with use are filled; the statements are those that are sent
while the conductor does the work of its timers, answers agents and lists.
"""

import datetime
import uuid

import sqlalchemy as sa

from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.versions import policies as version_policies
from diffcache_openstack.db.versions import server_versions
from diffcache_openstack.db.versions import tasks
from diffcache_openstack.db.views import host_views
from diffcache_openstack.db.views import image_views
from diffcache_openstack.db.views import plan_views
from diffcache_openstack.db.views import request_views
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from diffcache_openstack.planning import site_state
from diffcache_openstack.remote_calls import conductor_costs_api
from tests.functional.services import test_database
from tests.unit.conductor.endpoints import test_agents
from tests.unit.conductor import test_heartbeats
from tests.unit.db import database

ROWS = 15_000
# Rows that one statement may look at without an index that finds them.
FEW = 1000
SERVERS = PROJECTS = 50
_VERBS = ('SELECT', 'UPDATE', 'DELETE')


def filler(column: sa.Column, number: int):
    """A value of a column that takes no null."""
    if isinstance(column.type, sa.types.TypeDecorator):
        return versioned.now() - datetime.timedelta(seconds=number)
    return column.type.python_type(
        number if isinstance(column.type, sa.String) else 0)


def rows(model: type[models.Base], **given):
    """Rows of a table; functions of their number give values of columns."""
    table = model.__table__
    return [{column.name: given[column.name](number)
             if column.name in given else filler(column, number)
             for column in table.columns
             if column.name in given or not column.nullable}
            for number in range(ROWS)]


def name(prefix: str, count: int = ROWS):
    """A function that gives one of this many names."""
    return lambda number: f'{prefix}{number % count}'


class MariaDBTest(test_database.OnMariaDB, database.DatabaseTest):
    """Has a database on the server."""


class TestHeartbeats(test_heartbeats.TestCosts, MariaDBTest):
    """Statements are as few as with SQLite."""

    def prepare(self):
        if not hasattr(self, 'keys'):
            super().prepare()


class TestStatements(test_agents.ConductorTest, MariaDBTest):
    """No statement reads all of a table that grows."""

    CHECK_INTERVAL = 3600

    def setUp(self):
        super().setUp()
        self.register(1)
        self.fill()

    def fill(self):
        """Put in what use leaves: nothing of it waits for work."""
        # Not the time of the import: messages are old after minutes.
        now = versioned.now()
        with self.database.engine.begin() as connection:
            host = connection.scalar(sa.select(models.Host.id))
            filled = {
                models.Request: rows(
                    models.Request, host=name('h', 20), site=name('s', 5),
                    image_id=name('t', 100)),
                models.ServerVersion: rows(
                    models.ServerVersion, server_id=name('server-', SERVERS),
                    project_id=name('p', PROJECTS),
                    state=lambda _: versions.AVAILABLE,
                    disks=lambda _: '[]', volume_metadata=lambda _: '{}'),
                models.VersionTask: rows(
                    models.VersionTask, server_id=name('server-', SERVERS),
                    version_id=str, project_id=name('p', PROJECTS),
                    state=lambda _: versions.DONE, task=lambda _: '{}',
                    result=lambda _: '{}'),
                models.Message: rows(models.Message,
                                     accepted_at=lambda _: now),
                models.MapChange: rows(
                    models.MapChange, site=name('s', 5),
                    generation=lambda number: number,
                    id=lambda number: 10 ** 6 + number),
                models.Holding: rows(
                    models.Holding, host_id=lambda _: host,
                    kind=lambda _: objects.IMAGES, object_id=database.content),
                models.Image: rows(
                    models.Image, id=name('i'), content_id=database.content,
                    status=lambda _: 'active', disk_format=lambda _: 'raw',
                    visibility=lambda _: 'public'),
                models.Plan: rows(
                    models.Plan, id=lambda number: number + 1,
                    uuid=str, site=lambda _: database.SITE,
                    state=lambda _: 'old',
                    generation=lambda number: number + 1,
                    created_at=lambda _: now)}
            for model, values in filled.items():
                connection.execute(sa.insert(model), values)
            connection.execute(sa.text('ANALYZE TABLE ' + ', '.join(
                model.__tablename__ for model in filled))).all()
        self.grown = {model.__tablename__ for model in filled}

    def explained(self, *calls):
        """Rows of EXPLAIN for the statements that calls send."""
        sent = []

        def note(_connection, _cursor, statement, parameters, *_rest):
            if statement.startswith(_VERBS):
                sent.append((statement, parameters))

        used = [self.database.engine, self.conductor._database.engine]
        for each in used:
            sa.event.listen(each, 'before_cursor_execute', note)
        for call in calls:
            call()
        for each in used:
            sa.event.remove(each, 'before_cursor_execute', note)
        self.assertNotEqual([], sent)
        with self.database.engine.connect() as connection:
            return [(statement, dict(row)) for statement, parameters in sent
                    for row in connection.exec_driver_sql(
                        f'EXPLAIN {statement}', parameters).mappings()]

    def assert_found_by_index(self, *calls):
        read = [(row['table'], row['rows'], row['key'], statement)
                for statement, row in self.explained(*calls)
                if row['table'] in self.grown
                and row['type'] in ('ALL', 'index')
                and int(row['rows'] or 0) > FEW]
        self.assertEqual([], read)

    def test_timers(self):
        conductor = self.conductor
        self.assert_found_by_index(
            conductor._check_hosts, conductor._plan_due_sites,
            conductor._precache, conductor._look_after_versions,
            conductor._tidy_ledger)

    def test_policies(self):
        """Rounds of which each finds a project's servers, or what changed."""
        upkeep = self.conductor._version_upkeep
        self.database.write(version_policies.put, objects.VersionPolicy(
            id=str(uuid.uuid4()), project_id='p1', keep_last=ROWS),
            versioned.now())
        self.assert_found_by_index(upkeep.round)
        with self.database.engine.begin() as connection:
            connection.execute(
                sa.update(models.ServerVersion).values(
                    updated_at=versioned.now())
                .where(models.ServerVersion.server_id == 'server-1'))
        self.assert_found_by_index(upkeep.round, upkeep.tidy)

    def test_planner(self):
        # It considers all images, and what all hosts of the site hold.
        self.grown -= {'images', 'holdings'}
        self.assert_found_by_index(
            lambda: self.database.read(site_state.read, database.SITE,
                                       self.conf),
            lambda: self.database.read(plans.current_plan, database.SITE),
            lambda: self.database.write(plans.prune, database.SITE, 20),
            lambda: self.database.read(
                plans.lacked_by, database.host('h1', plan_generation=7)))

    def test_costs(self):
        self.conductor._maps.view(database.SITE)
        costs = conductor_costs_api.CostsAPI(self.bus, 60)
        self.assert_found_by_index(
            lambda: costs.build_costs(self.ctxt, 't1', ['h1']),
            lambda: costs.lazy_costs(self.ctxt, 't1', ['h1']),
            lambda: costs.ssd_room(self.ctxt, 'server-1', ['h1']))

    def test_calls_of_agents(self):
        def call(method, *arguments):
            return lambda: getattr(self.api, method)(self.ctxt, *arguments)

        held = [database.holding(number) for number in range(3)]
        self.assert_found_by_index(
            call('register_host', database.host('h1')),
            # Those that were filled in are not counted.
            call('change_holdings', 'h1', [database.holding(ROWS)], [], 1,
                 50),
            call('report_fills', 'h1', []),
            call('report_requests', [database.request(1)]),
            call('report_borrowed', 'h1', held))

    def test_lists(self):
        viewer, page = listing.Viewer('p1', False), listing.Page(100)
        look = self.database.look
        hour = {'since': versioned.now() - datetime.timedelta(hours=1)}
        self.assert_found_by_index(
            lambda: look(server_versions.list_versions, viewer, {}, page),
            lambda: look(tasks.list_tasks, viewer, {}, page),
            lambda: look(version_policies.list_policies, viewer, {}, page),
            lambda: look(image_views.list_images, viewer, {}, page),
            lambda: look(host_views.list_objects, 'h1', {}, page),
            lambda: look(plan_views.list_plans, {'site': database.SITE}, page),
            lambda: look(request_views.list_requests, hour, page))
