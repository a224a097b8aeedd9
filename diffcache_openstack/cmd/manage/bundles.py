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
"""``diffcache-manage bundle``: images for sites that no link carries."""

import argparse
import pathlib

from diffcache_openstack.agent.bundles import packing
from diffcache_openstack.agent.bundles import sealing
from diffcache_openstack.agent.bundles import taking
from diffcache_openstack.cmd.manage import base
from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db import senders
from diffcache_openstack.db.sites import generations
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import buses
from diffcache_openstack.sites import maps

_COLUMNS = ('Kind', 'ID', 'Size', 'State')


class _Lister(base.Lister):
    """A command whose exit code is 1 if an object is not as it should be.

    :cvar good: states in which an object is
    """

    good: frozenset[str]
    _is_incomplete = False

    def listed(self, entries: list[packing.Entry]) -> tuple:
        """Return columns and rows of objects."""
        self._is_incomplete = any(each.state not in self.good
                                  for each in entries)
        return _COLUMNS, [(*each.key, cells.Size(each.size),
                           self.text(each.state)) for each in entries]

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command; return the exit code."""
        return super().run(parsed_args) or int(self._is_incomplete)


def _revoked_keys(path: pathlib.Path, authority: host_keys.Authority,
                  database: engine.Database) -> dict[str, str] | None:
    """Return the list of revoked keys that a controller sent this host.

    :param path: where its agent stores the list
    :returns: None if no key was ever revoked
    :raises Conflict: it is not the newest
    """
    number = revocations.Revocations(path, authority).number
    if database.read(senders.newer_list, number) is not None:
        raise exceptions.Conflict(
            f'{path} is not the newest list of revoked keys. Start the agent,'
            f' and repeat the command when it has fetched that.')
    return files.read_json(path) if number else None


class BundleCreate(_Lister):
    """Write what a site lacks into a directory, to carry it there.

    Run it on the repository host, with the configuration of the controllers
    beside that of the agent. A site with a plan gets the objects that the plan
    places there and that none of its hosts holds; one without gets all images.
    The files are sealed for the site and signed by the repository.
    """

    examples = ('--site ship-7 --output /media/disk/ship-7',
                '--site ship-8 --output /media/disk/ship-8 --new-site')
    good = frozenset((packing.PACKED, packing.HELD))
    arguments = (
        cli.Argument('--site', metavar='SITE', required=True,
                     help='Name of the site.'),
        cli.Argument('--output', metavar='DIR', required=True,
                     type=pathlib.Path,
                     help='Directory to write; it must be new or empty.'),
        cli.Argument('--new-site', action='store_true',
                     help='Add the site, if none of its hosts was ever'
                          ' connected.'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        conf, site = self.app.agent_conf, parsed_args.site
        key, security = taking.shared_key(conf), buses.load_security(conf)
        state = pathlib.Path(conf.agent.state_dir)
        with self.database() as database:
            if parsed_args.new_site:
                database.write(generations.ensure_site, site, versioned.now())
            revoked = None if security.authority is None else _revoked_keys(
                state / taking.REVOKED_KEYS, security.authority, database)
            site_map = maps.Maps(self.conf, database).whole(site)
            plan = database.read(plans.current_plan, site)
        choice = packing.Choice(site_map, plan, state / 'objects')
        writer = sealing.Writer(parsed_args.output, site, key)
        with progress.of(self, 'create') as bar:
            entries = list(packing.pack(choice, writer, bar))
        writer.finish(packing.contents(site_map, plan, revoked),
                      security.key)
        return self.listed(entries)


class BundleApply(_Lister):
    """Take the objects of a bundle into this host's cache.

    Stop the agent first, and start it afterwards: it then serves the images,
    and reports them when the conductor answers. What is held already is left
    out, so the command can be repeated, with pieces that came in any order.
    """

    examples = ('/media/disk/ship-7',)
    good = taking.DONE
    arguments = (
        cli.Argument('directory', metavar='DIR', type=pathlib.Path,
                     help='Directory with the bundle, or with a part of'
                          ' it.'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        conf = self.app.agent_conf
        intake = taking.Intake(conf, parsed_args.directory,
                               buses.load_security(conf))
        with progress.of(self, 'apply') as bar, intake.running(bar) as entries:
            return self.listed(list(entries))
