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
"""Every table.

Until the first release there is this one migration, which changes with the
models; after it, migrations are added.
"""

from diffcache_openstack.db.migrations.initial import images
from diffcache_openstack.db.migrations.initial import lazy
from diffcache_openstack.db.migrations.initial import planning
from diffcache_openstack.db.migrations.initial import senders
from diffcache_openstack.db.migrations.initial import sites
from diffcache_openstack.db.migrations.initial import ssd_caches
from diffcache_openstack.db.migrations.initial import versions

revision = '0001'
down_revision = None


def upgrade():
    """Create the tables, each group after those that it refers to."""
    for group in (sites, ssd_caches, images, planning, senders, versions,
                  lazy):
        group.create()
