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
"""A data plane of directories, for tests of what the agent decides."""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import threading

from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images import arriving_bases
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.images.delivery import serving
from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import patch_requests
from diffcache_openstack.agent.images import retention
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import borrowed_files
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import site_map
from diffcache_openstack.sites import views


# What site maps of these tests say that an image weighs, bytes.
SIZE = 100 * 10 ** 6


def content_id(content: bytes) -> str:
    """The id of content in these tests."""
    return hashlib.blake2s(content).hexdigest()


def key_of(content: bytes, kind: str = views.IMAGES) -> views.Key:
    """The key of an object with this content."""
    return views.Key(kind, content_id(content))


def make_patch(base: bytes, target: bytes) -> bytes:
    """A patch of these tests: it names its base and has the target inside."""
    return content_id(base).encode() + b'\n' + target


class Inspector:
    """Manifests of these tests say nothing; content says it all."""

    def quick(self, key, path, manifest):
        if key.kind == views.IMAGES and not manifest.exists():
            raise exceptions.IntegrityError(f'{key} has no manifest')

    def deep(self, key, path, manifest):
        if key.kind == views.MANIFESTS:
            return
        if content_id(path.read_bytes()) != key.id:
            raise exceptions.IntegrityError(f'{key} is damaged')

    def slowly(self, key, path, manifest, pace):
        pace.progress(0, path.stat().st_size)
        self.deep(key, path, manifest)


class Handle:
    def __init__(self):
        self.cancelled = threading.Event()
        self.promoted = threading.Event()

    def cancel(self):
        self.cancelled.set()

    def promote(self):
        self.promoted.set()


class Announcement:
    """What a :class:`Plane` announced in its network."""

    def __init__(self, announced: list, entry: tuple) -> None:
        self._announced = announced
        self._entry = entry
        announced.append(entry)

    def close(self):
        self._announced.remove(self._entry)

    def leave(self):
        """Stay; nothing expires in these tests."""


class Network:
    """Hosts by URL, their files, and who moved what over the WAN."""

    def __init__(self):
        self.files: dict[str, dict[views.Key, bytes]] = {}
        self.claims: dict[views.Key, str] = {}
        self.down: set[str] = set()
        self.refusing: set[str] = set()
        self.fetches: list[tuple[str, str, views.Key]] = []
        self.announced: list[tuple[views.Key, orders.Stage]] = []
        self.lock = threading.Lock()


