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
"""Base of the programs ``diffcache`` and ``diffcache-manage``.

Their commands are entry points. A command that fails prints one line on
stderr and exits 1; a command line that cannot be understood exits 2;
``--debug`` shows the traceback. The modules behind the commands are imported
only when one of them runs, so that help is quick.
"""

import argparse
import importlib.metadata
import logging
import sys
from typing import Any

from cliff import app
from cliff import command
from cliff import commandmanager
from cliff import complete
from cliff import help as cliff_help

from diffcache_openstack.common.commands import command_groups
from diffcache_openstack.common import exceptions

_USAGE_ERROR = 2


class _ConsoleFormatter(logging.Formatter):
    """Formats an error as one line: program, what is wrong, what to do."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno < logging.ERROR:
            return text
        cause = record.msg
        if (isinstance(cause, Exception)
                and not isinstance(cause, exceptions.DiffCacheError)):
            text = (f'{type(cause).__name__}: {text} (unexpected; run with'
                    f' --debug for the traceback)')
        return f'{self._program}: error: {text}'


class CommandManager(commandmanager.CommandManager):
    """Finds commands and groups of commands without importing modules."""

    def load_commands(self, namespace: str) -> None:
        """Add the commands of this distribution's entry points."""
        self.group_list.append(namespace)
        # Looking through all distributions would take longer than many a
        # command.
        ours = importlib.metadata.distribution('diffcache-openstack')
        for entry in ours.entry_points.select(group=namespace):
            self.commands[entry.name.replace('_', ' ')] = entry

    def find_command(self, argv: list[str]
                     ) -> tuple[type[command.Command], str, list[str]]:
        """Return the command, or the group, that a command line begins with.

        :raises ValueError: there is neither
        """
        try:
            return super().find_command(argv)
        except ValueError:
            count = self._get_last_possible_command_index(argv)
            for length in range(count, 0, -1):
                if command_groups.members(self.commands, argv[:length]):
                    return (command_groups.Group, ' '.join(argv[:length]),
                            argv[length:])
            raise


class _Help(cliff_help.HelpCommand):
    """Print help for a command or a group of commands."""

    app: 'Console'

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        if not parsed_args.cmd:
            self.app.print_help()
            return 0
        return self.app.run_subcommand([*parsed_args.cmd, '--help'])


class _Complete(complete.CompleteCommand):
    """Print the script that completes commands in a shell."""


class Console(app.App):
    """A command line program."""

    NAMESPACE: str
    DESCRIPTION: str

    def __init__(self) -> None:
        super().__init__(
            description=self.DESCRIPTION,
            version=importlib.metadata.version('diffcache-openstack'),
            command_manager=CommandManager(self.NAMESPACE))
        self.command_manager.add_command('help', _Help)
        self.command_manager.add_command('complete', _Complete)

    def print_help(self) -> None:
        """Print the options and the commands to standard output."""
        commands = self.command_manager.commands
        self.parser.print_help(self.stdout)
        self.stdout.write(
            f'\n{command_groups.listing(commands, sorted(commands))}\n')

    def build_option_parser(self, description: str | None,
                            version: str | None,
                            argparse_kwargs: dict[str, Any] | None = None
                            ) -> argparse.ArgumentParser:
        """Build the parser of the options that stand before the command."""
        parser = argparse.ArgumentParser(
            prog=self.NAME, description=description, add_help=False,
            usage='%(prog)s [options] COMMAND ...')
        parser.add_argument(
            '-h', '--help', action='store_true', dest='help_wanted',
            help='Show this help, or that of COMMAND, and exit.')
        parser.add_argument(
            '--version', action='version', version=f'{self.NAME} {version}',
            help='Show the version and exit.')
        verbosity = parser.add_mutually_exclusive_group()
        verbosity.add_argument(
            '-v', '--verbose', action='count', dest='verbose_level',
            default=self.DEFAULT_VERBOSE_LEVEL,
            help='Log more; may be repeated.')
        verbosity.add_argument(
            '-q', '--quiet', action='store_const', dest='verbose_level',
            const=0, help='Log only warnings and errors, and show no '
            'progress bar.')
        parser.add_argument(
            '--log-file', metavar='FILE', help='Log to this file as well.')
        parser.add_argument(
            '--debug', action='store_true', default=False,
            help='Show the traceback of an error.')
        return parser

    def configure_logging(self) -> None:
        """Send errors to standard error, one line each."""
        try:
            super().configure_logging()
        except OSError as error:
            self.parser.error(f'argument --log-file: {self.options.log_file}:'
                              f' {error.strerror}; choose another file')
        for handler in logging.getLogger('').handlers:
            if handler.formatter is not None and not isinstance(
                    handler, logging.FileHandler):
                handler.setFormatter(_ConsoleFormatter(self.NAME))

    def initialize_app(self, argv: list[str]) -> None:
        """Refuse a command line without a command."""
        if argv:
            return
        if self.options.help_wanted:
            self.print_help()
            raise cliff_help.HelpExit()
        self.parser.print_usage(self.stderr)
        self.stderr.write(f'{self.NAME}: error: no command given; see '
                          f'{self.NAME} --help\n')
        sys.exit(_USAGE_ERROR)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command, or print its help; return the exit code."""
        if argv[0].startswith('-'):
            self.parser.error(f'unknown option {argv[0]}')
        try:
            _, name, _ = self.command_manager.find_command(argv)
        except ValueError:
            self.stderr.write(
                f'{self.NAME}: error: no command "{argv[0]}"; there are '
                f'{", ".join(self._first_words())}: see {self.NAME} --help\n')
            return _USAGE_ERROR
        except ImportError as exc:
            self.LOG.error('Could not load the command: %s. Check the '
                           'installation.', exc)
            if self.options.debug:
                raise
            return 1
        if self.options.help_wanted:
            argv = [*name.split(), '--help']
        return super().run_subcommand(argv)

    def _first_words(self) -> list[str]:
        return sorted({name.split(' ')[0]
                       for name in self.command_manager.commands})
