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
"""``diffcache-ssdcache``: the SSD cache of a compute host."""

import sys

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import groups
from diffcache_openstack.conf import opts
from diffcache_openstack.ssdcache import server

PROGRAM = 'diffcache-ssdcache'
_BLOCK = 4096
_CLI_OPTS = [
    cfg.BoolOpt('format', default=False,
                help='Make the device an empty cache. What it has is lost.'),
]


def wanted(conf: cfg.ConfigOpts) -> server.Server:
    """Return what the options say is to be served.

    :raises InvalidInput: an option is missing, or cannot be used
    """
    group = conf.ssd_cache
    for name in ('device', 'capacity', 'socket', 'control'):
        if not group[name]:
            raise exceptions.InvalidInput(f'[ssd_cache] {name} is not set.')
    try:
        dirty_max = server.parse_dirty_max(group.dirty_max)
    except server.ServerError as error:
        raise exceptions.InvalidInput(
            f'[ssd_cache] dirty_max: {error}.') from error
    return server.Server(
        device=group.device, socket=group.socket, control=group.control,
        state=group.state_dir, capacity=group.capacity // _BLOCK, volumes=(),
        is_new=conf.format, admission=group.admission,
        dirty_max=dirty_max, dirty_age=group.dirty_age, holds=True,
        socket_group=groups.number('[ssd_cache] socket_group',
                                   group.socket_group))


def main() -> int:
    """Check the configuration, and become the process that serves."""
    try:
        conf = cfg.ConfigOpts()
        conf.register_cli_opts(_CLI_OPTS)
        opts.register_all(conf)
        opts.parse(conf, sys.argv[1:], help_text=opts.HelpText(
            PROGRAM, 'Serve the SSD cache of this host to QEMU, with the'
                     ' options of the group [ssd_cache].'))
        server.become(wanted(conf))
    except (cfg.Error, exceptions.DiffCacheError) as error:
        print(f'{PROGRAM}: error: {error}', file=sys.stderr)
    return 1
