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

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'api',
    title='The REST API',
    help='How diffcache-api answers. Who may use it is said in'
         ' [keystone_authtoken] and in the policy file.')

OPTS = [
    cfg.HostAddressOpt(
        'bind_host',
        default='127.0.0.1',
        help='''
Address that diffcache-api listens on. Put a proxy that ends TLS before it
when it is reached from other machines. Under another WSGI server
(``diffcache_openstack.api.wsgi``) that server decides.
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
Worker processes of diffcache-api. Each uses one processor at most; more
answer more requests at once.
'''),
    cfg.IntOpt(
        'threads',
        default=16,
        min=1,
        max=512,
        help='''
Requests that one worker answers at a time. More help while requests wait for
the database or the conductor, and each may take a connection of
``[database] max_pool_size`` and ``max_overflow``.
'''),
    cfg.IntOpt(
        'default_limit',
        default=100,
        min=1,
        mutable=True,
        help='''
Entries of a listing when the request does not name a limit.
'''),
    cfg.IntOpt(
        'max_limit',
        default=1000,
        min=1,
        mutable=True,
        help='''
Most entries of one answer, whatever the request asks for; the rest is
reached with markers. Raising it makes answers larger and slower.
'''),
    cfg.StrOpt(
        'response_validation',
        default='ignore',
        choices=[
            ('error', 'Answer 500 instead.'),
            ('warn', 'Answer and write a warning to the log.'),
            ('ignore', 'Do not look.')],
        mutable=True,
        help='''
What to do with an answer that does not fit its own schema, which would be a
bug. Looking costs some milliseconds per answer.
'''),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    # A group remembers its options' values: each configuration its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """The group and its options, for the sample configuration."""
    return {GROUP: OPTS}