class Plane:
    """One host of a :class:`Network`.

    What crosses the WAN is claimed; everything else that a data plane does
    under the hood has tests of its own.
    """

    def __init__(self, network: Network, name: str):
        self.network = network
        self.name = name
        self.lent = []
        self.borrowed = {}
        self.attached = {}
        self.changed = []
        self.down = set()
        self.alone = set()
        self.repository_reports = []
        self.measured_peer_mbps = None
        self.accused = []
        self.hold_fetches = threading.Event()
        self.hold_fetches.set()
        self.started = threading.Event()
        network.files.setdefault(self.url, {})

    @property
    def url(self):
        return f'http://{self.name}'

    def set_site(self, hosts):
        self.site = list(hosts)

    def set_repositories(self, hosts):
        self.known_repositories = list(hosts)

    def repositories(self):
        return self.repository_reports

    def peer_mbps(self):
        return self.measured_peer_mbps

    def new_handle(self):
        return Handle()

    def deliver(self, order, handle, progress=None):
        failures = []
        for number, source in enumerate(order.sources):
            try:
                moved = self._get(source, order, handle, progress)
                return orders.Delivery(number, *moved, tuple(failures))
            except exceptions.Cancelled:
                raise
            except exceptions.DiffCacheError as error:
                failures.append(orders.Failure(
                    number, self._blamed(source, error), error))
                if self._ends_list(source, error):
                    break
        return orders.Delivery(None, 0, 0, tuple(failures))

    def _get(self, source, order, handle, progress):
        """Bytes over WAN and LAN."""
        if isinstance(source, orders.BuildSource):
            base = source.base.path if isinstance(
                source.base, orders.KnownFile) else source.base
            return 0, self.build(base, source.patch, order.manifest,
                                 order.dest)
        if source.link == orders.Link.LAN:
            return 0, self.fetch(source.host.url, order, handle, progress)
        progress(0, 0, True)
        holder = self.network.claims.get(order.key)
        if holder not in (None, self.name):
            with contextlib.suppress(exceptions.DiffCacheError):
                return 0, self.fetch(f'http://{holder}', order, handle,
                                     progress)
        count = self.fetch(source.host.url, order, handle, progress, True)
        self.network.claims[order.key] = self.name
        return count, 0

    def _blamed(self, source, error):
        hosts = [source.host] if isinstance(source, orders.HostSource) \
            else [part.host for part in (source.base, source.patch)
                  if isinstance(part, orders.RemotePart)]
        blamed = [host.name for host in hosts
                  if len(hosts) == 1 or host.url in str(error)]
        if isinstance(error, exceptions.PeerUnavailable):
            self.down.update(blamed)
        return blamed[0] if blamed else None

    @staticmethod
    def _ends_list(source, error):
        return isinstance(error, (exceptions.NoSpace, exceptions.FormatError,
                                  exceptions.BaseMismatch)) or (
            isinstance(source, orders.BuildSource)
            and isinstance(error, exceptions.IntegrityError))

    def _read(self, url, key):
        if url in self.network.refusing:
            raise exceptions.PeerRefused(f'{url} refuses the key')
        if url in self.network.down:
            raise exceptions.PeerUnavailable(f'{url} does not answer')
        content = self.network.files[url].get(key)
        if content is None:
            raise exceptions.ObjectMissing(f'{url} has no {key}')
        with self.network.lock:
            self.network.fetches.append((self.name, url, key))
        if key.kind != views.MANIFESTS and content_id(content) != key.id:
            raise exceptions.IntegrityError(f'{key} from {url} is damaged')
        return content

    def fetch(self, url, order, handle, progress, over_wan=False):
        """Read one object from one host; returns its bytes."""
        self.started.set()
        content = self._read(url, order.key)
        while not self.hold_fetches.wait(0.01):
            if handle.cancelled.is_set():
                raise exceptions.Cancelled('cancelled')
            progress(0, len(content), over_wan)
        if handle.cancelled.is_set():
            raise exceptions.Cancelled('cancelled')
        order.dest.write_bytes(content)
        if over_wan and not order.in_place:
            self.lend(order.key, order.dest, 60.0)
        return len(content)

    def build(self, base, patch, manifest, dest):
        """Apply a patch; returns the bytes that came from hosts."""
        parts, count = [], 0
        for source in (base, patch):
            if isinstance(source, pathlib.Path):
                parts.append(source.read_bytes())
            else:
                parts.append(self._read(source.host.url, source.key))
                count += len(parts[-1])
        dest.write_bytes(apply_patch(*parts))
        return count

    @contextlib.contextmanager
    def expecting(self, key):
        yield

    def announce(self, key, stage):
        return Announcement(self.network.announced, (key, stage))

    def is_announced(self, key, stage):
        return (key, stage) in self.network.announced

    def offer(self, key):
        self.network.claims[key] = self.name

    def lend(self, key, path, seconds):
        self.lent.append((key, path, seconds))
        with self.network.lock:
            self.network.files[self.url].setdefault(key, path.read_bytes())

    def end_lending(self, key):
        self.network.files[self.url].pop(key, None)

    def stop_lending(self):
        lent = {key for key, _, _ in self.lent}
        for key in lent:
            self.end_lending(key)
        self.lent.clear()
        return bool(lent)

    def borrow(self, key, path, manifest):
        self.borrowed[key] = path.read_bytes()
        with self.network.lock:
            self.network.files[self.url][key] = self.borrowed[key]

    def give_back(self, key):
        if self.borrowed.pop(key, None) is not None:
            self.network.files[self.url].pop(key, None)

    def attach(self, key, folder):
        self.attached[key] = folder

    def detach(self, key):
        self.attached.pop(key, None)

    def take_changed(self):
        changed, self.changed = self.changed, []
        return changed

    def unreachable(self):
        return frozenset(self.down)

    def clear_unreachable(self):
        self.down.clear()

    def left_alone(self):
        return dict.fromkeys(self.alone, 300.0)

    def accuse(self, host, reason):
        self.accused.append(host.name)

    def set_min_rates(self, site, wan):
        self.min_rates = site, wan

    def readers(self, kind, object_id):
        return 0

    def stats(self):
        return {}

    def set_rate(self, rate):
        raise NotImplementedError

    def set_keys(self, keys):
        raise NotImplementedError

    def reload_tls(self):
        raise NotImplementedError

    def take_complaints(self):
        return []

    def take_served(self, quiet):
        return []

    def close(self):
        pass


def apply_patch(base: bytes, patch: bytes) -> bytes:
    """The target; the patch says for which base it is."""
    wanted, _, target = patch.partition(b'\n')
    if content_id(base).encode() != wanted:
        raise exceptions.BaseMismatch('the patch is for another base')
    return target


def apply_patch_files(base, patch, output):
    output.write_bytes(apply_patch(base.read_bytes(), patch.read_bytes()))


def verify(key, path):
    Inspector().deep(key, path, None)


class SiteMap:
    """The site map of a :class:`Host`, as its test sets it.

    :ivar next: the map that a refresh brings
    :ivar trusts: whether a repository vouches for images
    """

    def __init__(self, host):
        self._host = host
        self.reachable = False
        self.next = None
        self.trusts = True
        self.early = set()

    def add_early(self, image):
        if self.trusts:
            ref = site_map.to_image(image)
            self.early.add(ref.content_id)
            self._host.view = dataclasses.replace(
                self._host.view,
                images=(*self._host.view.images, ref))
        return self.trusts

    def is_early(self, content_id):
        return content_id in self.early

    def refresh(self):
        if self.next is not None:
            self._host.view = self.next

    def current(self):
        return self._host.view

    def find(self, image_id):
        return self._host.view.image(image_id)


