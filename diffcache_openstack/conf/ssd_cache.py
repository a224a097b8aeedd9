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
it. Use a path that is the same after a restart of the host.
'''),
    cfg.Opt(
        'capacity',
        type=units.Size(4096),
        sample_default='400GiB',
        help='''
Size of the cache: bytes of volumes that it can hold, in bytes or with a unit.
The device needs 0.8 percent and 3 MB more; main memory needs up to 32 bytes
for each 4096. A change takes effect with ``--format``.
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
Directory where the cache records that its device failed. It has to be on
another disk than the device, and to survive a restart of the host.
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
    cfg.StrOpt(
        'guest_path',
        default='nbd',
        choices=[
            ('nbd', 'servers reach all volumes through QEMU, by NBD'),
            ('vhost-user', 'servers whose memory is shared reach volumes'
                           ' without QEMU, where that is possible')],
        help='''
How servers reach their volumes in the cache. ``vhost-user`` costs the host
less per request, but such servers cannot be migrated live, their volumes
cannot be saved with server versions, and a guest that takes over its process
can read all of the cache device. Memory is shared with huge pages, with Nova's
``[libvirt] file_backed_memory``, or with ``diffcache:shared_memory=true`` in a
flavor. ``volume cache show`` says why a volume is reached by NBD. Changes take
effect when servers are started or rebooted hard.
'''),
    cfg.Opt(
        'sequential_cutoff',
        type=units.Size(),
        default=0,
        advanced=True,
        help='''
Stop caching a sequential stream after this many bytes, for volumes whose type
does not set ``diffcache:ssd_cache:sequential``. Lower values keep scans and
backups out of the cache, but also the first read of large files. 0 caches all.
'''),
    cfg.IntOpt(
        'admission',
        default=1,
        min=1,
        max=15,
        advanced=True,
        help='''
Cache a block on this reference to it (1: on the first), for volumes whose type
does not set ``diffcache:ssd_cache:admission``. 2 writes less to the SSD and
keeps out blocks that are used only once; the cache then fills more slowly.
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
What is not used in idle hours may be written later, up to the budget of one
day. With lower values, volumes whose hits save the least per byte written
cache blocks on a later reference, or cache no new blocks. 0 sets no limit.
Only blocks of volumes count, not the cache's metadata.
'''),
    cfg.StrOpt(
        'dirty_max',
        default='50%',
        advanced=True,
        help='''
Maximum number of dirty blocks of a volume in write-back mode, which only the
cache has: a number of blocks of 4 KiB, or a percentage of the volume's size in
the cache. Writes beyond it wait. With lower values less is lost if the SSD or
the host fails, and less has to be written back before a detach or a live
migration. A change takes effect when the cache is restarted.
'''),
    cfg.IntOpt(
        'dirty_age',
        default=30,
        min=0,
        max=86400,
        advanced=True,
        help='''
Seconds after which a dirty block is written to the volume. With lower values
less is lost if the SSD or the host fails; higher values save writes to the
volume where the same blocks are written repeatedly. A change takes effect when
the cache is restarted.
'''),
    cfg.StrOpt(
        'policy',
        default='latency',
        advanced=True,
        help='''
Goal by which the volumes' shares of the cache are sized after each epoch.
``latency``: the lowest mean latency, once each volume's
``diffcache:ssd_cache:sla`` is met. ``fairness``: the highest minimum hit
ratio. ``wss``: in proportion to working sets. ``priority``: the volume with
the highest ``diffcache:ssd_cache:priority`` first. ``pooled``: one cache
shared by all volumes, except each volume's ``:min``. ``static``: by
``:weight`` alone, whatever is requested. Further policies are found through
the entry points ``diffcache.ssdcache.policies``.
'''),
    cfg.IntOpt(
        'epoch',
        default=120,
        min=1,
        advanced=True,
        help='''
Seconds between two decisions on sizes, each based on the requests since the
last one. If hits no longer match the prediction, the next decision is made
earlier, but not within 10 seconds. Lower values follow changes sooner, but are
misled by short bursts.
'''),
    cfg.Opt(
        'warm_rate',
        type=units.Size(),
        default=32 << 20,
        sample_default='32MiB',
        advanced=True,
        help='''
Bytes per second to read from volumes whose servers were live-migrated to this
host, to cache the blocks that the previous host had cached: at most 512 MiB of
each volume, and without evicting other blocks. 0 disables it: such a volume
starts with an empty cache, sized by the curve from the previous host.
'''),
    cfg.IntOpt(
        'reconnect_delay',
        default=600,
        min=1,
        advanced=True,
        help='''
Seconds for which a guest's requests wait while the cache does not run. After
that the server is paused until the cache runs again. libvirt 9.0 has no such
delay: it pauses the server at once. A volume keeps the value that was set when
it was attached.
'''),
]
