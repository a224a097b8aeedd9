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
        advanced=True,
        help='''
Worker processes of this conductor. One serves some hundred hosts; with
several, agents do not notice the failure of one.
'''),
    cfg.IntOpt(
        'host_timeout',
        default=120,
        min=2,
        mutable=True,
        advanced=True,
        help='''
Seconds without a heartbeat after which a host is considered dead: peers do not
read from it and plans do not use it. Use at least three times ``[agent]
heartbeat_interval``, so that a lost message has no effect. Time during which
no conductor was running, could reach the database, or had received the
heartbeats that were sent does not count.
'''),
    cfg.ListOpt(
        'site_networks',
        default=[],
        help='''
Networks of the sites from which hosts may serve images, as
``SITE=ADDRESS/PREFIX``, for instance ``edge=10.1.0.0/16, edge=2001:db8::/32``.
A host whose ``[data_plane] advertise_url`` has an address outside of the
networks of its site is refused; one with the host's own name is accepted. For
a site with no network here, all addresses are accepted except link-local,
multicast and unspecified ones.
'''),
    cfg.IntOpt(
        'check_interval',
        default=5,
        min=1,
        advanced=True,
        help='''
Seconds between two checks for dead hosts and for sites that need a new plan.
'''),
    cfg.IntOpt(
        'rpc_timeout',
        default=30,
        min=1,
        advanced=True,
        help='''
Seconds that an agent waits for a reply of the conductor. Without one it
continues with the site map it has, and retries later.
'''),
]
