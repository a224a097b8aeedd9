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
"""What monitoring reads of an agent.

The number of series does not grow with images or peers: labels are ways,
kinds, events, repositories, and the reasons of other services, of which the
first are named.
"""

import collections
import collections.abc
import importlib.metadata

from oslo_config import cfg
import prometheus_client

from diffcache_openstack.agent.data_plane import identity
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.local import file_usage
from diffcache_openstack.agent.repository import carrying
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_moves
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.agent.state import scrub
from diffcache_openstack import objects
from diffcache_openstack.runtime import metrics
from diffcache_openstack.sites import views

# Of requests, as objects.Request has them.
_WAYS = ('local', 'peer', 'build', 'repository', 'none')
# Seconds: from a copy on the same disk to a large image over a thin link.
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# Reasons of fallbacks come from other processes; more than this are "other".
_MOST_REASONS = 50
_OTHER = 'other'
_MBIT_BYTES = 10 ** 6 / 8

# What the data plane counts, without its current values.
_CURRENT = ('open_connections', 'in_flight', 'lent', 'claims')
_BYTES = ('sent', 'received')


class RequestMetrics:
    """Counts the requests that an agent answered.

    :param registry: of the process, or of the one agent of it
    """

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self._seconds = prometheus_client.Histogram(
            'request_seconds', 'Time from a request to the image, by the way'
            ' it came; "none" failed.', ['way'], namespace=metrics.PREFIX,
            buckets=_BUCKETS, registry=registry)
        for way in _WAYS:
            # A first failure is an increase only if there was a zero before.
            self._seconds.labels(way)
        self._wan, self._lan, self._whole, self._fallbacks = (
            prometheus_client.Counter(name, text, namespace=metrics.PREFIX,
                                      registry=registry)
            for name, text in (
                ('request_wan_bytes', 'Bytes that requests moved over the'
                 ' WAN.'),
                ('request_lan_bytes', 'Bytes that requests moved between'
                 ' hosts of the site.'),
                ('request_whole_bytes', 'Bytes that the requested images have'
                 ' on the WAN if they cross it whole.'),
                ('request_fallbacks', 'Sources that failed while an image'
                 ' was brought, so that another one was used.')))

    def observe(self, request: objects.Request,
                image: views.ImageRef) -> None:
        """Count one request that ended, well or not."""
        self._seconds.labels(request.way).observe(request.seconds)
        self._wan.inc(request.wan_bytes)
        self._lan.inc(request.lan_bytes)
        self._fallbacks.inc(request.fallbacks)
        if request.error is None:
            self._whole.inc(image.wire_size)


