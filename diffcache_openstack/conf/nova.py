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
"""Options of the Nova client of the conductor and the API."""

from oslo_config import cfg

from diffcache_openstack.conf import groups

GROUP = cfg.OptGroup(
    'nova',
    title='The compute service',
    help='How the conductor and the API look up servers to save as versions,'
         ' and the hosts of aggregates and availability zones for precache'
         ' jobs. Without it no server can be saved, and jobs have to name'
         ' hosts.')

OPTS: list[cfg.Opt] = []
ACCESS = groups.Access(GROUP, 'compute')
