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
"""Options of the SSD cache of a compute host."""

from oslo_config import cfg

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'ssd_cache',
    title='SSD cache for volumes',
    help='The cache that ``diffcache-ssdcache`` serves on a compute host, and'
         ' how the agent attaches volumes to it. Both read this group.')

OPTS = [
    cfg.StrOpt(
        'device',
        sample_default='/dev/disk/by-partlabel/ssd-cache',
        help='''
Block device or file for cached blocks. ``diffcache-ssdcache --format`` erases
it. Use a path that stays over restarts of the host.
'''),
    cfg.Opt(
        'capacity',
        type=units.Size(4096),
        sample_default='400GiB',
        help='''
Bytes of volumes that are cached, in bytes or with a unit. The device needs 0.8
percent and 3 MB more; main memory needs up to 32 bytes for each 4096. A change
takes effect with ``--format``.
'''),
    cfg.StrOpt(
        'socket',
        default='/run/diffcache-ssdcache/nbd.sock',
        help='''
Unix socket of the exports, which QEMU connects to. The path may have 107
bytes.
'''),
    cfg.StrOpt(
        'socket_group',
        help='''
Group whose members may connect to ``socket``, besides the cache's own user,
which has to belong to it as well: one for QEMU's user alone. Unset: none.
'''),
    cfg.StrOpt(
        'control',
        default='',
        sample_default='/run/diffcache-ssdcache/control.sock',
        help='''
Unix socket for commands to the cache. Its owner alone may connect: the agent
has to run as the same user as the cache. Empty disables the SSD cache: the
agent attaches no volume then.
'''),
    cfg.StrOpt(
        'state_dir',
        default='/var/lib/diffcache/ssdcache',
        help='''
Directory of the cache, which notes there that the device failed. It has to be
on another disk than the device, and to survive a restart of the host.
'''),
    cfg.ListOpt(
        'origins',
        default=['/dev'],
        help='''
Directories that block devices and files of volumes have to be in, and pools of
Ceph, such as ``rbd:volumes``, whose images may be cached. The agent attaches
no others. Storage that is mounted, such as NFS, needs Nova's
directory for mounts besides.
'''),
    cfg.Opt(
        'sequential_cutoff',
        type=units.Size(),
        default=0,
        advanced=True,
        help='''
Bytes in sequence after which requests are not cached, for volumes whose type
has no ``diffcache:ssd_cache:sequential``. Lower numbers keep scans and backups
out of the cache, but also the first reading of large files. 0 caches all.
'''),
    cfg.IntOpt(
        'admission',
        default=1,
        min=1,
        max=15,
        advanced=True,
        help='''
Cache a block at this reference to it, of volumes whose type has no
``diffcache:ssd_cache:admission``. 2 writes less to the SSD, and keeps blocks
out that are used once; the cache then fills more slowly.
'''),
    cfg.Opt(
        'wear_budget',
        type=units.Size(),
        default=0,
        sample_default='500GB',
        advanced=True,
        help='''
Bytes that may be written to the SSD each day, on average: its drive writes per
day (DWPD), from the data sheet, times its size, less what others write to it.
What idle hours leave may be written later, up to one day's. Lower numbers have
volumes whose hits save the least for each byte cache blocks at a later
reference, or no new ones. 0 is no bound. Blocks of volumes are counted, and
not the cache's metadata.
'''),
    cfg.StrOpt(
        'dirty_max',
        default='50%',
        advanced=True,
        help='''
The most blocks of a volume in the mode write-back that only the cache has: a
number of blocks of 4 KiB, or a percentage of the volume's size in the cache.
Writes beyond it wait. Lower numbers lose less with the SSD or the host, and
have less to be written back before a detach or a live migration. A change
takes effect when the cache is started again.
'''),
    cfg.IntOpt(
        'dirty_age',
        default=30,
        min=0,
        max=86400,
        advanced=True,
        help='''
Seconds after which such a block is written to the volume. Lower numbers lose
less with the SSD or the host; higher ones save writes to the volume where the
same blocks are written again and again. A change takes effect when the cache
is started again.
'''),
    cfg.StrOpt(
        'policy',
        default='latency',
        advanced=True,
        help='''
What the sizes of volumes are to achieve, after each epoch. ``latency``: the
least mean latency, once the ``diffcache:ssd_cache:sla`` of volumes are met.
``fairness``: the least hit ratio as large as possible.
``wss``: in proportion to working sets. ``priority``: the volume with the
highest ``diffcache:ssd_cache:priority`` first. ``pooled``: as in one cache for
all, beyond ``:min``. ``static``: by ``:weight`` alone, whatever is requested.
Further policies are found through the entry points
``diffcache.ssdcache.policies``.
'''),
    cfg.IntOpt(
        'epoch',
        default=120,
        min=1,
        advanced=True,
        help='''
Seconds after which sizes are decided anew, by what was requested in them;
after 10 seconds at the soonest if hits are no longer those that curves
predicted. Lower numbers follow changes sooner, and are misled by short bursts.
'''),
    cfg.Opt(
        'warm_rate',
        type=units.Size(),
        default=32 << 20,
        sample_default='32MiB',
        advanced=True,
        help='''
Bytes each second that are read of volumes whose servers were migrated live to
this host, to cache the blocks that the host before had cached. Of each volume
they are at most 512 MiB, and none is evicted for them. 0 reads none: such a
volume begins empty, with a size by the curve of the host before.
'''),
    cfg.IntOpt(
        'reconnect_delay',
        default=600,
        min=1,
        advanced=True,
        help='''
Seconds for which a guest's requests wait while the cache does not run. After
that the server is paused until the cache runs again. libvirt 9.0 has no such
delay: it pauses the server at once. Volumes have the number that was valid
when they were attached.
'''),
]
