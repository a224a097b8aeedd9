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
"""Borrowing: base images that Nova keeps are used like what is held.

A file that the agent delivered is used at once. Any other one is verified
first, in the background, with a manifest that is fetched if need be. The same
thread watches the files in use.
"""

import collections.abc
import logging
import pathlib
import threading

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import borrowed_files
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# How often the files are compared with what is known of them.
CHECK_SECONDS = 10.0
# Files that wait to be verified; more are refused.
_MOST_WAITING = 100


class Borrowing:
    """Takes files of other services into use, and watches them.

    :param files: the files
    :param builder: fetches manifests
    :param host: this host's state
    :param moved: transfers of this host
    :param new_throttle: gives the throttle of fetching a manifest
    """

    def __init__(self, files: borrowed_files.BorrowedFiles,
                 builder: building.Builder, host: host_state.HostState,
                 moved: site_transfers.Transfers,
                 new_throttle: collections.abc.Callable[
                     [], throttles.Throttle]) -> None:
        self._files = files
        self._builder = builder
        self._host = host
        self._transfers = moved
        self._new_throttle = new_throttle
        self._wake = threading.Condition()
        self._unverified: dict[views.Key, pathlib.Path] = {}
        self._unannounced: list[views.Key] = []
        self._has_work = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='borrowing')

    def start(self) -> None:
        """Use the files of the last run, and start to watch them."""
        self._unverified.update(self._files.load())
        self._has_work = bool(self._unverified)
        self._host.object_added()
        self._thread.start()

    def stop(self) -> None:
        """Stop after the file that is being verified."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        self._thread.join()

    def offer(self, image: views.ImageRef, path: pathlib.Path) -> bool:
        """Use a file of another service that has an image's raw content.

        :returns: whether it is used; a file that this agent did not deliver
            is verified first, in the background
        :raises InvalidInput: it must not be used
        :raises ServiceUnavailable: too many files are used, or wait
        """
        key = views.Key(views.IMAGES, image.content_id)
        try:
            used = self._files.add_delivered(key, path)
        except OSError as error:
            raise exceptions.InvalidInput(
                f'{path} cannot be opened: {error.strerror}.') from error
        with self._wake:
            if used:
                self._unannounced.append(key)
            elif len(self._unverified) < _MOST_WAITING:
                self._unverified[key] = path
            else:
                raise exceptions.ServiceUnavailable(
                    f'{path} is not used: {_MOST_WAITING} files wait to be'
                    f' verified.')
            self._has_work = True
            self._wake.notify_all()
        if used:
            self._host.object_added()
        return used

    # -- the thread

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(
                    lambda: self._stopped or self._has_work, CHECK_SECONDS)
                if self._stopped:
                    return
                self._has_work = False
            try:
                self.work()
            except Exception:
                LOG.exception('Could not check files of other services,'
                              ' will retry in %d s', CHECK_SECONDS)

    def work(self) -> None:
        """Verify new files, announce them to the site, and check all."""
        with self._wake:
            unverified, self._unverified = self._unverified, {}
        for key, path in unverified.items():
            self._verify(key, path)
        with self._wake:
            unannounced, self._unannounced = self._unannounced, []
        for key in unannounced:
            self._announce(key)
        if self._files.check():
            self._host.report_due.set()

    def _verify(self, key: views.Key, path: pathlib.Path) -> None:
        """Use a file if it has the content; try later without manifest."""
        if self._host.site_map.current().content(key.id) is None:
            LOG.info('Not using %s: no image that may be served has its'
                     ' content', path)
            return
        try:
            self._builder.manifest(key.id, self._new_throttle())
        except exceptions.DiffCacheError as error:
            LOG.info('Could not fetch the manifest to verify %s, will retry'
                     ' in %d s: %s', path, CHECK_SECONDS, error)
            with self._wake:
                self._unverified.setdefault(key, path)
            return
        try:
            self._files.add(key, path)
        except (exceptions.DiffCacheError, OSError) as error:
            LOG.warning('Not using %s as %s: %s', path, key, error)
            return
        with self._wake:
            self._unannounced.append(key)
        self._host.object_added()

    def _announce(self, key: views.Key) -> None:
        """Have the site read an object here before its map shows it."""
        try:
            self._transfers.offer(key)
        except exceptions.DiffCacheError as error:
            LOG.info('Could not announce %s, peers learn of it from the site'
                     ' map: %s', key, error)
