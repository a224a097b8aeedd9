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
"""Errors in the format of OpenStack's API guidelines.

A body is ``{"errors": [{"status", "code", "title", "detail", "request_id"}]}``
with a stable ``code``: clients decide by it, never by the texts.
"""

import typing

from oslo_db import exception as db_exception
from oslo_log import log
from werkzeug import exceptions as http
from werkzeug import http as werkzeug_http

from diffcache_openstack.common import exceptions

LOG = log.getLogger(__name__)

# The first class that matches an error determines the status.
_STATUS: tuple[tuple[type[exceptions.DiffCacheError], int], ...] = (
    (exceptions.NotFound, 404),
    (exceptions.InvalidInput, 400),
    (exceptions.Forbidden, 403),
    # As the API guidelines say; 413 is about the size of a request.
    (exceptions.QuotaExceeded, 403),
    (exceptions.Conflict, 409),
    (exceptions.Busy, 409),
    (exceptions.NoSpace, 507),
    (exceptions.RetryableError, 503),
)
# Codes that do not follow from the HTTP status.
CONCURRENT_UPDATE = 'diffcache.concurrent_update'
_CODES: dict[type[Exception], str] = {
    exceptions.Busy: CONCURRENT_UPDATE,
    exceptions.QuotaExceeded: 'diffcache.quota_exceeded',
}


class Problem(typing.NamedTuple):
    """An error as it is reported to the client."""

    status: int
    code: str
    title: str
    detail: str

    @property
    def is_internal(self) -> bool:
        """Whether its cause is in the service, not in the request."""
        return self.status >= 500


def of(error: Exception) -> Problem:
    """Return the report of an error; log an unexpected one."""
    if isinstance(error, http.HTTPException):
        return _problem(error.code or 500, error.description or '')
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return _problem(status, str(error), _CODES.get(kind))
    if isinstance(error, db_exception.DBConnectionError):
        LOG.error('Could not reach the database: %s', error)
        return _problem(503, 'The service cannot reach its database; try'
                             ' again later.')
    LOG.exception('Unexpected error in a request')
    return _problem(500, 'Unexpected error; the log of the service has the'
                         ' details under the ID of this request.')


def without_details(problem: Problem) -> Problem:
    """Return a report without addresses, hosts and paths; log them."""
    LOG.warning('Request failed with status %d: %s', problem.status,
                problem.detail)
    return problem._replace(detail=(
        'The service cannot do this at present; try again later. If it'
        ' persists, give the ID of this request to your cloud'
        ' administrator.'))


def body(problem: Problem, request_id: str) -> dict[str, typing.Any]:
    """Return the document that reports a problem."""
    return {'errors': [{
        'status': problem.status, 'code': problem.code,
        'title': problem.title, 'detail': problem.detail,
        'request_id': request_id}]}


def _problem(status, detail, code=None):
    title = werkzeug_http.HTTP_STATUS_CODES.get(status, 'Error')
    name = title.lower().replace(' ', '_').replace('-', '_')
    return Problem(status, code or f'diffcache.{name}', title, detail)
