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
"""Routes: which function answers what, under which policy and schemas.

Werkzeug matches paths. A route cannot be made without a policy, a schema of
its answer and the table of the answer's fields, and tests look again.
"""

import collections.abc
import dataclasses
import typing

from werkzeug import routing

from diffcache_openstack.api import fields
from diffcache_openstack.api import microversions

NO_PARAMETERS: dict = {
    'type': 'object', 'properties': {}, 'additionalProperties': False}
# Schema of responses without a body.
NOTHING: dict = {'type': 'null'}

Handler = collections.abc.Callable[..., typing.Any]
# Returns the objects that a request is about: documents with their project, or
# servers. It is called with the request and the path's arguments.
Finder = collections.abc.Callable[..., collections.abc.Sequence[typing.Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Route:
    """One method of one path.

    :param path: as in werkzeug, arguments in angle brackets
    :param policy: name of the rule that has to allow a request
    :param response: schema of the answer's body
    :param shows: which fields of the answer's resource who may see
    :param finder: finds the objects that the policy is checked against;
        without it, that is the caller's own project
    :param guarded: rules that parameters of the query need, by name
    :param query: schema of the parameters, an object's
    :param body: schema of the request's body; None if it has none
    :param status: HTTP status of a good answer
    :param since: the first version that has the route
    """

    method: str
    path: str
    handler: Handler
    policy: str
    response: dict
    shows: fields.Resource
    finder: Finder | None = None
    guarded: dict[str, str] = dataclasses.field(default_factory=dict)
    query: dict = dataclasses.field(default_factory=lambda: NO_PARAMETERS)
    body: dict | None = None
    status: int = 200
    since: microversions.Version = microversions.MINIMUM

    @property
    def template(self) -> str:
        """The path in the notation of policies: ``/v1/hosts/{x}``."""
        return self.path.replace('<', '{').replace('>', '}')


class Table:
    """The routes of one resource; handlers are added by decoration."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def route(self, method: str, path: str, **description: typing.Any
              ) -> collections.abc.Callable[[Handler], Handler]:
        """Add a function as the handler of a method and path.

        It is called with the request and the path's arguments, and returns
        the body, or the body and headers.

        :param description: the other fields of :class:`Route`
        """
        def join(handler: Handler) -> Handler:
            self.routes.append(Route(method, path, handler, **description))
            return handler

        return join


def build_map(routes: collections.abc.Iterable[Route]) -> routing.Map:
    """Return the map that finds the route of a path and method."""
    return routing.Map(
        [routing.Rule(route.path, methods=[route.method], endpoint=route)
         for route in routes],
        strict_slashes=False, merge_slashes=False, redirect_defaults=False)
