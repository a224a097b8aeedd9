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
"""Processing of precache jobs: targets, plans and progress.

A job moves no bytes by itself. It is demand: the planner gets its images, and
agents follow the plan, so that a base and a patch may serve a job where they
are held. This module keeps each job's list of targets, has plans computed when
jobs change, and reports the progress of each target.

Everything is in the database. Conductors take turns by a lease, and a
conductor that starts resumes where the last one stopped.
"""

import collections
import collections.abc
import datetime
import typing

from oslo_config import cfg
from oslo_log import log
import oslo_messaging
from oslo_utils import timeutils

from diffcache_openstack.cloud import quotas
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import time_windows
from diffcache_openstack.conductor import agent_notifier
from diffcache_openstack.conductor import boot_set_progress
from diffcache_openstack.conductor import compute
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.planning import precache as db
from diffcache_openstack.db.sites import fills as fill_reports
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import precache
from diffcache_openstack.objects import versioned
from diffcache_openstack.planning import planners
from diffcache_openstack.rpc import conductor_control_api

LOG = log.getLogger(__name__)

LEASE = 'precache'
_LEASE_TIME = datetime.timedelta(seconds=120)
# How long a job that ended is kept.
KEPT = datetime.timedelta(days=30)

_MATERIAL = (objects.IMAGES, objects.PATCHES)

LOCAL = 'local'
PEER = 'peer'
BUILD = 'build'
# A target whose objects failed so often counts as failed, though its host goes
# on trying.
PATIENCE = 3


