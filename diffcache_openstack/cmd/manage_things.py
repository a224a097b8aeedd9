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
"""Commands of ``diffcache-manage`` about hosts, images, plans and keys."""

import argparse
import os
import uuid

from cliff.formatters import table
from cliff import lister
from cliff import show

from diffcache_openstack.cmd import manage
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.common import units
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db import history
from diffcache_openstack.db import migration
from diffcache_openstack.db import plans
from diffcache_openstack.db import sites
from diffcache_openstack import objects


def _bytes(command, count):
    """Bytes for people in a table, plain numbers for programs."""
    if isinstance(command.formatter, table.TableFormatter):
        return units.format_size(count)
    return count


class Lister(manage.Command, lister.Lister):
    """A command that prints a table."""


class ShowOne(manage.Command, show.ShowOne):
    """A command that prints the fields of one thing."""


class KeyCreate(manage.Command):
    """Make the key that the agents of a deployment share."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('file', help='File to write; must not exist.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Write a random key."""
        keys.create_key(parsed_args.file)


class HostList(Lister):
    """List hosts, how they are and what they hold."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--site', help='Only hosts of this site.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the hosts from the database."""
        with self.database() as database:
            hosts = [host for host in database.read(sites.map_hosts)
                     if parsed_args.site in (None, host.site)]
        rows = [(host.name, host.site, host.role,
                 'up' if host.alive else 'down', len(host.holdings),
                 _bytes(self, sum(held.bytes for held in host.holdings)),
                 _bytes(self, host.capacity), host.seen_at.isoformat())
                for host in hosts]
        return ('Host', 'Site', 'Role', 'State', 'Objects', 'Held',
                'Capacity', 'Seen at'), rows


class HostShow(Lister):
    """List what a host holds."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('host', help='Name of the host.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the host's holdings from the database."""
        with self.database() as database:
            host = database.read(sites.get_host, parsed_args.host)
        return ('Kind', 'ID', 'Size'), [
            (held.kind, held.id, _bytes(self, held.bytes))
            for held in host.holdings]


class HostRemove(manage.Command):
    """Forget a host that will not come back.

    Nobody looks whether it is alive; one whose agent runs is back soon.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('host', help='Name of the host.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Take the host out of the database."""
        with self.database() as database:
            database.write(sites.remove_host, parsed_args.host)


class TemplateList(Lister):
    """List the images of the catalogue."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the catalogue from the database."""
        with self.database() as database:
            templates = database.read(catalogue.list_templates)
        return ('ID', 'Name', 'Content ID', 'Size', 'Data'), [
            (t.id, t.name, t.content_id, _bytes(self, t.size),
             _bytes(self, t.data_size)) for t in templates]


class TemplateRemove(manage.Command):
    """Take an image out of the catalogue, with its patches."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('template', help='ID of the image.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Take the image out of the database."""
        with self.database() as database:
            database.write(catalogue.remove_template, parsed_args.template)


class PatchList(Lister):
    """List the patches of the catalogue."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the catalogue from the database."""
        with self.database() as database:
            patches = database.read(catalogue.list_patches)
        return ('ID', 'Base', 'Target', 'Size', 'Made in (s)',
                'Applied in (s)'), [
            (p.id, p.base, p.target, _bytes(self, p.size),
             round(p.create_seconds, 3), round(p.apply_seconds, 3))
            for p in patches]


class RequestList(Lister):
    """List the latest requests and how they were served."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--limit', type=int, default=50,
                            help='How many at most. Default: 50.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the history from the database."""
        with self.database() as database:
            requests = database.read(history.list_requests,
                                     parsed_args.limit)
        return ('Started at', 'Host', 'Image', 'Way', 'Seconds', 'WAN',
                'Fallbacks', 'Error'), [
            (r.started_at.isoformat(), r.host, r.template_id, r.way,
             round(r.seconds, 3), _bytes(self, r.wan_bytes), r.fallbacks,
             r.error) for r in requests]


class PlanShow(Lister):
    """List what the current plan of a site wants where."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('site', help='Name of the site.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the plan from the database."""
        with self.database() as database:
            plan = database.read(plans.current_plan, parsed_args.site)
        if plan is None:
            raise exceptions.NotFound(
                f'Site {parsed_args.site} has no plan yet; make one with'
                f' "diffcache-manage plan create {parsed_args.site}".')
        return ('Host', 'Priority', 'Kind', 'ID', 'Size',
                'Saves (s/day)'), [
            (item.host, item.priority, item.kind, item.id,
             _bytes(self, item.bytes), round(item.saved_seconds, 3))
            for item in plan.items]


