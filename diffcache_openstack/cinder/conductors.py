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
"""Clients of the conductor that cinder.conf names."""

import collections.abc
import typing

from oslo_config import cfg

from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.objects import versioned
from diffcache_openstack.remote_calls import remote

CONF = cfg.CONF

Client = typing.TypeVar('Client', bound=remote.API)


def connect(api: collections.abc.Callable[..., Client]) -> Client:
    """Return a client of one of the conductor's interfaces.

    :raises InvalidInput: transport_url or a key file cannot be used
    """
    group = CONF.diffcache
    security = signatures.Security(
        host_keys.HostKey(group.key_file) if group.key_file else None,
        host_keys.Authority(group.authority_file)
        if group.authority_file else None)
    bus = messaging.Bus(CONF, versioned.Serializer(), url=group.transport_url,
                        security=security)
    return api(bus, group.rpc_timeout, group.control_exchange)
