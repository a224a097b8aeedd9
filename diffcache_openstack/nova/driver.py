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
"""Nova's libvirt driver, with base images from the agent of the host."""

import collections.abc
import contextlib
import functools
import logging
import os
import pathlib
import threading
import time
import typing

from oslo_utils import fileutils

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.common import threads
from diffcache_openstack.nova import backends
from diffcache_openstack.nova import checks
from diffcache_openstack.nova import fetching
from diffcache_openstack.nova import final_saves
from diffcache_openstack.nova import lazy
from diffcache_openstack.nova import lazy_guests
from diffcache_openstack.nova import options
from diffcache_openstack.nova import resuming
from diffcache_openstack.nova import snapshots
from diffcache_openstack.nova import sources
from diffcache_openstack.nova import tallies
from diffcache_openstack.nova import volume_waits
from diffcache_openstack.nova import volumes_driver
from nova.compute import task_states
import nova.conf
from nova import exception as nova_exception
from nova import utils as nova_utils
from nova.virt.libvirt import imagecache
from nova.virt.libvirt import utils as libvirt_utils

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF
options.register_compute_opts(CONF)

AUTO = 'auto'
# No image takes as long to be delivered without a byte being written.
_ABANDONED_SECONDS = 24 * 3600


class LibvirtDriver(volumes_driver.VolumesDriver):
    """libvirt, with images delivered by DiffCache.

    Everything but the origin of base images is Nova's own driver.
    """

    def __init__(self, virtapi: typing.Any, read_only: bool = False) -> None:
        """Make the driver.

        :raises InvalidConfiguration: nova.conf cannot work with it
        """
        try:
            checks.check(CONF)
        except exceptions.InvalidInput as error:
            # In the log by itself too: a traceback hides the sentence.
            LOG.critical('nova-compute does not start: %s', error)
            raise nova_exception.InvalidConfiguration(str(error)) from error
        super().__init__(virtapi, read_only)
        client, tally = _agent()
        source = _source(client)
        self._bases = lazy.LazyBases(client, source, tally,
                                     CONF.diffcache.hash_raw_images)
        self._lazy_wait = lazy_guests.LazyWait(client, tally)
        self._leavers = lazy_guests.Leavers(self._active_guests, tally)
        LOG.info('Base images are delivered by the agent at %s; so far: %s',
                 CONF.diffcache.socket, tally.summary())
        self._fetcher = fetching.Fetcher(
            CONF, source, tally, CONF.diffcache.fallback, self._bases)
        self._saver = final_saves.Saver(client, tally,
                                        CONF.diffcache.stall_timeout,
                                        CONF.diffcache.unknown_policy)
        self._snapshots = None
        if CONF.diffcache.snapshot_images == options.STORE:
            self._snapshots = snapshots.Snapshots(
                client, tally, CONF.diffcache.stall_timeout)
        self._open_volumes(client, tally)
        backends.install(self.image_backend, checks.IMAGES_TYPES,
                         self._fetcher, self._snapshots)

    def init_host(self, host: str) -> None:
        """Start, with a thread that checks links to arriving images."""
        super().init_host(host)
        threads.Rounds('diffcache-links', self._look_after_links,
                       lazy.LOOK_SECONDS,
                       'Could not check links to arriving images',
                       exceptions.ServiceUnavailable).start()
        resuming.Resumer(self._active_guests, (
            volume_waits.VolumeWait(self._volumes.client),
            self._lazy_wait)).start()
        threading.Thread(target=self._give_back_volumes, daemon=True,
                         name='diffcache-volumes').start()

    def _active_guests(self) -> collections.abc.Iterable[typing.Any]:
        return self._host.list_guests(only_running=True)

    def _look_after_links(self) -> None:
        cache = self.image_cache_manager

        def locked(name: str, work: typing.Callable[[], bool]) -> bool:
            synchronized = nova_utils.synchronized(
                name, external=True, lock_path=cache.lock_path)
            return synchronized(work)()

        self._bases.look(pathlib.Path(cache.cache_dir),
                         imagecache.get_cache_fname, locked,
                         self._leavers.leave)

    def cache_image(self, context: typing.Any, image_id: str) -> bool:
        """Add an image to the image cache before it is needed.

        :returns: False if it was there; its age is counted anew then
        """
        name = imagecache.get_cache_fname(image_id)
        path = os.path.join(self.image_cache_manager.cache_dir, name)

        @nova_utils.synchronized(
            name, external=True,
            lock_path=self.image_cache_manager.lock_path)
        def cached() -> bool:
            if files.is_there(path):
                return super(LibvirtDriver, self).cache_image(
                    context, image_id)
            fileutils.ensure_tree(self.image_cache_manager.cache_dir)
            self._fetcher.around(libvirt_utils.fetch_image)(
                target=path, context=context, image_id=image_id)
            return True

        return cached()

    def _live_snapshot(self, context: typing.Any, instance: typing.Any,
                       guest: typing.Any, disk_path: str, out_path: str,
                       source_format: str, image_format: str,
                       image_meta: typing.Any) -> None:
        """Write the root disk of a running server to a file."""
        if self._snapshots is None or not self._snapshots.write(
                instance, disk_path, out_path, image_format,
                image_meta.properties.get('os_require_quiesce', False)):
            super()._live_snapshot(context, instance, guest, disk_path,
                                   out_path, source_format, image_format,
                                   image_meta)

    def snapshot(self, context: typing.Any, instance: typing.Any,
                 *args: typing.Any, **kwargs: typing.Any) -> None:
        """Make an image of a server, also to shelve it.

        :raises NovaException: a restore was cut short
        """
        _refuse_unfinished(instance, _refused)
        super().snapshot(context, instance, *args, **kwargs)

    def migrate_disk_and_power_off(self, context: typing.Any,
                                   instance: typing.Any, *args: typing.Any,
                                   **kwargs: typing.Any) -> typing.Any:
        """Move a server's disks, which have to be one state or the other.

        :raises InstanceFaultRollback: a restore is under way, or was cut
            short: what finishes it would stay behind
        """
        _refuse_unfinished(instance, lambda reason: nova_exception
                           .InstanceFaultRollback(
                               nova_exception.MigrationPreCheckError(
                                   reason=reason)))
        return super().migrate_disk_and_power_off(context, instance, *args,
                                                  **kwargs)

    def rescue(self, context: typing.Any, instance: typing.Any,
               *args: typing.Any, **kwargs: typing.Any) -> None:
        """Start a server with another root disk.

        :raises InstanceNotRescuable: a restore was cut short
        """
        _refuse_unfinished(instance, functools.partial(
            nova_exception.InstanceNotRescuable, instance_id=instance.uuid))
        super().rescue(context, instance, *args, **kwargs)

    def resume_state_on_host_boot(self, context: typing.Any,
                                  instance: typing.Any, *args: typing.Any,
                                  **kwargs: typing.Any) -> None:
        """Start a server that ran when its host was stopped.

        :raises InstancePowerOnFailure: a restore was cut short
        """
        _refuse_unfinished(instance, nova_exception.InstancePowerOnFailure)
        super().resume_state_on_host_boot(context, instance, *args, **kwargs)

    def _create_guest(self, context: typing.Any, xml: str,
                      instance: typing.Any, *args: typing.Any,
                      **kwargs: typing.Any) -> typing.Any:
        """Start a server, in whatever way: one that is evacuated, too.

        :raises InstancePowerOnFailure: a restore was cut short
        """
        _refuse_unfinished(instance, nova_exception.InstancePowerOnFailure)
        return super()._create_guest(context, xml, instance, *args, **kwargs)

    def power_off(self, instance: typing.Any, timeout: int = 0,
                  retry_interval: int = 0) -> None:
        """Power a server off, then save it if its policy says so.

        It is off, whether it was saved or not: an error would have Nova take
        it for running, and stop it again and again.
        """
        super().power_off(instance, timeout, retry_interval)
        if instance.task_state == task_states.POWERING_OFF:
            with contextlib.suppress(final_saves.NotSaved):
                self._saver.save_before(instance, final_saves.SHUTDOWN)

    def power_on(self, context: typing.Any, instance: typing.Any,
                 network_info: typing.Any, *args: typing.Any,
                 **kwargs: typing.Any) -> None:
        """Power a server on, unless its disks are neither here nor there.

        :raises InstancePowerOnFailure: a restore was cut short
        """
        _refuse_unfinished(instance, nova_exception.InstancePowerOnFailure)
        super().power_on(context, instance, network_info, *args, **kwargs)

    def reboot(self, context: typing.Any, instance: typing.Any,
               network_info: typing.Any, reboot_type: str, *args: typing.Any,
               **kwargs: typing.Any) -> None:
        """Reboot a server: a hard one starts servers that are off, too.

        :raises InstanceRebootFailure: a restore was cut short
        """
        _refuse_unfinished(instance, nova_exception.InstanceRebootFailure)
        super().reboot(context, instance, network_info, reboot_type, *args,
                       **kwargs)

    def destroy(self, context: typing.Any, instance: typing.Any,
                network_info: typing.Any, block_device_info: typing.Any = None,
                destroy_disks: bool = True, destroy_secrets: bool = True
                ) -> None:
        """Remove a server, which is saved before if its policy says so.

        :raises InstancePowerOffFailure: it has to be saved, and was not, or a
            volume cannot leave the SSD cache; after any other error Nova
            takes the network away from a server that stays
        """
        if not destroy_disks or instance.task_state != task_states.DELETING:
            super().destroy(context, instance, network_info,
                            block_device_info, destroy_disks, destroy_secrets)
            return
        try:
            self._saver.save_before(instance, final_saves.DELETE)
            super().destroy(context, instance, network_info,
                            block_device_info, destroy_disks, destroy_secrets)
        except (final_saves.NotSaved,
                nova_exception.VolumeDetachFailed) as error:
            raise nova_exception.InstancePowerOffFailure(
                reason=str(error)) from error

    def check_can_live_migrate_destination(
            self, context: typing.Any, instance: typing.Any,
            *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Check a live migration to this host.

        A server that runs elsewhere may have its disk without the policy that
        stops it when its image cannot be read.

        :raises MigrationPreCheckError: the server's image is arriving here
        """
        base = os.path.join(self.image_cache_manager.cache_dir,
                            imagecache.get_cache_fname(instance.image_ref))
        if instance.image_ref and os.path.islink(base):
            raise nova_exception.MigrationPreCheckError(
                reason=f'image {instance.image_ref} is still arriving at'
                       f' {CONF.host}; migrate server {instance.uuid} when it'
                       f' is whole, or to another host')
        return super().check_can_live_migrate_destination(
            context, instance, *args, **kwargs)

    def check_can_live_migrate_source(
            self, context: typing.Any, instance: typing.Any,
            *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Check a live migration from this host.

        :raises MigrationPreCheckError: the server was stopped by an error of
            a disk; on another host it would stay so; or a volume cannot leave
        """
        guest = self._host.get_guest(instance)
        if resuming.is_stopped(guest._domain):
            raise nova_exception.MigrationPreCheckError(
                reason=f'server {instance.uuid} is stopped, as a disk could'
                       f' not be read or written; migrate it when it runs, or'
                       f' stop it and migrate it cold')
        return super().check_can_live_migrate_source(
            context, instance, *args, **kwargs)

    def pre_live_migration(self, context: typing.Any, instance: typing.Any,
                           *args: typing.Any, **kwargs: typing.Any
                           ) -> typing.Any:
        """Prepare for a server that another host still runs."""
        with self._bases.migrating():
            return super().pre_live_migration(context, instance, *args,
                                              **kwargs)

    def manage_image_cache(self, context: typing.Any,
                           all_instances: typing.Any) -> None:
        """Age the image cache, and remove interrupted deliveries.

        Base images in use that are older than the agent, or its state, are
        named to it.
        """
        folder = pathlib.Path(self.image_cache_manager.cache_dir)
        try:
            for link in folder.glob('*'):
                fetching.warm(str(link))
        except exceptions.ServiceUnavailable as error:
            LOG.warning('Skipping this round of image cache aging, as an'
                        ' arriving image cannot be looked at: %s', error)
            return
        super().manage_image_cache(context, all_instances)
        self._lend_bases({instance.image_ref for instance in all_instances})
        now = time.time()
        for partial in folder.glob(f'*{fetching.SUFFIX}'):
            _remove_abandoned(partial, now)

    def _lend_bases(self, image_ids: collections.abc.Iterable[str | None]
                    ) -> None:
        for image_id in image_ids:
            if not image_id:
                continue  # Of a server that boots from a volume.
            path = os.path.join(self.image_cache_manager.cache_dir,
                                imagecache.get_cache_fname(image_id))
            # The link to an arriving image, not what it leads to.
            if os.path.lexists(path):
                self._fetcher.lend(image_id, path)


def _refused(reason: str) -> nova_exception.NovaException:
    return nova_exception.NovaException(reason)


def _refuse_unfinished(instance: typing.Any,
                       failure: collections.abc.Callable[..., Exception]
                       ) -> None:
    """Use no disks of a server that are neither one state nor the other.

    :param failure: returns the error for a reason
    :raises Exception: as ``failure`` returns it
    """
    folder = pathlib.Path(libvirt_utils.get_instance_path(instance))
    unfinished = final_saves.unfinished_rollback(folder)
    if unfinished is not None:
        raise failure(
            reason=f'{unfinished} is in the middle of a restore, which the'
                   f' DiffCache agent finishes when it runs')


def _agent() -> tuple[local_client.LocalClient, tallies.Tally]:
    group = CONF.diffcache
    client = local_client.LocalClient(group.socket,
                                      timeout=group.connect_timeout,
                                      request_id=contexts.current_request_id)
    return client, tallies.Tally(pathlib.Path(group.state_file))


def _source(client: local_client.LocalClient) -> sources.Source:
    group = CONF.diffcache
    mode = None if group.mode == AUTO else group.mode
    records = image_records.Verifier(signatures.Security(
        authority=host_keys.Authority(group.authority_file)
        if group.authority_file else None, required=True))
    return sources.Source(client, mode, group.stall_timeout, records,
                          restarts.Restarts(group.restart_timeout))


def _remove_abandoned(path, now):
    try:
        if now - path.stat().st_mtime > _ABANDONED_SECONDS:
            path.unlink()
            LOG.info('Removed %s, left by an interrupted delivery',
                     path)
    except FileNotFoundError:
        pass  # Its delivery ended meanwhile.
    except OSError as error:
        LOG.warning('Could not remove %s, left by an interrupted'
                    ' delivery: %s', path, error)