class HostValues:
    """Reads the current state of an agent at each scrape.

    :param conf: a configuration with the group ``agent``
    :param patch_requests: returns the number of requests for patches by
        outcome
    """

    def __init__(self, conf: cfg.ConfigOpts, plane: native_plane.DataPlane,
                 host: host_state.HostState, filler: filling.Filler,
                 requests: request_spool.RequestSpool,
                 usage: file_usage.FileUsage,
                 patch_requests: collections.abc.Callable[
                     [], collections.abc.Mapping[str, int]]) -> None:
        self._conf = conf
        self._plane = plane
        self._host = host
        self._filler = filler
        self._requests = requests
        self._usage = usage
        self._patch_requests = patch_requests

    def add(self, found: metrics.Families) -> None:
        """Add all values."""
        options = self._conf.agent
        found.gauge('build_info', 'Version of the suite.', 1, version=(
            importlib.metadata.version('diffcache-openstack')),
            host=self._host.name, site=options.site, role=options.role)
        self._add_cache(found)
        self._add_work(found)
        self._add_plane(found)
        self._add_repositories(found)

    def _add_cache(self, found):
        held = self._host.held
        found.gauge('cache_capacity_bytes', 'Most bytes that the cache may'
                    ' take.', held.capacity)
        found.gauge('cache_used_bytes', 'Bytes that the cache takes.',
                    held.used())
        for owner, sizes in (('agent', held.sizes()),
                             ('borrowed', held.borrowed.sizes())):
            counts, total = collections.Counter(), collections.Counter()
            for key, size in sizes.items():
                counts[key.kind] += 1
                total[key.kind] += size
            for kind in counts:
                found.gauge('cache_objects', 'Objects on this host: of the'
                            ' agent, or files of Nova that are borrowed.',
                            counts[kind], kind=kind, owner=owner)
                found.gauge('cache_object_bytes', 'Bytes of objects on this'
                            ' host.', total[kind], kind=kind, owner=owner)

    def _add_work(self, found):
        site_map = self._host.site_map
        found.gauge('conductor_reachable', 'Whether the conductor answered'
                    ' the last call.', site_map.reachable)
        found.gauge('site_map_generation', 'Generation of the site map in'
                    ' use.', site_map.current().generation)
        found.gauge('plan_generation', 'Generation of the plan that the host'
                    ' follows.', self._filler.generation)
        found.gauge('plan_missing_objects', 'Objects of the plan that this'
                    ' host does not hold yet.', len(self._filler.missing()))
        found.gauge('unreported_requests', 'Records of requests that the'
                    ' conductor does not have yet.', len(self._requests))
        for outcome, count in self._patch_requests().items():
            found.counter('patch_requests', 'Requests to the repository for'
                          ' a patch on demand.', count, outcome=outcome)
        reasons = [(service, reason, count)
                   for service, counts in self._usage.fallbacks().items()
                   for reason, count in counts.items()]
        for labels, count in _bounded(reasons).items():
            found.counter('service_fallbacks', 'Times that a service of this'
                          ' host worked without the agent.', count,
                          service=labels[0], reason=labels[1])

    def _add_plane(self, found):
        stats = self._plane.stats()
        for direction in _BYTES:
            for kind, size in stats[direction].items():
                found.counter(f'data_plane_{direction}_bytes', 'Bytes of'
                              ' objects and patches between agents.', size,
                              kind=kind)
        for event, count in stats.items():
            if event not in (*_CURRENT, *_BYTES):
                found.counter('data_plane_events', 'Requests, connections and'
                              ' refusals of the data plane.', count,
                              event=event)
        for name in _CURRENT:
            found.gauge(f'data_plane_{name}', 'Current number in the data'
                        ' plane.', stats[name])
        found.gauge('data_plane_peers_left_alone', 'Hosts that nothing is read'
                    ' from because of an offence.',
                    len(self._plane.left_alone()))
        rate = self._plane.peer_mbps()
        found.gauge('peer_rate_bytes_per_second', 'Measured rate from hosts of'
                    ' the site.', None if rate is None else rate * _MBIT_BYTES)

    def _add_repositories(self, found):
        for each in self._plane.repositories():
            name, rate = each['name'], each['mbps']
            found.gauge('repository_up', 'Whether the repository answered when'
                        ' it was last used.', each['down_s'] is None,
                        repository=name)
            found.gauge('repository_rate_bytes_per_second', 'Measured rate'
                        ' from the repository.',
                        None if rate is None else rate * _MBIT_BYTES,
                        repository=name)
            found.counter('repository_received_bytes', 'Bytes from the'
                          ' repository.', each['bytes'], repository=name)
            found.counter('repository_transfers', 'Complete transfers from'
                          ' the repository.', each['transfers'],
                          repository=name)
            found.counter('repository_failures', 'Transfers from the'
                          ' repository that failed.', each['failures'],
                          repository=name)


def certificate_values(found: metrics.Families, conf: cfg.ConfigOpts) -> None:
    """Add until when this host and its peers authenticate each other."""
    found.gauge('cert_expiry_timestamp_seconds', 'When this host\'s'
                ' certificate for transfers expires, since 1970.',
                identity.certificate_end(conf))


