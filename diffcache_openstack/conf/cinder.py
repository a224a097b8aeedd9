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
"""Options of the Cinder client of the API and the conductor."""

from oslo_config import cfg

from diffcache_openstack.conf import groups

GROUP = cfg.OptGroup(
    'cinder',
    title='The block storage service',
    help='How the API looks up the volumes of servers to save, with the'
         ' rights of the caller, and the conductor those of servers with a'
         ' version policy, with the rights of this user, who has to see'
         ' volumes of all projects. Without it, servers can only be saved'
         ' without their volumes.')

OPTS: list[cfg.Opt] = []
ACCESS = groups.Access(GROUP, 'block-storage')
