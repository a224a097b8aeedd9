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
"""Proxy of the service for openstacksdk: ``connection.diffcache``."""

import collections.abc
import time
import typing

from openstack import exceptions
from openstack import proxy

from diffcache_openstack.client.resources import base
from diffcache_openstack.client.resources import host
from diffcache_openstack.client.resources import hydration
from diffcache_openstack.client.resources import image
from diffcache_openstack.client.resources import image_request
from diffcache_openstack.client.resources import plan
from diffcache_openstack.client.resources import precache_job
from diffcache_openstack.client.resources import profile
from diffcache_openstack.client.resources import site
from diffcache_openstack.client.resources import volume_cache
from diffcache_openstack.client import version_calls

Listing = collections.abc.Iterator

# Attempts to change a resource that others change at the same time.
_TRIES = 5


class Proxy(version_calls.VersionCalls, proxy.Proxy):
    """Calls of the service. Listings accept the API's filters by name."""

    def request(self, *args: typing.Any, **kwargs: typing.Any
                ) -> typing.Any:
        """Send a request; errors carry the message of the service."""
        response = super().request(*args, **kwargs)
        detail = _detail(response)
        if detail:
            exceptions.raise_from_response(response, error_message=detail)
        return response

    def hosts(self, **query: typing.Any) -> Listing[host.Host]:
        """List hosts by name."""
        return self._list(host.Host, **query)

    def get_host(self, name: str) -> host.Host:
        """Return a host."""
        return self._get(host.Host, name)

    def delete_host(self, name: str) -> None:
        """Remove a host that was retired."""
        self._delete(host.Host, name, ignore_missing=False)

    def host_objects(self, name: str, **query: typing.Any
                     ) -> Listing[host.HeldObject]:
        """List the objects that a host holds."""
        return self._list(host.HeldObject, host=base.part(name), **query)

    def holdings(self, **query: typing.Any) -> Listing[host.Holding]:
        """List the objects that hosts hold, by host."""
        return self._list(host.Holding, **query)

    def pending_images(self, name: str, **query: typing.Any
                       ) -> Listing[host.PendingImage]:
        """List images that a repository could not add yet."""
        return self._list(host.PendingImage, host=base.part(name), **query)

    def boot_sets(self, name: str, **query: typing.Any
                  ) -> Listing[host.BootSet]:
        """List the boot sets that a host has, or that are planned for it."""
        return self._list(host.BootSet, host=base.part(name), **query)

    def volume_caches(self, **query: typing.Any
                      ) -> Listing[volume_cache.VolumeCache]:
        """List volumes in SSD caches of hosts."""
        return self._list(volume_cache.VolumeCache, **query)

    def get_volume_cache(self, volume_id: str) -> volume_cache.VolumeCache:
        """Return a volume in an SSD cache."""
        return self._get(volume_cache.VolumeCache, volume_id)

    def update_volume_cache(self, volume_id: str, **values: typing.Any
                            ) -> volume_cache.VolumeCache:
        """Change settings of a volume; retry after a concurrent change.

        :param values: limit, min and max in blocks, weight, priority, mode,
            sla and admission; None removes one
        """
        return self._change(self.get_volume_cache, volume_id, values)

    def follow_volume_type(self, volume_id: str, specs: dict[str, str]
                           ) -> volume_cache.VolumeCache:
        """Have a volume in use follow its type, which was changed.

        :param specs: QoS specs of the type
        """
        return self._get_resource(volume_cache.VolumeCache, volume_id).follow(
            self, specs)

    def flush_volume_cache(self, volume_id: str) -> volume_cache.VolumeCache:
        """Have what only the cache has written back to the volume."""
        return self._get_resource(volume_cache.VolumeCache, volume_id).act(
            self, 'actions', {'action': 'flush'})

    def accept_volume_loss(self, volume_id: str) -> volume_cache.VolumeCache:
        """Have flushes succeed although a volume's storage lost blocks."""
        return self._get_resource(volume_cache.VolumeCache, volume_id).act(
            self, 'actions', {'action': 'accept-loss'})

    def invalidate_volume_cache(self, volume_id: str
                                ) -> volume_cache.VolumeCache:
        """Have forgotten what is cached of a volume."""
        return self._get_resource(volume_cache.VolumeCache, volume_id).act(
            self, 'actions', {'action': 'invalidate'})

    def volume_curve(self, volume_id: str) -> dict[str, typing.Any]:
        """Return what was requested of a volume in the last epoch."""
        return self._document(f'/volume-caches/{base.part(volume_id)}/curve',
                              {})['curve']

    def ssd_caches(self, **query: typing.Any
                   ) -> Listing[volume_cache.SsdCache]:
        """List SSD caches by host."""
        return self._list(volume_cache.SsdCache, **query)

    def get_ssd_cache(self, host: str) -> volume_cache.SsdCache:
        """Return the SSD cache of a host."""
        return self._get(volume_cache.SsdCache, host)

    def profiles(self, **query: typing.Any) -> Listing[profile.Profile]:
        """List profiles of images by ID, without their rows."""
        return self._list(profile.Profile, **query)

    def get_profile(self, profile_id: str) -> profile.Profile:
        """Return a profile with its rows."""
        return self._get(profile.Profile, profile_id)

    def import_profile(self, **values: typing.Any) -> profile.Profile:
        """Add rows to a profile, in place of those imported before.

        :param values: image_id, label, chunk and rows
        """
        return self._create(profile.Profile, **values)

    def delete_profile(self, profile_id: str) -> None:
        """Delete a profile, which is learned anew."""
        self._delete(profile.Profile, profile_id, ignore_missing=False)

    def hydrations(self, **query: typing.Any
                   ) -> Listing[hydration.Hydration]:
        """List servers that run from images which are arriving."""
        return self._list(hydration.Hydration, **query)

    def get_hydration(self, server_id: str) -> hydration.Hydration:
        """Return how far the image is that a server runs from."""
        return self._get(hydration.Hydration, server_id)

    def update_hydration(self, server_id: str, **values: typing.Any
                         ) -> hydration.Hydration:
        """Change a hydration; retry after a concurrent change.

        :param values: deadline in seconds from now and rate in bytes per
            second, None for none, and paused
        """
        return self._change(self.get_hydration, server_id, values)

    def wait_for_hydration(
            self, hydration: hydration.Hydration, timeout: float,
            interval: float = 2.0,
            progress: collections.abc.Callable[..., None] | None = None,
            ) -> hydration.Hydration:
        """Wait until the image of a server is whole.

        :param timeout: seconds
        :param progress: called with the hydration after each look
        :raises ResourceTimeout: it takes longer
        :raises NotFoundException: the server is listed no more: it reads a
            file that is whole, or left its host
        """
        def look():
            found = self.get_hydration(hydration.server_id)
            if progress is not None:
                progress(found)
            return found

        return self._wait(look, lambda found: found.state == 'complete',
                          timeout, interval)

    def images(self, **query: typing.Any) -> Listing[image.Image]:
        """List the images of the catalogue by ID."""
        return self._list(image.Image, **query)

    def get_image(self, image_id: str) -> image.Image:
        """Return an image."""
        return self._get(image.Image, image_id)

    def image_locations(self, image_id: str
                        ) -> Listing[image.Location]:
        """List the hosts that hold a whole image."""
        return self._list(image.Location,
                          image_id=base.part(image_id))

    def patches(self, **query: typing.Any) -> Listing[image.Patch]:
        """List patches by ID; base and target may be lists."""
        return self._list(image.Patch, **query)

    def patch_pairs(self, **query: typing.Any
                    ) -> Listing[image.PatchPair]:
        """List the pairs of contents that patches are considered for."""
        return self._list(image.PatchPair, **query)

    def get_patch(self, patch_id: str) -> image.Patch:
        """Return a patch."""
        return self._get(image.Patch, patch_id)

    def plans(self, **query: typing.Any) -> Listing[plan.Plan]:
        """List plans, latest first."""
        return self._list(plan.Plan, **query)

    def get_plan(self, plan_id: str) -> plan.Plan:
        """Return a plan with all its items."""
        return self._get(plan.Plan, plan_id)

    def create_plan(self, **values: typing.Any) -> plan.Plan:
        """Start to compute a plan as a proposal."""
        return self._create(plan.Plan, **values)

    def apply_plan(self, proposal: plan.Plan | str,
                   generation: int | None = None) -> plan.Plan:
        """Make a proposed plan the current one."""
        return self._get_resource(plan.Plan, proposal).apply(
            self, generation)

    def cancel_plan(self, proposal: plan.Plan | str) -> plan.Plan:
        """Discard a proposed plan."""
        return self._get_resource(plan.Plan, proposal).cancel(self)

    def explain_plan(self, plan_id: str, **query: typing.Any
                     ) -> list[dict[str, typing.Any]]:
        """Explain why a plan places each object where it does."""
        return self._document(f'/plans/{base.part(plan_id)}/explanation',
                              query)['explanation']

    def what_if(self, site: str, objective: str | None = None,
                **changes: typing.Any) -> dict[str, typing.Any]:
        """Estimate the cost of a site if it were different.

        :param objective: seconds or wan_bytes; None for that of the site
        """
        chosen = {} if objective is None else {'objective': objective}
        return self.post(
            '/what-if', microversion=base.MAX_MICROVERSION,
            json={'what_if': {'site': site, 'changes': changes, **chosen}},
        ).json()['what_if']

    def lookup(self, host: str, image_id: str, **query: typing.Any
               ) -> dict[str, typing.Any]:
        """Return the ways for a host to get an image, cheapest first."""
        return self._document('/lookups', {
            'host': host, 'image_id': image_id, **query})['lookup']

    def lookups(self, image_id: str, **query: typing.Any
                ) -> Listing[image.Lookup]:
        """List the cheapest way to an image of each living host, by host."""
        return self._list(image.Lookup,
                          image_id=base.part(image_id), **query)

    def requests(self, **query: typing.Any) -> Listing[image_request.Request]:
        """List past requests, latest first."""
        return self._list(image_request.Request, **query)

    def sites(self, **query: typing.Any) -> Listing[site.Site]:
        """List sites by name."""
        return self._list(site.Site, **query)

    def site_report(self, name: str, **query: typing.Any
                    ) -> dict[str, typing.Any]:
        """Return the summary of a site."""
        return self._document(f'/sites/{base.part(name)}/report',
                              query)['report']

    def site_forecast(self, name: str, **query: typing.Any
                      ) -> list[dict[str, typing.Any]]:
        """Return the requests expected at a site."""
        return self._document(f'/sites/{base.part(name)}/forecast',
                              query)['forecast']

    def limits(self, project_id: str | None = None) -> dict[str, typing.Any]:
        """Return the quotas of a project, and how much of each is in use."""
        return self._document('/limits', {'project_id': project_id})['limits']

    def precache_jobs(self, **query: typing.Any
                      ) -> Listing[precache_job.PrecacheJob]:
        """List precache jobs by ID."""
        return self._list(precache_job.PrecacheJob, **query)

    def get_precache_job(self, job_id: str) -> precache_job.PrecacheJob:
        """Return a precache job."""
        return self._get(precache_job.PrecacheJob, job_id)

    def create_precache_job(self, **values: typing.Any
                            ) -> precache_job.PrecacheJob:
        """Cache images on hosts before they are requested."""
        return self._create(precache_job.PrecacheJob, **values)

    def update_precache_job(self, job_id: str, **values: typing.Any
                            ) -> precache_job.PrecacheJob:
        """Change a job; retry after a concurrent change.

        :param values: by the names of the API: ``pinned``, not ``is_pinned``
        """
        return self._change(self.get_precache_job, job_id, values)

    def cancel_precache_job(self, job: precache_job.PrecacheJob | str
                            ) -> precache_job.PrecacheJob:
        """End a job before its time."""
        return self._get_resource(precache_job.PrecacheJob, job).cancel(self)

    def retry_precache_job(self, job: precache_job.PrecacheJob | str
                           ) -> precache_job.PrecacheJob:
        """Make hosts retry missing objects at once."""
        return self._get_resource(precache_job.PrecacheJob, job).retry(self)

    def precache_targets(self, job_id: str, **query: typing.Any
                         ) -> Listing[precache_job.Target]:
        """List the progress of a job by host and image."""
        return self._list(precache_job.Target, job_id=base.part(job_id),
                          **query)

    def wait_for_plan(self, plan_id: str, timeout: float,
                      interval: float = 1.0) -> plan.Plan:
        """Wait until a plan is computed, or failed.

        :param timeout: seconds
        :raises ResourceTimeout: it takes longer
        """
        return self._wait(
            lambda: self.get_plan(plan_id),
            lambda plan: plan.state != 'computing', timeout, interval)

    def wait_for_fill(
            self, plan_id: str, timeout: float, interval: float = 2.0,
            progress: collections.abc.Callable[..., None] | None = None,
            ) -> plan.Plan:
        """Wait until hosts hold all that a plan places, or it is replaced.

        :param timeout: seconds
        :param progress: is called with how many objects are held, of how
            many, and their name
        :raises ResourceTimeout: it takes longer
        """
        def is_done(plan):
            held = sum(item['held'] for item in plan.items)
            if progress is not None:
                progress(held, len(plan.items), 'objects')
            return held == len(plan.items) or plan.state != 'current'

        return self._wait(lambda: self.get_plan(plan_id), is_done, timeout,
                          interval)

    def wait_for_precache_job(
            self, job_id: str, timeout: float, interval: float = 2.0,
            progress: collections.abc.Callable[..., None] | None = None,
            ) -> precache_job.PrecacheJob:
        """Wait until a job is ready, has ended, or cannot make progress.

        :param timeout: seconds
        :param progress: called with the job after each poll
        :raises ResourceTimeout: it takes longer
        """
        def is_done(job):
            if progress is not None:
                progress(job)
            counts = job.progress
            settled = counts['ready'] + counts['failed'] == counts['targets']
            stuck = settled and (counts['failed'] or job.message)
            return job.state != 'running' or bool(stuck)

        return self._wait(lambda: self.get_precache_job(job_id), is_done,
                          timeout, interval)

    def wait_for_base_images(
            self, hosts: typing.Iterable[str], images: typing.Iterable[str],
            timeout: float, interval: float = 2.0) -> None:
        """Wait until Nova has images in its own cache on hosts.

        :param images: ids
        :param timeout: seconds
        :raises ResourceTimeout: an image is not there by then
        """
        deadline = time.monotonic() + timeout
        missing = {(host, image) for host in hosts for image in images}
        while missing := self._without_base(missing):
            if time.monotonic() + interval > deadline:
                host, image = min(missing)
                raise exceptions.ResourceTimeout(
                    f'Nova has not cached image {image} on {host} after'
                    f' {timeout:g} s, or the agent there must not read it'
                    f' ([agent] borrow, output_directories); see the log of'
                    f' nova-compute ({len(missing)} of these are missing).')
            time.sleep(interval)

    def _without_base(self, wanted):
        """Select those of (host, image) whose Nova does not have the image."""
        found = {(place.host, image) for image in {each[1] for each in wanted}
                 for place in self.image_locations(image)
                 if place.is_borrowed}
        return wanted - found

    def _get_resource(self, resource_type: typing.Any, value: typing.Any,
                      **attrs: typing.Any) -> typing.Any:
        """Return a resource by a name that may need quoting."""
        if isinstance(value, str):
            value = base.part(value)
        return super()._get_resource(resource_type, value, **attrs)

    def _change(self, get: collections.abc.Callable[[str], typing.Any],
                resource_id: str, values: dict[str, typing.Any]
                ) -> typing.Any:
        """Change a resource; retry after a concurrent change.

        :raises ConflictException: the service refuses the change itself
        """
        for left in reversed(range(_TRIES)):
            found = get(resource_id)
            try:
                return found.change(self, values)
            except exceptions.ConflictException:
                if not left or (get(resource_id).generation
                                == found.generation):
                    raise
        raise AssertionError('not reached')

    def _wait(self, look, is_done, timeout, interval):
        found = look()
        try:
            return self._wait_on(found, look, is_done, timeout, interval)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(
                f'Stopped waiting for {found.label.lower()} {found.id}; the'
                f' service continues it.') from error

    @staticmethod
    def _wait_on(found, look, is_done, timeout, interval):
        deadline = time.monotonic() + timeout
        while True:
            if is_done(found):
                return found
            if time.monotonic() + interval > deadline:
                raise exceptions.ResourceTimeout(
                    f'{found.label} {found.id} is still {found.state} after'
                    f' {timeout:g} s; the service continues it.')
            time.sleep(interval)
            found = look()

    def _document(self, path, query):
        response = self.get(
            path, params={name: value for name, value in query.items()
                          if value is not None},
            microversion=base.MAX_MICROVERSION)
        exceptions.raise_from_response(response)
        return response.json()


def _detail(response):
    """Return the message of the service's error, or None."""
    if response.status_code < 400:
        return None
    try:
        errors = response.json()['errors']
        return '; '.join(error['detail'] for error in errors)
    except (ValueError, KeyError, TypeError):
        return None
