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
"""Versions of servers and volumes: what agents do, and by what policy."""

from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

SAVING = 'saving'
AVAILABLE = 'available'
ERROR = 'error'
DELETING = 'deleting'

# Why a version was saved.
REQUEST = 'request'
SCHEDULE = 'schedule'
SHUTDOWN = 'shutdown'
DELETE = 'delete'
# Before a server was rolled back: what it was then.
ROLLBACK = 'rollback'
# For an image that Nova makes of the server.
IMAGE = 'image'
TRIGGERS = (REQUEST, SCHEDULE, SHUTDOWN, DELETE, ROLLBACK, IMAGE)

SAVE = 'save'
RESTORE = 'restore'
EXPORT = 'export'
DIFF = 'diff'
FORGET = 'forget'
PRUNE = 'prune'
VERIFY = 'verify'
# Seals packs with the key that replaced another one.
REKEY = 'rekey'
# Accepts what hosts that may only add have added.
ACCEPT = 'accept'
# Writes a backup to a volume.
RESTORE_VOLUME = 'restore-volume'
# Has the copy of a store follow it.
REPLICATE = 'replicate'
# Creates a store that was lost of its copy.
RECOVER = 'recover'
KINDS = (SAVE, RESTORE, EXPORT, DIFF, FORGET, PRUNE, VERIFY, REKEY, ACCEPT,
         RESTORE_VOLUME, REPLICATE, RECOVER)
# Those that change what a store has already, or its copy.
MAINTENANCE = (FORGET, PRUNE, REKEY, ACCEPT, REPLICATE, RECOVER)
# What an operator starts for all of a project's store.
OF_STORES = (VERIFY, REPLICATE, RECOVER)
# The name of a task that replaces the key first.
ROTATE = 'rotate'
# How a restore may write disks: what differs, or all of them anew.
AUTO = 'auto'
IN_PLACE = 'rollback'
REBUILD = 'rebuild'
METHODS = (AUTO, IN_PLACE, REBUILD)
# Those that work on disks of servers, or volumes, so that the host that has
# these has to do them.
AT_THE_DISK = (SAVE, RESTORE, RESTORE_VOLUME)

QUEUED = 'queued'
RUNNING = 'running'
DONE = 'done'
FAILED = 'failed'
CANCELLED = 'cancelled'
TASK_STATES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
# For how long a version that a host reads is not deleted.
READ_SECONDS = 900
# A host loses a task that it has not reported for this long. Shorter than what
# Nova waits for by default, longer than a restart of an agent or broker takes.
LEASE_SECONDS = 300
# Those of tasks that nothing more will happen to.
ENDED = (DONE, FAILED, CANCELLED)


@versioned.DiffCacheObjectRegistry.register
class VersionDisk(versioned.DiffCacheObject):
    """What a store has of one disk of a server.

    ``version`` is the store's own id of it. ``base_id`` is the content id of
    the base image of the disk, ``base_name`` the name of its file,
    ``volume_id`` the volume that the disk is.
    """

    VERSION = '1.0'

    fields = {
        'device': fields.StringField(fields.DEVICE_PATTERN),
        'version': fields.UUIDField(),
        'size': fields.NonNegativeIntegerField(),
        'base_id': fields.IdField(nullable=True, default=None),
        'base_name': fields.StringField(nullable=True, default=None),
        'volume_id': fields.UUIDField(nullable=True, default=None),
    }


