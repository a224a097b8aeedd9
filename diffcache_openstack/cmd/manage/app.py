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
"""``diffcache-manage``, the administrator's tool on a controller.

Commands are entry points of the namespace ``diffcache.manage``. Commands that
only show something read the database and work while every service is down;
commands that change something in a service call it over the message broker.
"""

import functools
import logging
import sys
import typing

from oslo_config import cfg

from diffcache_openstack.cmd import console
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts

# The program of an agent, after which its own file is named.
_AGENT = 'diffcache-agent'


class Manage(console.Console):
    """The ``diffcache-manage`` command line."""

    NAME = 'diffcache-manage'
    NAMESPACE = 'diffcache.manage'
    DESCRIPTION = 'Administer a DiffCache deployment.'
    LOG = logging.getLogger(NAME)

    def build_option_parser(self, *args: typing.Any, **kwargs: typing.Any
                            ) -> typing.Any:
        """Build the parser of the options that stand before the command."""
        parser = super().build_option_parser(*args, **kwargs)
        parser.add_argument(
            '--config-file', action='append', default=[], metavar='FILE',
            help='Configuration file to read; may be repeated (default: '
                 'diffcache.conf where the services look for it).')
        return parser

    def configure_logging(self) -> None:
        """Keep the libraries' progress off the console."""
        super().configure_logging()
        logging.getLogger('alembic').setLevel(logging.ERROR)
        # What it logs as an error, it raises as well.
        logging.getLogger('oslo_db').setLevel(logging.CRITICAL)

    @functools.cached_property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration, read when a command first needs it.

        :raises InvalidInput: it cannot be read
        """
        return self._read()

    @functools.cached_property
    def agent_conf(self) -> cfg.ConfigOpts:
        """The configuration of this machine's agent.

        It has a file of its own where a controller's is there, too.

        :raises InvalidInput: it cannot be read
        """
        return self._read(cfg.find_config_files(opts.PROJECT, _AGENT))

    def _read(self, files: list[str] | None = None) -> cfg.ConfigOpts:
        """Read the files of the command line, or those given."""
        arguments = [word for path in self.options.config_file
                     for word in ('--config-file', path)]
        try:
            return opts.new_config(arguments, files)
        except cfg.Error as error:
            raise exceptions.InvalidInput(str(error)) from error


def main() -> int:
    """Run one command; return the process's exit code."""
    return Manage().run(sys.argv[1:])
