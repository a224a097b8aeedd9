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
"""Commands that start quickly.

Before a command runs, cliff searches the metadata of all installed packages,
which takes longer than many commands.
"""

import argparse
import importlib.metadata
import re
import sys
from typing import Any
from typing import ClassVar

from cliff import command
from cliff import lister
from cliff import show
import stevedore
from stevedore import extension

from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

# The output format that a command line selects.
_FORMAT = re.compile('\0(?:-f\0?|--format[=\0])(?P<name>json|value)(?:\0|$)')


class Quick(cli.Command):
    """Mixin for cliff commands, before cliff's own class: starts quickly.

    The command has no hooks, and loads only the formatter that the command
    line selects, if that needs no library.
    """

    formatter_namespace: str

    def _load_hooks(self) -> None:
        self._hooks = []

    def get_epilog(self) -> str:
        return ''

    def _load_formatter_plugins(self) -> stevedore.ExtensionManager[Any]:
        wanted = _FORMAT.search('\0'.join(sys.argv))
        if wanted is None:
            return stevedore.ExtensionManager(
                self.formatter_namespace, invoke_on_load=True)
        [entry] = importlib.metadata.distribution('cliff').entry_points.select(
            group=self.formatter_namespace, name=wanted['name'])
        made = entry.load()
        return stevedore.ExtensionManager.make_test_instance(
            [extension.Extension(entry.name, entry, made, made())],
            self.formatter_namespace)


class Command(Quick, command.Command):
    """A command that prints nothing, or what it says itself."""


class Lister(Quick, cli.Columns, lister.Lister):
    """A command that prints a table."""


class ShowOne(Quick, cli.Columns, show.ShowOne):
    """A command that prints fields.

    :cvar cells: by field, how a table shows it, if not as a list or a dict
    """

    cells: ClassVar[dict[str, Any]] = {}

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        """Do what the command does; return the fields to print."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        found = self.fields(parsed_args)
        return tuple(found), tuple(
            cells.Absent(value) if value is None
            else self.cells.get(name, cells.cell)(value)
            for name, value in found.items())
