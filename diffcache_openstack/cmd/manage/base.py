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
"""Base classes of the commands of ``diffcache-manage``."""

import contextlib
import textwrap
import typing

from cliff import command
from cliff.formatters import table
from cliff import lister
from cliff import show
from oslo_config import cfg

from diffcache_openstack.cmd.manage import app
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.db import engine
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_api


# Longer lines of a table are wrapped.
_COLUMNS = 64


class Command(cli.Command, command.Command):
    """A command that may need the database or the broker."""

    app: app.Manage

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The loaded configuration."""
        return self.app.conf

    def need_database(self) -> None:
        """Refuse to create a database by looking at it.

        :raises PermanentError: there is none
        """
        if path := engine.missing_file(self.conf):
            raise exceptions.PermanentError(
                f'There is no database {path}; set [database] connection to'
                f' that of the conductors, or run'
                f' "diffcache-manage db sync" to create it.')

    @contextlib.contextmanager
    def database(self) -> typing.Iterator[engine.Database]:
        """Open the database for as long as the block runs.

        :raises PermanentError: it cannot be used, or there is none
        """
        self.need_database()
        # A person waits: no attempts for minutes, as services make.
        database = engine.Database(self.conf, max_retries=0)
        with engine.errors_explained(self.conf):
            try:
                yield database
            finally:
                database.close()

    @contextlib.contextmanager
    def bus(self) -> typing.Iterator[messaging.Bus]:
        """Open the message bus for as long as the block runs."""
        bus = buses.open_bus(self.conf, host_keys.CONTROLLER)
        try:
            yield bus
        finally:
            bus.close()

    @contextlib.contextmanager
    def conductor(self) -> typing.Iterator[conductor_api.ConductorAPI]:
        """Open a client of the conductor for as long as the block runs."""
        with self.bus() as bus:
            yield conductor_api.ConductorAPI(bus, self.conf)

    def need_live_host(self, name: str) -> None:
        """Refuse a host at once that would be waited for in vain.

        :raises NotFound: the host is not registered
        :raises ServiceUnavailable: it does not report
        """
        with self.database() as database:
            database.read(host_rows.need_live_host, name)

    @contextlib.contextmanager
    def agents(self) -> typing.Iterator[agent_api.AgentAPI]:
        """Open a client of all agents for as long as the block runs."""
        with self.bus() as bus:
            yield agent_api.AgentAPI(bus, self.conf)


class HostArgument(Command):
    """A command about one host."""

    arguments = (cli.Argument('host', metavar='HOST',
                              help='Name of the host.'),)


class Lister(Command, cli.Columns, lister.Lister):
    """A command that prints a table."""

    def text(self, line: str) -> str:
        """Format a long line: wrapped in a table, as it is otherwise."""
        if isinstance(self.formatter, table.TableFormatter):
            return textwrap.fill(line, _COLUMNS)
        return line


class ShowOne(Command, cli.Columns, show.ShowOne):
    """A command that prints the fields of one resource."""


def service_context() -> contexts.RequestContext:
    """Return the context of the administrator's calls."""
    return contexts.RequestContext.for_service(app.Manage.NAME)


def fields(resource: typing.Any) -> tuple[tuple, tuple]:
    """Return the names and the values of a versioned object's fields."""
    values = {name: getattr(resource, name)
              for name in sorted(resource.fields)}
    return tuple(values), tuple(
        value.isoformat() if hasattr(value, 'isoformat') else value
        for value in values.values())
