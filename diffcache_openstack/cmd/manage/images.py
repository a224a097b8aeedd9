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
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects


class ImageRegister(base.ShowOne):
    """Add an image file to the repository."""

    examples = ('debian-12.raw --name debian-12',)
    arguments = (
        cli.Argument('path', metavar='PATH',
                     help='Path of a raw image on the repository host.'),
        cli.Argument('--name', metavar='NAME', required=True,
                     help='Human-readable name.'),
        cli.Argument('--id', metavar='ID',
                     help='ID of the image (default: a random UUID).'),
        cli.Argument('--host', metavar='HOST',
                     help='Name of the repository host; needed if there are'
                          ' several.'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        host = parsed_args.host or self._repository()
        self.need_live_host(host)
        with self.agents() as agents:
            image = agents.register_image(
                base.service_context(), host,
                os.path.abspath(parsed_args.path),
                parsed_args.id or str(uuid.uuid4()), parsed_args.name)
        return base.fields(image)

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

    examples = ('0a1b debian-12.raw --host edge-1-host-2',)
    arguments = (
        cli.Argument('image', metavar='IMAGE', help='ID of the image.'),
        cli.Argument('output', metavar='OUTPUT',
                     help='Absolute path on the host, below one of [agent]'
                          ' output_directories.'),
        cli.Argument('--host', metavar='HOST', required=True,
                     help='Name of the host.'),
        cli.Argument('--mode', metavar='MODE',
                     help='Serve mode to use instead of [agent] serve_mode.'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        self.need_live_host(parsed_args.host)
        with self.agents() as agents:
            return base.fields(agents.get_image(
                base.service_context(), parsed_args.host,
                parsed_args.image, parsed_args.output, parsed_args.mode))


class ImageList(base.Lister):
    """List the images of the catalogue."""

    arguments = (
        cli.Argument('--withdrawn', action='store_true',
                     help='List only images that are deactivated or'
                          ' deleted.'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        with self.database() as database:
            images = [
                t for t in database.read(catalogue.known_images)
                if parsed_args.withdrawn == (t.status != objects.ACTIVE)]
        return ('ID', 'Name', 'Content ID', 'Size', 'Data', 'Status'), [
            (t.id, t.name, t.content_id, cells.Size(t.size),
             cells.Size(t.data_size), t.status) for t in images]


class _ImageArgument(base.Command):

    arguments = (cli.Argument('image', metavar='IMAGE',
                              help='ID of the image in Glance.'),)


class ImageDelete(_ImageArgument):
    """Delete an image and its patches from the catalogue."""

    examples = ('0a1b',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.database() as database:
            database.write(catalogue.remove_image, parsed_args.image)


class ImageRestore(_ImageArgument):
    """Serve an image again that is marked as deleted.

    One that was deleted stays so, whatever is reported about it later.
    Restore it if it was marked by mistake, and still exists in Glance.
    """

    examples = ('0a1b',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.database() as database:
            database.write(catalogue.restore_image, parsed_args.image)