class Agents:
    """Repositories, of which a test has the answers.

    :ivar answers: returned in turn, or raised, or called for one of these;
        then there is no patch
    :ivar images: likewise, to those that wait for an image
    """

    def __init__(self):
        self.answers = []
        self.images = []
        self.calls = []

    def create_patch(self, ctxt, host, wanted):
        self.calls.append((host, wanted))
        return self._answer(self.answers)

    def await_image(self, ctxt, host, image_id, size, mbps):
        self.calls.append((host, image_id, size, mbps))
        return self._answer(self.images)

    def _answer(self, answers):
        answer = answers.pop(0) if answers else None
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Tools:
    """Patches of the fake site."""

    def apply_patch(self, base, patch, output):
        apply_patch_files(base, patch, output)

    def target_manifest(self, base_manifest, patch, output):
        output.write_bytes(base_manifest.read_bytes())
        return content_id(patch.read_bytes().partition(b'\n')[2])


class Host:
    """The parts of one agent, put together without services."""

    def __init__(self, directory: pathlib.Path, network: Network, name: str,
                 capacity: int | None = None, keep_requested: bool = False):
        self.view = views.SiteView()
        self.now = 1000.0
        self.while_asleep = lambda: None
        self.plane = Plane(network, name)
        root = directory / name / 'objects'
        self.borrowed = borrowed_files.BorrowedFiles(
            directory / name / 'borrowed.json', root / views.MANIFESTS,
            self.plane, lambda path: os.open(path, os.O_RDONLY), verify)
        self.held = holdings.Holdings(root, capacity, Inspector(),
                                      self.plane.readers, self.borrowed)
        self.held.scan()
        self.state = host_state.HostState(name, self.held, SiteMap(self))
        self.flights = single_flight.SingleFlight(
            self.held.root / holdings.STAGING)
        self.transfers = site_transfers.Transfers(
            self.plane, lambda: self.view, lend_seconds=60,
            min_rate=16384)
        kept = retention.Retention(self.state, keep_requested)
        self.sources = site_sources.Sources(self.transfers, self.state)
        self.builder = building.Builder(
            self.sources, self.transfers, self.state, self.flights, kept,
            Tools())
        self.agents = Agents()
        self.patch_requests = patch_requests.PatchRequests(
            self.sources, self.state, self.agents, None, lambda: self.now)
        self.arrivals = arriving_bases.Arrivals(
            self.sources, self.transfers, self.state, lambda: self.now,
            self.sleep)
        self.contents = contents.Contents(
            self.builder, self.state, self.flights, kept, self.transfers,
            contents.Alternatives(
                self.patch_requests,
                image_costs.ImageCosts(self.sources, self.state, self.flights),
                self.arrivals))
        self.requests = request_spool.RequestSpool(
            directory / name / 'requests')
        self.server = serving.ImageServer(
            self.contents, self.state, self.new_throttle,
            outputs.Outputs([str(directory / 'instances')]),
            serving.PendingOutputs(directory / name / 'outputs'),
            self.requests)

    def sleep(self, seconds: float) -> None:
        """Let time pass; ``while_asleep`` happens meanwhile."""
        self.now += seconds
        self.while_asleep()

    def new_throttle(self):
        return throttles.Throttle(Handle())

    def put(self, content: bytes, kind: str = views.IMAGES) -> views.Key:
        """Hold an object, with its manifest if it is an image."""
        key = key_of(content, kind)
        if kind == views.IMAGES:
            self._store(views.Key(views.MANIFESTS, key.id), b'manifest')
        self._store(key, content)
        return key

    def borrow(self, path: pathlib.Path) -> views.Key:
        """Use the file of another service; its manifest is here."""
        key = key_of(path.read_bytes())
        self._store(views.Key(views.MANIFESTS, key.id), b'manifest')
        self.borrowed.add(key, path)
        return key

    def _store(self, key, content):
        self.held.path(key).write_bytes(content)
        self.held.added(key)
        self.plane.network.files[self.plane.url][key] = content


def site_view(hosts: list[Host], images: dict[str, bytes],
              patches: list[tuple[bytes, bytes]],
              repository: str = 'repo') -> views.SiteView:
    """A site map of these hosts; ``repository`` names one of them."""
    refs = tuple(views.ImageRef(name, name, content_id(content),
                                SIZE, SIZE)
                 for name, content in images.items())
    patch_refs = tuple(
        views.PatchRef(content_id(make_patch(base, target)), content_id(base),
                       content_id(target), SIZE // 20, 0.1)
        for base, target in patches)
    host_refs = tuple(
        views.HostRef(h.plane.name,
                      'repository' if h.plane.name == repository
                      else 'compute', h.plane.url, True, h.held.readable())
        for h in hosts)
    return views.SiteView(1, refs, patch_refs, host_refs,
                          views.Links(4000.0, 1000.0, 20.0))


def with_sizes(site: views.SiteView, sizes: dict[str, int]) -> views.SiteView:
    """A site map whose images of some contents have other sizes."""
    return dataclasses.replace(site, images=tuple(
        dataclasses.replace(image, data_size=sizes.get(
            image.content_id, image.data_size))
        for image in site.images))
