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

import typing

from oslo_context import context

BOUND_HOST = 'diffcache_bound_host'


class RequestContext(context.RequestContext):
    """The requester, and the request ID that joins log lines."""

    @classmethod
    def for_service(cls, name: str) -> 'RequestContext':
        """Return a context for work that no request asked for."""
        return cls(user_id=name, is_admin=True, overwrite=False)

    #: name of the host that a remote call has to be about, since it is signed
    #: by that host; None if its sender may act for any host
    bound_host: str | None = None

    @classmethod
    def from_rpc(cls, values: dict[str, typing.Any]) -> 'RequestContext':
        """Return the context that the caller serialised by to_dict().

        :param values: BOUND_HOST among them was added by this side
        """
        context = cls.from_dict(values)
        context.bound_host = values.get(BOUND_HOST)
        return context
