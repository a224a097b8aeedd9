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
"""Options of the group [diffcache] in glance-api.conf."""

import copy

from oslo_config import cfg

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'diffcache', title='The image cache of DiffCache',
    help='''
Options of DiffCache's cache driver in glance-api and the glance-cache tools,
used if ``[DEFAULT] image_cache_driver`` is diffcache.
''')

OPTS = [
    cfg.StrOpt(
        'socket',
        sample_default='/var/lib/diffcache/glance.sock',
        help='''
Socket of the agent on this host for Glance, the value of its ``[agent]
glance_socket``. The driver needs it; glance-api does not start without. Its
user has to be in the group that owns the socket (``[agent]
glance_socket_group``).
'''),
    cfg.Opt(
        'connect_timeout',
        type=units.Number(min=0.1),
        default=1.5,
        advanced=True,
        help='''
Seconds to wait for the agent to answer a question, such as whether it can
build an image from what the site holds. After that, the image is read from
Glance's store, as without a cache. Raise it if the agent's host is overloaded;
if the agent hangs, each download waits this long.
'''),
    cfg.Opt(
        'stall_timeout',
        type=units.Number(min=5.0),
        default=600.0,
        advanced=True,
        help='''
Seconds to wait for the next bytes of an image from the agent. After that, the
rest is read from Glance's store. It has to be long enough for the agent to
fetch what the site lacks over the WAN, and to build the file.
'''),
    cfg.Opt(
        'least_rate',
        type=units.Number(min=1.0),
        default=250.0,
        advanced=True,
        help='''
Kilobytes per second, over 30 seconds, below which a download that reads
Glance's store is too slow for others to read along; they read the store
themselves then, and the hosts of the site no longer wait for it. A download is
as slow as its client. Raise it if the store is near; set it well below what
the WAN has for one of several concurrent downloads.
'''),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the group and its options, for the sample configuration."""
    return [(GROUP, OPTS)]
