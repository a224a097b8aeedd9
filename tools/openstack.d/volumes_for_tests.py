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
"""Drivers of Cinder for tests: volumes are files of this machine.

A compute host, which is a namespace of the same machine, reaches them as loop
devices of its own, as real hosts have, or as files of a share that is mounted
there, too.
"""

import os
import pathlib
import shutil
import time

from cinder import exception
from cinder import interface
from cinder.volume import driver
from cinder.volume.drivers import nfs
from oslo_concurrency import processutils
from oslo_config import cfg

CONF = cfg.CONF

# A file among the volumes: while it exists, copies of volumes do not begin.
WAIT = 'wait'


@interface.volumedriver
class FilesForTestsDriver(driver.VolumeDriver):
    """Keeps each volume, and each snapshot, in a file below ``state_path``."""

    VERSION = '1.0'

    def check_for_setup_error(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    @property
    def _folder(self) -> pathlib.Path:
        return pathlib.Path(CONF.state_path, 'files')

    def _path(self, resource) -> pathlib.Path:
        return self._folder / resource.name

    # -- volumes

    def create_volume(self, volume) -> None:
        with open(self._path(volume), 'xb') as file:
            file.truncate(volume.size << 30)

    def delete_volume(self, volume) -> None:
        self._detach_loops(volume)
        self._path(volume).unlink(missing_ok=True)

    def create_cloned_volume(self, volume, src_vref) -> None:
        self._copy(src_vref, volume)
        self.extend_volume(volume, volume.size)

    def extend_volume(self, volume, new_size) -> None:
        os.truncate(self._path(volume), int(new_size) << 30)
        for device in self._loops(volume):
            processutils.execute('losetup', '--set-capacity', device)

    # -- snapshots

    def create_snapshot(self, snapshot) -> None:
        self._copy(snapshot.volume, snapshot)

    def delete_snapshot(self, snapshot) -> None:
        self._path(snapshot).unlink(missing_ok=True)

    def create_volume_from_snapshot(self, volume, snapshot) -> None:
        self._copy(snapshot, volume)
        self.extend_volume(volume, volume.size)

    def _copy(self, source, target) -> None:
        if not self._path(source).exists():
            raise exception.VolumeBackendAPIException(
                data=f'{source.name} is missing')
        while (self._folder / WAIT).exists():
            time.sleep(0.1)
        processutils.execute('cp', '--sparse=always', '--reflink=auto',
                             self._path(source), self._path(target))

    # -- attachments

    def create_export(self, context, volume, connector):
        pass

    def ensure_export(self, context, volume):
        pass

    def remove_export(self, context, volume):
        pass

    def initialize_connection(self, volume, connector):
        note = self._note(volume, connector['host'])
        if not note.exists():
            out, _ = processutils.execute(
                'losetup', '--find', '--show', self._path(volume))
            note.write_text(out.strip())
        return {'driver_volume_type': 'local',
                'data': {'device_path': note.read_text(), 'discard': True}}

    def terminate_connection(self, volume, connector, **kwargs):
        if connector is None:
            self._detach_loops(volume)
            return
        note = self._note(volume, connector['host'])
        if note.exists():
            processutils.execute('losetup', '--detach', note.read_text())
            note.unlink()

    def _note(self, volume, host: str) -> pathlib.Path:
        """Return the file with the name of the device that a host has."""
        return self._folder / f'{volume.name}.{host}.loop'

    def _loops(self, volume) -> list[str]:
        out, _ = processutils.execute(
            'losetup', '--noheadings', '--output', 'NAME', '--associated',
            self._path(volume))
        return out.split()

    def _detach_loops(self, volume) -> None:
        for device in self._loops(volume):
            processutils.execute('losetup', '--detach', device)
        for note in self._folder.glob(f'{volume.name}.*.loop'):
            note.unlink()

    # -- images and figures

    def local_path(self, volume) -> str:
        return str(self._path(volume))

    def copy_image_to_volume(self, context, volume, image_service, image_id,
                             disable_sparse=False):
        with open(self._path(volume), 'r+b') as file:
            image_service.download(context, image_id, file)
        self.extend_volume(volume, volume.size)

    def copy_volume_to_image(self, context, volume, image_service,
                             image_meta):
        with open(self._path(volume), 'rb') as file:
            image_service.update(context, image_meta['id'], {}, file)

    def _update_volume_stats(self) -> None:
        free = shutil.disk_usage(self._folder).free >> 30
        self._stats = {
            'volume_backend_name': self.configuration.safe_get(
                'volume_backend_name'),
            'vendor_name': 'tests', 'driver_version': self.VERSION,
            'storage_protocol': 'local', 'total_capacity_gb': free,
            'free_capacity_gb': free, 'reserved_percentage': 0,
            'QoS_support': True, 'thin_provisioning_support': True,
            'max_over_subscription_ratio': '20',
        }


@interface.volumedriver
class BindMountNfsDriver(nfs.NfsDriver):
    """NFS's own driver, over a bind mount where no kernel knows NFS."""

    def _ensure_share_mounted(self, nfs_share: str) -> None:
        folder = nfs_share.partition(':')[2]
        mounted = self._get_mount_point_for_share(nfs_share)
        os.makedirs(mounted, exist_ok=True)
        # What is mounted from the same filesystem does not look like a mount.
        if not os.path.samefile(folder, mounted):
            processutils.execute('mount', '--bind', folder, mounted)

    def _get_capacity_info(self, nfs_share: str) -> tuple[float, float, float]:
        """Report little, so that only what asks for this backend is here."""
        *_, allocated = super()._get_capacity_info(nfs_share)
        return 8 << 30, 4 << 30, allocated
