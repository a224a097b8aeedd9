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
"""What the clients of all services share: connecting, and errors."""

import abc
import collections.abc
import contextlib
import threading
import typing

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keystone
from diffcache_openstack.conf import groups

_PERMANENT = {400: exceptions.InvalidInput, 403: exceptions.Forbidden,
              404: exceptions.NotFound, 409: exceptions.Conflict}
# Of the statuses of 4xx, those that go away by themselves, or once an operator
# has mended credentials or quotas: the request itself is right.
_PASSING = (401, 408, 413, 425, 429)


class ServiceClient(abc.ABC):
    """A service's Python client, connected at the first call.

    :param group: the group of options that says how
    """

    #: The service's name, for messages.
    name: str
    #: What the Python client raises, besides errors of values it cannot read.
    errors: tuple[type[Exception], ...]

    def __init__(self, conf: cfg.ConfigOpts, group: str) -> None:
        self._conf = conf
        self._group = group
        self._lock = threading.Lock()
        self._session: keystone.Session | None = None
        self._client: typing.Any = None

    def load(self) -> None:
        """Read the options now, and not at the first call; sends no request.

        :raises NotConfigured: they do not suffice
        """
        self._connected()

    @abc.abstractmethod
    def _connect(self, session: keystone.Session,
                 options: dict[str, typing.Any]) -> typing.Any:
        """Build the Python client; sends no request.

        :param options: arguments of an adapter of keystoneauth
        """

    @contextlib.contextmanager
    def _call(self, action: str) -> collections.abc.Iterator[typing.Any]:
        """Yield the client for one call, and map its errors.

        :param action: the call in words, after "could not"
        :raises NotConfigured: the group's options do not suffice
        :raises PermanentError: the service refuses; by status InvalidInput,
            Forbidden, NotFound, Conflict
        :raises ServiceUnavailable: it does not answer, or cannot at present
        """
        session, client = self._connected()
        # An answer that is no JSON, or lacks a field, is an answer of
        # something else: a proxy, or a service that is being started.
        failures: tuple[type[Exception], ...] = (
            *self.errors, AttributeError, LookupError, TypeError, ValueError)
        try:
            yield client
        except exceptions.DiffCacheError:
            raise
        except failures as error:
            raise self._mapped(action, error, session.last_answer) from error

    def _connected(self) -> tuple[keystone.Session, typing.Any]:
        with self._lock:
            if self._session is None:
                groups.register_access(self._conf, [self._group])
                session = keystone.session(self._conf, self._group)
                self._client = self._connect(
                    session, keystone.adapter_options(self._conf,
                                                      self._group))
                self._session = session
            return self._session, self._client

    def _mapped(self, action: str, error: Exception,
                answer: keystone.Answer | None) -> exceptions.DiffCacheError:
        status = answer.status if answer else 0
        text = f'{self.name} could not {action}: {error}'
        if answer and answer.request_id and answer.request_id not in text:
            text += f' (Request-ID: {answer.request_id})'
        if status in _PERMANENT:
            return _PERMANENT[status](f'{text}.')
        if 400 <= status < 500 and status not in _PASSING:
            return exceptions.PermanentError(
                f'{text}; check which release of {self.name} it is.')
        return exceptions.ServiceUnavailable(
            f'{text}; check {self.name}, and the options of'
            f' [{self._group}].')
