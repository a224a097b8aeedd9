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
"""Addresses that hosts of a site may serve at.

What a host registers is what all others of its site fetch from: a compromised
one could have them send requests to any service that they reach.
"""

import collections
import ipaddress
import urllib.parse

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack import objects

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Addresses:
    """Checks the URLs of hosts.

    :raises InvalidInput: ``[conductor] site_networks`` cannot be read
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._networks: dict[str, list[_Network]] = (
            collections.defaultdict(list))
        for given in conf.conductor.site_networks:
            site, _, network = given.partition('=')
            try:
                self._networks[site.strip()].append(
                    ipaddress.ip_network(network.strip()))
            except ValueError as error:
                raise exceptions.InvalidInput(
                    f'[conductor] site_networks: {given!r} is no'
                    f' SITE=ADDRESS/PREFIX ({error}).') from error

    def check(self, host: objects.Host) -> None:
        """Check the URL that a host registers.

        A name is taken if it is the host's own: others could be resolved to
        anything later.

        :raises Forbidden: it may not serve there
        """
        if host.url is None:
            return
        try:
            name = urllib.parse.urlsplit(host.url).hostname or ''
        except ValueError:
            name = ''
        if name.lower() == host.name.lower():
            return
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            raise exceptions.Forbidden(
                f'Host {host.name} cannot serve at {host.url}: give its own'
                f' name or an address in its [data_plane] advertise_url.'
            ) from None
        if not self._is_of(host.site, _plain(address)):
            raise exceptions.Forbidden(
                f'Host {host.name} cannot serve at {host.url}: the address is'
                f' in no network of site {host.site}; correct its [data_plane]'
                f' advertise_url, or [conductor] site_networks.')

    def _is_of(self, site: str, address: _Address) -> bool:
        if site in self._networks:
            return any(address in network for network in self._networks[site])
        return not (address.is_link_local or address.is_multicast
                    or address.is_unspecified)


def _plain(address: _Address) -> _Address:
    """Return the IPv4 address of one that is mapped into IPv6."""
    mapped = getattr(address, 'ipv4_mapped', None)
    return mapped or address
