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
"""Options of the Barbican client, for keys of versions."""

from oslo_config import cfg

from diffcache_openstack.conf import groups

GROUP = cfg.OptGroup(
    'barbican',
    title='The key manager',
    help='Credentials with which agents get the keys of versions from'
         ' Barbican; see [versions] key_manager. The group also contains the'
         ' options of castellan.')

OPTS: list[cfg.Opt] = []
ACCESS = groups.Access(GROUP)
