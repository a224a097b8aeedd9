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
"""Registration of the service with openstacksdk."""

from openstack import connection
from openstack import service_description

from diffcache_openstack.client import proxy

SERVICE_TYPE = 'diffcache'


def proxy_of(conn: connection.Connection) -> proxy.Proxy:
    """Return ``conn.diffcache``, the service's proxy of a connection.

    Options such as ``diffcache_endpoint_override`` in clouds.yaml hold.
    """
    # Each connection needs it, although the attribute is its class's.
    conn.add_service(service_description.ServiceDescription(
        SERVICE_TYPE, supported_versions={'1': proxy.Proxy}))
    return getattr(conn, SERVICE_TYPE)
