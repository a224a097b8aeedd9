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
"""``diffcache-manage authority`` and ``diffcache-manage host-key``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.db import senders
from diffcache_openstack.objects import versioned

AUTHORITY_KEY = '/etc/diffcache/authority.key'
AUTHORITY = '/etc/diffcache/authority.pem'
_YEARS = 3650


_AUTHORITY = (
    cli.Argument('--authority-key', default=AUTHORITY_KEY, metavar='FILE',
                 help='Key of the authority. Keep it where keys are issued,'
                      ' never on a host of a site (default: %(default)s).'),
    cli.Argument('--authority', default=AUTHORITY, metavar='FILE',
                 help='Certificate of the authority, [messaging]'
                      ' authority_file of all services (default:'
                      ' %(default)s).'),
    cli.Argument('--days', metavar='N', default=_YEARS,
                 type=cli.whole(1, 36500),
                 help='Days until the certificate expires (default:'
                      ' %(default)s).'))


class AuthorityCreate(base.Command):
    """Create the authority that issues the keys of a deployment's hosts."""

    arguments = _AUTHORITY

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        host_keys.create_authority(parsed_args.authority_key,
                                   parsed_args.authority, parsed_args.days)


class HostKeyCreate(base.Command):
    """Create the key that the services of a host sign their messages with."""

    examples = (
        'edge-1-host-2 edge-1-host-2.key --role compute --site edge-1',)
    arguments = (
        cli.Argument('host', metavar='HOST',
                     help='Name of the host: [agent] host of its agent.'),
        cli.Argument('file', metavar='FILE',
                     help='File to write, which must not exist; copy it to the'
                          ' host, [messaging] key_file.'),
        cli.Argument('--role', choices=host_keys.ROLES,
                     default=host_keys.COMPUTE,
                     help='Role of the host: [agent] role of its agent;'
                          ' controller for conductor, API and'
                          ' diffcache-manage; cinder for cinder-volume and'
                          ' cinder-backup (default: compute).'),
        cli.Argument('--site', metavar='SITE', default='default',
                     help='Site at which the host may register: [agent] site'
                          ' of its agent; controller and cinder have none'
                          ' (default: %(default)s).'),
        *_AUTHORITY)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        role = parsed_args.role
        site = None if role in host_keys.WITHOUT_SITE else parsed_args.site
        host_keys.create_host_key(
            (parsed_args.authority_key, parsed_args.authority),
            host_keys.Subject(parsed_args.host, role, site),
            parsed_args.file, parsed_args.days)


class HostKeyShow(base.ShowOne):
    """Show the host, the role and the dates of a key file."""

    examples = ('edge-1-host-2.key',)
    arguments = (cli.Argument('file', metavar='FILE',
                              help='File with the key.'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        key = host_keys.HostKey(parsed_args.file)
        signer = key.signer
        return ('host', 'role', 'site', 'issued_at', 'expires_at'), (
            signer.name, signer.role, signer.site or '',
            signer.issued_at.isoformat(), key.expires_at.isoformat())


class HostKeyRevoke(base.HostArgument):
    """Revoke all keys issued to a host so far.

    A key that is issued later is accepted. Conductors read the database with
    each message; agents get the list of revoked keys with their next
    heartbeat, from a conductor whose key is not revoked.
    """

    examples = ('edge-1-host-2',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.database() as database:
            database.write(senders.revoke, parsed_args.host,
                           versioned.now())


class RevocationList(base.Lister):
    """List the hosts whose keys were revoked."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        with self.database() as database:
            found = database.read(senders.revoked)
        return ('Host', 'Revoked at'), [
            (host, when.isoformat()) for host, when in found]
