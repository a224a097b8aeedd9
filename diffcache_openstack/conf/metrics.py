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
"""Options of metrics and health, for monitoring."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'metrics',
    title='Metrics and health',
    help='An HTTP server of agents and conductors for Prometheus and for'
         ' probes: ``/metrics``, ``/live`` and ``/ready``.')

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'listen',
        default='',
        sample_default='127.0.0.1:9796',
        help='''
Address and port of this server, as ``ADDRESS:PORT``; IPv6 addresses in square
brackets. It has neither TLS nor a password, and shows names of hosts and
sites, sizes and counts: use an address that only the monitoring reaches. Empty
starts no server. Services on one host need different ports.
'''),
]
