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
"""Indexes for what is looked up with each request, version and task."""

from alembic import op

revision = '0006'
down_revision = '0005'


def upgrade():
    """Create them."""
    op.create_index('ix_requests_host_template_id', 'requests',
                    ['host', 'template_id', 'started_at'])
    op.create_index('ix_versions_parent_id', 'versions', ['parent_id'])
    op.create_index('ix_version_tasks_server_id', 'version_tasks',
                    ['server_id'])
