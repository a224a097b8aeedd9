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
"""What ``compute_driver = diffcache.LibvirtDriver`` names.

Nova looks for drivers below ``nova.virt``; the configuration hook adds the
folder above this one to that package's path. This module is then called
``nova.virt.diffcache``.
"""

from diffcache_openstack.nova.driver import LibvirtDriver  # noqa: H301

__all__ = ('LibvirtDriver',)
