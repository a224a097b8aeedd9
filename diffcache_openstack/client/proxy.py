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
"""The service as openstacksdk shows it: ``connection.diffcache``."""

import collections.abc
import time
import typing

from openstack import exceptions
from openstack import proxy

from diffcache_openstack.client.resources import base
from diffcache_openstack.client.resources import host as _host
from diffcache_openstack.client.resources import plan as _plan
from diffcache_openstack.client.resources import precache_job as _job
from diffcache_openstack.client.resources import request as _request
from diffcache_openstack.client.resources import site as _site
from diffcache_openstack.client.resources import template as _template
from diffcache_openstack.client import versions

Listing = collections.abc.Iterator

# How often a change that met another one is tried on what is there then.
_TRIES = 5


class Proxy(versions.VersionCalls, proxy.Proxy):
    """Calls of the service. Listings take the API's filters by name."""

    def request(self, *args: typing.Any, **kwargs: typing.Any
                ) -> typing.Any:
        """Send; an error says what the service said."""
        response = super().request(*args, **kwargs)
        detail = _detail(response)
        if detail:
            exceptions.raise_from_response(response, error_message=detail)
        return response

    def hosts(self, **query: typing.Any) -> Listing[_host.Host]:
        """Hosts, by name."""
        return self._list(_host.Host, **query)

    def get_host(self, name: str) -> _host.Host:
        """A host."""
        return self._get(_host.Host, name)

    def delete_host(self, name: str) -> None:
        """Forget a host that will not come back."""
        self._delete(_host.Host, name, ignore_missing=False)

    def host_objects(self, name: str, **query: typing.Any
                     ) -> Listing[_host.HeldObject]:
        """What a host holds."""
        return self._list(_host.HeldObject, host=base.part(name), **query)

    def templates(self, **query: typing.Any) -> Listing[_template.Template]:
        """Images of the catalogue, by id."""
        return self._list(_template.Template, **query)

    def get_template(self, template_id: str) -> _template.Template:
        """An image of the catalogue."""
        return self._get(_template.Template, template_id)

    def template_locations(self, template_id: str
                           ) -> Listing[_template.Location]:
        """Hosts that hold an image whole."""
        return self._list(_template.Location,
                          template_id=base.part(template_id))

    def patches(self, **query: typing.Any) -> Listing[_template.Patch]:
        """Patches, by id."""
        return self._list(_template.Patch, **query)

    def get_patch(self, patch_id: str) -> _template.Patch:
        """A patch."""
        return self._get(_template.Patch, patch_id)

    def plans(self, **query: typing.Any) -> Listing[_plan.Plan]:
        """Plans, the latest first."""
        return self._list(_plan.Plan, **query)

    def get_plan(self, plan_id: str) -> _plan.Plan:
        """A plan with all its items."""
        return self._get(_plan.Plan, plan_id)

    def create_plan(self, **values: typing.Any) -> _plan.Plan:
        """Have a plan computed, which is only proposed when it is done."""
        return self._create(_plan.Plan, **values)

    def apply_plan(self, plan: _plan.Plan | str,
                   generation: int | None = None) -> _plan.Plan:
        """Put a proposed plan into force."""
        return self._get_resource(_plan.Plan, plan).apply(self, generation)

    def cancel_plan(self, plan: _plan.Plan | str) -> _plan.Plan:
        """Drop a proposed plan."""
        return self._get_resource(_plan.Plan, plan).cancel(self)

    def explain_plan(self, plan_id: str, **query: typing.Any
                     ) -> list[dict[str, typing.Any]]:
        """Why a plan wants each object where it does."""
        return self._document(f'/plans/{base.part(plan_id)}/explanation',
                              query)['explanation']

    def what_if(self, site: str, **changes: typing.Any
                ) -> dict[str, typing.Any]:
        """What a change of a site would be worth."""
        return self.post(
            '/what-if', microversion=base.MAX_MICROVERSION,
            json={'what_if': {'site': site, 'changes': changes}},
        ).json()['what_if']

    def lookup(self, host: str, template_id: str, **query: typing.Any
               ) -> dict[str, typing.Any]:
        """How a host would get an image, cheapest way first."""
        return self._document('/lookups', {
            'host': host, 'template_id': template_id, **query})['lookup']

    def requests(self, **query: typing.Any) -> Listing[_request.Request]:
        """Past requests, the latest first."""
        return self._list(_request.Request, **query)

    def sites(self, **query: typing.Any) -> Listing[_site.Site]:
        """Sites, by name."""
        return self._list(_site.Site, **query)

    def site_report(self, name: str, **query: typing.Any
                    ) -> dict[str, typing.Any]:
        """How a site is doing."""
        return self._document(f'/sites/{base.part(name)}/report',
                              query)['report']

    def site_forecast(self, name: str, **query: typing.Any
                      ) -> list[dict[str, typing.Any]]:
        """What requests a site is expected to have."""
        return self._document(f'/sites/{base.part(name)}/forecast',
                              query)['forecast']

    def precache_jobs(self, **query: typing.Any
                      ) -> Listing[_job.PrecacheJob]:
        """Precache jobs, by id."""
        return self._list(_job.PrecacheJob, **query)

    def get_precache_job(self, job_id: str) -> _job.PrecacheJob:
        """A precache job."""
        return self._get(_job.PrecacheJob, job_id)

    def create_precache_job(self, **values: typing.Any) -> _job.PrecacheJob:
        """Have images cached before they are asked for."""
        return self._create(_job.PrecacheJob, **values)

    def update_precache_job(self, job_id: str, **values: typing.Any
                            ) -> _job.PrecacheJob:
        """Change a job; again if somebody else changed it meanwhile.

        :param values: by the names of the API: ``pinned``, not ``is_pinned``
        """
        for left in reversed(range(_TRIES)):
            job = self.get_precache_job(job_id)
            try:
                return job.change(self, values)
            except exceptions.ConflictException:
                ended = self.get_precache_job(job_id)
                if not left or ended.generation == job.generation:
                    raise
        raise AssertionError('not reached')

    def cancel_precache_job(self, job: _job.PrecacheJob | str
                            ) -> _job.PrecacheJob:
        """End a job before its time."""
        return self._get_resource(_job.PrecacheJob, job).cancel(self)

    def retry_precache_job(self, job: _job.PrecacheJob | str
                           ) -> _job.PrecacheJob:
        """Have hosts try again at once what they are missing."""
        return self._get_resource(_job.PrecacheJob, job).retry(self)

    def precache_targets(self, job_id: str, **query: typing.Any
                         ) -> Listing[_job.Target]:
        """How far a job is, by host and image."""
        return self._list(_job.Target, job_id=base.part(job_id), **query)

    def wait_for_plan(self, plan_id: str, timeout: float,
                      interval: float = 1.0) -> _plan.Plan:
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
            ) -> _plan.Plan:
        """Wait until hosts hold all that a plan wants, or it is replaced.

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
            ) -> _job.PrecacheJob:
        """Wait until a job is ready, has ended, or cannot get any further.

        :param timeout: seconds
        :param progress: is called with the job each time it was looked at
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

    def _get_resource(self, resource_type: typing.Any, value: typing.Any,
                      **attrs: typing.Any) -> typing.Any:
        """A resource that the caller named, whatever the name looks like."""
        if isinstance(value, str):
            value = base.part(value)
        return super()._get_resource(resource_type, value, **attrs)

    def _wait(self, look, is_done, timeout, interval):
        found = look()
        try:
            return self._wait_on(found, look, is_done, timeout, interval)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(
                f'{found.label} {found.id} is not waited for any more; the'
                f' service goes on with it.') from error

    @staticmethod
    def _wait_on(found, look, is_done, timeout, interval):
        deadline = time.monotonic() + timeout
        while True:
            if is_done(found):
                return found
            if time.monotonic() + interval > deadline:
                raise exceptions.ResourceTimeout(
                    f'{found.label} {found.id} is still {found.state} after'
                    f' {timeout:g} s; the service goes on with it.')
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
    """What an error of the service says; None for what is none."""
    if response.status_code < 400:
        return None
    try:
        errors = response.json()['errors']
        return '; '.join(error['detail'] for error in errors)
    except (ValueError, KeyError, TypeError):
        return None
