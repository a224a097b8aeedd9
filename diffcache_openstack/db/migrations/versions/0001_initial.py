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

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0001'
down_revision = None

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _time():
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql',
                                      'mariadb')


def _packed():
    return sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql',
                                         'mariadb')


def upgrade():
    """Create the tables, each after those that it refers to."""
    _create_sites()
    _create_map_changes()
    _create_hosts()
    _create_holdings()
    _create_borrowed()
    _create_fills()
    _create_pending_images()
    _create_host_networks()
    _create_ssd_caches()
    _create_volume_caches()
    _create_repository_standings()
    _create_templates()
    _create_template_members()
    _create_patches()
    _create_sketches()
    _create_sketch_keys()
    _create_patch_pairs()
    _create_requests()
    _create_plans()
    _create_plan_hosts()
    _create_plan_items()
    _create_precache_jobs()
    _create_precache_targets()
    _create_leases()
    _create_messages()
    _create_revoked_keys()
    _create_versions()
    _create_version_tasks()
    _create_version_stores()
    _create_version_heads()
    _create_version_policies()
    _create_hydrations()
    _create_profiles()
    _create_boot_set_hosts()
    _create_boot_sets()
    _create_profile_contributions()


def _create_sites():
    op.create_table(
        'sites',
        sa.Column('name', sa.String(64), primary_key=True),
        sa.Column('map_generation', sa.BigInteger, nullable=False),
        sa.Column('plan_generation', sa.BigInteger, nullable=False),
        sa.Column('planned_at', _time()),
        sa.Column('map_floor', sa.BigInteger, nullable=False,
                  server_default='0'),
        **_OPTIONS)


