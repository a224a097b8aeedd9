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
"""Every table, as the models have it.

Nothing was released yet: a schema that differs from the models has no
database. The first release writes the tables out here
(``alembic.autogenerate``), and changes of them are migrations from then on; a
test refuses a second migration as long as this one follows the models.
"""

from alembic import op

from diffcache_openstack.db import models

revision = '0001'
down_revision = None


def upgrade():
    """Create the tables."""
    models.Base.metadata.create_all(op.get_bind(), checkfirst=False)