@versioned.DiffCacheObjectRegistry.register
class VersionTask(versioned.DiffCacheObject):
    """Work on versions that an agent is asked to do.

    ``disks`` are those of the version that the task is about, ``others``
    those of the one that it is compared with. ``keep_version`` is the id
    under which a restore keeps what the server was before, ``method`` one of
    METHODS. ``rate`` is in bytes/s. ``image_id`` is the image of an earlier
    export. ``volume_id`` is the volume that is backed up or restored, in place
    of a server; a client of the host's agent gives that the open volume.
    ``volumes`` are those of the server that are saved with its disks.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.UUIDField(),
        'kind': fields.EnumField(KINDS),
        'project_id': fields.IdField(),
        'server_id': fields.IdField(nullable=True, default=None),
        'volume_id': fields.IdField(nullable=True, default=None),
        'version_id': fields.UUIDField(nullable=True, default=None),
        'disks': fields.ListOfObjectsField('VersionDisk', default=[]),
        'others': fields.ListOfObjectsField('VersionDisk', default=[]),
        'keep_version': fields.UUIDField(nullable=True, default=None),
        'dry_run': fields.BooleanField(default=False),
        'method': fields.EnumField(METHODS, default=AUTO),
        'alpha': fields.StringField(fields.ALPHA_PATTERN, default='0'),
        'rate': fields.NonNegativeIntegerField(nullable=True, default=None),
        'name': fields.StringField(default=''),
        'image_id': fields.IdField(nullable=True, default=None),
        'base_image': fields.IdField(nullable=True, default=None),
        'volumes': fields.ListOfStringsField(fields.UUID_PATTERN, default=[]),
    }


@versioned.DiffCacheObjectRegistry.register
class SavedVersion(versioned.DiffCacheObject):
    """What saving a server came to. Sizes in bytes.

    The guest was paused for ``pause_ms``, and its filesystems were frozen for
    ``frozen_ms``; ``quiesced`` means that it flushed them before.
    """

    VERSION = '1.0'

    fields = {
        'disks': fields.ListOfObjectsField('VersionDisk'),
        'size': fields.NonNegativeIntegerField(),
        'bytes_changed': fields.NonNegativeIntegerField(),
        'bytes_read': fields.NonNegativeIntegerField(),
        'bytes_stored': fields.NonNegativeIntegerField(),
        'seconds': fields.NonNegativeFloatField(),
        'pause_ms': fields.NonNegativeFloatField(),
        'frozen_ms': fields.NonNegativeFloatField(default=0.0),
        'quiesced': fields.BooleanField(default=False),
    }


@versioned.DiffCacheObjectRegistry.register
class TaskReport(versioned.DiffCacheObject):
    """How far an agent is with a task.

    ``done`` and ``total`` are bytes. ``saved`` is what a save came to,
    ``kept`` what a restore kept. ``result`` has whatever else is known at the
    end, by name, as JSON. ``error`` is the error as it was raised,
    ``error_code`` its code, see ``exceptions.code_of``. ``store_bytes`` is the
    size of the project's store after a task that changed it.
    """

    VERSION = '1.0'

    fields = {
        'task_id': fields.UUIDField(),
        'state': fields.EnumField(TASK_STATES),
        'done': fields.NonNegativeIntegerField(default=0),
        'total': fields.NonNegativeIntegerField(default=0),
        'error': fields.TextField(nullable=True, default=None),
        'error_code': fields.StringField(nullable=True, default=None),
        'store_bytes': fields.NonNegativeIntegerField(nullable=True,
                                                      default=None),
        'saved': fields.ObjectField('SavedVersion', nullable=True,
                                    default=None),
        'kept': fields.ObjectField('SavedVersion', nullable=True,
                                   default=None),
        'result': fields.StringField(max_length=fields.RESULT_LENGTH,
                                     default='{}'),
    }


@versioned.DiffCacheObjectRegistry.register
class VersionPolicy(versioned.DiffCacheObject):
    """When a server is saved, and which of its versions are kept.

    Without ``server_id`` it holds for all servers of the project that have
    none of their own. ``every`` is in seconds. A policy that is ``required``
    has Nova wait for, and insist on, what is saved on shutdown or delete.
    With ``volumes`` the schedule saves the servers' volumes too.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.UUIDField(),
        'project_id': fields.IdField(),
        'server_id': fields.IdField(nullable=True, default=None),
        'every': fields.NonNegativeIntegerField(nullable=True, default=None),
        'keep_last': fields.NonNegativeIntegerField(default=0),
        'keep_hourly': fields.NonNegativeIntegerField(default=0),
        'keep_daily': fields.NonNegativeIntegerField(default=0),
        'keep_weekly': fields.NonNegativeIntegerField(default=0),
        'keep_monthly': fields.NonNegativeIntegerField(default=0),
        'on_shutdown': fields.BooleanField(default=False),
        'on_delete': fields.BooleanField(default=False),
        'required': fields.BooleanField(default=False),
        'volumes': fields.BooleanField(default=True),
        'alpha': fields.StringField(fields.ALPHA_PATTERN, default='0'),
    }


@versioned.DiffCacheObjectRegistry.register
class NewVersion(versioned.DiffCacheObject):
    """A request to save a version, of a server or of a volume.

    ``volume_metadata`` is what Cinder stores with the backup of a volume.
    ``volumes`` are those of the server that are saved with its disks: the
    caller may read each.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.UUIDField(),
        'server_id': fields.IdField(nullable=True, default=None),
        'volume_id': fields.IdField(nullable=True, default=None),
        'volume_metadata': fields.TextField(default=''),
        'project_id': fields.IdField(),
        'user_id': fields.IdField(nullable=True, default=None),
        'request_id': fields.StringField(nullable=True, default=None),
        'name': fields.StringField(default=''),
        'description': fields.TextField(default=''),
        'trigger': fields.EnumField(TRIGGERS, default=REQUEST),
        'protected': fields.BooleanField(default=False),
        'alpha': fields.StringField(fields.ALPHA_PATTERN, default='0'),
        'rate': fields.NonNegativeIntegerField(nullable=True, default=None),
        'base_image': fields.IdField(nullable=True, default=None),
        'volumes': fields.ListOfStringsField(fields.UUID_PATTERN, default=[]),
    }
