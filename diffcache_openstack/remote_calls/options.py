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
"""Options that plug-ins of several services have: where the conductor is."""

from oslo_config import cfg


def broker(service: str) -> list[cfg.Opt]:
    """Return the options of the conductor's broker, for a plug-in.

    :param service: that the plug-in runs in, as "Nova"
    """
    return [
        cfg.StrOpt(
            'transport_url',
            secret=True,
            help=f'''
Broker of the DiffCache conductor, as in ``[DEFAULT] transport_url`` of
diffcache.conf. If it is not set, {service}'s own broker is used.
'''),
        cfg.StrOpt(
            'control_exchange',
            default='diffcache',
            advanced=True,
            help='''
Exchange of the DiffCache conductor; ``[DEFAULT] control_exchange`` of
diffcache.conf.
'''),
    ]