def _create_map_changes():
    op.create_table(
        'map_changes',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('site', sa.String(64), nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('what', sa.String(16), nullable=False),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('kind', sa.String(16)),
        sa.Column('object_id', sa.String(64)),
        sa.Index('ix_map_changes_site_generation', 'site', 'generation'),
        **_OPTIONS)


def _create_hosts():
    op.create_table(
        'hosts',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('site', sa.String(64), sa.ForeignKey('sites.name'),
                  nullable=False),
        sa.Column('role', sa.String(16), nullable=False),
        sa.Column('url', sa.String(255)),
        sa.Column('capacity', sa.BigInteger, nullable=False),
        sa.Column('alive', sa.Boolean, nullable=False),
        sa.Column('plan_generation', sa.BigInteger, nullable=False),
        sa.Column('seen_at', _time(), nullable=False),
        sa.Column('held_objects', sa.BigInteger, nullable=False,
                  server_default='0'),
        sa.Column('held_bytes', sa.BigInteger, nullable=False,
                  server_default='0'),
        sa.UniqueConstraint('name', name='uniq_hosts_name'),
        sa.Index('ix_hosts_site', 'site'),
        **_OPTIONS)


def _create_holdings():
    op.create_table(
        'holdings',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Index('ix_holdings_object_id', 'object_id'),
        **_OPTIONS)


def _create_borrowed():
    op.create_table(
        'borrowed',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        **_OPTIONS)


def _create_fills():
    op.create_table(
        'fills',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('active', sa.Boolean, nullable=False),
        sa.Column('bytes_total', sa.BigInteger, nullable=False),
        sa.Column('bytes_done', sa.BigInteger, nullable=False),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('retry_at', _time()),
        **_OPTIONS)


def _create_pending_images():
    op.create_table(
        'pending_images',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('image_id', sa.String(128), primary_key=True),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('retry_at', _time()),
        **_OPTIONS)


def _create_host_networks():
    op.create_table(
        'host_networks',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('fill_rate', sa.BigInteger),
        sa.Column('fill_windows', sa.Text, nullable=False),
        sa.Column('peer_mbps', sa.Double),
        **_OPTIONS)


def _create_ssd_caches():
    op.create_table(
        'ssd_caches',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('capacity', sa.BigInteger, nullable=False),
        sa.Column('policy', sa.String(255), nullable=False),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('decisions', sa.Text, nullable=False),
        sa.Column('updated_at', _time(), nullable=False),
        **_OPTIONS)


def _create_volume_caches():
    op.create_table(
        'volume_caches',
        sa.Column('id', sa.String(128), primary_key=True),
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('server_id', sa.String(64)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('mode', sa.String(32), nullable=False),
        sa.Column('document', sa.Text, nullable=False),
        sa.Column('curve', sa.Text),
        sa.Column('working_set', sa.BigInteger, nullable=False,
                  server_default='0'),
        sa.Column('updated_at', _time(), nullable=False),
        sa.Index('ix_volume_caches_host_id', 'host_id'),
        sa.Index('ix_volume_caches_project_id', 'project_id'),
        **_OPTIONS)


def _create_repository_standings():
    op.create_table(
        'repository_standings',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('answers', sa.Boolean, nullable=False),
        sa.Column('since', _time()),
        sa.Column('reason', sa.Text),
        sa.Column('mbps', sa.Double),
        sa.Column('transfers', sa.BigInteger, nullable=False),
        sa.Column('failures', sa.BigInteger, nullable=False),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Index('ix_repository_standings_name', 'name'),
        **_OPTIONS)


def _create_templates():
    op.create_table(
        'templates',
        sa.Column('id', sa.String(128), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('size', sa.BigInteger, nullable=False),
        sa.Column('data_size', sa.BigInteger, nullable=False),
        sa.Column('created_at', _time(), nullable=False),
        sa.Column('disk_format', sa.String(16), nullable=False),
        sa.Column('file_size', sa.BigInteger, nullable=False),
        sa.Column('os_hash_algo', sa.String(64)),
        sa.Column('os_hash_value', sa.String(128)),
        sa.Column('owner', sa.String(255)),
        sa.Column('visibility', sa.String(16), nullable=False),
        sa.Column('status', sa.String(16), nullable=False),
        sa.Column('form_id', sa.String(64)),
        sa.Column('form_size', sa.BigInteger, nullable=False),
        sa.Column('family', sa.String(128)),
        sa.Column('record', sa.Text),
        sa.Column('compressed_size', sa.BigInteger),
        sa.Index('ix_templates_content_id', 'content_id'),
        sa.Index('ix_templates_family', 'family'),
        **_OPTIONS)


def _create_template_members():
    op.create_table(
        'template_members',
        sa.Column('template_id', sa.String(128),
                  sa.ForeignKey('templates.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('member', sa.String(255), primary_key=True),
        sa.Index('ix_template_members_member', 'member'),
        **_OPTIONS)


def _create_patches():
    op.create_table(
        'patches',
        sa.Column('id', sa.String(64), primary_key=True),
        sa.Column('base', sa.String(64), nullable=False),
        sa.Column('target', sa.String(64), nullable=False),
        sa.Column('size', sa.BigInteger, nullable=False),
        sa.Column('create_seconds', sa.Double, nullable=False),
        sa.Column('apply_seconds', sa.Double, nullable=False),
        sa.Column('created_at', _time(), nullable=False),
        sa.UniqueConstraint('base', 'target', name='uniq_patches_pair'),
        sa.Index('ix_patches_target', 'target'),
        **_OPTIONS)


def _create_sketches():
    op.create_table(
        'sketches',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('data_size', sa.BigInteger, nullable=False),
        sa.Column('requests', sa.BigInteger, nullable=False),
        sa.Column('retry_at', _time()),
        sa.UniqueConstraint('content_id', name='uniq_sketches_content_id'),
        sa.Index('ix_sketches_state', 'state'),
        **_OPTIONS)


def _create_sketch_keys():
    op.create_table(
        'sketch_keys',
        sa.Column('tree', sa.SmallInteger, primary_key=True,
                  autoincrement=False),
        sa.Column('label', sa.String(36), primary_key=True),
        sa.Column('sketch_id', sa.Integer,
                  sa.ForeignKey('sketches.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Index('ix_sketch_keys_sketch_id', 'sketch_id'),
        **_OPTIONS)


def _create_patch_pairs():
    op.create_table(
        'patch_pairs',
        sa.Column('base', sa.String(64), primary_key=True),
        sa.Column('target', sa.String(64), primary_key=True),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('likeness', sa.Integer, nullable=False),
        sa.Column('size', sa.BigInteger),
        sa.Column('place', sa.Integer),
        sa.Column('saving', sa.Double, nullable=False),
        sa.Column('host', sa.String(255)),
        sa.Column('free_at', _time()),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('terms', sa.String(64)),
        sa.Column('reason', sa.Text),
        sa.Index('ix_patch_pairs_host_terms', 'host', 'terms'),
        sa.Index('ix_patch_pairs_state_saving', 'state', 'saving'),
        sa.Index('ix_patch_pairs_target', 'target'),
        **_OPTIONS)


def _create_requests():
    op.create_table(
        'requests',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('template_id', sa.String(128), nullable=False),
        sa.Column('content_id', sa.String(64)),
        sa.Column('host', sa.String(255), nullable=False),
        sa.Column('site', sa.String(64), nullable=False),
        sa.Column('mode', sa.String(32), nullable=False),
        sa.Column('way', sa.String(32), nullable=False),
        sa.Column('detail', sa.Text, nullable=False),
        sa.Column('seconds', sa.Double, nullable=False),
        sa.Column('predicted_seconds', sa.Double),
        sa.Column('wan_bytes', sa.BigInteger, nullable=False),
        sa.Column('lan_bytes', sa.BigInteger, nullable=False),
        sa.Column('fallbacks', sa.Integer, nullable=False),
        sa.Column('patch_id', sa.String(64)),
        sa.Column('apply_seconds', sa.Double, nullable=False),
        sa.Column('started_at', _time(), nullable=False),
        sa.Column('error', sa.Text),
        sa.Index('ix_requests_host_template_id', 'host', 'template_id',
                 'started_at'),
        sa.Index('ix_requests_site_started_at', 'site', 'started_at'),
        sa.Index('ix_requests_started_at', 'started_at'),
        **_OPTIONS)


def _create_plans():
    op.create_table(
        'plans',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('site', sa.String(64), sa.ForeignKey('sites.name'),
                  nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('generation', sa.BigInteger),
        sa.Column('base_generation', sa.BigInteger, nullable=False),
        sa.Column('changes', sa.Text, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('solver', sa.String(64), nullable=False),
        sa.Column('cost_s', sa.Double, nullable=False),
        sa.Column('lower_bound_s', sa.Double, nullable=False),
        sa.Column('proved_optimal', sa.Boolean, nullable=False),
        sa.Column('solver_seconds', sa.Double, nullable=False),
        sa.Column('created_at', _time(), nullable=False),
        sa.Column('move_wan_bytes', sa.BigInteger),
        sa.Column('move_lan_bytes', sa.BigInteger),
        sa.Column('fill_seconds', sa.Double),
        sa.Column('saved_seconds', sa.Double),
        sa.Column('saved_wan_bytes', sa.BigInteger),
        sa.Column('objective', sa.String(16)),
        sa.Column('cost_wan_bytes', sa.BigInteger),
        sa.UniqueConstraint('site', 'generation',
                            name='uniq_plans_site_generation'),
        sa.UniqueConstraint('uuid', name='uniq_plans_uuid'),
        **_OPTIONS)


def _create_plan_hosts():
    op.create_table(
        'plan_hosts',
        sa.Column('plan_id', sa.Integer,
                  sa.ForeignKey('plans.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        **_OPTIONS)


def _create_plan_items():
    op.create_table(
        'plan_items',
        sa.Column('plan_id', sa.Integer,
                  sa.ForeignKey('plans.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Column('priority', sa.Integer, nullable=False),
        sa.Column('saved_seconds', sa.Double, nullable=False),
        **_OPTIONS)


def _create_precache_jobs():
    op.create_table(
        'precache_jobs',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('project_id', sa.String(255)),
        sa.Column('user_id', sa.String(255)),
        sa.Column('request_id', sa.String(64)),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('images', sa.Text, nullable=False),
        sa.Column('families', sa.Text, nullable=False),
        sa.Column('hosts', sa.Text, nullable=False),
        sa.Column('aggregates', sa.Text, nullable=False),
        sa.Column('availability_zones', sa.Text, nullable=False),
        sa.Column('priority', sa.Integer, nullable=False),
        sa.Column('rate', sa.BigInteger),
        sa.Column('window', sa.String(255)),
        sa.Column('pinned', sa.Boolean, nullable=False),
        sa.Column('boot_set', sa.Boolean, nullable=False,
                  server_default=sa.false()),
        sa.Column('is_open', sa.Boolean, nullable=False),
        sa.Column('dirty', sa.Boolean, nullable=False),
        sa.Column('message', sa.Text),
        sa.Column('created_at', _time(), nullable=False),
        sa.Column('updated_at', _time(), nullable=False),
        sa.Column('expires_at', _time()),
        sa.Index('ix_precache_jobs_state', 'state'),
        **_OPTIONS)


def _create_precache_targets():
    op.create_table(
        'precache_targets',
        sa.Column('job_id', sa.String(36),
                  sa.ForeignKey('precache_jobs.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('template_id', sa.String(128), primary_key=True),
        sa.Column('content_id', sa.String(64)),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('way', sa.String(16)),
        sa.Column('bytes_total', sa.BigInteger, nullable=False),
        sa.Column('bytes_done', sa.BigInteger, nullable=False),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('retry_at', _time()),
        sa.Column('message', sa.Text),
        sa.Column('updated_at', _time(), nullable=False),
        sa.Index('ix_precache_targets_host', 'host'),
        **_OPTIONS)


def _create_leases():
    op.create_table(
        'leases',
        sa.Column('name', sa.String(128), primary_key=True),
        sa.Column('owner', sa.String(255), nullable=False),
        sa.Column('expires_at', _time(), nullable=False),
        **_OPTIONS)


def _create_messages():
    op.create_table(
        'messages',
        sa.Column('nonce', sa.String(32), primary_key=True),
        sa.Column('accepted_at', _time(), nullable=False),
        sa.Index('ix_messages_accepted_at', 'accepted_at'),
        **_OPTIONS)


def _create_revoked_keys():
    op.create_table(
        'revoked_keys',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('revoked_at', _time(), nullable=False),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.UniqueConstraint('number', name='uq_revoked_keys_number'),
        **_OPTIONS)


def _create_versions():
    op.create_table(
        'versions',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('description', sa.Text, nullable=False),
        sa.Column('server_id', sa.String(64), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('user_id', sa.String(255)),
        sa.Column('request_id', sa.String(64)),
        sa.Column('parent_id', sa.String(36)),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('trigger', sa.String(16), nullable=False),
        sa.Column('protected', sa.Boolean, nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('alpha', sa.String(16), nullable=False),
        sa.Column('host', sa.String(255)),
        sa.Column('base_image', sa.String(128)),
        sa.Column('image_id', sa.String(128)),
        sa.Column('size', sa.BigInteger, nullable=False),
        sa.Column('bytes_changed', sa.BigInteger, nullable=False),
        sa.Column('bytes_read', sa.BigInteger, nullable=False),
        sa.Column('bytes_stored', sa.BigInteger, nullable=False),
        sa.Column('seconds', sa.Double),
        sa.Column('pause_ms', sa.Double),
        sa.Column('quiesced', sa.Boolean, nullable=False),
        sa.Column('disks', sa.Text, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('error_code', sa.String(32)),
        sa.Column('created_at', _time(), nullable=False),
        sa.Column('updated_at', _time(), nullable=False),
        sa.Index('ix_versions_parent_id', 'parent_id'),
        sa.Index('ix_versions_project_id', 'project_id'),
        sa.Index('ix_versions_server_id', 'server_id'),
        **_OPTIONS)


def _create_version_tasks():
    op.create_table(
        'version_tasks',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('server_id', sa.String(64)),
        sa.Column('version_id', sa.String(36)),
        sa.Column('host', sa.String(255)),
        sa.Column('task', sa.Text, nullable=False),
        sa.Column('done', sa.BigInteger, nullable=False),
        sa.Column('total', sa.BigInteger, nullable=False),
        sa.Column('result', sa.Text, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('error_code', sa.String(32)),
        sa.Column('created_at', _time(), nullable=False),
        sa.Column('updated_at', _time(), nullable=False),
        sa.Column('sent_at', _time()),
        sa.Column('seen_at', _time()),
        sa.Column('leased_until', _time()),
        sa.Column('cancelling', sa.Boolean, nullable=False),
        sa.Index('ix_version_tasks_server_id', 'server_id'),
        sa.Index('ix_version_tasks_state', 'state'),
        sa.Index('ix_version_tasks_version_id', 'version_id'),
        **_OPTIONS)


def _create_version_stores():
    op.create_table(
        'version_stores',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('bytes', sa.BigInteger),
        sa.Column('unpruned_since', _time()),
        sa.Column('deleted_at', _time()),
        sa.Column('prune_tried_at', _time()),
        sa.Column('verified_at', _time()),
        sa.Column('verify_tried_at', _time()),
        sa.Column('rekeying', sa.Boolean, nullable=False),
        sa.Column('created_at', _time(), nullable=False),
        **_OPTIONS)


def _create_version_heads():
    op.create_table(
        'version_heads',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('place', sa.String(64), primary_key=True),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.Column('digest', sa.String(64), nullable=False),
        sa.Column('host', sa.String(255), nullable=False),
        sa.Column('updated_at', _time(), nullable=False),
        **_OPTIONS)


def _create_version_policies():
    op.create_table(
        'version_policies',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('server_id', sa.String(64), nullable=False),
        sa.Column('every', sa.Integer),
        sa.Column('keep_last', sa.Integer, nullable=False),
        sa.Column('keep_hourly', sa.Integer, nullable=False),
        sa.Column('keep_daily', sa.Integer, nullable=False),
        sa.Column('keep_weekly', sa.Integer, nullable=False),
        sa.Column('keep_monthly', sa.Integer, nullable=False),
        sa.Column('on_shutdown', sa.Boolean, nullable=False),
        sa.Column('on_delete', sa.Boolean, nullable=False),
        sa.Column('required', sa.Boolean, nullable=False),
        sa.Column('alpha', sa.String(16), nullable=False),
        sa.Column('created_at', _time(), nullable=False),
        sa.Column('updated_at', _time(), nullable=False),
        sa.UniqueConstraint('project_id', 'server_id',
                            name='uniq_version_policies_subject'),
        **_OPTIONS)


def _create_hydrations():
    op.create_table(
        'hydrations',
        sa.Column('server_id', sa.String(128), primary_key=True),
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('project_id', sa.String(255)),
        sa.Column('image_id', sa.String(128), nullable=False),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('document', sa.Text, nullable=False),
        sa.Column('updated_at', _time(), nullable=False),
        sa.Index('ix_hydrations_host_id', 'host_id'),
        sa.Index('ix_hydrations_project_id', 'project_id'),
        **_OPTIONS)


def _create_profiles():
    op.create_table(
        'profiles',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('image_id', sa.String(128),
                  sa.ForeignKey('templates.id', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('project_id', sa.String(128), nullable=False),
        sa.Column('label', sa.String(128), nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('instances', sa.BigInteger, nullable=False),
        sa.Column('chunks', sa.Integer, nullable=False),
        sa.Column('rows', _packed(), nullable=False),
        sa.Column('created_at', _time(), nullable=False),
        sa.Column('updated_at', _time(), nullable=False),
        sa.Column('carried_from', sa.String(128)),
        sa.Column('carried_instances', sa.BigInteger),
        sa.Column('carried_chunks', sa.Integer),
        sa.Column('carried_rows', _packed()),
        sa.UniqueConstraint('image_id', 'project_id', 'label',
                            name='uniq_profiles_subject'),
        **_OPTIONS)


def _create_boot_set_hosts():
    op.create_table(
        'boot_set_hosts',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('reported_at', _time(), nullable=False),
        **_OPTIONS)


def _create_boot_sets():
    op.create_table(
        'boot_sets',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('content_id', sa.String(64), primary_key=True),
        sa.Column('image_id', sa.String(128), nullable=False),
        sa.Column('wanted', sa.Boolean, nullable=False),
        sa.Column('pinned', sa.Boolean, nullable=False),
        sa.Column('rows', _packed(), nullable=False),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Column('requests', sa.Double, nullable=False),
        sa.Column('wait_seconds', sa.Double, nullable=False),
        sa.Column('from_peer', sa.Boolean, nullable=False),
        sa.Column('saved_seconds', sa.Double, nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('held_bytes', sa.BigInteger, nullable=False),
        sa.Column('message', sa.Text),
        sa.Column('updated_at', _time(), nullable=False),
        sa.Index('ix_boot_sets_content_id', 'content_id'),
        **_OPTIONS)


def _create_profile_contributions():
    op.create_table(
        'profile_contributions',
        sa.Column('profile_id', sa.String(36),
                  sa.ForeignKey('profiles.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('run', sa.BigInteger, nullable=False),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.Column('aged_at', _time()),
        sa.Column('past', _packed(), nullable=False),
        sa.Column('rows', _packed(), nullable=False),
        **_OPTIONS)
