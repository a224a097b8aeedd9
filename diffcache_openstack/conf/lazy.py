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
    help='The service diffcached beside an agent, which shows images as files'
         ' while most of their bytes are still elsewhere. diffcache-lazy'
         ' starts it with these options and those of [data_plane].')

NONE = 'none'
IDLE = 'idle'
IMAGE = 'image'
PROJECT = 'project'

OPTS = [
    cfg.StrOpt(
        'socket',
        sample_default='/var/lib/diffcache/lazy/diffcached.sock',
        help='''
Path of the unix socket of diffcached on this host. If it is not set, the agent
has no image served while it arrives, and servers wait for their whole image.
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
Directory for what has arrived of images. It has to be on the filesystem of
``[agent] state_dir``: a whole image becomes an object of the agent by a second
name of the same file.
'''),
    cfg.StrOpt(
        'mount',
        default='/var/lib/diffcache/lazy/mount',
        help='''
Directory below which diffcached mounts a file system for each image. The users
of Nova and of QEMU need to pass through it. The unit diffcache-lazy-mount
names it, too.
'''),
    cfg.StrOpt(
        'image_group',
        sample_default='diffcache-images',
        help='''
Group that may read the images below ``mount``, private ones among them: the
users of Nova and of QEMU have to be in it, and no others should be. If it is
not set, only root, the user that diffcached runs as and its group read them.
Holds for images that are served from then on.
'''),
    cfg.StrOpt(
        'mounter',
        sample_default='/run/diffcache-lazy-mount.sock',
        advanced=True,
        help='''
Path of the unix socket of the mounter, a process that mounts for diffcached
and has no other task: diffcached needs no privilege then. The unit
diffcache-lazy sets it in the environment, which comes before this file. If it
is not set, diffcached mounts itself, and needs CAP_SYS_ADMIN.
'''),
    cfg.Opt(
        'wait',
        type=units.Number(min=0.0, max=86400.0),
        default=120.0,
        advanced=True,
        help='''
Seconds that a guest's read waits for bytes that no source serves. Then it
fails, and the guest is stopped until more arrives, or sees an input/output
error (``[diffcache] read_error_policy`` of nova.conf). With higher values
guests hang for longer before they are stopped; a guest that is stopped by an
outage notices less of it.
'''),
    cfg.StrOpt(
        'hydrate',
        default=IDLE,
        choices=[
            (IDLE, 'the rest of an image is fetched while no guest waits'),
            (NONE, 'only what guests read is fetched'),
        ],
        help='''
Whether images become whole by themselves. Servers whose image is not whole
depend on the hosts that it comes from.
'''),
    cfg.Opt(
        'hydrate_rate',
        type=units.Size(),
        default=0,
        help='''
Bytes per second and image that hydration fetches at most, as a number or with
a unit (``2MB``). Lower values leave more of the WAN to others; 0 is no limit.
Reads of guests are not limited.
'''),
    cfg.Opt(
        'in_flight',
        type=units.Count(min=1, max=64),
        default=3,
        advanced=True,
        help='''
Chunks of 256 KiB of an image that this host prefetches at the same time. More
fill a fast link over a long distance: 3 in a round trip of 100 ms are 63
Mbit/s. With more, reads that were not foreseen wait longer behind them. Holds
for images that are served from then on.
'''),
    cfg.Opt(
        'threshold',
        type=units.Number(min=0.001, max=1e6),
        default=0.1,
        advanced=True,
        help='''
Prefetch a chunk, and count it as part of the boot set of its image, once this
many servers have read it. Below 1: this share of the servers that read the
most frequent chunk. With lower values more is fetched that others do not read;
with higher ones they wait for more of what they read. With a number, nothing
is known of an image until as many servers have read it; a host counts in
profiles for at most 16. Set the same value for conductors, the API and hosts.
On hosts it holds for images that are served from then on.
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
Who learns from what servers read of public images. Profiles of other images
are always those of one project. With "project" hosts do not teach each other
by hints either, which tell no projects apart. Set the same value for
conductors, the API and diffcache-lazy.
'''),
    cfg.BoolOpt(
        'carry_profiles',
        default=True,
        advanced=True,
        help='''
Whether an image that no server has read yet gets the profile of a similar
image, such as the build before, at the places where it has the same content.
Repositories compute it, which reads the image once. Without it, the first
servers of a new image wait for more of what they read. Conductors read this
option.
'''),
    cfg.Opt(
        'boot_set_share',
        type=units.Number(min=0.0, max=1.0),
        default=0.1,
        advanced=True,
        help='''
Share of each host's ``[agent] cache_capacity`` for boot sets: the chunks that
boots read, of images that the host does not hold. Whole percents count. What
sets may take is not there for whole images. With higher values lazy boots of
more images start without waiting; 0 plans none, and precache jobs get none.
Set the same value for all conductors; agents do not read it.
'''),
    cfg.IntOpt(
        'most_boot_sets',
        default=32,
        min=0,
        max=500,
        advanced=True,
        help='''
Most boot sets of a host. diffcached serves each by two processes, also while
no server reads it. Set the same value for all conductors; agents do not read
it.
'''),
    cfg.Opt(
        'worth_seconds',
        type=units.Number(min=0.0),
        default=2.0,
        advanced=True,
        help='''
Seconds that a full delivery has to take, as predicted, for an image to be
served while it arrives. Those of which less is predicted, such as images that
this host holds, are delivered whole. 0 serves all images that way that the
host does not hold.
'''),
]