class Precacher:
    """Processes all jobs, round by round.

    It is an RPC endpoint of the REST API:
    :class:`.conductor_control_api.ControlAPI` is the contract.
    """

    target = conductor_control_api.ControlAPI.target()

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 planner: planners.Planner, notifier: agent_notifier.Notifier,
                 owner: str):
        """:param owner: this conductor, under a name no other has"""
        self._conf = conf
        self._database = database
        self._planner = planner
        self._notifier = notifier
        self._owner = owner
        self._compute = compute.Compute(conf)
        self._quotas = quotas.Quotas(conf, database)
        # Sites of jobs without any host to plan for.
        self._empty_sites: set[str] = set()

    @oslo_messaging.expose
    def create_precache_job(self, ctxt: contexts.RequestContext,
                            job: objects.PrecacheJob, boot_set: bool = False
                            ) -> None:
        """Store a job; the next round processes it.

        :param boot_set: whether it wants the boot sets of its images
        :raises QuotaExceeded: the project has as many as it may
        """
        check_window(job.window)
        _check_expiry(job.expires_at)
        with self._quotas.admission(job.project_id, quotas.JOBS):
            self._database.write(db.create, job, versioned.now(), boot_set)
        LOG.info('Created precache job %s: %s %d images and %d families',
                 job.id, 'boot sets of' if boot_set else 'all of',
                 len(job.images), len(job.families))

    @oslo_messaging.expose
    def update_precache_job(self, ctxt: contexts.RequestContext, job_id: str,
                            generation: int, values: dict[str, typing.Any]
                            ) -> None:
        """Change some of a job's fields."""
        check_window(values.get('window'))
        expires = values.get('expires_at')
        if expires:
            # Times cross the wire as texts.
            values = {**values, 'expires_at': timeutils.parse_isotime(
                expires)}
            _check_expiry(values['expires_at'])
        self._database.write(db.update, job_id, generation, values,
                             versioned.now())

    @oslo_messaging.expose
    def cancel_precache_job(self, ctxt: contexts.RequestContext, job_id: str,
                            generation: int | None) -> None:
        """End a job."""
        self._database.write(db.cancel, job_id, generation, versioned.now())
        LOG.info('Cancelled precache job %s', job_id)

    @oslo_messaging.expose
    def retry_precache_job(self, ctxt: contexts.RequestContext, job_id: str
                           ) -> None:
        """Mark a job for new plans and send agents the current ones."""
        self._database.write(db.mark, job_id)
        for site in self._database.read(db.sites_of, job_id):
            plan = self._database.read(plans.current_plan, site)
            if plan is not None:
                self._notifier.send_plan(plan)

    def round(self) -> None:
        """Process every job once, unless another conductor does."""
        now = versioned.now()
        holder = self._database.write(plans.take_lease, LEASE, self._owner,
                                      now, now + _LEASE_TIME)
        if holder is not None:
            return
        for job_id in self._database.write(db.expire, now):
            LOG.info('Precache job %s has expired', job_id)
        jobs = self._database.read(db.living)
        sets = self._database.read(db.boot_set_jobs)
        known = self._database.read(
            boot_sets.of_images, self._conf.lazy.threshold) if sets else {}
        for job in jobs:
            self._aim(job, now, known if job.id in sets else None)
        self._plan()
        self._follow([job for job in jobs if job.id not in sets], now)
        self._follow_sets([job for job in jobs if job.id in sets], now)

    def tidy(self) -> None:
        """Delete jobs that ended long ago."""
        self._database.write(db.prune, versioned.now() - KEPT)

    # -- targets of jobs

    def _aim(self, job, now, sets):
        """Update a job's targets to the hosts and images it names now.

        :param sets: what boots read of images, if it wants that alone
        """
        self._database.write(db.set_open, job.id,
                             is_open(job, datetime.datetime.now()))
        try:
            hosts = sorted({*job.hosts, *self._compute.hosts(
                job.aggregates, job.availability_zones)})
        except exceptions.DiffCacheError as error:
            # Targets stay those that it had.
            LOG.warning('Could not update the hosts of precache job %s: %s',
                        job.id, error)
            self._database.write(db.set_message, job.id, str(error))
            return
        images = self._database.read(db.wanted_images, job)
        if sets is not None:
            images = [image._replace(
                size=sets[image.content_id].bytes
                if image.content_id in sets else 0) for image in images]
        message = _nothing_to_do(job, hosts, images)
        self._database.write(db.set_message, job.id, message)
        self._database.write(db.sync_targets, job.id, hosts, images, now)

    # -- plans of sites

    def _plan(self):
        """Plan the sites of jobs that changed."""
        jobs_of = collections.defaultdict(list)
        pending = {job.id: job for job in self._database.read(db.dirty)}
        for job in pending.values():
            for site in self._database.read(db.sites_of, job.id):
                jobs_of[site].append(job)
        unplanned = set()
        for site in self._empty_sites:
            jobs_of.setdefault(site, [])
        for site, jobs in sorted(jobs_of.items()):
            if not self._plan_site(site, jobs):
                unplanned.update(job.id for job in jobs)
        for job in pending.values():
            if job.id not in unplanned:
                self._database.write(db.clean, job.id, job.generation)

    def _plan_site(self, site, jobs):
        """Plan a site for jobs; return whether no retry is needed."""
        ctxt = contexts.RequestContext.for_service('precache')
        # The first job's request shows in the logs down to the agents.
        if jobs:
            ctxt.global_request_id = jobs[0].request_id
        ctxt.update_store()
        try:
            plan = self._planner.plan(site)
        except exceptions.NotFound as error:
            # Looked at again each round, but no reason to plan others again.
            if site not in self._empty_sites:
                LOG.warning('Postponing the plan of site %s for %d precache'
                            ' jobs: %s', site, len(jobs), error)
            self._empty_sites.add(site)
            return True
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not plan site %s for %d precache jobs, will'
                        ' retry in the next round: %s', site, len(jobs),
                        error)
            return False
        self._empty_sites.discard(site)
        self._notifier.send_plan(plan)
        return True

    # -- progress of jobs

    def _follow(self, jobs, now):
        if not jobs:
            return
        view = self._database.read(_read_view)
        for job in jobs:
            rows = self._database.read(db.targets, job.id)
            self._database.write(
                db.set_progress, job.id,
                [view.progress(job, row) for row in rows], now)

    def _follow_sets(self, jobs, now):
        if not jobs:
            return
        view = self._database.read(boot_set_progress.read, now)
        for job in jobs:
            rows = self._database.read(db.targets, job.id)
            self._database.write(
                db.set_progress, job.id,
                [view.progress(row) for row in rows], now)


def _nothing_to_do(job, hosts, images):
    """Explain why a job has no target; return None if it has one."""
    if not images:
        return 'None of its families has an image.'
    if not hosts:
        return (f'No host is in {", ".join(job.aggregates)}; add one with'
                f' "openstack aggregate add host".')
    return None


def check_window(text: str | None) -> None:
    """Refuse a time window that cannot be read.

    :raises InvalidInput: it cannot
    """
    if text:
        time_windows.parse(text)


def _check_expiry(when):
    if when is not None and when <= versioned.now():
        raise exceptions.InvalidInput(
            f'The end of the job, {when:%Y-%m-%dT%H:%M:%SZ}, is over; give a'
            f' later one, or cancel the job to end it now.')


def is_open(job: objects.PrecacheJob, local: datetime.datetime) -> bool:
    """Return whether hosts may fetch for a job at a local time."""
    return not job.window or time_windows.parse(job.window).contains(local)