class PlanCreate(ShowOne):
    """Have a conductor plan a site now."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('site', help='Name of the site.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the conductor, and wait."""
        with self.conductor() as conductor:
            plan = conductor.plan_now(manage.service_context(),
                                      parsed_args.site)
        return ('site', 'generation', 'created_at', 'solver',
                'cost_s_per_day', 'lower_bound_s_per_day', 'proved_optimal',
                'solver_seconds', 'objects'), (
            plan.site, plan.generation, plan.created_at.isoformat(),
            plan.solver, plan.cost_s, plan.lower_bound_s,
            plan.proved_optimal, plan.solver_seconds, len(plan.items))


class ImageRegister(ShowOne):
    """Have the repository take in an image file."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('path', help='The file, on the repository.')
        parser.add_argument('--name', required=True, help='Name for people.')
        parser.add_argument('--id', help='ID of the image. Default: a new'
                                         ' random one.')
        parser.add_argument('--host', help='Name of the repository, if there'
                                           ' are several.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the repository's agent, and wait until it has the image."""
        host = parsed_args.host or self._repository()
        with self.agents() as agents:
            template = agents.register_image(
                manage.service_context(), host,
                os.path.abspath(parsed_args.path),
                parsed_args.id or str(uuid.uuid4()), parsed_args.name)
        return _fields(template)

    def _repository(self):
        with self.database() as database:
            names = [host.name for host in database.read(sites.list_hosts)
                     if host.role == objects.REPOSITORY]
        if len(names) != 1:
            raise exceptions.InvalidInput(
                f'There are {len(names)} repositories'
                f' ({", ".join(names) or "start one"}); name one with'
                f' --host.')
        return names[0]


class ImageFetch(ShowOne):
    """Have a host write an image to a path, as Nova would."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('template', help='ID of the image.')
        parser.add_argument('output', help='Absolute path, on the host.')
        parser.add_argument('--host', required=True, help='Name of the host.')
        parser.add_argument('--mode', help='Overrides [agent] serve_mode.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the host's agent, and wait until the image is there."""
        with self.agents() as agents:
            return _fields(agents.get_image(
                manage.service_context(), parsed_args.host,
                parsed_args.template, parsed_args.output, parsed_args.mode))


class AgentStatus(ShowOne):
    """Ask the agent of a host what it is doing."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('host', help='Name of the host.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the agent."""
        with self.agents() as agents:
            status = agents.status(manage.service_context(),
                                   parsed_args.host)
        return tuple(zip(*sorted(status.items())))


class Status(Lister):
    """Show each site: its hosts, its plan, and the catalogue's size."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read everything from the database."""
        with engine.errors_explained(self.conf):
            revision = migration.current(self.conf)
        if revision != migration.head():
            raise exceptions.PermanentError(
                f'The database is at revision {revision or "none"}, not'
                f' {migration.head()}; run "diffcache-manage db sync".')
        with self.database() as database:
            rows = database.read(_site_rows)
        return ('Site', 'Hosts up', 'Hosts down', 'Map', 'Plan', 'Objects',
                'Cost (s/day)', 'Bound (s/day)', 'Templates',
                'Patches'), rows


def _site_rows(session):
    templates = len(catalogue.list_templates(session))
    patches = len(catalogue.list_patches(session))
    rows = []
    for site in sites.list_sites(session):
        hosts = sites.list_hosts(session, site)
        up = sum(host.alive for host in hosts)
        plan = plans.current_plan(session, site)
        known = (plan.generation, len(plan.items), round(plan.cost_s, 1),
                 round(plan.lower_bound_s, 1)) if plan else (None,) * 4
        rows.append((site, up, len(hosts) - up,
                     sites.map_generation(session, site), *known,
                     templates, patches))
    return rows


def _fields(thing):
    values = {name: getattr(thing, name) for name in sorted(thing.fields)}
    return tuple(values), tuple(
        value.isoformat() if hasattr(value, 'isoformat') else value
        for value in values.values())
