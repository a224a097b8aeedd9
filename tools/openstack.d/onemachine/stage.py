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
"""An OpenStack behind a thin link, for benchmarks that compare caches.

It is brought up in one mode after another, always without a memory.
"""

import collections.abc
import hashlib
import json
import pathlib
import time
import uuid

from diffcache_openstack.agent_client import local_client
from onemachine import cloud
from onemachine import errors
from onemachine import modes
from onemachine import processes
from onemachine.services import common
from onemachine.services import suite
from onemachine import trial

_AGENT_SECONDS = 30
_POLL = 1.0
# Heartbeats of agents cross the link too.
_QUIET_BYTES = 20_000
_QUIET_SECONDS = 3


class Stage:
    """What benchmarks of images do with an OpenStack that is up.

    It deletes every server and image of that OpenStack.
    """

    def __init__(self, state: pathlib.Path, wan: float,
                 say: collections.abc.Callable[[str], None]) -> None:
        """Find the OpenStack.

        :param state: its folder, as given to tools/openstack
        :param wan: of the link, in Mbit/s
        :param say: gets a line for each step
        :raises OpenStackError: it is down, or has one compute host only
        """
        self.trial = trial.Trial(state)
        self.wan = wan
        self.mode = modes.MODES['plain']
        self._say = say
        self._patches = 0
        if len(self.trial.hosts) < 2:
            raise errors.OpenStackError(
                'there is one compute host only: run tools/openstack up'
                ' --computes 2')

    # -- modes

    def clear(self) -> None:
        """Delete every server and image, and Nova's base images."""
        admin = self.trial.admin
        self.clear_servers()
        for image in admin.image.images():
            admin.image.delete_image(image)

    def clear_servers(self) -> None:
        """Delete every server, and what Nova and Glance cache at the site."""
        trial = self.trial
        trial.delete(*(server.id for server in trial.admin.compute.servers(
            all_projects=True)))
        for host in trial.hosts:
            self.trim(host, 0)
        if self.mode.stock:
            self._clear_glance_cache()

    def _clear_glance_cache(self) -> None:
        """Have the site's Glance empty its own cache."""
        where = json.loads(
            (self.trial.where.state / 'layout.json').read_text())
        session = self.trial.admin.session
        found = session.delete(f'{where["glance"]["site"]}/v2/cache',
                               raise_exc=False)
        if found.status_code != 204:
            raise errors.OpenStackError(
                f"the site's Glance does not empty its cache:"
                f' {found.status_code} {found.text[:200]}')

    def bring_up(self, name: str, capacity: int) -> None:
        """Bring the OpenStack up in a mode, the suite without a memory.

        :param name: a key of :data:`.modes.MODES`
        :param capacity: of each agent's cache, in bytes
        """
        self.mode = modes.MODES[name]
        self._stop('diffcache-conductor', 'diffcache-api',
                   f'{suite.REPOSITORY}-agent', *self._site_agents())
        wanted = self._cloud(capacity)
        wanted.forget_suite()
        self._up(wanted)
        self._say(f'{name}: the OpenStack is up')

    def renew_site(self, capacity: int) -> None:
        """Let the agents of the site begin anew, with empty caches.

        :param capacity: of each of them, in bytes
        """
        if not self.mode.suite:
            return
        self._stop(*self._site_agents())
        wanted = self._cloud(capacity)
        wanted.forget_site()
        self._up(wanted)

    def _up(self, wanted: cloud.Cloud) -> None:
        wanted.write_environment()
        wanted.up()

    def _stop(self, *names: str) -> None:
        self.trial.processes.stop_all(names)

    def agents_use(self) -> dict[str, processes.Use]:
        """Return what each agent has used since its start, by name."""
        if not self.mode.suite:
            return {}
        return {name: self.trial.processes.use(f'{name}-agent')
                for name in (suite.REPOSITORY, suite.EDGE, *self.trial.hosts)}

    def _site_agents(self) -> list[str]:
        return [f'{name}-agent' for name in (*self.trial.hosts, suite.EDGE)]

    def _cloud(self, capacity: int) -> cloud.Cloud:
        options: dict[str, common.Groups] = {
            'agent': {'cache_capacity': capacity},
            # Plans are made when a benchmark says so.
            'planner': {'repository_bandwidth': self.wan, 'interval': 0},
        }
        if not self.mode.patches:
            options['repository'] = {'max_patch_ratio': 0,
                                     'patches_on_demand': 0}
        return cloud.Cloud(self.trial.given,
                           suite.Caching(self.mode.caching, options),
                           self.wan)

    # -- images

    def upload(self, files: collections.abc.Mapping[str, pathlib.Path]
               ) -> dict[str, str]:
        """Upload raw images as distributions ship them.

        :returns: ids by name
        """
        made = {name: self.trial.upload(f'{name}-{uuid.uuid4().hex[:6]}',
                                        self.shipped(path), 'qcow2')
                for name, path in files.items()}
        self._say('images are uploaded')
        return made

    def shipped(self, path: pathlib.Path) -> pathlib.Path:
        """Return a raw image as a compressed qcow2 file, made once."""
        form = path.with_suffix('.qcow2')
        if not form.exists() or form.stat().st_mtime < path.stat().st_mtime:
            new = path.with_suffix('.qcow2.new')
            self.trial.run('qemu-img', 'convert', '-c', '-O', 'qcow2', path,
                           new)
            new.rename(form)
        return form

    def withdraw(self, image: str) -> None:
        """Delete an image."""
        self.trial.admin.image.delete_image(image, ignore_missing=True)

    def await_repository(self, images: collections.abc.Sized) -> None:
        """Wait until the repository has done its work for the images."""
        if not self.mode.suite:
            return
        self.await_site(images)
        self.wait('images are compressed', self._all_are_compressed)
        if self.mode.patches:
            self.wait('patches are made', self._no_patch_is_new, settled=15)

    def await_site(self, images: collections.abc.Sized) -> None:
        """Wait until the agents of the site know the images."""
        if self.mode.suite:
            self.wait('the site knows the images', lambda: all(
                len(self.agent(name).images()) >= len(images)
                for name in (*self.trial.hosts, suite.EDGE)))

    def _all_are_compressed(self) -> bool:
        database = cloud.Cloud(self.trial.given).database
        return not database.execute(
            'SELECT id FROM diffcache.images WHERE compressed_size = 0')

    def _no_patch_is_new(self) -> bool:
        """Return whether there are patches, and none since the last look."""
        status = self.agent(suite.REPOSITORY).status()
        patches = sum(key[0] == 'patches' for key in status['holdings'])
        known, self._patches = self._patches, patches
        return 0 < patches == known

    def patch_size(self, base: str, target: str) -> int:
        """Return the bytes of the repository's patch between two images.

        :raises OpenStackError: it has none
        """
        agent = self.agent(suite.REPOSITORY)
        base, target = (agent.image(image)['content_id']
                        for image in (base, target))
        found = cloud.Cloud(self.trial.given).database.execute(
            f"SELECT size FROM diffcache.patches WHERE base = '{base}'"
            f" AND target = '{target}'")
        if not found:
            raise errors.OpenStackError(
                f'the repository has no patch from {base} to {target}')
        return found[0][0]

    # -- the site

    def agent(self, name: str) -> local_client.LocalClient:
        """Return the agent of a host, ``edge`` or ``repository``."""
        return local_client.LocalClient(str(self.trial.socket(name)),
                                        timeout=_AGENT_SECONDS)

    def wait(self, what: str, condition: collections.abc.Callable[[], object],
             settled: float = 0, seconds: float = 600) -> None:
        """Wait until a condition has held for a while.

        :param settled: for this many seconds
        :raises OpenStackError: it did not within ``seconds``
        """
        deadline = time.monotonic() + seconds
        since = None
        while since is None or time.monotonic() - since < settled:
            if time.monotonic() > deadline:
                raise errors.OpenStackError(
                    f'not within {seconds:.0f} s: {what}')
            if condition():
                since = since or time.monotonic()
            else:
                since = None
            time.sleep(_POLL)
        self._say(what)

    def await_quiet(self) -> None:
        """Wait until nothing but heartbeats crosses the link."""
        last = -_QUIET_BYTES

        def is_quiet() -> bool:
            nonlocal last
            before, last = last, self.trial.wan_bytes()
            return last - before < _QUIET_BYTES

        self.wait('the link is quiet', is_quiet, settled=_QUIET_SECONDS)

    def restart_host(self, host: str) -> None:
        """Restart a compute host with everything on it; servers stay off."""
        cloud.Cloud(self.trial.given).computes.end(host)
        self.trial.up()

    def trim(self, host: str, room: float) -> None:
        """Leave this many bytes of base images on a host, the latest used."""
        folder = self.trial.instances(host) / '_base'
        if not folder.exists():
            return
        files = sorted((path for path in folder.iterdir() if path.is_file()),
                       key=lambda path: path.stat().st_mtime, reverse=True)
        used = 0
        for path in files:
            used += path.stat().st_blocks * 512
            if used > room:
                path.unlink()

    # -- Nova's precache

    def precache(self, images: collections.abc.Iterable[str]) -> None:
        """Have Nova cache images on all hosts, and wait until it has."""
        compute = self.trial.admin.compute
        aggregate = self._aggregate()
        images = list(images)
        compute.aggregate_precache_images(aggregate, images)
        self.wait('Nova has cached the images', lambda: all(
            self.base_image(host, image).exists()
            for host in self.trial.hosts for image in images))

    def base_image(self, host: str, image: str) -> pathlib.Path:
        """Return where a host's Nova keeps an image."""
        name = hashlib.sha1(image.encode(), usedforsecurity=False).hexdigest()
        return self.trial.instances(host) / '_base' / name

    def _aggregate(self) -> str:
        """Return an aggregate of all hosts of the site."""
        compute = self.trial.admin.compute
        found = compute.find_aggregate('site')
        if found is None:
            found = compute.create_aggregate(name='site')
            for host in self.trial.hosts:
                compute.add_host_to_aggregate(found, host)
        return found.id
