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
"""Options that Tempest has to be given for the scenarios."""

from oslo_config import cfg

SERVICE_AVAILABLE = cfg.OptGroup('service_available')

SERVICE_OPTS = [
    cfg.BoolOpt(
        'diffcache',
        default=True,
        help='Whether the suite runs in this cloud.'),
]

GROUP = cfg.OptGroup('diffcache', title='DiffCache for OpenStack')

OPTS = [
    cfg.DictOpt(
        'agent_sockets',
        default={},
        help='''
Local sockets of the agents of compute hosts as Tempest can reach them, by the
name of the host: ``compute-1:/run/one.sock,compute-2:/run/two.sock``.
Scenarios that look at what a host holds use these hosts.
'''),
    cfg.DictOpt(
        'base_directories',
        default={},
        help='''
Directories in which Nova keeps base images, as Tempest can reach them, by the
name of the host.
'''),
    cfg.DictOpt(
        'image_files',
        default={},
        help='''
Files of bootable raw images, by a name: ``base`` and ``derived``, which was
made by copying the former and changing the copy; others are images that take
up space in a host's cache.
'''),
    cfg.StrOpt(
        'marker',
        default='DIFFCACHE-GUEST-READY',
        help='What a guest of these images says on its console when it runs.'),
    cfg.StrOpt(
        'wan_bytes_command',
        default='',
        help='''
Command that prints how many bytes have crossed the link from the centre to
the site so far.
'''),
    cfg.StrOpt(
        'stop_conductor_command',
        default='',
        help='Command that stops every conductor of the suite.'),
    cfg.StrOpt(
        'start_conductor_command',
        default='',
        help='Command that starts the conductors again.'),
    cfg.StrOpt(
        'site_image_url',
        default='',
        help="Endpoint of the site's own image service."),
    cfg.IntOpt(
        'timeout',
        default=300,
        help='Seconds to wait for a guest, an image or an agent.'),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Add the options to Tempest's."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
    conf.register_opts(SERVICE_OPTS, group=SERVICE_AVAILABLE)


def list_opts() -> list[tuple[str, list]]:
    """Groups and options, for Tempest's sample configuration."""
    return [(GROUP.name, OPTS), (SERVICE_AVAILABLE.name, SERVICE_OPTS)]
