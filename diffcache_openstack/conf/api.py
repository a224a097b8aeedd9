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
"""Options of the REST API."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'api',
    title='The REST API',
    help='How diffcache-api serves requests. Access is configured in'
         ' [keystone_authtoken] and in the policy file.')

OPTS = [
    cfg.HostAddressOpt(
        'bind_host',
        default='127.0.0.1',
        help='''
Address that diffcache-api listens on. Use a proxy that terminates TLS if it is
reached from other machines. Not used by another WSGI server
(``diffcache_openstack.api.wsgi``).
'''),
    cfg.PortOpt(
        'bind_port',
        default=8796,
        help='Port that diffcache-api listens on.'),
    cfg.IntOpt(
        'workers',
        default=1,
        min=1,
        max=64,
        help='''
Worker processes of diffcache-api. Each uses at most one processor.
'''),
    cfg.IntOpt(
        'threads',
        default=16,
        min=1,
        max=512,
        advanced=True,
        help='''
Requests that one worker serves at the same time. Raise it if requests wait for
the database or the conductor. Each may take a connection of ``[database]
max_pool_size`` and ``max_overflow``.
'''),
    cfg.IntOpt(
        'max_limit',
        default=1000,
        min=1,
        mutable=True,
        advanced=True,
        help='''
Maximum number of entries in one response, whatever limit the request sets;
clients get the rest with markers. Higher values make responses larger and
slower.
'''),
    cfg.StrOpt(
        'response_validation',
        default='ignore',
        choices=[
            ('error', 'Respond with 500 instead.'),
            ('warn', 'Respond and log a warning.'),
            ('ignore', 'Do not check.')],
        mutable=True,
        advanced=True,
        help='''
What to do with a response that does not match its own schema, which would be a
bug. Checking takes some milliseconds per response.
'''),
]
