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
"""``openstack image cache history export``: what a cloud's servers did."""

import argparse
import pathlib
import re
import typing

from osc_lib import exceptions as osc_exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import files

_COMPUTE = 'nova-compute'
# Of images that were made from servers, and from versions.
_ORIGINS = ('diffcache_base_image', 'base_image_ref')
# A date or the number of a build, and what follows it.
_BUILD = re.compile(r'[-_. ]*\d{6,}.*')
_COLUMNS = ('Images', 'Families', 'Sites', 'Hosts', 'Servers', 'Left Out')


class ExportHistory(commands.ShowOne):
    """Write the images, hosts and servers of a cloud to a file

    "diffcache-manage simulate" replays it. Asks Glance and Nova alone; no
    service of the image cache is needed, but the rights of an administrator
    are. Each availability zone is a site. Deleted servers count as long as
    Nova has them, which "nova-manage db archive_deleted_rows" ends. A family
    of images is what one was made from, os_distro and os_version, or a name
    without its date; change it in the file where it is wrong. Links and
    capacities of sites can be added there. Servers without an image, or on
    hosts that are gone, are left out.
    """

    examples = ('history.json',)
    arguments = (
        cli.Argument('file', metavar='<file>', type=pathlib.Path,
                     help='File to write'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        connection = self.connection
        images = [_image(each) for each in connection.image.images()
                  if each.size]
        zones = {each.host: each.availability_zone
                 for each in connection.compute.services(binary=_COMPUTE)}
        if not zones:
            raise osc_exceptions.CommandError(
                'Nova lists no compute service; use the credentials of an'
                ' administrator.')
        servers, others = _servers(connection.compute, zones,
                                   {each['id'] for each in images})
        files.write_json(parsed_args.file, {
            'images': images, 'sites': _sites(zones), 'servers': servers})
        return _COLUMNS, (
            len(images), len({each['family'] for each in images}),
            len(set(zones.values())), len(zones), len(servers), others)


def _image(image) -> dict[str, typing.Any]:
    properties = image.properties or {}
    origin = next((properties[name] for name in _ORIGINS
                   if properties.get(name)), None)
    system = ' '.join(filter(None, (image.os_distro, image.os_version)))
    return {'id': image.id, 'name': image.name or '', 'bytes': image.size,
            'created_at': image.created_at,
            'family': origin or system
            or _BUILD.sub('', image.name or '') or image.id}


def _sites(zones):
    hosts: dict[str, list[str]] = {}
    for host, zone in sorted(zones.items()):
        hosts.setdefault(zone, []).append(host)
    return [{'name': zone, 'hosts': names}
            for zone, names in sorted(hosts.items())]


def _servers(compute, zones, images):
    """Return what the file has of servers, and how many it has not."""
    found, others = [], 0
    for deleted in (False, True):
        for server in compute.servers(all_projects=True, details=True,
                                      deleted_only=deleted):
            host = server.compute_host
            image = (server.image or {}).get('id')
            if image not in images or host not in zones:
                others += 1
                continue
            found.append({
                'image': image, 'site': zones[host], 'host': host,
                'created_at': server.created_at,
                'deleted_at': server.terminated_at})
    return found, others
