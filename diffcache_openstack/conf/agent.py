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
"""Options of the agent, which runs on every compute host and repository."""

import copy

import socket

from oslo_config import cfg

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'agent',
    title='The agent of one host',
    help='What diffcache-agent is called, where it keeps what it holds and'
         ' how it answers requests for images.')

OPTS = [
    cfg.StrOpt(
        'host',
        default=socket.gethostname(),
        sample_default='<name of this host>',
        regex=r'^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$',
        help='''
Name of this host in the whole deployment. It is the identity under which the
conductor remembers what the host holds and under which it sends plans to it,
so it must be unique and must stay the same over restarts. On a compute host
use the value of Nova's own ``host`` option, so that schedulers and logs agree.
'''),
    cfg.StrOpt(
        'site',
        default='default',
        regex=r'^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
        help='''
Name of the site this host belongs to. Hosts of one site are each other's
peers: they exchange images over their own network, are planned together and
move an object over the link to the repository only once. Two hosts with a
thin link between them belong to different sites.
'''),
    cfg.StrOpt(
        'role',
        default='compute',
        choices=[
            ('compute', 'Caches and serves images; its capacity is planned.'),
            ('repository', 'Holds every image and makes patches; every site'
                           ' may read from it over the WAN.'),
        ],
        help='What this host is for.'),
    cfg.StrOpt(
        'state_dir',
        default='/var/lib/diffcache',
        help='''
Directory for all that the agent keeps: templates, patches and manifests
below ``objects``, and its own small state files. Put it on the filesystem
that Nova's instances use: where that can share extents (XFS with reflink,
Btrfs) handing an image over costs no copy.
'''),
    cfg.Opt(
        'cache_capacity',
        type=units.Size(),
        default=50 * 1000 ** 3,
        sample_default='50GB',
        help='''
Space for held templates and patches, in bytes or with a unit (``50GB``,
``20GiB``). The planner fills it and never exceeds it; images that are being
built need room beside it, at most one image per concurrent request. A
repository ignores the option: it holds everything.
'''),
    cfg.StrOpt(
        'serve_mode',
        default='on_the_fly',
        choices=[
            ('fetch_and_patch', 'Copy base and patch to this host, then apply'
                                ' the patch. Uses more disk and time, but'
                                ' reads from a peer only once.'),
            ('on_the_fly', 'Read base and patch where they lie, by ranges,'
                           ' and write only the result.'),
        ],
        help='How an image that has to be rebuilt is rebuilt, unless the'
             ' request says otherwise.'),
    cfg.IntOpt(
        'lend_seconds',
        default=60,
        min=0,
        help='''
Seconds for which an image that was just delivered stays readable for peers
from where it was delivered, although it is not in the cache. Bridges bursts:
hosts that ask for the same image shortly after read it from here and not
over the WAN. 0 lends nothing.
'''),
    cfg.BoolOpt(
        'keep_requested',
        default=True,
        help='''
Whether an image that was brought here for a request stays in the cache while
there is room, although no plan names it (yet). The plan takes the room when it
needs it; among what no plan names, the longest unused goes first. A patch that
was brought stays if what it makes finds no room and it does. Where the
filesystem cannot share extents, keeping an image costs a copy on the disk.
Without it, a host holds what the plan wants and nothing else.
'''),
    cfg.BoolOpt(
        'sync_outputs',
        default=True,
        help='''
Whether an image has to be on the disk, and not only in memory, before it is
handed over. Without it requests end sooner. A crash of the agent is harmless
either way; after a power cut an image that was handed over seconds before may
be incomplete and has to be removed.
'''),
    cfg.StrOpt(
        'socket',
        default='$state_dir/agent.sock',
        help='''
Path of the unix socket on which the agent answers Nova's driver and Glance's
cache driver on the same host. Its directory has to let them pass. Empty: no
socket.
'''),
    cfg.StrOpt(
        'socket_group',
        help='''
Group whose members may use the socket, beside the agent's own user. Make one
that the users of nova-compute and glance-api belong to. Whoever may use the
socket may read every image of the catalogue: it does not know projects, the
services that use it do.
'''),
    cfg.ListOpt(
        'output_directories',
        default=[],
        help='''
Directories below which clients of the socket may have images written, such as
Nova's ``[DEFAULT] instances_path``. Nothing is written anywhere else. An empty
list, the default, refuses all; files are streamed to Glance nevertheless.
'''),
    cfg.Opt(
        'file_cache_capacity',
        type=units.Size(),
        default=10 * 1000 ** 3,
        sample_default='10GB',
        help='''
Space for images as files, in bytes or with a unit. An image that is not raw is
made into the file that Glance has when somebody asks for the file; it is kept
here so that the next one gets it at once, and the least recently used files
are dropped. It is beside ``cache_capacity``. A file that is larger than all of
it is made and sent, and not kept.
'''),
    cfg.Opt(
        'forms_capacity',
        type=units.Size(),
        default=10 ** 9,
        sample_default='1GB',
        help='''
Space for forms, in bytes or with a unit: what makes an image's file of its raw
content. They are small beside their images, are fetched with them, and the
least recently used ones are dropped. 0 fetches none before somebody asks for a
file.
'''),
    cfg.IntOpt(
        'heartbeat_interval',
        default=15,
        min=1,
        help='''
Seconds between two signs of life to the conductor. With each one the agent
asks for a newer site map and sends what it could not send before. Has to be
well below ``[conductor] host_timeout``.
'''),
    cfg.IntOpt(
        'request_timeout',
        default=7200,
        min=1,
        help='''
Seconds a client of the agent waits for one image. Generous, because an image
that has to cross the WAN whole takes as long as the WAN takes.
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
