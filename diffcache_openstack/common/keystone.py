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
"""Reaching other services with keystoneauth, as a group of options says."""

import collections.abc
import logging
import threading
import typing

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import loading
from keystoneauth1.loading import adapter as adapters
from keystoneauth1.loading import session as session_loading
from keystoneauth1 import session as sessions
from oslo_config import cfg

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)

# What may be sent twice, because it changes nothing.
_SAFE_METHODS = ('GET', 'HEAD')
_REQUEST_ID = 'X-OpenStack-Request-ID'


class Answer(typing.NamedTuple):
    """Status and request ID of a service's answer."""

    status: int
    request_id: str | None


class Session(sessions.Session):
    """A session that repeats safe requests only, and keeps request IDs.

    An adapter's ``connect_retries`` and ``status_code_retries`` apply to GET
    and HEAD; a request that may change something is sent once, since a lost
    answer does not show whether it was carried out. The request ID of the
    context goes to the service with every request, so that its log can be
    searched for ours.
    """

    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        super().__init__(*args, **kwargs)
        self._local = threading.local()

    @property
    def last_answer(self) -> Answer | None:
        """The answer to this thread's last request to a service.

        None if there was none: the connection failed, or Keystone gave no
        token.
        """
        return getattr(self._local, 'answer', None)

    def request(self, url: str, method: str, *args: typing.Any,
                **kwargs: typing.Any) -> typing.Any:
        """Send a request; see keystoneauth's session."""
        if method.upper() not in _SAFE_METHODS:
            kwargs.update(connect_retries=0, status_code_retries=0)
        if isinstance(kwargs.get('data'), collections.abc.Iterator):
            # Sent again after a refused token, it would be an empty body.
            kwargs['allow_reauth'] = False
        if not kwargs.get('endpoint_filter'):
            # Discovery, or Keystone.
            return super().request(url, method, *args, **kwargs)
        if kwargs.get('global_request_id') is None:
            kwargs['global_request_id'] = contexts.current_request_id()
        self._local.answer = None
        response = super().request(url, method, *args, **kwargs)
        answer = Answer(response.status_code,
                        response.headers.get(_REQUEST_ID))
        self._local.answer = answer
        LOG.debug('%s %s: status %d, request %s, on behalf of %s', method,
                  response.url, answer.status, answer.request_id,
                  kwargs['global_request_id'])
        return response


class _SessionLoader(session_loading.Session):

    @property
    def plugin_class(self) -> type[sessions.Session]:
        return Session


def auth(conf: cfg.ConfigOpts, group: str) -> typing.Any:
    """Load the authentication plugin of a group; sends no request.

    :raises NotConfigured: the group's options do not suffice
    """
    try:
        plugin = loading.load_auth_from_conf_options(conf, group)
    except (ksa_exceptions.ClientException, cfg.Error) as error:
        raise exceptions.NotConfigured(
            f'[{group}]: {error}; set every option that its auth_type'
            f' requires.') from error
    if plugin is None:
        raise exceptions.NotConfigured(
            f'[{group}] has no auth_type; set it to password, with'
            f' auth_url, username, password, project_name and the domains.')
    return plugin


def session(conf: cfg.ConfigOpts, group: str) -> Session:
    """Load a session with the credentials of a group; sends no request.

    :raises NotConfigured: the group's options do not suffice
    """
    plugin = auth(conf, group)
    try:
        loaded = _SessionLoader().load_from_conf_options(conf, group,
                                                         auth=plugin)
    except cfg.Error as error:
        raise exceptions.NotConfigured(
            f'[{group}]: {error}; correct that option.') from error
    return typing.cast(Session, loaded)


def adapter_options(conf: cfg.ConfigOpts, group: str
                    ) -> dict[str, typing.Any]:
    """Return what a group says of a service's endpoint and of retries.

    :returns: arguments of an adapter of keystoneauth
    :raises NotConfigured: the options contradict each other
    """
    options: dict[str, typing.Any] = {}
    try:
        adapters.process_conf_options(conf[group], options)
    except (TypeError, cfg.Error) as error:
        raise exceptions.NotConfigured(
            f'[{group}]: {error}; correct that option.') from error
    return {name: value for name, value in options.items()
            if value is not None}
