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
"""The context of a request, which is part of every RPC."""

import re
import typing

from oslo_context import context

BOUND_HOST = 'diffcache_bound_host'
# As services of OpenStack write it; nothing else gets into log lines.
_REQUEST_ID = re.compile(
    r'req-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}', re.ASCII)

# Of a context's values; the second one is made of others.
_LEFT_OUT = ('auth_token', 'user_identity')
_EMPTY = context.RequestContext(overwrite=False).to_dict()


def current_request_id() -> str | None:
    """Return the ID of the request that this thread works for.

    :returns: that of the first service of the request, if it is known; None
        outside of requests
    """
    current = context.get_current()
    if current is None:
        return None
    return current.global_request_id or current.request_id


class RequestContext(context.RequestContext):
    """The requester, and the request ID that joins log lines."""

    @classmethod
    def for_service(cls, name: str) -> 'RequestContext':
        """Return a context for work that no request asked for."""
        return cls(user_id=name, is_admin=True, overwrite=False)

    @classmethod
    def for_request(cls, request_id: str | None) -> 'RequestContext':
        """Return a context for the work that another service requested.

        :param request_id: of that service's request; left out unless it is
            ``req-`` and a UUID
        """
        known = request_id and _REQUEST_ID.fullmatch(request_id)
        return cls(global_request_id=request_id if known else None,
                   overwrite=False)

    #: name of the host that a remote call has to be about, since it is signed
    #: by that host; None if its sender may act for any host
    bound_host: str | None = None

    def to_rpc(self) -> dict[str, typing.Any]:
        """Return what from_rpc() needs, without what it takes for granted.

        The token is left out: no service behind the API acts with the rights
        of its callers.
        """
        return {name: value for name, value in self.to_dict().items()
                if name not in _LEFT_OUT and value != _EMPTY.get(name)}

    @classmethod
    def from_rpc(cls, values: dict[str, typing.Any]) -> 'RequestContext':
        """Return the context that the caller serialised by to_rpc().

        :param values: BOUND_HOST among them was added by this side
        """
        context = cls.from_dict(values)
        context.bound_host = values.get(BOUND_HOST)
        return context
