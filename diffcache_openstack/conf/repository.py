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
"""Options of the repository's agent: signing images and making patches."""

import copy

from oslo_config import cfg

from diffcache_openstack.conf import fill

GROUP = cfg.OptGroup(
    'repository',
    title='The repository',
    help='How the agent with the role "repository" prepares images.')

OPTS = [
    cfg.StrOpt(
        'image_source',
        default='',
        help='''
Image service whose images are taken in: ``glance``, which the group
``[glance]`` tells how to reach. Empty takes in only what is registered with
"diffcache-manage image register".
'''),
    cfg.IntOpt(
        'patch_level',
        default=3,
        min=1,
        max=19,
        help='''
Compression level of patches (zstd). Higher levels save some percent of WAN
bytes and cost a multiple of the time to make a patch; the time to apply one
hardly changes.
'''),
    cfg.FloatOpt(
        'max_patch_ratio',
        default=0.5,
        min=0.0,
        max=1.0,
        help='''
A patch is kept only if it is at most this fraction of its target's data. A
larger one saves too little to be worth the space and the time to apply it. 0
makes no patches.
'''),
    cfg.IntOpt(
        'nearest_bases',
        default=8,
        min=1,
        help='''
From how many other images, at most, patches are made to each image: those
whose patch to it is smallest, as estimated from a sample of both. More give
the planner more to choose from, and cost the repository time and space.
'''),
    cfg.FloatOpt(
        'max_load',
        default=0.0,
        min=0.0,
        help='''
Load of the machine, averaged over a minute and divided by its processors,
above which no further patch is begun. A patch keeps all processors busy
while it is made. 0 sets no limit.
'''),
    cfg.ListOpt(
        'windows',
        default=[],
        help='When patches may be made.' + fill.WINDOWS_HELP + '''
Registering an image and reading its content once is not bound by it.
'''),
    cfg.IntOpt(
        'scan_interval',
        default=60,
        min=1,
        help='''
Seconds between two looks for pairs of images whose patch is missing, also
after the clock or the load has stopped the making of patches. A
registration is followed by a look at once.
'''),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    # A group remembers its options' values: each configuration its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """The group and its options, for the sample configuration."""
    return {GROUP: OPTS}