def scrub_values(found: metrics.Families, reader: scrub.Scrub) -> None:
    """Add what the scrub of stored objects found."""
    report = reader.report()
    found.gauge('scrub_rate_bytes_per_second', 'Most bytes per second that'
                ' the scrub may read.', report['rate'])
    found.gauge('scrub_needed_bytes_per_second', 'What it takes to read'
                ' all objects in their period.', report['needed_rate'])
    found.gauge('scrub_unread_objects', 'Objects that are read before they'
                ' are used: it is not known whether they are right.',
                report['unread'])
    found.gauge('scrub_overdue_bytes', 'Bytes of objects that were not'
                ' read in their period.', report['overdue_bytes'])
    found.counter('scrub_read_bytes', 'Bytes that the scrub read.',
                  report['read_bytes'])
    found.counter('scrub_damaged_objects', 'Objects that the scrub found'
                  ' damaged.', report['damaged'])
    found.gauge('damaged_delivered_objects', 'Objects that were found'
                ' damaged after they were delivered, and whose list was'
                ' not removed yet.', len(report['damages']))


def move_values(found: metrics.Families, moves: volume_moves.Moves) -> None:
    """Add what was learned of volumes that came from other hosts."""
    for outcome, count in moves.counts().items():
        found.counter('ssd_cache_moves', 'Volumes of live migrations to'
                      ' this host, by whether the host before said how'
                      ' they were used.', count, outcome=outcome)
    found.counter('ssd_cache_warmed_bytes', 'Bytes of such volumes that'
                  ' were cached before they were requested.',
                  moves.warmed * volume_moves.BLOCK)


def flush_values(found: metrics.Families,
                 volumes: cached_volumes.CachedVolumes) -> None:
    """Add how often volumes in write-back were flushed."""
    for outcome, count in volumes.flushes.items():
        found.counter('ssd_cache_flushes', 'Flushes of volumes in'
                      ' write-back that were requested, such as for'
                      ' snapshots.', count, outcome=outcome)


def carry_values(found: metrics.Families, parts: carrying.Carrying) -> None:
    """Add what became of profiles that a repository carries."""
    for outcome, count in parts.counts().items():
        found.counter('carried_profiles', 'Profiles of images that were'
                      ' carried to similar images here.', count,
                      outcome=outcome)
    found.counter('carried_without_files', 'Comparisons of images by'
                  ' blocks alone, as their files could not be read.',
                  parts.without_files)


def version_values(found: metrics.Families,
                   base_indexes: collections.abc.Mapping[str, int]) -> None:
    """Add what became of indexes of base images that hosts added.

    :param base_indexes: their number by outcome, see
        :class:`.versions.version_worker.Worker`
    """
    for outcome, count in sorted(base_indexes.items()):
        found.counter('version_base_indexes', 'Indexes of base images'
                      ' that hosts added to stores of versions, by'
                      ' whether they match the image.', count,
                      outcome=outcome)


def copy_values(found: metrics.Families,
                copy_reads: collections.abc.Mapping[str, int]) -> None:
    """Add how often copies of version stores were needed.

    :param copy_reads: see :class:`.versions.project_stores.ProjectStores`
    """
    for what, count in sorted(copy_reads.items()):
        found.counter('version_copy_reads', 'Blobs of stores of versions that'
                      ' were read or repaired from copies, and stores that'
                      ' could not be read at all.', count, what=what)


def _bounded(reasons: list[tuple[str, str, int]]
             ) -> dict[tuple[str, str], int]:
    """Sum counts by service and reason, the rarest ones as one."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    ranked = sorted(reasons, key=lambda entry: -entry[2])
    for number, (service, reason, count) in enumerate(ranked):
        counts[(service, reason) if number < _MOST_REASONS
               else (_OTHER, _OTHER)] += count
    return dict(counts)
