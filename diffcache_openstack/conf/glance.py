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

import copy

from oslo_config import cfg

from diffcache_openstack.common import units
from diffcache_openstack.conf import keystone_opts

GROUP = cfg.OptGroup(
    'glance',
    title='The image service',
    help='How the agent with the role "repository" reads images from Glance'
         ' and uploads exported versions. The user has to see the images of'
         ' all projects.')

# Glance answers an upload after its store has written the whole image.
_DEFAULTS = keystone_opts.defaults('image', 300.0)

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


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group on a configuration."""
    # A group stores the values of its options: one for each configuration.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP)
    keystone_opts.register_opts(conf, GROUP.name, _DEFAULTS)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the group and its options for the sample configuration."""
    return {GROUP: [*OPTS, *keystone_opts.sample_opts(_DEFAULTS)]}
