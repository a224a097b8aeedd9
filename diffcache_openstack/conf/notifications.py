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
"""Options of the listener to notifications of Nova and Glance."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'notifications',
    title='Notifications of Nova and Glance',
    help='They inform the conductor about requests for images, and the'
         ' repository\'s agent about new and deleted images.')

OPTS = [
    cfg.BoolOpt(
        'enabled',
        default=True,
        help='''
Whether the conductor listens to them. Without them the planner knows only the
requests that agents report, and not those that the caches of Nova or Glance
serve. With them, a reported request counts only if its server is known.
'''),
    cfg.StrOpt(
        'transport_url',
        secret=True,
        help='''
Message broker that Nova and Glance send notifications to, such as
``rabbit://user:password@host:5672/``. Default: ``[DEFAULT] transport_url``.
'''),
    cfg.ListOpt(
        'topics',
        default=['diffcache'],
        advanced=True,
        help='''
Topics to listen to. Each has to be in ``[oslo_messaging_notifications]
topics`` of Nova and Glance. Use a topic that no other service
consumes: each message is delivered to one consumer only.
'''),
    cfg.StrOpt(
        'nova_exchange',
        default='nova',
        advanced=True,
        help='The value of ``[DEFAULT] control_exchange`` in nova.conf.'),
    cfg.StrOpt(
        'glance_exchange',
        default='glance',
        advanced=True,
        help='The value of ``[DEFAULT] control_exchange`` in'
             ' glance-api.conf.'),
]
