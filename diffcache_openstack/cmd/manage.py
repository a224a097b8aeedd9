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
"""``diffcache-manage``: the operator's tool, beside the conductor.

Commands are entry points of the namespace ``diffcache.manage``. What only
looks reads the database and works while every service is down; what makes
services act goes over the message broker. A failure is one line on standard
error and exit code 1, wrong usage is exit code 2.
"""

import argparse
import contextlib
import importlib.metadata
import logging
import sys
import typing

from cliff import app
from cliff import command
from cliff import commandmanager
from oslo_config import cfg

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.objects import base
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import conductor_api

NAMESPACE = 'diffcache.manage'

_DESCRIPTION = 'Look after a DiffCache deployment.'


class Manage(app.App):
    """The ``diffcache-manage`` command line."""

    NAME = 'diffcache-manage'
    LOG = logging.getLogger('diffcache-manage')
    CONSOLE_MESSAGE_FORMAT = f'{NAME}: %(levelname)s: %(message)s'

    conf: cfg.ConfigOpts

    def __init__(self) -> None:
        super().__init__(
            description=_DESCRIPTION,
            version=importlib.metadata.version('diffcache-openstack'),
            command_manager=commandmanager.CommandManager(NAMESPACE),
            deferred_help=True)

    def build_option_parser(self, description, version,
                            argparse_kwargs=None):
        """The options that stand before the command."""
        parser = super().build_option_parser(description, version,
                                             argparse_kwargs)
        parser.add_argument(
            '--config-file', action='append', default=[], metavar='FILE',
            help='Configuration to read; may be given several times. '
                 'Default: diffcache.conf where services look for it.')
        return parser

    def initialize_app(self, argv: list[str]) -> None:
        """Read the configuration before a command runs."""
        # The libraries' progress is for the services' logs.
        for name in ('alembic', 'oslo_db'):
            logging.getLogger(name).setLevel(logging.ERROR)
        arguments = [word for path in self.options.config_file
                     for word in ('--config-file', path)]
        self.conf = opts.new_config(arguments)

    def clean_up(self, cmd, result, err) -> None:
        """Nothing is left to do after a command."""


class Command(command.Command):
    """A command that may need the database or the broker."""

    app: Manage

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration in force."""
        return self.app.conf

    @contextlib.contextmanager
    def database(self) -> typing.Iterator[engine.Database]:
        """The database, for as long as the block runs.

        :raises PermanentError: it cannot be used
        """
        database = engine.Database(self.conf)
        with engine.errors_explained(self.conf):
            try:
                yield database
            finally:
                database.close()

    @contextlib.contextmanager
    def bus(self) -> typing.Iterator[messaging.Bus]:
        """The message bus, for as long as the block runs."""
        bus = messaging.Bus(self.conf, base.Serializer())
        try:
            yield bus
        finally:
            bus.close()

    @contextlib.contextmanager
    def conductor(self) -> typing.Iterator[conductor_api.ConductorAPI]:
        """A client of the conductor."""
        with self.bus() as bus:
            yield conductor_api.ConductorAPI(bus, self.conf)

    @contextlib.contextmanager
    def agents(self) -> typing.Iterator[agent_api.AgentAPI]:
        """A client of all agents."""
        with self.bus() as bus:
            yield agent_api.AgentAPI(bus, self.conf)


def service_context() -> contexts.RequestContext:
    """The context of the operator's calls."""
    return contexts.RequestContext.for_service(Manage.NAME)


class DbSync(Command):
    """Create the database's schema, or bring it up to date."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'revision', nargs='?', default='head',
            help='Revision to stop at. Default: the newest.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Run the missing migrations."""
        with engine.errors_explained(self.conf):
            before = migration.current(self.conf)
            migration.upgrade(self.conf, parsed_args.revision)
            after = migration.current(self.conf)
        self.app.stdout.write(
            f'Database is at revision {after}, was at {before or "none"}.\n')


class DbVersion(Command):
    """Show the schema's revision; exit with 1 unless it is the newest."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Compare the database's revision with the code's."""
        with engine.errors_explained(self.conf):
            current = migration.current(self.conf)
        self.app.stdout.write(f'{current or "none"}\n')
        if current == migration.head():
            return 0
        self.app.LOG.error(
            'This version needs revision %s; run "diffcache-manage db sync".',
            migration.head())
        return 1


def main() -> int:
    """Run one command."""
    return Manage().run(sys.argv[1:])
