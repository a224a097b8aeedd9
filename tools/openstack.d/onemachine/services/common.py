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
"""Groups of options that several services share."""

from onemachine import layout
from onemachine import shell

Groups = dict[str, dict[str, object]]


def logging(where: layout.Layout) -> Groups:
    """Return lines with time and request, on standard error."""
    return {'DEFAULT': {
        'use_stderr': True,
        'debug': False,
        'logging_exception_prefix': '',
        'default_log_levels': (
            'amqp=WARN,amqplib=WARN,sqlalchemy=WARN,stevedore=WARN,'
            'oslo.messaging=INFO,oslo_messaging=INFO,iso8601=WARN,'
            'urllib3.connectionpool=WARN,keystonemiddleware=WARN,'
            'keystoneauth=WARN,oslo_policy=WARN,swiftclient=WARN,'
            'alembic=WARN,oslo.service=WARN'),
    }}


def messaging(where: layout.Layout) -> Groups:
    """Return the broker, and notifications and traces to it."""
    return {
        'DEFAULT': {'transport_url': where.transport},
        # The suite's topic is its own: it takes no other service's messages.
        'oslo_messaging_notifications': {
            'driver': 'messagingv2', 'topics': 'notifications,diffcache'},
        'oslo_messaging_rabbit': {
            'heartbeat_in_pthread': True,
            'rabbit_retry_interval': 1,
            'kombu_reconnect_delay': 0.5,
        },
        # Requests without a trace of this key send nothing.
        'profiler': {
            'enabled': True, 'hmac_keys': where.password('traces'),
            'connection_string': 'messaging://',
        },
    }


def database(where: layout.Layout, name: str, group: str = 'database'
             ) -> Groups:
    """Return options of the one database, with few connections."""
    return {group: {
        'connection': where.database(name),
        'max_pool_size': 5,
        'max_overflow': 20,
    }}


def service_user(where: layout.Layout, user: str) -> dict[str, object]:
    """Return the options with which a service logs in."""
    return {
        'auth_type': 'password',
        'auth_url': where.url('keystone'),
        'region_name': 'RegionOne',
        'project_domain_name': 'Default',
        'user_domain_name': 'Default',
        'project_name': 'service',
        'username': user,
        'password': where.password(user),
    }


def authtoken(where: layout.Layout, user: str) -> Groups:
    """Return how a service verifies the tokens it is shown."""
    return {'keystone_authtoken': {
        **service_user(where, user),
        'www_authenticate_uri': where.url('keystone'),
        'memcached_servers': f'{where.centre}:{layout.PORTS["memcached"]}',
        'service_token_roles': 'service',
        'service_token_roles_required': True,
    }}


def concurrency(where: layout.Layout, name: str) -> Groups:
    """Return a folder for locks between processes."""
    return {'oslo_concurrency': {
        'lock_path': where.folder('run', 'locks', name)}}


def write(where: layout.Layout, path: str, *groups: Groups) -> None:
    """Write a configuration file below ``etc``."""
    shell.write(where.etc / path, shell.ini(shell.merge(*groups)))
