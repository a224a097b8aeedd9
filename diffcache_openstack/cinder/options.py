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
"""Options in cinder.conf: of the group [diffcache], and of each backend."""

import copy

from oslo_config import cfg

from diffcache_openstack.common import units
from diffcache_openstack.remote_calls import options

GROUP = cfg.OptGroup(
    'diffcache', title='DiffCache in Cinder',
    help='''
How cinder-volume and cinder-backup reach the DiffCache conductor, and what
they do where it does not answer. Used by backends whose ``volume_driver`` is
diffcache_openstack.cinder.driver.load.
''')

FAIL = 'fail'
PROCEED = 'proceed'

OPTS: list[cfg.Opt] = [
    *options.broker('Cinder'),
    cfg.StrOpt(
        'key_file',
        sample_default='/etc/cinder/diffcache.key',
        help='''
File with the key that this service signs its messages with, as
"diffcache-manage host-key create --role cinder" writes it. It must be readable
by Cinder's user only (mode 0600). A key of this role can hold volumes, have
them follow new types, and report their backups, and nothing else. Without it
messages are not signed, which a conductor with ``[messaging] authority_file``
refuses.
'''),
    cfg.StrOpt(
        'authority_file',
        sample_default='/etc/cinder/diffcache-authority.pem',
        help='''
File with the certificate of the authority that issued the keys of the
deployment, the value of the conductor's ``[messaging] authority_file``. With
it only signed answers of a conductor are believed.
'''),
    cfg.StrOpt(
        'on_unreachable',
        default=FAIL,
        choices=[
            (FAIL, 'the operation fails, and names volume, host and next'
                   ' step'),
            (PROCEED, 'it continues, which is logged and counted'),
        ],
        help='''
What to do with a snapshot, clone, upload or backup of a volume in use that may
be in write-back mode when the conductor, or the agent of the volume's host,
does not answer. Dangerous if ``proceed``: the server's last writes may be
missing, and later writes may be present without earlier ones. Volumes that
cannot be in write-back mode are not affected.
'''),
    cfg.Opt(
        'hold_lease',
        type=units.Number(min=6.0, max=600.0),
        default=30.0,
        advanced=True,
        help='''
Seconds after which write-back of a volume resumes if the cinder-volume that
holds it has ended. While an operation runs, it renews its holds three times in
this time. An operation fails if the agent of the volume's host cannot be
reached for this time.
'''),
    cfg.Opt(
        'hold_timeout',
        type=units.Number(min=10.0),
        default=3600.0,
        advanced=True,
        help='''
Seconds for which one operation may hold a volume, including the time in which
the host writes back its dirty blocks. After that write-back resumes, and the
operation fails. Raise it if uploads of large volumes in use take longer.
'''),
    cfg.Opt(
        'queue_timeout',
        type=units.Number(min=0.1, max=10.0),
        default=2.0,
        advanced=True,
        help='''
Seconds for which the writes of a group's volumes may wait while a backend that
does not report ``consistent_group_snapshot_enabled`` snapshots one after the
other. A group snapshot that takes longer fails, as it would not be of one
moment. To guests the storage appears slow meanwhile.
'''),
    cfg.Opt(
        'rpc_timeout',
        type=units.Number(min=1.0, max=600.0),
        default=20.0,
        advanced=True,
        help='''
Seconds to wait for an answer of the conductor, which asks the agent of the
volume's host.
'''),
]

BACKUP_OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'socket',
        default='/var/lib/diffcache/cinder.sock',
        help='''
Socket of this host's agent for cinder-backup, the value of its option
``[agent] cinder_socket``. The user of cinder-backup has to be in the group
that owns it (``[agent] cinder_socket_group``).
'''),
    cfg.StrOpt(
        'backup_alpha',
        default='0',
        regex=r'0(\.\d{1,6})?|1(\.0{1,6})?|auto',
        advanced=True,
        help='''
How much data a backup stores again so that restores are fast: from 0 (only
what is new) to 1 (all that differs from the volume's first backup). ``auto``
stores as much as keeps restores within 1.15 times the time that 1 needs.
'''),
    cfg.Opt(
        'restart_timeout',
        type=units.Number(min=0.0),
        default=60.0,
        advanced=True,
        help='''
Seconds to wait for an agent or a conductor that does not answer, for example
during its upgrade. If it answers within this time, a backup or restore
resumes; otherwise it fails.
'''),
]

BACKEND_OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'diffcache_backend_driver',
        sample_default='cinder.volume.drivers.rbd.RBDDriver',
        help='''
Driver of a backend whose ``volume_driver`` is
diffcache_openstack.cinder.driver.load: the value that ``volume_driver`` would
have without DiffCache. All other options of the backend are that driver's.
'''),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS + BACKUP_OPTS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup | str, list[cfg.Opt]]]:
    """Return the options by group, for the sample configuration."""
    return [(GROUP, OPTS + BACKUP_OPTS), ('backend_defaults', BACKEND_OPTS)]
