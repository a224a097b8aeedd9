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
"""The DiffCache paper's testbed (section IV-B) on one machine.

Three hosts, a repository behind a slow link, fifteen requests drawn
uniformly from the images and dispatched to the hosts in turn. The plan is
made from a history of the same distribution with another seed. The first
request of each host is dispatched while the caches fill, the others one by
one when they are filled. All this four times, each on a fresh site: as Nova
does without a cache, with templates only, and with templates and patches in
both modes.

Without a cache, a compressed qcow2 file crosses the WAN, and qemu-img
converts it. In the other modes the repository's compressed forms cross.
"""

import collections.abc
import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import random
import shutil
import statistics
import time
import typing
import uuid

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.repository import records
from diffcache_openstack.agent import service as agents
from diffcache_openstack.embedded import published
from diffcache_openstack.embedded import sites
from diffcache_openstack import objects

PLAIN_NOVA = 'repository'
TEMPLATES_ONLY = 'templates'
MODES = (PLAIN_NOVA, TEMPLATES_ONLY, building.FETCH_AND_PATCH,
         building.ON_THE_FLY)
# Images get their ids from what they are, so that a second run finds what
# the first one registered.
_NAMESPACE = uuid.UUID('5f0c5a1e-9a5e-4c7e-8a60-0d1ffcac4e00')
FILL_TIMEOUT = 3600.0
COMPRESS_TIMEOUT = 3600.0


@dataclasses.dataclass(frozen=True)
class Image:
    """An image to serve."""

    name: str
    path: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a run is made of.

    :param hosts: names and capacities in bytes
    :param requests: how many
    :param seed: of the requests; the history's is the next one
    :param history: requests in the history
    :param solver: that makes the plan
    """

    hosts: tuple[sites.HostSpec, ...]
    links: sites.LinkSpec
    requests: int = 15
    seed: int = 1
    history: int = 300
    solver: str = 'greedy'
    patch_level: int = 3


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One request as it was answered.

    :param output: the file, if it was kept
    """

    number: int
    host: str
    image: Image
    filled: bool
    request: objects.Request
    sha256: str
    identical: bool
    output: pathlib.Path | None

    def to_dict(self) -> dict:
        """Convert the outcome to the form of the report."""
        return {
            'number': self.number, 'host': self.host,
            'image': self.image.name, 'filled': self.filled,
            'seconds': self.request.seconds,
            'predicted_s': self.request.predicted_seconds,
            'wan_bytes': self.request.wan_bytes,
            'lan_bytes': self.request.lan_bytes,
            'fallbacks': self.request.fallbacks,
            'way': self.request.way, 'source': self.request.detail,
            'sha256': self.sha256, 'identical': self.identical}


