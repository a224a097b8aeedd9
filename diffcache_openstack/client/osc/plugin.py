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
"""Plugin of python-openstackclient.

The client finds this module by the entry point ``openstack.cli.extension``.
"""

import argparse
import logging
import typing
import uuid

from osc_lib import utils

from diffcache_openstack.client import proxy
from diffcache_openstack.client import service

LOG = logging.getLogger(__name__)

API_NAME = 'diffcache'
API_VERSION_OPTION = 'os_diffcache_api_version'
DEFAULT_API_VERSION = '1'
API_VERSIONS = {'1': 'diffcache_openstack.client.proxy.Proxy'}


def make_client(instance: typing.Any) -> proxy.Proxy:
    """Return the proxy that commands call, with the client's session."""
    client = service.proxy_of(instance.sdk_connection)
    if client.global_request_id is None:
        # One for all calls of a command: it ties the logs of the services
        # together, down to the agents.
        client.global_request_id = f'req-{uuid.uuid4()}'
        LOG.debug('Global request id of this command: %s',
                  client.global_request_id)
    return client


def build_option_parser(parser: argparse.ArgumentParser
                        ) -> argparse.ArgumentParser:
    """Add the options that stand before any command."""
    parser.add_argument(
        '--os-diffcache-api-version', metavar='<version>',
        default=utils.env('OS_DIFFCACHE_API_VERSION',
                          default=DEFAULT_API_VERSION),
        help=f'DiffCache API version, default={DEFAULT_API_VERSION}'
             ' (Env: OS_DIFFCACHE_API_VERSION)')
    return parser
