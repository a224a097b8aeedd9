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
"""Orders and their outcome as JSON, as native code reads and writes them."""

import json
import pathlib
import typing

from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import views


def dump_order(order: orders.Order) -> str:
    """Write an order."""
    return json.dumps({
        'kind': order.key.kind, 'id': order.key.id, 'dest': str(order.dest),
        'sources': [_source(source) for source in order.sources],
        'manifest': str(order.manifest) if order.manifest else None,
        'class': order.job_class, 'rate': order.rate,
        'durable': order.durable, 'in_place': order.in_place,
        'max_size': order.max_size, 'trace': order.trace})


def dump_hosts(hosts: typing.Iterable[orders.Host]) -> str:
    """Write the hosts of a site."""
    return json.dumps([{'name': host.name, 'url': host.url}
                       for host in hosts])


def load_delivery(text: str, key: views.Key
                  ) -> tuple[orders.Delivery, list[str]]:
    """Read what came of an order.

    :returns: the outcome, and warnings for the log
    """
    document = json.loads(text)
    failures = tuple(
        orders.Failure(found['source'], found['host'],
                       _error(found, key))
        for found in document['failures'])
    return orders.Delivery(
        document['source'], document['wan_bytes'], document['lan_bytes'],
        failures), document['warnings']


def load_served(found: dict[str, typing.Any]) -> orders.PeerRead:
    """Read what a peer read for a trace."""
    return orders.PeerRead(
        found['trace'], views.Key(found['kind'], found['id']),
        found['began'], found['ended'], found['requests'], found['bytes'])


def _source(source: orders.Source) -> dict[str, typing.Any]:
    if isinstance(source, orders.BuildSource):
        return {'build': {'base': _part(source.base),
                          'patch': _part(source.patch)}}
    return {'host': {'host': source.host.name, 'url': source.host.url,
                     'link': source.link}}


def _part(part: orders.Place) -> dict[str, typing.Any]:
    if isinstance(part, pathlib.Path):
        return {'path': str(part)}
    if isinstance(part, orders.KnownFile):
        return {'path': str(part.path), 'manifest': str(part.manifest)}
    return {'host': part.host.name, 'url': part.host.url,
            'kind': part.key.kind, 'id': part.key.id,
            'max_size': part.max_size}


def _error(found: dict[str, typing.Any], key: views.Key
           ) -> exceptions.DiffCacheError:
    if found['error'] != native_errors.SYSTEM_ERROR:
        return native_errors.meaning_of(found['error'])(found['message'])
    try:
        with files.read_errors(key):
            raise OSError(found['errno'], found['message'])
    except exceptions.DiffCacheError as error:
        return error