class ImageProgress:
    """Objects on hosts and current fills, to compute progress of targets."""

    def __init__(self, hosts: collections.abc.Sequence[objects.Host],
                 readable: collections.abc.Sequence[objects.Host],
                 patches: collections.abc.Sequence[objects.Patch],
                 wanted: set[tuple[str, str]],
                 fills: collections.abc.Mapping[
                     tuple[str, str], objects.Fill]):
        """Collect the state of jobs, hosts and fills.

        :param hosts: with what they hold
        :param readable: with what they hold or borrow
        :param wanted: (host, object id) of the current plans
        :param fills: of those, the objects not held yet, with their state
        """
        self._hosts = {host.name: host for host in hosts}
        self._wanted = wanted
        self._fills = fills
        self._into: dict[str, list[objects.Patch]] = {}
        for patch in patches:
            self._into.setdefault(patch.target, []).append(patch)
        # A manifest has the id of the content that it is of.
        self._held = _material(hosts)
        self._readable = _material(readable)
        self._at_site: dict[str, set[str]] = {}
        for host in hosts:
            if host.alive and host.role == objects.COMPUTE:
                self._at_site.setdefault(host.site, set()).update(
                    self._readable[host.name])

    def progress(self, job: objects.PrecacheJob, target: typing.Any
                 ) -> db.Progress:
        """Compute the progress of a target of a job."""
        way = self._way(job, target)
        if way is not None:
            return _progress(target, precache.READY, way=way,
                             bytes_done=target.bytes_total)
        trouble = self._trouble(target)
        if trouble:
            return _progress(target, precache.FAILED, message=trouble)
        host = self._hosts[target.host]
        if not host.alive:
            return _progress(
                target, precache.WAITING,
                message=f'Host {host.name} sends no heartbeats.')
        return self._under_way(target)

    def _under_way(self, target):
        """Compute the progress of the host's transfers for the target."""
        names = {target.content_id, *(
            patch.id for patch in self._into.get(target.content_id, ()))}
        planned = [name for name in sorted(names)
                   if (target.host, name) in self._wanted]
        fills = [self._fills[target.host, name] for name in planned
                 if (target.host, name) in self._fills]
        failed = max(fills, key=lambda fill: fill.attempts, default=None)
        values = {'bytes_done': _share_done(target, fills)}
        if failed is not None and failed.error:
            values.update(
                attempts=failed.attempts, retry_at=failed.retry_at,
                message=f'Try {failed.attempts} failed: {failed.error}')
            if failed.attempts >= PATIENCE and not failed.active:
                return _progress(target, precache.FAILED, **values)
        state = precache.FETCHING if planned else precache.WAITING
        return _progress(target, state, **values)

    def _trouble(self, target):
        if target.content_id is None:
            return (f'Image {target.image_id} is not in the catalogue, or'
                    f' was withdrawn.')
        host = self._hosts.get(target.host)
        if host is None:
            return (f'Host {target.host} is not registered; start its'
                    f' agent.')
        if target.bytes_total > host.capacity:
            return (f'Image {target.image_id} has {target.bytes_total}'
                    f' bytes, the cache of host {host.name} only'
                    f' {host.capacity}.')
        return None

    def _way(self, job, target):
        """Return how the host has the image without the WAN, or None.

        Nova's own copy is as good as the cache's, but for pinned images: Nova
        deletes it when no server uses it.
        """
        host = self._hosts.get(target.host)
        if host is None or target.content_id is None:
            return None
        if target.content_id in self._held[host.name]:
            return LOCAL
        if job.pinned or not host.alive:
            return None
        if target.content_id in self._readable[host.name]:
            return LOCAL
        around = self._at_site.get(host.site, set())
        if any(patch.id in around and patch.base in around
               for patch in self._into.get(target.content_id, ())):
            return BUILD
        return PEER if target.content_id in around else None


def _progress(target, state, **values):
    return db.Progress(target.host, target.image_id, state, **values)


def _share_done(target, fills):
    """Estimate the bytes done, from the share of the transfers done."""
    total = sum(fill.bytes_total for fill in fills)
    done = sum(min(fill.bytes_done, fill.bytes_total) for fill in fills)
    return target.bytes_total * done // total if total else 0


def _material(hosts):
    """Return the images and patches of hosts: ids by host."""
    return {host.name: {held.id for held in host.holdings
                        if held.kind in _MATERIAL} for host in hosts}


def _read_view(session):
    return ImageProgress(
        held_rows.holding_hosts(session), held_rows.map_hosts(session),
        catalogue.list_patches(session),
        db.planned_objects(session), fill_reports.by_object(session))
