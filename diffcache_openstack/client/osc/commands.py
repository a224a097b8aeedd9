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
"""What the commands have in common."""

import argparse
import contextlib
import math
import sys
import typing

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions
from osc_lib.command import command
from osc_lib import exceptions as osc_exceptions
from oslo_utils import uuidutils

from diffcache_openstack.client import proxy


@contextlib.contextmanager
def errors_in_words() -> typing.Iterator[None]:
    """Say what the service said, without what the library adds.

    :raises CommandError: instead of the library's errors
    """
    try:
        yield
    except exceptions.HttpException as error:
        raise osc_exceptions.CommandError(_http_words(error)) from error
    except exceptions.SDKException as error:
        raise osc_exceptions.CommandError(str(error)) from error
    except ksa_exceptions.ConnectFailure as error:
        # The library's text tells how often it tried, and all its layers.
        place = str(error).removeprefix('Unable to establish connection to ')
        raise osc_exceptions.CommandError(
            f'{place.partition(": ")[0]} does not answer; see whether'
            f' diffcache-api runs there, and try again.') from error
    except KeyboardInterrupt as error:
        if error.args:
            # Of what was waited for: nobody was told its id yet.
            sys.stderr.write(f'{error}\n')
        raise
    except ksa_exceptions.EndpointNotFound as error:
        raise osc_exceptions.CommandError(
            f'{error}; have a service of type "diffcache" with an endpoint in'
            f' Keystone\'s catalogue, or set diffcache_endpoint_override in'
            f' clouds.yaml.') from error


def _http_words(error):
    if error.status_code == 401:
        return ('The service does not accept the token (401); log in again,'
                ' and check the OS_ variables or --os-cloud.')
    if error.details is None or error.message:
        return error.message
    return error.details


class Command(command.Command):
    """A command that calls the service."""

    app: typing.Any

    @property
    def client(self) -> proxy.Proxy:
        """The service."""
        return self.app.client_manager.diffcache

    @property
    def connection(self) -> typing.Any:
        """The cloud."""
        return self.app.client_manager.sdk_connection

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run, telling errors in words."""
        with errors_in_words():
            return super().run(parsed_args)

    def image_id(self, name: str) -> str:
        """The id of an image by its name or id.

        :raises NotFoundException: there is none
        """
        return find_image(self.connection.image, name).id

    def known_image_id(self, name: str) -> str:
        """The id of an image that Glance need not have any more.

        :raises NotFoundException: there is none by that name
        """
        if uuidutils.is_uuid_like(name):
            return name
        return self.image_id(name)

    def project_id(self, name: str) -> str:
        """The id of a project by its name or id.

        Who may not look for projects has to know the id.

        :raises NotFoundException: there is none
        """
        with contextlib.suppress(exceptions.ForbiddenException):
            return self.connection.identity.find_project(
                name, ignore_missing=False).id
        return name

    def name_images(self, parsed_args: argparse.Namespace, *options: str
                    ) -> None:
        """Put ids in the place of names, in the options that were given.

        :raises NotFoundException: there is no such image
        """
        for option in options:
            name = getattr(parsed_args, option)
            if name:
                setattr(parsed_args, option, self.known_image_id(name))


def find_image(images: typing.Any, name: str) -> typing.Any:
    """An image of Glance's by its name or id.

    :param images: Glance, as the SDK shows it
    :raises NotFoundException: there is none
    """
    found = images.find_image(name, ignore_missing=True) if name else None
    if found is None:
        raise exceptions.NotFoundException(
            f'No image has the name or ID "{name}"; see "openstack image'
            f' list".')
    return found


class Lister(Command, command.Lister):
    """A command that prints a table."""


class ShowOne(Command, command.ShowOne):
    """A command that prints the fields of one thing."""


class HostCommand(Command):
    """A command about one host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='<host>', help='Name of the host')
        return parser


class ImageCommand(Command):
    """A command about one image."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('image', metavar='<image>',
                            help='Image (name or ID)')
        return parser


class SiteCommand(Command):
    """A command about one site."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('site', metavar='<site>', help='Name of the site')
        return parser


def add_filters(parser: argparse.ArgumentParser, what: str,
                **filters: str) -> None:
    """Add options that narrow a listing.

    :param what: is listed
    :param filters: by option, what the help says behind that
    """
    for name, text in filters.items():
        is_image = name in ('image', 'family', 'base', 'target')
        parser.add_argument(
            f'--{name}', metavar='<image>' if is_image else f'<{name}>',
            help=f'{what} {text} only' + is_image * ' (name or ID)')


def seconds(text: str) -> float:
    """A duration that somebody may wait for.

    :raises ArgumentTypeError: the text is none
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(
            f'"{text}" is no number of seconds above 0')
    return value


def add_limit(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option that says how much is shown of what has no pages."""
    parser.add_argument('--limit', type=int, metavar='<n>',
                        help=f'Show so many {what} at most')


def add_paging(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which part of a listing is wanted."""
    parser.add_argument(
        '--limit', type=int, metavar='<n>',
        help='Show so many entries at most (default: all)')
    parser.add_argument(
        '--marker', metavar='<id>',
        help='Begin behind the entry with this id')


def query(parsed_args: argparse.Namespace, *names: str
          ) -> dict[str, typing.Any]:
    """The filters that were given, and those of paging."""
    found = {name: getattr(parsed_args, name) for name in names}
    if parsed_args.limit is not None:
        found.update(limit=parsed_args.limit, paginated=False)
    if parsed_args.marker is not None:
        found['marker'] = parsed_args.marker
    return {name: value for name, value in found.items()
            if value is not None}
