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
"""``diffcache-manage image``."""

import argparse
import os
import uuid

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common import exceptions
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects


class ImageRegister(base.ShowOne):
    """Add an image file to the repository."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('path',
                            help='Path of a raw image on the repository host.')
        parser.add_argument('--name', required=True,
                            help='Human-readable name.')
        parser.add_argument('--id', help='ID of the image (default: a random'
                                         ' UUID).')
        parser.add_argument('--host', help='Name of the repository host;'
                                           ' needed if there are several.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the repository's agent and wait until it has the image."""
        host = parsed_args.host or self._repository()
        with self.agents() as agents:
            template = agents.register_image(
                base.service_context(), host,
                os.path.abspath(parsed_args.path),
                parsed_args.id or str(uuid.uuid4()), parsed_args.name)
        return base.fields(template)

    def _repository(self):
        with self.database() as database:
            names = [host.name for host in database.read(host_rows.list_hosts)
                     if host.role == objects.REPOSITORY]
        if len(names) != 1:
            raise exceptions.InvalidInput(
                f'There are {len(names)} repository hosts'
                f' ({", ".join(names) or "start one"}); name one with'
                f' --host.')
        return names[0]


class ImageFetch(base.ShowOne):
    """Deliver an image to a path on a host, as for Nova.

    All users may read the file. It belongs to the owner of its directory, or
    to the agent's user where that may not give files away.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('template', help='ID of the image.')
        parser.add_argument('output', help='Absolute path on the host, below'
                                           ' one of [agent]'
                                           ' output_directories.')
        parser.add_argument('--host', required=True, help='Name of the host.')
        parser.add_argument('--mode', help='Serve mode to use instead of'
                                           ' [agent] serve_mode.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the host's agent and wait until the image is delivered."""
        with self.agents() as agents:
            return base.fields(agents.get_image(
                base.service_context(), parsed_args.host,
                parsed_args.template, parsed_args.output, parsed_args.mode))
