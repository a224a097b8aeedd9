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
"""Options of the Glance client of the repository's agent."""

from oslo_config import cfg

from diffcache_openstack.common import units
from diffcache_openstack.conf import groups

GROUP = cfg.OptGroup(
    'glance',
    title='The image service',
    help='How the agent with the role "repository" reads images from Glance'
         ' and uploads exported versions. The user has to see the images of'
         ' all projects.')

# Glance answers an upload after its store has written the whole image.
ACCESS = groups.Access(GROUP, 'image', timeout=300.0)

OPTS = [
    cfg.Opt(
        'largest_image',
        type=units.Size(),
        default=10 ** 12,
        sample_default='1TB',
        advanced=True,
        help='''
Largest image, as a file and as a disk, that is added to the repository, in
bytes or with a unit. Larger images are served by Glance alone. Raise it if
guests have larger disks; lower it to protect the repository's disk from
oversized uploads.
'''),
]
