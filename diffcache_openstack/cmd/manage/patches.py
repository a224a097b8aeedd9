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
"""``diffcache-manage patch``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common.commands import cells
from diffcache_openstack.db import catalogue


class PatchList(base.Lister):
    """List the patches of the catalogue."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        with self.database() as database:
            patches = database.read(catalogue.list_patches)
        return ('ID', 'Base', 'Target', 'Size', 'Made in (s)',
                'Applied in (s)'), [
            (p.id, p.base, p.target, cells.Size(p.size),
             round(p.create_seconds, 3), round(p.apply_seconds, 3))
            for p in patches]
