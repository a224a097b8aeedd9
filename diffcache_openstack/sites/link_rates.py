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
"""Rates of the links of a site: of the configuration, and measured."""

import collections.abc
import types

from oslo_config import cfg
from sqlalchemy import orm

from diffcache_openstack.db.sites import networks
from diffcache_openstack import objects

# Limits of measured rates, in Mbit/s.
_SLOWEST = 0.001
_FASTEST = 1e6

Networks = collections.abc.Mapping[str, objects.HostNetwork]


def read_links(session: orm.Session, site: str,
               options: cfg.ConfigOpts.GroupAttr) -> objects.Links:
    """Return the links of a site's hosts, with those that they measured.

    :param options: the group [planner]
    """
    reported = networks.of_site(session, site) \
        if options.measured_bandwidths else {}
    return links_of(site, options, reported)


def links_of(site: str, options: cfg.ConfigOpts.GroupAttr,
             reported: Networks = types.MappingProxyType({})
             ) -> objects.Links:
    """Return the links of a site's hosts.

    :param options: the group [planner]
    :param reported: by host, what it measured; used if the options say so
    """
    peer = options.peer_bandwidth
    repository = float(options.site_repository_bandwidth.get(
        site, options.repository_bandwidth))
    measured = reported if options.measured_bandwidths else {}
    peers = _rates(measured, lambda network: [network.peer_mbps])
    repositories = _rates(measured, lambda network: [
        each.mbps for each in network.repositories])
    return objects.Links(
        local=options.local_bandwidth, peer=peer, repo=repository,
        hosts=[objects.HostLinks(
            host=name, peer=peers.get(name, peer),
            repo=repositories.get(name, repository))
            for name in sorted({*peers, *repositories})],
        repositories=_repository_links(site, options))


def _rates(measured, rates_of):
    """Return the highest of the rates that each host measured, if any.

    A host may report anything: its seconds have to stay finite and above 0.
    """
    found = {host: [mbps for mbps in rates_of(network) if mbps]
             for host, network in measured.items()}
    return {host: min(max(_SLOWEST, *rates), _FASTEST)
            for host, rates in found.items() if rates}


def _repository_links(site, options):
    """Return the repositories that are named in options, and their rates."""
    found = {}
    for place, mbps in options.named_repository_bandwidth.items():
        of_site, _, name = place.rpartition('/')
        if of_site == site or not of_site and name not in found:
            found[name] = float(mbps)
    return [objects.RepositoryLink(name=name, mbps=mbps)
            for name, mbps in sorted(found.items())]
