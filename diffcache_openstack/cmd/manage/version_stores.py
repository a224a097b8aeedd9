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
"""``diffcache-manage version-store``: stores of versions."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.db import version_heads


class VersionStoreReset(base.Command):
    """Forget which catalogue of a project's store of versions is the last.

    After the store was restored from a copy on purpose: the next task that
    changes it continues with the catalogue that the store has. Remove what the
    agents remember, too, as their error says.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('project', help='ID of the project.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Write to the database, which all conductors read."""
        with self.database() as database:
            database.write(version_heads.forget, parsed_args.project)
