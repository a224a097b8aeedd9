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
"""``diffcache-manage db``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common.commands import cli
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration


class DbSync(base.Command):
    """Create the database schema or upgrade it."""

    arguments = (
        cli.Argument('revision', metavar='REVISION', nargs='?', default='head',
                     help='Revision to upgrade to (default: the newest).'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with engine.errors_explained(self.conf):
            before = migration.current(self.conf, max_retries=0)
            migration.upgrade(self.conf, parsed_args.revision)
            after = migration.current(self.conf, max_retries=0)
        self.app.stdout.write(
            f'Database is at revision {after}, was at {before or "none"}.\n')


class DbVersion(base.Command):
    """Show the schema's revision; exit with 1 unless it is the newest."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        with engine.errors_explained(self.conf):
            current = migration.current(self.conf, max_retries=0)
        self.app.stdout.write(f'{current or "none"}\n')
        if current == migration.head():
            return 0
        self.app.LOG.error(
            'This version needs revision %s; run "diffcache-manage db sync".',
            migration.head())
        return 1
