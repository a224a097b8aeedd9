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
"""Options of versions of servers."""

from oslo_config import cfg

from diffcache_openstack.common import units

GROUP = cfg.OptGroup(
    'versions',
    title='Versions of servers',
    help='Where versions are stored, and how hosts save and restore servers.'
         ' Agents use all options, the conductor the intervals and what limits'
         ' projects.')

OPTS = [
    cfg.StrOpt(
        'store',
        default='',
        help='''
Store of versions: ``file:///directory``, on a filesystem that all hosts share,
or ``glance:DRIVER`` (``glance:swift:PREFIX``), configured in the group
``[glance_store]`` of ``store_config``. All agents have to use the same store.
Each project has a separate part of it. Empty disables versions on this host.
'''),
    cfg.ListOpt(
        'store_config',
        default=[],
        help='Configuration files with the group ``[glance_store]``, for a'
             ' store of ``glance:``.'),
    cfg.StrOpt(
        'copy',
        help='''
Store that keeps a copy of ``store``, at another site for instance, with the
syntax of ``store``. It follows ``store`` by what changed (``copy_interval``).
Hosts with this option read from it what ``store`` does not give. Only this
suite's replication may change it. Unset keeps no copy.
'''),
    cfg.ListOpt(
        'copy_config',
        default=[],
        help='Configuration files with the group ``[glance_store]``, for a'
             ' ``copy`` of ``glance:``.'),
    cfg.Opt(
        'copy_rate',
        type=units.Size(minimum=1),
        sample_default='20MB',
        help='''
Maximum bytes per second, on average, to copy from ``store`` to ``copy``, of
each project, in bytes or with a unit. Unset sets no limit.
'''),
    cfg.IntOpt(
        'copy_interval',
        default=0,
        min=0,
        help='''
For the conductor: seconds between two replications of a project's store to its
``copy``. Lower values lose less if ``store`` is lost. A replication that
failed is repeated after the same time, an hour at most. 0 disables them: set
it if the hosts have a ``copy``.
'''),
    cfg.StrOpt(
        'projects_directory',
        help='''
Directory with a file ``PROJECT.conf`` for each project whose versions have a
store, keys or credentials of their own: options of this group, of
``[key_manager]`` and of ``[barbican]``, which replace those of the other
configuration files for that project.
'''),
    cfg.BoolOpt(
        'listed_projects_only',
        default=False,
        advanced=True,
        help='''
Whether this host stores versions only of projects with a file in
``projects_directory``. Tasks of others fail.
'''),
    cfg.StrOpt(
        'inbox',
        help='''
Store to which hosts add versions, with the syntax of ``store``, if hosts must
not be able to change ``store``. Hosts then need to read ``store`` and to write
``inbox`` only; the hosts with ``maintains_store`` accept what is added. The
conductor needs ``maintenance_hosts``. Unset lets all hosts change ``store``.
'''),
    cfg.ListOpt(
        'inbox_config',
        default=[],
        help='Configuration files with the group ``[glance_store]``, for an'
             ' ``inbox`` of ``glance:``.'),
    cfg.Opt(
        'inbox_limit',
        type=units.Size(),
        default=1000 ** 4,
        sample_default='1TB',
        advanced=True,
        help='''
Maximum bytes that wait in ``inbox`` to be accepted, of all hosts and projects
together. Set it on all hosts, below the capacity of the disk. Saves that would
exceed it are refused, and may be repeated when a maintenance host has accepted
others; no single save may be larger. Hosts cannot enforce it for an ``inbox``
of ``glance:``: give its bucket a quota. 0 sets no limit.
'''),
    cfg.Opt(
        'inbox_host_limit',
        type=units.Size(),
        default=200 * 1000 ** 3,
        sample_default='200GB',
        advanced=True,
        help='''
Maximum bytes of this host's saves that wait in ``inbox`` to be accepted. A
server whose first version has more bytes, compressed, cannot be saved. Lower
values leave more of ``inbox_limit`` to other hosts. 0 sets no limit.
'''),
    cfg.IntOpt(
        'export_limit',
        default=100,
        min=-1,
        help='''
Maximum number of images in Glance that were exported from the versions of one
project. Glance applies its own quotas to the user of ``[glance]``, whatever
project an image is created for. An export that would exceed it is refused. -1
sets no limit.
'''),
    cfg.Opt(
        'export_size_limit',
        type=units.Size(),
        default=10 * 1000 ** 4,
        sample_default='10TB',
        help='''
Maximum bytes of the exported images of one project. An export starts while the
project is below the limit, and may then exceed it. 0 sets no limit.
'''),
    cfg.BoolOpt(
        'maintains_store',
        default=False,
        help='''
Whether this host changes ``store`` where an ``inbox`` is set: it accepts what
other hosts add, and deletes and prunes. It needs the credential, or the user,
that may write ``store``.
'''),
    cfg.ListOpt(
        'maintenance_hosts',
        default=[],
        help='''
For the conductor: names of the hosts with ``maintains_store``. Only they
accept, delete, prune and rewrite versions. Empty lets every host do so.
'''),
    cfg.StrOpt(
        'key_file',
        help='''
File with the key that versions are encrypted with: 32 bytes or 64 hexadecimal
digits. A key for each project is derived from it. Without it, and without
``key_manager``, versions are not encrypted. If the file is lost, an encrypted
store cannot be read.
'''),
    cfg.ListOpt(
        'former_key_files',
        default=[],
        advanced=True,
        help='''
Files with keys that ``key_file`` replaced. Stores that still have a key of
these can be read and written, until ``diffcache-manage version-key rotate``
replaces it.
'''),
    cfg.BoolOpt(
        'key_manager',
        default=False,
        advanced=True,
        help='''
Dangerous to set where versions were stored unencrypted: those cannot be read
any more, and their projects cannot be saved. Encrypts versions with a key per
project that the key manager of ``[key_manager] backend`` (by default Barbican)
creates with the project's first version. The user of the group ``[barbican]``
needs the right to create and read secrets.
'''),
    cfg.ListOpt(
        'directories',
        default=['/var/lib/nova/instances'],
        help='''
Directories with the disks of servers and their base images: Nova's ``[DEFAULT]
instances_path``. The agent opens no disk and no backing file outside of them.
'''),
    cfg.StrOpt(
        'libvirt_uri',
        default='qemu:///system',
        advanced=True,
        help='libvirt URI of the hypervisor of this host.'),
    cfg.Opt(
        'rate',
        type=units.Size(),
        sample_default='100MB',
        help='''
Maximum bytes per second to read from a disk while it is saved, in bytes or
with a unit. With lower values guests are slowed down less, and saving takes
longer. Unset sets no limit. A request may set a lower limit.
'''),
    cfg.BoolOpt(
        'manifests',
        default=False,
        advanced=True,
        help='''
Whether the store keeps a manifest of each version: hashes of the whole disk,
32 bytes for 64 KiB, by which each part is verified when a server boots from
the version while it arrives. Without it such a server waits until its disk is
restored. The first save of a disk reads it once more for that; later ones read
what changed.
'''),
    cfg.IntOpt(
        'workers',
        default=4,
        min=1,
        max=64,
        advanced=True,
        help='''
Number of tasks on versions that this host performs at the same time, at most
one of each project; projects take turns. More tasks put more load on the host.
'''),
    cfg.IntOpt(
        'project_tasks',
        default=4,
        min=1,
        max=1000,
        advanced=True,
        help='''
Number of tasks of one project that run at the same time on all hosts. Further
tasks of the project stay queued. Lower values leave more capacity to other
projects.
'''),
    cfg.Opt(
        'scratch_limit',
        type=units.Size(minimum=1),
        default=10 * 1000 ** 3,
        sample_default='10GB',
        help='''
Maximum bytes of a volume that a running server may overwrite while the volume
is saved. QEMU keeps the overwritten content in an unnamed file below ``[agent]
state_dir`` until it is read. If a server overwrites more, its writes succeed
and the save fails.
'''),
    cfg.Opt(
        'min_rate',
        type=units.Size(minimum=1),
        default=1000 ** 2,
        sample_default='1MB',
        advanced=True,
        help='''
Lowest rate in bytes per second that a request to save a server may set. Lower
ones are refused with 400. A slow save occupies its host and its project's
store until it is done.
'''),
    cfg.IntOpt(
        'hook_timeout',
        default=600,
        min=1,
        advanced=True,
        help='''
Seconds that Nova waits for a version to be saved when a server with such a
policy is shut down or deleted. After that the server is off, or deleted,
without it; deleting fails if the policy requires the version.
'''),
    cfg.IntOpt(
        'resend_interval',
        default=60,
        min=2,
        advanced=True,
        help='''
Seconds without a report after which the conductor sends a task to its host
again. The host does not repeat work that is done or running.
'''),
    cfg.IntOpt(
        'prune_interval',
        default=86400,
        min=0,
        advanced=True,
        help='''
Seconds after which the space of a deleted version is freed, by pruning its
project's store. Lower values free it sooner, and rewrite packs more often. A
prune that failed is repeated an hour later. 0 disables pruning.
'''),
    cfg.IntOpt(
        'level',
        default=3,
        min=1,
        max=19,
        advanced=True,
        help='''
Compression level of new versions (zstd). Level 1 takes a fifth less CPU time
and 5% more space than level 3.
'''),
    cfg.IntOpt(
        'prune_level',
        default=0,
        min=0,
        max=19,
        advanced=True,
        help='''
Level at which pruning compresses stored blocks again (zstd). Level 17 makes
them 7% smaller than level 3, at about 3 MB per second of CPU time. Restores
are not slower. 0 does not compress again.
'''),
    cfg.Opt(
        'prune_limit',
        type=units.Size(minimum=1),
        default=256 * 1000 ** 2,
        sample_default='256MB',
        advanced=True,
        help='''
Maximum bytes of a project that one pruning compresses again. The rest is done
by the next pruning.
'''),
    cfg.IntOpt(
        'verify_interval',
        default=604800,
        min=0,
        advanced=True,
        help='''
Seconds between two verifications of a project's whole store. Damaged versions
are listed in the log and in the task's result. 0 disables verification.
'''),
    cfg.IntOpt(
        'task_lifetime',
        default=604800,
        min=60,
        advanced=True,
        help='''
Seconds after which tasks that ended are deleted, and with them versions that
could not be saved. A task that no host could perform within this time fails.
'''),
]
