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
"""Transactions on the database that a configuration names."""

import collections.abc
import contextlib
import os
import typing

from oslo_config import cfg
from oslo_db import api as db_api
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import enginefacade
import sqlalchemy as sa

from diffcache_openstack.common import exceptions

Result = typing.TypeVar('Result')

# Options of oslo.db that its engine takes as they are.
_ENGINE_OPTIONS = (
    'slave_connection', 'sqlite_synchronous', 'mysql_sql_mode',
    'mysql_wsrep_sync_wait', 'connection_recycle_time', 'connection_debug',
    'max_pool_size', 'max_overflow', 'pool_timeout', 'connection_trace',
    'max_retries', 'retry_interval', 'connection_parameters')


# SQLite lets one transaction write at a time. One that wants to write after it
# has read, while another one writes, is turned away at once; one that begins
# with a write waits for its turn. This write changes nothing.
_BECOME_WRITER = sa.text('UPDATE sites SET name = name WHERE 0 = 1')

# In what is noted of a connection: no transaction was begun since the last.
_ENDED = 'diffcache_ended'


def _let_readers_pass(engine: sa.Engine) -> None:
    """Enable SQLite's write-ahead log, so that readers can continue."""
    # Errors of this one are SQLAlchemy's; those of the next are the driver's.
    engine.connect().close()
    connection = engine.raw_connection()
    try:
        connection.cursor().execute('PRAGMA journal_mode=WAL')
    finally:
        connection.close()


def _end_once(engine: sa.Engine) -> None:
    """Have no transaction rolled back that was ended already.

    SQLAlchemy does so with each connection that returns to the pool, which is
    a round trip to the server for nothing. It has an option to never do it,
    and none for this.
    """
    dialect = engine.dialect
    begin, commit, roll_back = (dialect.do_begin, dialect.do_commit,
                                dialect.do_rollback)

    def do_begin(connection):
        _noted(connection).pop(_ENDED, None)
        begin(connection)

    def do_commit(connection):
        commit(connection)
        _noted(connection)[_ENDED] = True

    def do_rollback(connection):
        if _ENDED not in _noted(connection):
            roll_back(connection)
            _noted(connection)[_ENDED] = True

    for function in (do_begin, do_commit, do_rollback):
        setattr(dialect, function.__name__, function)
    # For what uses the driver without beginning a transaction.
    sa.event.listen(engine, 'checkout', lambda _driver, entry, _connection:
                    entry.record_info.pop(_ENDED, None))


def _noted(connection):
    """Return what was noted of a connection; one without a pool has none."""
    found = connection.record_info
    return {} if found is None else found


@enginefacade.transaction_context_provider
class _Scope:
    """Carries one transaction; oslo.db wants an object to hang it on."""


def _is_race(error: Exception) -> bool:
    """Return whether two transactions conflicted.

    They inserted the same row: the functions of :mod:`api` look before they
    insert, so running the loser again finds the winner's row. Or both wanted
    to write to SQLite after reading, which it refuses one of them at once.
    """
    locked = (isinstance(error, sa.exc.OperationalError)
              and 'database is locked' in str(error))
    return locked or isinstance(error, db_exception.DBDuplicateEntry)


@contextlib.contextmanager
def errors_explained(conf: cfg.ConfigOpts) -> collections.abc.Iterator[None]:
    """Convert errors of the database to ones with a next step.

    Errors of oslo.db and SQLAlchemy become errors of this suite.

    :raises ServiceUnavailable: the server does not answer
    :raises PermanentError: it does, and refuses
    """
    try:
        yield
    except db_exception.DBNonExistentTable as error:
        raise exceptions.PermanentError(
            'The database has no schema yet; run "diffcache-manage db'
            ' sync".') from error
    except db_exception.DBConnectionError as error:
        raise exceptions.ServiceUnavailable(
            f'The database {_address(conf)} does not answer:'
            f' {_reason(error)}; check that the server runs, and [database]'
            f' connection.') from error
    except (db_exception.DBError, sa.exc.SQLAlchemyError) as error:
        raise exceptions.PermanentError(
            f'The database {_address(conf)} cannot be used:'
            f' {_reason(error)}; check [database] connection.') from error


def missing_file(conf: cfg.ConfigOpts) -> str | None:
    """Return the file of SQLite that connecting would create, if any."""
    path = conf.database.connection.removeprefix('sqlite:///')
    missing = path != conf.database.connection and path \
        and not os.path.exists(path) and os.path.isdir(os.path.dirname(path))
    return path if missing else None


def _address(conf: cfg.ConfigOpts) -> str:
    # The part before the at sign may be a password.
    return conf.database.connection.rsplit('@', 1)[-1]


def _reason(error: Exception) -> str:
    inner = getattr(error, 'inner_exception', None) or error
    return str(inner).splitlines()[0]


class Database:
    """Runs functions as transactions, again when they lost a race.

    A function may therefore run several times; it must have no effect beside
    the session it is given as its first argument.
    """

    def __init__(self, conf: cfg.ConfigOpts, max_retries: int | None = None):
        """Prepare; the first transaction connects.

        :param max_retries: attempts of the first connection, instead of
            ``[database] max_retries``; with 0 its first failure is raised
        """
        self._facade = enginefacade.transaction_context()
        self._facade.append_on_engine_create(_end_once)
        self._is_sqlite = conf.database.connection.startswith('sqlite')
        if self._is_sqlite:
            self._facade.append_on_engine_create(_let_readers_pass)
        options = {name: conf.database[name] for name in _ENGINE_OPTIONS}
        if max_retries is not None:
            options['max_retries'] = max_retries
        self._facade.configure(
            connection=conf.database.connection, sqlite_fk=True, **options)
        retry = db_api.wrap_db_retry(
            max_retries=12, retry_interval=0.02, max_retry_interval=1.0,
            inc_retry_interval=True, jitter=True, retry_on_deadlock=True,
            retry_on_disconnect=True, exception_checker=_is_race)
        self._retried_write = retry(self._write)
        self._retried_read = retry(self._read)
        self._retried_look = retry(self._look)

    @property
    def engine(self) -> sa.Engine:
        """The engine that writes, for migrations."""
        return self._facade.writer.get_engine()

    def write(self, function: collections.abc.Callable[..., Result],
              *args: typing.Any) -> Result:
        """Run ``function(session, *args)`` in a transaction that may write.

        :raises oslo_db.exception.DBError: the database refused, or is gone
        """
        return self._retried_write(function, args)

    def read(self, function: collections.abc.Callable[..., Result],
             *args: typing.Any) -> Result:
        """Run ``function(session, *args)`` in a transaction that only reads.

        :raises oslo_db.exception.DBError: the database is gone
        """
        return self._retried_read(function, args)

    def look(self, function: collections.abc.Callable[..., Result],
             *args: typing.Any) -> Result:
        """Run ``function(connection, *args)``, which selects columns only.

        Cheaper than :meth:`read`: no session tracks objects that are
        not needed.

        :raises oslo_db.exception.DBError: the database is gone
        """
        return self._retried_look(function, args)

    def close(self) -> None:
        """Close the connections that are idle."""
        self._facade.dispose_pool()

    def _write(self, function, args):
        with self._facade.writer.using(_Scope()) as session:
            if self._is_sqlite:
                session.execute(_BECOME_WRITER)
            return function(session, *args)

    def _read(self, function, args):
        with self._facade.reader.using(_Scope()) as session:
            return function(session, *args)

    def _look(self, function, args):
        with self._facade.reader.get_engine().connect() as connection:
            return function(connection, *args)
