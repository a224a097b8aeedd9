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
"""Options of images that are served while they arrive."""

from oslo_config import cfg

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'lazy',
    title='Images that are served while they arrive',
    help="The daemon diffcached on an agent's host, which provides images as"
         ' files before their content has arrived. diffcache-lazy starts it'
         ' with these options and those of [data_plane].')

NONE = 'none'
IDLE = 'idle'
IMAGE = 'image'
PROJECT = 'project'

OPTS = [
    cfg.StrOpt(
        'socket',
        sample_default='/var/lib/diffcache/lazy/diffcached.sock',
        help='''
Path of the unix socket of diffcached on this host. If it is not set, lazy boot
is disabled on this host: servers wait for their whole image.
'''),
    cfg.StrOpt(
        'socket_group',
        help='Group that may connect to ``socket``, for an agent that runs as'
             ' another user than diffcached. Unset: none; diffcached and the'
             ' agent run as one user.'),
    cfg.StrOpt(
        'state_dir',
        default='/var/lib/diffcache/lazy',
        help='''
Directory for the parts of images that have arrived. It has to be on the
filesystem of ``[agent] state_dir``: a complete image becomes an object of the
agent by a hard link.
'''),
    cfg.StrOpt(
        'mount',
        default='/var/lib/diffcache/lazy/mount',
        help='''
Directory below which diffcached mounts a file system for each image. The users
of Nova and of QEMU need the right to enter it. If it is changed, change it in
the unit diffcache-lazy-mount, too.
'''),
    cfg.StrOpt(
        'image_group',
        sample_default='diffcache-images',
        help='''
Group that may read the images below ``mount``, private ones among them: the
users of Nova and of QEMU have to be in it, and no others should be. If it is
not set, only root, the user that diffcached runs as and its group read them. A
change affects only images that are served from then on.
'''),
    cfg.StrOpt(
        'mounter',
        sample_default='/run/diffcache-lazy-mount.sock',
        advanced=True,
        help='''
Path of the unix socket of the mounter, a process whose only task is to mount
for diffcached, so that diffcached needs no privilege. The unit diffcache-lazy
sets it in the environment, which takes precedence over this file. If it is not
set, diffcached mounts by itself and needs CAP_SYS_ADMIN.
'''),
    cfg.Opt(
        'wait',
        type=units.Number(min=0.0, max=86400.0),
        default=120.0,
        advanced=True,
        help='''
Seconds that a guest's read waits for bytes that no source serves. After that
the read fails, and the guest is paused until more arrives, or sees an
input/output error (``[diffcache] read_error_policy`` of nova.conf). With
higher values guests hang for longer before they are paused, but short outages
pause none.
'''),
    cfg.StrOpt(
        'hydrate',
        default=IDLE,
        choices=[
            (IDLE, 'the rest of an image is fetched while no guest waits'),
            (NONE, 'only what guests read is fetched'),
        ],
        help='''
Whether the rest of an image is fetched in the background. Servers whose image
is incomplete depend on the hosts that it comes from.
'''),
    cfg.Opt(
        'hydrate_rate',
        type=units.Size(),
        default=0,
        help='''
Maximum bytes per second that hydration fetches of each image, as a number or
with a unit (``2MB``). Lower values leave more of the WAN to others; 0 sets no
limit. Reads of guests are not limited.
'''),
    cfg.Opt(
        'in_flight',
        type=units.Count(min=1, max=64),
        default=3,
        advanced=True,
        help='''
Number of chunks (256 KiB) of an image that this host prefetches at the same
time. Higher values fill a fast link with a long round trip: 3 chunks per 100
ms are 63 Mbit/s. With higher values, reads that were not predicted wait longer
behind the prefetched chunks. A change affects only images that are served from
then on.
'''),
    cfg.Opt(
        'threshold',
        type=units.Number(min=0.001, max=1e6),
        default=0.1,
        advanced=True,
        help='''
Prefetch a chunk, and count it as part of the boot set of its image, once this
many servers have read it. Below 1: this share of the servers that read the
most frequent chunk. With lower values more chunks are fetched in vain; with
higher ones servers wait for more of their reads. With a value of 1 or more, an
image has no profile until that many servers have read it; one host counts for
at most 16 servers. Set the same value for conductors, the API and hosts. On
hosts a change affects only images that are served from then on.
'''),
    cfg.StrOpt(
        'share_profiles',
        default=IMAGE,
        choices=[
            (IMAGE, 'what servers read of a public image is prefetched for'
                    ' those of all projects'),
            (PROJECT, 'for those of the same project only'),
        ],
        advanced=True,
        help='''
Which servers benefit from the profile of a public image. Profiles of other
images are always used within one project only. With "project", hosts do not
exchange hints either, since hints do not distinguish projects. Set the same
value for conductors, the API and diffcache-lazy.
'''),
    cfg.Opt(
        'boot_set_share',
        type=units.Number(min=0.0, max=1.0),
        default=0.1,
        advanced=True,
        help='''
Share of each host's ``[agent] cache_capacity`` for boot sets: the chunks that
boots read of images that the host does not hold. It is rounded to whole
percents. This space is not available for whole images. With higher values lazy
boots of more images start without waiting; 0 disables boot sets in plans and
precache jobs. Set the same value for all conductors; agents do not read it.
'''),
    cfg.IntOpt(
        'most_boot_sets',
        default=32,
        min=0,
        max=500,
        advanced=True,
        help='''
Maximum number of boot sets of a host. diffcached runs two processes for each,
even while no server reads it. Set the same value for all conductors; agents do
not read it.
'''),
    cfg.Opt(
        'worth_seconds',
        type=units.Number(min=0.0),
        default=2.0,
        advanced=True,
        help='''
Boot from an image while it arrives only if its full delivery is predicted to
take at least this many seconds. Other images, such as those that this host
holds, are delivered whole. 0: boot lazily from every image that the host does
not hold.
'''),
]
