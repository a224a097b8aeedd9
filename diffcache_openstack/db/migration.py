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
"""Bringing a database to the schema that this code expects."""

import functools
import logging
import pathlib
import time

from alembic import command
from alembic import config as alembic_config
from alembic.runtime import migration
from alembic import script as alembic_script
from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import engine as engines

LOG = logging.getLogger(__name__)

_SCRIPTS = pathlib.Path(__file__).parent / 'migrations'
# Revisions are numbers. Within a series, the code of earlier ones works on
# the schema of later ones; a migration that it would not work with begins the
# next series, at the next multiple of this.
_SERIES = 1000


def _config() -> alembic_config.Config:
    config = alembic_config.Config()
    config.set_main_option('script_location', str(_SCRIPTS))
    # Read by alembic to split paths; the default differs per platform.
    config.set_main_option('path_separator', 'os')
    return config


@functools.cache
def _scripts() -> alembic_script.ScriptDirectory:
    """Return the migrations, which do not change while a process runs."""
    return alembic_script.ScriptDirectory.from_config(_config())


def head() -> str | None:
    """Return the revision that this code expects; None before the first."""
    return _scripts().get_current_head()


def is_known(revision: str) -> bool:
    """Return whether this code has the migration to a revision."""
    return revision in {each.revision for each in _scripts().walk_revisions()}


def accepts(revision: str | None) -> bool:
    """Return whether this code works on the schema of a revision.

    It does on its own, and on those of later releases that only add to it, so
    that services can be upgraded one after the other, and back.

    :param revision: of a database; None without schema
    """
    expected = head()
    if revision is None or expected is None or is_known(revision):
        return revision == expected
    return revision.isdigit() and int(revision) > int(expected) \
        and int(revision) // _SERIES == int(expected) // _SERIES


def current(conf: cfg.ConfigOpts, max_retries: int | None = None
            ) -> str | None:
    """Return the revision of the database; None if it has no schema yet.

    :param max_retries: see :class:`.engine.Database`
    :raises oslo_db.exception.DBError: the database cannot be reached
    """
    if engines.missing_file(conf):
        return None
    database = engines.Database(conf, max_retries)
    try:
        with database.engine.connect() as connection:
            context = migration.MigrationContext.configure(connection)
            return context.get_current_revision()
    finally:
        database.close()


def check_schema(conf: cfg.ConfigOpts) -> None:
    """Check that the database has a schema that this code works on.

    :raises PermanentError: it has none or an unusable one, or refuses
    :raises ServiceUnavailable: its server does not answer
    """
    with engines.errors_explained(conf):
        found, expected = current(conf, max_retries=0), head()
    if not accepts(found):
        raise exceptions.PermanentError(
            f'The database is at revision {found or "none"}, this'
            f' version needs {expected}; run "diffcache-manage db sync".')
    if found != expected:
        LOG.warning('The database is at revision %s, of a newer release than'
                    ' this service (%s); upgrade this service, too', found,
                    expected)


def wait_for_schema(conf: cfg.ConfigOpts) -> None:
    """Wait until the database answers, and check its schema.

    Attempts are ``[database] retry_interval`` seconds apart and do not end: a
    service may be started before its database.

    :raises PermanentError: the database has another schema, or refuses
    """
    pause = conf.database.retry_interval
    while True:
        try:
            check_schema(conf)
            return
        except exceptions.RetryableError as error:
            LOG.warning('Waiting for the database, next attempt in %d s: %s',
                        pause, error)
        time.sleep(pause)


def upgrade(conf: cfg.ConfigOpts, revision: str = 'head') -> None:
    """Run the migrations that are missing up to a revision.

    :raises oslo_db.exception.DBError: the database cannot be reached
    :raises alembic.util.CommandError: the revision does not exist
    """
    database = engines.Database(conf)
    config = _config()
    try:
        with database.engine.begin() as connection:
            config.attributes['connection'] = connection
            command.upgrade(config, revision)
    finally:
        database.close()
