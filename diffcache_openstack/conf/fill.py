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
"""Options of fills: fetching the objects of the plan in the background."""

from oslo_config import cfg

from diffcache_openstack.common import units

WINDOWS_HELP = '''
List of local times: ``22:00-06:00``, or with days, ``mon-fri 22:00-06:00`` and
``sat-sun 00:00-24:00``. A window whose end is before its start ends on the
next day. An empty list means always.
'''

GROUP = cfg.OptGroup(
    'fill',
    title='Filling the cache',
    help='How the agent fetches the objects of its plan while it also serves'
         ' requests.')

OPTS = [
    cfg.Opt(
        'max_rate',
        type=units.Size(),
        default=0,
        help='''
Maximum bytes per second that fills of this host fetch, in bytes or with a unit
(``2MB``). Requests and boot sets are not limited. Set it below the site's WAN
bandwidth divided by its number of hosts, so that fills do not slow down
requests. 0 sets no limit.
'''),
    cfg.ListOpt(
        'windows',
        default=[],
        help='When fills may run.' + WINDOWS_HELP + '''
Objects that the site already has are copied between its hosts at any time.
'''),
    cfg.IntOpt(
        'concurrency',
        default=1,
        min=1,
        max=16,
        advanced=True,
        help='''
Objects to fetch at the same time. They are ordered by savings per byte, so 1
completes the most valuable ones first; higher values help only if one
connection cannot use the whole link.
'''),
]
