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
"""Options of the conductor, which owns the database."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'conductor',
    title='The conductor',
    help='How diffcache-conductor runs. Any number of conductors may share'
         ' one database.')

OPTS = [
    cfg.IntOpt(
        'workers',
        default=1,
        min=1,
        max=64,
        help='''
Worker processes of this conductor. One answers some hundred hosts; with
several, the death of one is not noticed by agents.
'''),
    cfg.IntOpt(
        'host_timeout',
        default=60,
        min=2,
        mutable=True,
        help='''
Seconds without a sign of life after which a host counts as dead: peers no
longer read from it and plans no longer use it. At least three times
``[agent] heartbeat_interval``, so that a lost message means nothing. Silence
while no conductor ran, or none could reach the database, does not count.
'''),
    cfg.IntOpt(
        'check_interval',
        default=5,
        min=1,
        help='''
Seconds between two looks at which hosts went silent and which sites are due
for a plan.
'''),
    cfg.IntOpt(
        'rpc_timeout',
        default=30,
        min=1,
        help='''
Seconds an agent waits for an answer of the conductor. An agent that gets none
keeps serving from what it knows and tries again later.
'''),
    cfg.FloatOpt(
        'notify_delay',
        default=0.2,
        min=0.0,
        help='''
Seconds to wait after a change before hosts are told that their site's map is
out of date, so that a burst of changes tells them once.
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
