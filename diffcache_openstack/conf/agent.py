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

import socket

from oslo_config import cfg

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'agent',
    title='The agent of one host',
    help='Identity of diffcache-agent, where it stores objects, and how it'
         ' delivers images.')

OPTS = [
    cfg.StrOpt(
        'host',
        default=socket.gethostname(),
        sample_default='<name of this host>',
        regex=r'^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$',
        help='''
Name of this host, unique in the deployment and the same after restarts: the
conductor identifies the host, its objects and its plan by it. On a compute
host use the value of Nova's own ``host`` option, so that schedulers and logs
agree.
'''),
    cfg.StrOpt(
        'site',
        default='default',
        regex=r'^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
        help='''
Name of the site that this host belongs to. Hosts of one site are peers: they
exchange images over their own network, share one plan, and fetch an object
over the link to the repository only once. Hosts with a thin link between them
belong to different sites.
'''),
    cfg.StrOpt(
        'role',
        default='compute',
        choices=[
            ('compute', 'Caches and delivers images as planned.'),
            ('repository', 'Holds every image and creates patches; every'
                           ' site may read from it over the WAN.'),
        ],
        help='Role of this host in its deployment.'),
    cfg.StrOpt(
        'state_dir',
        default='/var/lib/diffcache',
        help='''
Directory of everything that the agent stores: images, patches and manifests
below ``objects``, and small state files. Use the filesystem of Nova's
instances: where it can share extents (XFS with reflink, Btrfs), delivering an
image needs no copy.
'''),
    cfg.Opt(
        'cache_capacity',
        type=units.Size(),
        default=50 * 1000 ** 3,
        sample_default='50GB',
        help='''
Capacity for images and patches, in bytes or with a unit (``50GB``,
``20GiB``). Plans fill it and never exceed it. Images that are being built need
extra space, at most one image per concurrent request. A repository ignores the
option: it holds everything.
'''),
    cfg.StrOpt(
        'serve_mode',
        default='auto',
        choices=[
            ('auto', 'The mode in which earlier builds of this host took less'
                     ' time for the same size. Each is measured again now and'
                     ' then.'),
            ('fetch_and_patch', 'Copy base and patch to this host, then apply'
                                ' the patch. Needs more space and time, but'
                                ' reads from a peer only once.'),
            ('on_the_fly', 'Read ranges of base and patch from the hosts that'
                           ' hold them, and write only the result.'),
        ],
        advanced=True,
        help='How an image is built from base and patch, unless the request'
             ' names another way.'),
    cfg.IntOpt(
        'lend_seconds',
        default=60,
        min=0,
        advanced=True,
        help='''
Seconds for which peers may read a delivered image that is not in the cache.
Hosts that request the same image shortly after read it from here instead of
over the WAN. 0 disables it.
'''),
    cfg.BoolOpt(
        'keep_requested',
        default=True,
        advanced=True,
        help='''
Whether to cache an image that was fetched for a request but is not in the
plan, as long as there is free capacity. Objects of the plan replace it when
they need the space, the least recently used first. If the image does not fit
but the patch that built it does, the patch is cached. Where the filesystem
cannot share extents, caching an image takes a copy. If false, a host holds
only the objects of its plan.
'''),
    cfg.BoolOpt(
        'borrow',
        default=True,
        advanced=True,
        help='''
Whether to use the base images that Nova keeps on this host: to serve them to
other hosts of the site, and as bases of patches. They do not count against
``cache_capacity``, and are neither changed nor deleted. Only files below
``output_directories`` that all users of the host may read are used, and what
is read from them is verified. If false, a host uses only its cache.
'''),
    cfg.BoolOpt(
        'sync_outputs',
        default=True,
        advanced=True,
        help='''
Dangerous if false: after a power failure an image that was delivered seconds
before may be incomplete, and has to be removed. Flushes an image to the disk
before it is delivered; without it requests are faster. A crash of the agent is
harmless in both cases.
'''),
    cfg.BoolOpt(
        'always_verify',
        default=False,
        advanced=True,
        help='''
Whether an image is read and hashed each time before it is delivered. If false,
an image is hashed when it arrives, and again only if its file was changed, or
by the scrub: to deliver it then takes no time. See the documentation on
security for what that trusts.
'''),
    cfg.IntOpt(
        'scrub_days',
        default=7,
        min=1,
        help='''
Days within which each stored object is read again from the disk and compared
with its hash, in the background, whenever the disk is idle. A damaged object
is no longer used, and the log and "diffcache-manage doctor" name what was
delivered from it since its last successful check.
'''),
    cfg.Opt(
        'scrub_rate',
        type=units.Size(),
        default=10 * 1000 ** 2,
        sample_default='10MB',
        help='''
Maximum bytes per second to read for ``scrub_days``, a number or with a unit
(``10MB``). 10 MB/s read 6 TB in a week; "diffcache-manage doctor" warns if the
rate does not suffice.
'''),
    cfg.StrOpt(
        'socket',
        default='$state_dir/agent.sock',
        help='''
Path of the unix socket on which the agent serves Nova's driver on the same
host. nova-compute's user needs access to its directory. Empty disables the
socket.
'''),
    cfg.StrOpt(
        'socket_group',
        help='''
Group whose members may connect to the socket, besides the agent's own user.
Create one for nova-compute alone, which the agent's user belongs to as well.
Unset: none. A user of the socket can read every image of the catalogue, and
have the SSD cache open devices of the host: the guests' QEMU must not be in
this group.
'''),
    cfg.StrOpt(
        'nova_user',
        default='nova',
        advanced=True,
        help='''
User that nova-compute runs as. The agent answers it, root and itself on the
socket, and refuses other members of the group.
'''),
    cfg.StrOpt(
        'glance_socket',
        default='',
        sample_default='$state_dir/glance.sock',
        help='''
Path of the unix socket on which the agent serves Glance's cache driver on the
same host: with files of images, and nothing else. Empty disables the socket.
'''),
    cfg.StrOpt(
        'glance_socket_group',
        help='''
Group whose members may connect to ``glance_socket``, besides the agent's own
user, which has to belong to it as well: one for glance-api alone. Unset: none.
Every member can read every image of the catalogue: Glance checks projects,
not the agent.
'''),
    cfg.StrOpt(
        'cinder_socket',
        default='',
        sample_default='$state_dir/cinder.sock',
        help='''
Path of the unix socket on which the agent serves cinder-backup on the same
host: it saves volumes that cinder-backup has opened to the version store, and
writes backups to them. Empty disables the socket.
'''),
    cfg.StrOpt(
        'cinder_socket_group',
        help='''
Group whose members may connect to ``cinder_socket``, besides the agent's own
user, which has to belong to it as well: one for cinder-backup alone. Unset:
none. Members can only perform operations that the conductor has started for a
service with a key of Cinder's.
'''),
    cfg.ListOpt(
        'output_directories',
        default=[],
        help='''
Directories to which clients of the socket, and "diffcache-manage image fetch",
may have images delivered, such as Nova's ``[DEFAULT] instances_path``. Any
other path is refused; an empty list refuses all paths. Files for Glance are
streamed and are not affected.
'''),
    cfg.Opt(
        'file_cache_capacity',
        type=units.Size(),
        default=10 * 1000 ** 3,
        sample_default='10GB',
        advanced=True,
        help='''
Capacity for image files, in bytes or with a unit, in addition to
``cache_capacity``. When the file of an image that is not raw is requested, it
is built as Glance has it and cached here; the least recently used files are
deleted. A file larger than the capacity is built and sent, but not cached.
'''),
    cfg.IntOpt(
        'heartbeat_interval',
        default=40,
        min=1,
        advanced=True,
        help='''
Seconds between two heartbeats to the conductor. With each heartbeat the agent
fetches the site map if it changed, and resends reports that failed. Hosts
exchange what servers read of arriving images eight times as often. Must be
well below ``[conductor] host_timeout``.
'''),
]
