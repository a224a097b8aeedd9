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
"""``diffcache-lazy``: runs diffcached, which serves images as they arrive."""

import json
import os
import sys
import typing

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import groups
from diffcache_openstack.common import programs
from diffcache_openstack.conf import lazy as lazy_options
from diffcache_openstack.conf import opts

PROGRAM = 'diffcache-lazy'
_IDENTITY = ('key_name', 'key_file', 'tls_ca_file', 'tls_cert_file',
             'tls_key_file', 'tls_crl_file')
_TUNING = ('in_flight', 'threshold')


def configuration(conf: cfg.ConfigOpts) -> dict[str, typing.Any]:
    """Return the configuration of diffcached.

    :raises InvalidInput: an option cannot be used
    """
    if not conf.lazy.socket:
        raise exceptions.InvalidInput(
            '[lazy] socket is not set; name a socket, for this service and'
            ' for the agent.')
    plane = conf.data_plane
    identity = {name: plane[name] or None for name in _IDENTITY}
    if not plane.key_file:
        identity['key_name'] = None
    return {'socket': os.path.abspath(conf.lazy.socket),
            'socket_group': groups.number('[lazy] socket_group',
                                          conf.lazy.socket_group),
            'image_group': groups.number('[lazy] image_group',
                                         conf.lazy.image_group),
            'state': os.path.abspath(conf.lazy.state_dir),
            'mount': os.path.abspath(conf.lazy.mount),
            'mounter': _path(conf.lazy.mounter),
            'hints': conf.lazy.share_profiles == lazy_options.IMAGE,
            'tuning': {name: conf.lazy[name] for name in _TUNING},
            'identity': {**identity,
                         'tls_plain_peers': plane.tls_plain_peers}}


def _path(name: str | None) -> str | None:
    return os.path.abspath(name) if name else None


def main() -> int:
    """Replace this process by diffcached, with the options of the file."""
    try:
        conf = opts.new_config(sys.argv[1:], help_text=opts.HelpText(
            PROGRAM, 'Serve images as files while they arrive, for the agent'
                     ' of this host.'))
        found = configuration(conf)
        daemon = programs.find('diffcached')
    except (cfg.Error, exceptions.DiffCacheError) as error:
        print(f'{PROGRAM}: error: {error}', file=sys.stderr)
        return 1
    os.umask(0o022)
    os.execv(daemon, [daemon, 'supervise', json.dumps(found)])
