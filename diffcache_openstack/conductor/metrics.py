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
"""What monitoring reads of a conductor: the state of the database.

Each conductor returns the same values. The number of series grows with hosts
and sites, not with images.
"""

import collections.abc
import datetime
import typing

from oslo_db import exception as db_exc
from oslo_log import log
from prometheus_client import registry as registries
import sqlalchemy.exc

from diffcache_openstack.db import engine
from diffcache_openstack.db import listing
from diffcache_openstack.db.versions import stores
from diffcache_openstack.db.views import monitoring_views
from diffcache_openstack.db.views import plan_views
from diffcache_openstack.db.views import site_views
from diffcache_openstack.objects import versioned
from diffcache_openstack.runtime import metrics

LOG = log.getLogger(__name__)

_DATABASE_ERRORS = (db_exc.DBError, sqlalchemy.exc.SQLAlchemyError)
_COUNTED: tuple[tuple[str, str, str, collections.abc.Callable], ...] = (
    ('images', 'status', 'Images of the catalogue.',
     monitoring_views.image_counts),
    ('pending_images', 'state', 'Images that a repository could not add yet.',
     monitoring_views.pending_image_counts),
    ('precache_jobs', 'state', 'Precache jobs that are kept.',
     monitoring_views.precache_job_counts),
    ('profiles', 'origin', 'Profiles of images: of what servers read, or'
     ' carried from similar images.', monitoring_views.profile_counts),
    ('version_tasks', 'state', 'Tasks on versions of servers.',
     monitoring_views.version_task_counts))
_PLAN = (
    ('cost_s', 'plan_cost_seconds_per_day', 'Expected time that requests'
     ' wait, by the current plan.'),
    ('lower_bound_s', 'plan_bound_seconds_per_day', 'What no plan can do'
     ' better than.'),
    ('objects', 'plan_objects', 'Objects of the current plan.'),
    ('held_objects', 'plan_held_objects', 'Of these, objects that their hosts'
     ' hold.'),
    ('bytes', 'plan_bytes', 'Bytes of the current plan.'),
    ('held_bytes', 'plan_held_bytes', 'Of these, bytes that their hosts'
     ' hold.'))


class DatabaseCollector(registries.Collector):
    """Reads the database at each scrape.

    While the database does not answer, ``diffcache_database_up`` is 0 and all
    else is missing.
    """

    def __init__(self, database: engine.Database) -> None:
        self._database = database

    def describe(self) -> list[registries.Metric]:
        """Return nothing: the names are known when values are."""
        return []

    def collect(self) -> collections.abc.Iterable[registries.Metric]:
        """Return all values."""
        try:
            found = self._database.look(_values)
        except _DATABASE_ERRORS as error:
            LOG.warning('Could not read the database for metrics: %s', error)
            found = metrics.Families()
        return _with_database(found)

    def problems(self) -> list[str]:
        """Return why the conductor cannot work; nothing if it can."""
        try:
            self._database.look(monitoring_views.site_names)
        except _DATABASE_ERRORS as error:
            return [f'The database does not answer: {error}']
        return []


def _with_database(found):
    up = bool(list(found))
    found.gauge('database_up', 'Whether the database answered.', up)
    return found


def _values(session: listing.Reader) -> metrics.Families:
    found = metrics.Families()
    for host in monitoring_views.hosts(session):
        labels = {'host': host['name'], 'site': host['site'],
                  'role': host['role']}
        found.gauge('host_alive', 'Whether the host sends heartbeats.',
                    host['alive'], **labels)
        found.gauge('host_seen_timestamp_seconds', 'Time of the last'
                    ' heartbeat.', _timestamp(host['seen_at']), **labels)
    for name, label, text, count in _COUNTED:
        for value, number in count(session).items():
            found.gauge(name, text, number, **{label: value})
    found.gauge('patches', 'Patches of the catalogue.',
                monitoring_views.patch_count(session))
    if lag := stores.lag(session):
        found.gauge('version_copy_lag_versions', 'Versions that the copies of'
                    ' stores lack.', lag['versions'])
        found.gauge('version_copy_lag_bytes', 'Bytes that were stored for'
                    ' them.', lag['bytes'])
        found.gauge('version_copy_lag_seconds', 'Time since the oldest of them'
                    ' was saved; 0 if there is none.',
                    _age(lag['oldest']))
    for site in monitoring_views.site_names(session):
        _add_site(session, site, found)
    return found


def _add_site(session: listing.Reader, site: str, found: metrics.Families
              ) -> None:
    entry = site_views.get_site(session, site)
    found.gauge('site_capacity_bytes', 'Capacity of the caches of living'
                ' hosts.', entry['hosts']['capacity'], site=site)
    found.gauge('site_map_latest_generation', 'Generation of the site map that'
                ' hosts should have.', entry['map_generation'], site=site)
    for kind, held in site_views.held_bytes(session, site).items():
        found.gauge('site_objects', 'Objects on living hosts, copies'
                    ' counted each.', held['objects'], site=site, kind=kind)
        found.gauge('site_object_bytes', 'Bytes of objects on living hosts.',
                    held['bytes'], site=site, kind=kind)
    plan = plan_views.current_fill(session, site)
    if plan is not None:
        for key, name, text in _PLAN:
            found.gauge(name, text, plan[key], site=site)


def _age(instant: str | None) -> float:
    if instant is None:
        return 0.0
    since = datetime.datetime.fromisoformat(instant)
    return max(0.0, (versioned.now() - since).total_seconds())


def _timestamp(instant: typing.Any) -> float:
    return instant.replace(tzinfo=datetime.UTC).timestamp()
