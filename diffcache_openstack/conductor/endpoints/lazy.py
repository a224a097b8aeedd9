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
"""RPC endpoint for lazy boots: of agents, and of the REST API."""

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import contexts
from diffcache_openstack.conductor import residents
from diffcache_openstack.conf import lazy as lazy_options
from diffcache_openstack.db import engine
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.lazy import carried_profiles
from diffcache_openstack.db.lazy import profiles as profile_table
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.objects import versioned
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import conductor_lazy_api


class LazyManager:
    """The endpoint; :class:`.conductor_lazy_api.LazyAPI` is the contract.

    :param residents: knows which projects have servers on a host
    """

    target = conductor_lazy_api.LazyAPI.target()

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 residents: residents.Residents) -> None:
        self._residents = residents
        self._share = conf.lazy.share_profiles == lazy_options.IMAGE
        self._database = database

    @oslo_messaging.expose
    def exchange_reads(self, ctxt: contexts.RequestContext, host: str,
                       image_id: str, projects: list, label: str, run: int,
                       number: int, rows: list, known_id: str | None,
                       known_generation: int | None) -> dict | None:
        """Count what instances of a host read; return what others read.

        :raises Forbidden: the profile is that of a project without a server
            on the host
        """
        project = self._database.read(profile_table.scope, image_id, projects,
                                      self._share)
        if project is None:
            return None
        if project != profile_table.SHARED:
            self._residents.check(host, [project])

        def write(session):
            host_rows.lock_host(session, host)
            subject = profile_table.Subject(image_id, project, label)
            if rows:
                profile_table.report(session, subject, host, (run, number),
                                     rows, versioned.now())
            found = profile_table.find(session, subject)
            found = carried_profiles.supplemented(session, subject, found)
            if found is None or (found.id, found.generation) == (
                    known_id, known_generation):
                return None
            return {'id': found.id, 'generation': found.generation,
                    'shared': project == profile_table.SHARED,
                    'rows': profiles.listed(found.rows)}

        return self._database.write(write)

    @oslo_messaging.expose
    def carry_work(self, ctxt: contexts.RequestContext, host: str,
                   after: str | None) -> dict | None:
        """Return what a repository can carry to the next image."""
        found = self._database.read(carried_profiles.work, host, after or '',
                                    self._share)
        return found and {
            'image_id': found.image_id, 'content_id': found.content_id,
            'sources': [{'profile_id': each.profile_id,
                         'content_id': each.content_id,
                         'rows': profiles.listed(each.rows)}
                        for each in found.sources]}

    @oslo_messaging.expose
    def report_carried(self, ctxt: contexts.RequestContext, host: str,
                       image_id: str, profile_id: str, rows: list) -> bool:
        """Store a profile that was carried to another image."""
        return self._database.write(
            carried_profiles.store,
            carried_profiles.CarriedProfile(host, image_id, profile_id, rows),
            self._share, versioned.now())

    @oslo_messaging.expose
    def import_profile(self, ctxt: contexts.RequestContext, profile_id: str,
                       image_id: str, project_id: str | None, label: str,
                       rows: list) -> str:
        """Add rows to a profile, in place of those imported before."""
        subject = profile_table.Subject(
            image_id, project_id or profile_table.SHARED, label)
        return self._database.write(
            lambda session: profile_table.import_rows(
                session, profile_id, subject, rows, versioned.now()).id)

    @oslo_messaging.expose
    def delete_profile(self, ctxt: contexts.RequestContext, profile_id: str
                       ) -> None:
        """Delete a profile, which is learned anew."""
        self._database.write(profile_table.delete, profile_id)

    @oslo_messaging.expose
    def exchange_boot_sets(self, ctxt: contexts.RequestContext, host: str,
                           sets: list, known: int | None) -> dict | None:
        """Replace a host's boot sets; return those planned for it."""
        return self._database.write(
            boot_sets.exchange, host,
            [boot_sets.HeldSet(*each) for each in sets], known,
            versioned.now())