@dataclasses.dataclass(frozen=True)
class ModeResult:
    """What one of the four runs measured; sizes in bytes."""

    outcomes: tuple[Outcome, ...]
    fill_s: float
    wan_bytes: int
    used: dict[str, int]
    planned_objects: int

    def filled(self) -> list[Outcome]:
        """Return requests dispatched after the caches were filled."""
        return [o for o in self.outcomes if o.filled]

    def mean_filled_s(self) -> float:
        """Return the mean service time of :attr:`filled`, seconds."""
        return _mean(o.request.seconds for o in self.filled())


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run measured.

    :param built: an image that the site built and that never crossed the
        WAN as a whole, kept to be booted; None if there was none
    """

    document: dict
    built: Outcome | None


Progress = collections.abc.Callable[[str], None]


class Testbed:
    """Runs the testbed.

    :param images: at least two
    :param directory: everything is kept below; another run continues with
        the images and patches that are registered there
    :param progress: called with each line of progress
    """

    def __init__(self, images: typing.Sequence[Image], setup: Setup,
                 directory: pathlib.Path, progress: Progress) -> None:
        self._images = list(images)
        self._setup = setup
        self._directory = directory
        self._progress = progress
        self._sha256: dict[str, str] = {}
        self._published = published.PublishedImages(
            directory / 'published', 'zstd')
        self._published_sizes: dict[str, int] = {}
        self._records: dict[str, records.ImageRecord] = {}

    def run(self) -> Result:
        """Prepare, run the four modes, and tell.

        :raises DiffCacheError: a request could not be answered at all
        """
        self._prepare()
        results = {}
        for mode in MODES:
            results[mode] = self._run_mode(mode)
            self._progress(
                f'{mode}: {results[mode].mean_filled_s():.3f} s mean once '
                f'filled, {results[mode].wan_bytes / 1e6:.1f} MB over the '
                f'WAN')
        built = self._built(results[building.ON_THE_FLY].outcomes)
        return Result(self._document(results), built)

    # -- preparation: images and patches, once for all modes

    @property
    def _prepared(self) -> pathlib.Path:
        return self._directory / 'registered'

    def _prepare(self) -> None:
        shutil.rmtree(self._directory / 'preparation', ignore_errors=True)
        # Images that were rebuilt or left out since the last run.
        shutil.rmtree(self._prepared / 'images', ignore_errors=True)
        fast = sites.LinkSpec(1e5, 1e5, 1e5)
        with sites.Site(self._directory / 'preparation', (), fast,
                        self._prepared, self._options()) as site:
            # Two, as each one copies and hashes with one thread.
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                for _ in pool.map(lambda number: self._register(site, number),
                                  range(len(self._images))):
                    pass
            self._progress('creating patches')
            started = time.monotonic()
            patches = site.make_patches()
            self._progress(f'{len(patches)} patches are there after '
                           f'{time.monotonic() - started:.1f} s')
            site.wait(site.compressed, COMPRESS_TIMEOUT,
                      'images to be compressed')

    def _register(self, site: sites.Site, number: int) -> None:
        """Register an image, and publish it for plain Nova."""
        image = self._images[number]
        self._progress(f'registering {image.name}, {number + 1} of '
                       f'{len(self._images)}')
        self._sha256[image.name] = sha256(image.path)
        self._records[image.name] = site.register(
            image.path, self._id(image), image.name)
        self._published_sizes[image.name] = self._published.publish(
            image.path, self._sha256[image.name])

    def _id(self, image: Image) -> str:
        """Return the ID by which requests name an image."""
        return str(uuid.uuid5(
            _NAMESPACE, f'{image.name}\n{self._sha256[image.name]}'))

    def _repository_for(self, mode: str,
                        directory: pathlib.Path) -> pathlib.Path:
        """Create a repository's state directory for this mode.

        Without patches in the modes that have none. Its objects are the
        prepared ones, under second names: objects never change.
        """
        state = directory / 'repository'
        if mode == PLAIN_NOVA:
            return state
        names = ['images', 'objects/images', 'objects/manifests',
                 'objects/compressed']
        if mode in building.MODES:
            names += ['patches', 'objects/patches']
        for name in names:
            target = state / name
            target.mkdir(parents=True)
            for path in (self._prepared / name).iterdir():
                if not path.name.startswith('.'):
                    os.link(path, target / path.name)
        return state

    def _options(self) -> dict:
        return {
            ('agent', 'lend_seconds'): 0,
            ('agent', 'keep_requested'): False,
            # The paper's ways to an image have one patch.
            ('planner', 'hops'): 1,
            ('agent', 'sync_outputs'): False,
            ('agent', 'heartbeat_interval'): 5,
            ('planner', 'solver'): self._setup.solver,
            ('repository', 'patch_level'): self._setup.patch_level,
        }

    # -- one mode

    def _run_mode(self, mode: str) -> ModeResult:
        directory = self._directory / mode
        shutil.rmtree(directory, ignore_errors=True)
        outputs = directory / 'outputs'
        outputs.mkdir(parents=True)
        options = self._options()
        if mode in building.MODES:
            options['agent', 'serve_mode'] = mode
        else:
            options['repository', 'max_patch_ratio'] = 0.0
        if mode == PLAIN_NOVA:
            options['repository', 'compression_level'] = 0
        repository = self._repository_for(mode, directory)
        with sites.Site(directory, self._setup.hosts, self._setup.links,
                        repository, options) as site:
            if mode == PLAIN_NOVA:
                for image in self._images:
                    site.register(
                        self._published.file(self._sha256[image.name]),
                        self._id(image), image.name)
            patches = site.make_patches() if mode in building.MODES else []
            site.wait_catalogue(len(patches))
            return self._measure(mode, site, outputs)

    def _measure(self, mode: str, site: sites.Site,
                 outputs: pathlib.Path) -> ModeResult:
        stream = self._stream(self._setup.seed, self._setup.requests)
        planned = 0
        if mode != PLAIN_NOVA:
            site.report_history(
                [(host, self._id(image)) for host, image in self._stream(
                    self._setup.seed + 1, self._setup.history)])
            planned = len(site.plan().items)
        started = time.monotonic()
        first = len(self._setup.hosts)
        run = _Requests(self, site, mode, outputs)
        with concurrent.futures.ThreadPoolExecutor(first + 1) as pool:
            filling = pool.submit(site.wait, site.filled, FILL_TIMEOUT,
                                  'the caches to fill')
            filling.add_done_callback(run.note_filled)
            early = list(pool.map(
                lambda n: run.answer(n, *stream[n], False),
                range(min(first, len(stream)))))
            filling.result()
        outcomes = early
        for n in range(first, len(stream)):
            outcomes.append(run.answer(n, *stream[n], True))
            self._keep_one(outcomes)
        return ModeResult(
            tuple(outcomes), run.filled_at - started, site.wan_bytes(),
            {name: agent.held.used() for name, agent in site.hosts.items()},
            planned)

    def _stream(self, seed: int, count: int) -> list[tuple[str, Image]]:
        """Draw (host, image) of requests: random images, hosts in turn."""
        chance = random.Random(seed)
        return [(self._setup.hosts[n % len(self._setup.hosts)].name,
                 chance.choice(self._images)) for n in range(count)]

    def ask(self, agent: agents.Agent, image: Image,
            output: pathlib.Path) -> objects.Request:
        """Send a request to a host's agent."""
        return agent.server.deliver(
            agent.site_map.find(self._id(image)), outputs.LocalOutput(output))

    def download(self, agent: agents.Agent, image: Image,
                 output: pathlib.Path) -> objects.Request:
        """Have the published file cross the WAN, and convert it."""
        return published.download(
            agent, agent.site_map.find(self._id(image)), output)

    def judge(self, image: Image, output: pathlib.Path) -> tuple[str, bool]:
        """Hash an output; return the SHA-256 and whether it is right."""
        found = sha256(output)
        return found, found == self._sha256[image.name]

    def report(self, text: str) -> None:
        """Report progress to the caller."""
        self._progress(text)

    # -- the end

    def _built(self, outcomes: typing.Sequence[Outcome]) -> Outcome | None:
        """Return the largest image that was built at the site only."""
        whole = {o.image.name for o in outcomes if o.request.way != 'build'}
        built = [o for o in outcomes if o.output is not None
                 and o.output.exists()
                 and o.image.name not in whole and not o.request.wan_bytes]
        return max(built, default=None, key=lambda o: (
            self._records[o.image.name].data_size, o.number))

    def _keep_one(self, outcomes: typing.Sequence[Outcome]) -> None:
        """Remove the outputs but the one to boot.

        What is deleted soon need never be written to the disk, whose work
        would slow the next request down.
        """
        kept = self._built(outcomes)
        for outcome in outcomes:
            if outcome.output is not None and outcome is not kept:
                outcome.output.unlink(missing_ok=True)

    def _document(self, results: dict[str, ModeResult]) -> dict:
        templates_s = results[TEMPLATES_ONLY].mean_filled_s()
        return {
            'identical': all(o.identical for result in results.values()
                             for o in result.outcomes),
            'links': {'wan_mbit_s': self._setup.links.wan,
                      'lan_mbit_s': self._setup.links.lan,
                      'local_mbit_s': self._setup.links.local},
            'images': [{
                'name': image.name,
                'size': self._records[image.name].size,
                'data_size': self._records[image.name].data_size,
                'published_size': self._published_sizes[image.name],
                'content_id': self._records[image.name].content_id,
                'sha256': self._sha256[image.name]}
                for image in self._images],
            'modes': {mode: _mode_document(result, templates_s)
                      for mode, result in results.items()},
            'hosts': [{
                'name': host.name, 'capacity': host.capacity,
                'used': {mode: result.used[host.name]
                         for mode, result in results.items()},
            } for host in self._setup.hosts]}


