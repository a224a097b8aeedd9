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
"""``diffcache-manage template``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.db import catalogue
from diffcache_openstack import objects


class TemplateList(base.Lister):
    """List the templates of the catalogue."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--withdrawn', action='store_true',
                            help='List only templates that are deactivated or'
                                 ' deleted.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the catalogue from the database."""
        with self.database() as database:
            templates = [
                t for t in database.read(catalogue.known_templates)
                if parsed_args.withdrawn == (t.status != objects.ACTIVE)]
        return ('ID', 'Name', 'Content ID', 'Size', 'Data', 'Status'), [
            (t.id, t.name, t.content_id, self.size(t.size),
             self.size(t.data_size), t.status) for t in templates]


class _TemplateArgument(base.Command):

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('template',
                            help='ID of the template: of the image in Glance.')
        return parser


class TemplateRemove(_TemplateArgument):
    """Remove a template and its patches from the catalogue."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete the template from the database."""
        with self.database() as database:
            database.write(catalogue.remove_template, parsed_args.template)


class TemplateRestore(_TemplateArgument):
    """Serve a template again that is marked as deleted.

    An image that was deleted stays so, whatever is reported about it later.
    Restore it if it was marked by mistake, and still exists in Glance.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the template's status in the database."""
        with self.database() as database:
            database.write(catalogue.restore_template, parsed_args.template)
