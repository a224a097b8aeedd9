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
"""``diffcache``, the offline toolbox: needs no service.

Commands are entry points of the namespace ``diffcache.toolbox``. A command
that fails prints one line on stderr and exits 1; a command line that cannot
be understood exits 2; ``--debug`` shows the traceback. The modules behind
the commands are imported only when one of them runs, so that help is quick.
"""

import argparse
import ast
import importlib.metadata
import importlib.util
import logging
import sys
from typing import Sequence

from cliff import app
from cliff import commandmanager
from cliff import help as cliff_help

from diffcache_openstack.common import exceptions

NAMESPACE = 'diffcache.toolbox'

_DESCRIPTION = ('Patches between disk images, placement, versions and cache '
                'traces, on files: no service needed.')
_USAGE_ERROR = 2


def _summary(module: str, name: str) -> str:
    """Return the first docstring line of a class without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ''
    with open(spec.origin, encoding='utf-8') as stream:
        tree = ast.parse(stream.read())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or '').split('\n')[0].rstrip('.')
    return ''


def _command_list(manager: commandmanager.CommandManager) -> str:
    entries = [(name, entry) for name, entry in sorted(manager)
               if isinstance(entry, importlib.metadata.EntryPoint)]
    width = max((len(name) for name, _ in entries), default=0)
    lines = [f'  {name:<{width}}  {_summary(entry.module, entry.attr)}'
             for name, entry in entries]
    return '\n'.join(['Commands:'] + lines)


class _ConsoleFormatter(logging.Formatter):
    """One line per error: who speaks, what is wrong, what to do next."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno < logging.ERROR:
            return text
        cause = record.msg
        if (isinstance(cause, Exception)
                and not isinstance(cause, exceptions.DiffCacheError)):
            text = (f'{type(cause).__name__}: {text} (unforeseen; --debug '
                    'shows where)')
        return f'{Toolbox.NAME}: error: {text}'


class _CommandManager(commandmanager.CommandManager):
    """Finds commands without importing the modules they are in."""

    def load_commands(self, namespace: str) -> None:
        self.group_list.append(namespace)
        # Looking through all distributions would take longer than many a
        # command.
        ours = importlib.metadata.distribution('diffcache-openstack')
        for entry in ours.entry_points.select(group=namespace):
            self.commands[entry.name.replace('_', ' ')] = entry


class _Help(cliff_help.HelpCommand):
    """Print detailed help for a command."""

    app: 'Toolbox'

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        if not parsed_args.cmd:
            self.app.print_help()
            return 0
        return super().take_action(parsed_args)


class _HelpAction(argparse.Action):
    """Print the options and the commands with one line each."""

    def __call__(self, parser, namespace, values, option_string=None):
        self.default.print_help()
        raise cliff_help.HelpExit()


class Toolbox(app.App):
    """The ``diffcache`` command line."""

    NAME = 'diffcache'
    LOG = logging.getLogger('diffcache')

    def __init__(self) -> None:
        super().__init__(
            description=_DESCRIPTION,
            version=importlib.metadata.version('diffcache-openstack'),
            command_manager=_CommandManager(NAMESPACE))
        self.command_manager.add_command('help', _Help)

    def print_help(self) -> None:
        """Print the options and the commands to standard output."""
        self.parser.print_help(self.stdout)
        self.stdout.write(f'\n{_command_list(self.command_manager)}\n')

    def build_option_parser(self, description, version, argparse_kwargs=None):
        parser = argparse.ArgumentParser(
            prog=self.NAME, description=description, add_help=False,
            usage='%(prog)s [options] COMMAND ...')
        parser.add_argument(
            '-h', '--help', action=_HelpAction, nargs=0, default=self,
            help='Show this message and exit.')
        parser.add_argument(
            '--version', action='version', version=f'{self.NAME} {version}')
        loudness = parser.add_mutually_exclusive_group()
        loudness.add_argument(
            '-v', '--verbose', action='count', dest='verbose_level',
            default=self.DEFAULT_VERBOSE_LEVEL, help='Say more.')
        loudness.add_argument(
            '-q', '--quiet', action='store_const', dest='verbose_level',
            const=0, help='Say nothing but warnings and errors; no '
            'progress bar.')
        parser.add_argument(
            '--log-file', default=None, help='Log to this file as well.')
        parser.add_argument(
            '--debug', action='store_true', default=False,
            help='Show the traceback of an error.')
        return parser

    def configure_logging(self) -> None:
        super().configure_logging()
        for handler in logging.getLogger('').handlers:
            if handler.formatter is not None and not isinstance(
                    handler, logging.FileHandler):
                handler.setFormatter(_ConsoleFormatter())
        # Libraries speak to the log file; the console is the operator's.
        for library in ('matplotlib', 'stevedore', 'oslo', 'alembic'):
            logging.getLogger(library).setLevel(logging.WARNING)

    def initialize_app(self, argv: list[str]) -> None:
        if not argv:
            self.parser.print_usage(self.stderr)
            self.stderr.write(
                f'{self.NAME}: error: no command given; see '
                f'{self.NAME} --help\n')
            sys.exit(_USAGE_ERROR)

    def run_subcommand(self, argv: list[str]) -> int:
        if argv[0].startswith('-'):
            self.parser.error(f'unknown option {argv[0]}')
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            self.stderr.write(
                f'{self.NAME}: error: no command {" ".join(argv[:2])!r}; '
                f'there are {", ".join(self._commands_like(argv[0]))}: '
                f'see {self.NAME} --help\n')
            return _USAGE_ERROR
        except ImportError as exc:
            self.LOG.error('the command cannot be loaded: %s; check the '
                           'installation', exc)
            if self.options.debug:
                raise
            return 1
        return super().run_subcommand(argv)

    def _commands_like(self, noun: str) -> list[str]:
        """The commands of one noun, or else the nouns that there are."""
        names = sorted(name for name, _ in self.command_manager)
        return ([name for name in names if name.split(' ')[0] == noun] or
                sorted({name.split(' ')[0] for name in names}))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the toolbox; return the process's exit code."""
    return Toolbox().run(list(sys.argv[1:] if argv is None else argv))