class _Requests:
    """Answers the requests of one mode."""

    def __init__(self, testbed: Testbed, site: sites.Site, mode: str,
                 outputs: pathlib.Path) -> None:
        self._testbed = testbed
        self._site = site
        self._mode = mode
        self._outputs = outputs
        self._deliver = (testbed.download if mode == PLAIN_NOVA
                         else testbed.ask)
        self.filled_at = time.monotonic()

    def note_filled(self, _future: object) -> None:
        self.filled_at = time.monotonic()

    def answer(self, number: int, host: str, image: Image,
               filled: bool) -> Outcome:
        output = self._outputs / f'{number + 1}-{host}-{image.name}.raw'
        request = self._deliver(self._site.hosts[host], image, output)
        found, identical = self._testbed.judge(image, output)
        self._testbed.report(
            f'{self._mode}: request {number + 1}, {image.name} at {host}: '
            f'{request.seconds:.3f} s ({request.detail})')
        kept = filled and self._mode == building.ON_THE_FLY
        if not kept:
            output.unlink()
        return Outcome(number + 1, host, image, filled, request, found,
                       identical, output if kept else None)


def _mode_document(result: ModeResult, templates_s: float) -> dict:
    return {
        'mean_s': _mean(o.request.seconds for o in result.outcomes),
        'mean_filled_s': result.mean_filled_s(),
        'predicted_filled_s': _mean(o.request.predicted_seconds
                                    for o in result.filled()),
        'ratio_to_templates':
            result.mean_filled_s() / templates_s if templates_s else 0.0,
        'fill_s': result.fill_s,
        'planned_objects': result.planned_objects,
        'wan_bytes': result.wan_bytes,
        'requests': [outcome.to_dict() for outcome in result.outcomes]}


def _mean(values: typing.Iterable[float]) -> float:
    values = list(values)
    return statistics.fmean(values) if values else 0.0


def sha256(path: pathlib.Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal."""
    with open(path, 'rb', buffering=0) as stream:
        return hashlib.file_digest(stream, 'sha256').hexdigest()


def run(images: typing.Sequence[Image], setup: Setup,
        directory: pathlib.Path, progress: Progress = print) -> Result:
    """Run the testbed once; see :class:`Testbed`."""
    directory.mkdir(parents=True, exist_ok=True)
    return Testbed(images, setup, directory, progress).run()
