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
"""Options of quotas."""

from oslo_config import cfg

from diffcache_openstack.conf import groups

GROUP = cfg.OptGroup(
    'quota',
    title='Quotas of projects',
    help='Maximum that a project may use; -1 means no limit. The options have'
         ' the names of the resources in Keystone. Conductors enforce quotas,'
         ' the API shows them.')
# Of oslo.limit, with the access to Keystone.
LIMIT_GROUP = cfg.OptGroup(
    'oslo_limit',
    title='Access to unified limits',
    help='How the conductor and the API read the limits of Keystone, with'
         ' ``[quota] use_keystone_limits``. The user needs the role ``reader``'
         ' with the scope of the system.')

ACCESS = groups.Access(LIMIT_GROUP, 'identity')
LIMIT_OPTS = [
    cfg.StrOpt('endpoint_id',
               help='ID of the endpoint that the limits are registered for.'),
    cfg.StrOpt('endpoint_service_type', default='diffcache',
               help='Service type of the endpoint, without endpoint_id.'),
    cfg.StrOpt('endpoint_service_name',
               help='Service name of the endpoint, without endpoint_id.'),
    cfg.StrOpt('endpoint_region_name',
               help='Region of the endpoint, without endpoint_id.'),
    cfg.StrOpt('endpoint_interface', default='public',
               choices=['public', 'internal', 'admin'],
               help='Interface of the endpoint, without endpoint_id.'),
]


def _limit(name, default, description):
    return cfg.IntOpt(name, default=default, min=-1, help=description)


OPTS = [
    cfg.BoolOpt(
        'use_keystone_limits',
        default=False,
        help='''
Take limits from Keystone's unified limits, through oslo.limit, in place of
these options. Register one for each resource: a resource without a registered
limit cannot be used. While Keystone does not answer, nothing that has a quota
can be created.
'''),
    _limit('version_count_total', 10000,
           'Versions of servers of a project.'),
    _limit('version_size_total', 10 * 1024 ** 2, '''
MiB that the store of a project's versions takes. The space of deleted versions
counts until the store is pruned. A save starts while less is used: it may
exceed the limit.
'''),
    _limit('version_policy_count_total', 1000,
           'Version policies of a project.'),
    _limit('version_task_count_total', 1000, '''
Tasks on versions of a project that are queued or run. Saves on a schedule wait
for the next round; saves that Nova waits for and deletions do not count.
'''),
    _limit('precache_job_count_total', 1000,
           'Precache jobs of a project that have not ended.'),
]
