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
"""Options of saving servers as versions."""

import copy

from oslo_config import cfg

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'versions',
    title='Versions of servers',
    help='Where versions are stored, and how hosts save and restore servers.'
         ' Agents read all of it; the conductor reads the intervals.')

OPTS = [
    cfg.StrOpt(
        'store',
        default='',
        help='''
Store of versions: ``file:///directory``, on a filesystem that all hosts share,
or ``glance:DRIVER`` (``glance:swift:PREFIX``), whose options are in the group
``[glance_store]`` of ``store_config``. All hosts, and the agent of the
repository, have to name the same one. Each project has a part of its own in
it. Empty, this host saves and restores nothing.
'''),
    cfg.ListOpt(
        'store_config',
        default=[],
        help='Files with the options of ``[glance_store]``, for a store that'
             ' glance_store drives.'),
    cfg.StrOpt(
        'key_file',
        help='''
File with 32 bytes, or 64 hexadecimal digits, that versions are encrypted with.
Each project's key is derived from it. Without it, and without
``key_manager``, the store is in the clear. Without the file, nothing in an
encrypted store can be read again.
'''),
    cfg.BoolOpt(
        'key_manager',
        default=False,
        help='''
Have the key manager of ``[key_manager] backend``, which is Barbican unless
that says otherwise, make and keep a key for each project, with the first
version that is saved of it. Versions are encrypted with it. The user whom the
group ``[barbican]`` names has to be allowed to create and read secrets. What
was stored in the clear before is not taken for encrypted, and is refused.
'''),
    cfg.ListOpt(
        'directories',
        default=['/var/lib/nova/instances'],
        help='''
Directories below which servers' disks and their base images are: Nova's
``[DEFAULT] instances_path``. The agent opens no disk, and no backing file of
one, that is anywhere else.
'''),
    cfg.StrOpt(
        'libvirt_uri',
        default='qemu:///system',
        help='How the agent reaches the hypervisor of this host.'),
    cfg.Opt(
        'rate',
        type=units.Size(),
        sample_default='100MB',
        help='''
Bytes per second that are read of a disk at most while it is saved, in bytes or
with a unit. Lower it if guests feel it; saving takes longer then. Not set, the
disk is read as fast as it goes. A request may name a lower one.
'''),
    cfg.IntOpt(
        'workers',
        default=1,
        min=1,
        max=16,
        help='How many servers of this host may be saved, restored or exported'
             ' at the same time.'),
    cfg.IntOpt(
        'hook_timeout',
        default=600,
        min=1,
        help='''
Seconds that Nova waits, when a server is shut down or deleted, for a version
that the server's policy wants to have saved then. After that the server is
shut down or deleted without it, unless the policy requires it.
'''),
    cfg.IntOpt(
        'resend_interval',
        default=60,
        min=2,
        help='''
Seconds without a sign of life after which the conductor sends a task to its
host again. The host does no work twice.
'''),
    cfg.IntOpt(
        'prune_interval',
        default=86400,
        min=0,
        help='''
Seconds between two times at which the space of deleted versions is given back,
for each project. 0 never does it.
'''),
    cfg.IntOpt(
        'level',
        default=3,
        min=1,
        max=19,
        help='''
zstd level at which saves compress. 1 takes a fifth less of the host's CPU time
and 5% more space.
'''),
    cfg.IntOpt(
        'prune_level',
        default=0,
        min=0,
        max=19,
        help='''
zstd level at which what was saved is compressed again when space is given
back: 17 makes it 7% smaller than level 3 does, at some 3 MB per second of CPU
time. Restores are no slower after it. 0 leaves it as it was saved.
'''),
    cfg.Opt(
        'prune_limit',
        type=units.Size(minimum=1),
        default=256 * 1000 ** 2,
        sample_default='256MB',
        help='''
Bytes of a project that are compressed again at a time, as none of its servers
can be saved meanwhile. The rest waits for the next time.
'''),
    cfg.IntOpt(
        'verify_interval',
        default=604800,
        min=0,
        help='''
Seconds between two times at which everything that a project has stored is read
and verified. 0 never does it. What is damaged is named in the log and in the
task's result.
'''),
    cfg.IntOpt(
        'task_lifetime',
        default=604800,
        min=60,
        help='Seconds for which tasks that ended can still be looked at.'),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    # A group remembers its options' values: each configuration its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """The group and its options, for the sample configuration."""
    return {GROUP: OPTS}
