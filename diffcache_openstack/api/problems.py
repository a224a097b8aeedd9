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
"""Errors as OpenStack's API guidelines want them to be told.

A body is ``{"errors": [{"status", "code", "title", "detail", "request_id"}]}``
whose ``code`` is stable: clients decide by it, never by the texts.
"""

import typing

from oslo_db import exception as db_exception
from oslo_log import log
from werkzeug import exceptions as http
from werkzeug import http as werkzeug_http

from diffcache_openstack.common import exceptions

LOG = log.getLogger(__name__)

# The first class that an error belongs to decides.
_STATUS: tuple[tuple[type[exceptions.DiffCacheError], int], ...] = (
    (exceptions.NotFound, 404),
    (exceptions.InvalidInput, 400),
    (exceptions.Conflict, 409),
    (exceptions.Busy, 409),
    (exceptions.NoSpace, 507),
    (exceptions.RetryableError, 503),
)
# Codes of what is not named after its HTTP status.
CONCURRENT_UPDATE = 'diffcache.concurrent_update'
_CODES: dict[type[Exception], str] = {
    exceptions.Busy: CONCURRENT_UPDATE,
}


class Problem(typing.NamedTuple):
    """An error as it is told."""

    status: int
    code: str
    title: str
    detail: str


def of(error: Exception) -> Problem:
    """What to tell of an error; one that nobody foresaw is logged."""
    if isinstance(error, http.HTTPException):
        return _problem(error.code or 500, error.description or '')
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return _problem(status, str(error), _CODES.get(kind))
    if isinstance(error, db_exception.DBConnectionError):
        LOG.error('The database does not answer: %s', error)
        return _problem(503, 'The database of the service does not answer;'
                             ' try again later.')
    LOG.exception('Request failed')
    return _problem(500, 'The service failed; its log has the details under'
                         ' the id of this request.')


def body(problem: Problem, request_id: str) -> dict[str, typing.Any]:
    """The document that tells a problem."""
    return {'errors': [{
        'status': problem.status, 'code': problem.code,
        'title': problem.title, 'detail': problem.detail,
        'request_id': request_id}]}


def _problem(status, detail, code=None):
    title = werkzeug_http.HTTP_STATUS_CODES.get(status, 'Error')
    name = title.lower().replace(' ', '_').replace('-', '_')
    return Problem(status, code or f'diffcache.{name}', title, detail)
