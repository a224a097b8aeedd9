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
"""Options for listening to other services' notifications."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'notifications',
    title='Notifications of Nova and Glance',
    help='The conductor learns from them which images are in demand, and the'
         ' repository\'s agent which images there are.')

OPTS = [
    cfg.BoolOpt(
        'enabled',
        default=True,
        help='''
Whether the conductor listens. Without it the planner knows only what the
agents report: what a cache of Nova or Glance absorbs is not seen.
'''),
    cfg.StrOpt(
        'transport_url',
        secret=True,
        help='''
The message broker that Nova and Glance send their notifications to, such as
``rabbit://user:password@host:5672/``. The one of this service unless given.
'''),
    cfg.ListOpt(
        'topics',
        default=['diffcache'],
        help='''
Topics to listen to. Each of them has to be one of those that Nova and Glance
name in ``[oslo_messaging_notifications] topics``. Give this suite a topic of
its own: who listens to a topic takes its messages away from others.
'''),
    cfg.StrOpt(
        'nova_exchange',
        default='nova',
        help='The value of ``[DEFAULT] control_exchange`` in nova.conf.'),
    cfg.StrOpt(
        'glance_exchange',
        default='glance',
        help='The value of ``[DEFAULT] control_exchange`` in'
             ' glance-api.conf.'),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the group to a configuration."""
    # A group remembers its options' values: each configuration its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """The group and its options, for the sample configuration."""
    return {GROUP: OPTS}
