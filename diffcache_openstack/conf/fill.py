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
"""Options of the fill: getting what the plan says, in the background."""

import copy

from oslo_config import cfg

from diffcache_openstack.common import units

WINDOWS_HELP = '''
Times of day at which this may run, in local time: ``22:00-06:00``, or with
days, ``mon-fri 22:00-06:00`` and ``sat-sun 00:00-24:00``. A window whose end
is before its start runs past midnight. Several windows may be given. No
window means always.
'''

GROUP = cfg.OptGroup(
    'fill',
    title='Filling the cache',
    help='How the agent fetches what a plan wants it to hold while it also'
         ' serves requests.')

OPTS = [
    cfg.Opt(
        'max_rate',
        type=units.Size(),
        default=0,
        help='''
Most bytes per second that fills of this host take, with a unit if you like
(``2MB``). Requests are not bound by it. Set it below the site's WAN bandwidth
divided by its hosts so that fills leave room for requests. 0 is no limit.
'''),
    cfg.ListOpt(
        'windows',
        default=[],
        help='When fills may run.' + WINDOWS_HELP + '''
Objects that are already at the site are copied between its hosts at any time.
'''),
    cfg.IntOpt(
        'concurrency',
        default=1,
        min=1,
        max=16,
        help='''
Objects fetched at once. Objects are ordered by what they save per byte, so 1
has the most valuable ones ready earliest; more helps only if a single
connection cannot use the link.
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
