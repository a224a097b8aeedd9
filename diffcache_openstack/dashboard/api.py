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
"""Calls of the service with the token of the user who is logged in."""

import collections.abc
import contextlib
import itertools
import re
import typing

from django import conf
from django import http
from django.utils.translation import gettext as _
from horizon import exceptions
from horizon.utils import memoized
from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from openstack import connection
from openstack import exceptions as sdk_exceptions
from openstack_auth import utils as auth_utils
from openstack_dashboard.api import base
from openstack_dashboard.utils import settings

from diffcache_openstack.client import proxy
from diffcache_openstack.client import service
from diffcache_openstack.dashboard import formats

_FAILURES = (sdk_exceptions.SDKException, auth_exceptions.ClientException,
             exceptions.ServiceCatalogException)
_MOST_NAMES = 1000
_DIGITS = re.compile(r'\b[0-9a-f]{12}\b')
# The service waits for two runs of the solver, of 20 s each, and a minute.
_TIMEOUT_S = 120
_UNAUTHORIZED = 401
_UNAVAILABLE = 503


class Failed(Exception):
    """A call of the service failed.

    :ivar status: of HTTP
    """

    def __init__(self, status: int):
        super().__init__(f'The service answered with status {status}.')
        self.status = status


@memoized.memoized
def client(request: http.HttpRequest) -> proxy.Proxy:
    """Return the service's proxy for the user of a request.

    A call fails if the service sends nothing for as many seconds as the
    setting ``IMAGE_CACHE_API_TIMEOUT``: Horizon has few processes.

    :raises ServiceCatalogException: the service is not in the catalogue
    """
    auth = token_endpoint.Token(
        base.url_for(request, service.SERVICE_TYPE), request.user.token.id)
    options = conf.settings
    verify = (not options.OPENSTACK_SSL_NO_VERIFY
              and (options.OPENSTACK_SSL_CACERT or True))
    found = service.proxy_of(connection.Connection(
        session=session.Session(
            auth=auth, verify=verify, app_name='horizon',
            original_ip=auth_utils.get_client_ip(request),
            timeout=getattr(options, 'IMAGE_CACHE_API_TIMEOUT', _TIMEOUT_S)),
        region_name=request.user.services_region))
    # The catalogue's URL may lack the version: this authentication, which has
    # no catalogue, would use it as it is.
    data = found.get_endpoint_data()
    if data is not None:
        found.endpoint_override = data.url
    return found


@contextlib.contextmanager
def reported(request: http.HttpRequest, message: str, **handling: typing.Any
             ) -> collections.abc.Iterator[None]:
    """Show failed calls of the service to the user, and leave the block.

    A token that is not valid any more leads to the login page. Horizon takes
    every error of the SDK for one of these, so that others are replaced.

    :param message: what could not be done, without a full stop
    :param handling: arguments of :func:`horizon.exceptions.handle`
    """
    try:
        yield
    except _FAILURES as error:
        if getattr(error, 'status_code', None) == _UNAUTHORIZED:
            exceptions.handle(request, message)
        try:
            raise exceptions.NotAvailable(
                f'{message}: {_reason(error)}') from error
        except exceptions.NotAvailable:
            exceptions.handle(request, details='', **handling)


@contextlib.contextmanager
def unreported() -> collections.abc.Iterator[None]:
    """Show nothing to the user of failed calls of the service.

    :raises Failed: a call failed
    """
    try:
        yield
    except _FAILURES as error:
        raise Failed(getattr(error, 'status_code', None)
                     or _UNAVAILABLE) from error


def _reason(error):
    """Return the message of the service; not the URL of its endpoint."""
    if isinstance(error, auth_exceptions.ConnectTimeout):
        return _('The API of the image cache did not answer in time.')
    if isinstance(error, auth_exceptions.ConnectionError):
        return _('The API of the image cache cannot be reached.')
    response = getattr(error, 'response', None)
    if response is not None and str(response.status_code) in error.message:
        # The SDK found no text in it: not the service, but a proxy answered.
        return f'{response.status_code} {response.reason}'
    return getattr(error, 'message', None) or str(error)


def first(listing: collections.abc.Callable[..., collections.abc.Iterator],
          most: int, *of: typing.Any, **filters: typing.Any) -> list:
    """Return the entries of a listing, but not more than this many.

    That is one call, if the service's pages are as large.

    :param listing: a listing of the proxy; called with ``of`` and filters
    """
    return list(itertools.islice(
        listing(*of, limit=most, **filters), most))


@memoized.memoized
def image_names(request: http.HttpRequest) -> dict[str, str]:
    """Return the names of the catalogue's images by ID."""
    return {image.id: image.name or image.id for image in _images(request)}


@memoized.memoized
def content_names(request: http.HttpRequest) -> dict[str, str]:
    """Return the names of the catalogue's images by the ID of their content.

    Of images with the same content, one is named.
    """
    return {image.content_id: image.name or image.id for image in
            _images(request)}


@memoized.memoized
def _images(request):
    """Return the images of the catalogue, not more than a page has time for.

    Pages show what is not among them by ID.
    """
    with reported(request, _('Could not list images')):
        return first(client(request).images, _MOST_NAMES)
    return []


def named(request: http.HttpRequest, ids: collections.abc.Iterable[str] | None
          ) -> list[str]:
    """Return the names of images, or their IDs where there are none."""
    names = image_names(request) if ids else {}
    return [names.get(each, each) for each in ids or ()]


def object_names(request: http.HttpRequest, kind: str, object_id: str,
                 ids: collections.abc.Iterable[str] | None) -> list[str]:
    """Return what an object is called: its images, or a patch's two.

    :param ids: images that have its content, or None
    """
    if kind != 'patches' or object_id not in _patches(request):
        return named(request, ids)
    patch, names = _patches(request)[object_id], content_names(request)
    return [str(_('from %(base)s to %(target)s') % {
        'base': names.get(patch.base, formats.digits(patch.base)),
        'target': names.get(patch.target, formats.digits(patch.target))})]


@memoized.memoized
def _patches(request):
    """Return patches by ID, not more than a page has time for."""
    with reported(request, _('Could not list the patches')):
        return {patch.id: patch for patch in
                first(client(request).patches, _MOST_NAMES)}
    return {}


def in_words(request: http.HttpRequest, reason: str) -> str:
    """Return the reason of a plan with images' names in place of IDs."""
    names = {formats.digits(content): name for content, name in
             content_names(request).items()}
    return _DIGITS.sub(lambda found: names.get(found[0], found[0]), reason)


def page(request: http.HttpRequest, table: typing.Any,
         listing: collections.abc.Callable[..., collections.abc.Iterator],
         *of: typing.Any, **filters: typing.Any) -> tuple[list, bool]:
    """Return the rows of a table's page, and whether there are more.

    Only they are asked of the service, however long the listing is.

    :param table: the table or its class; its parameter has the marker
    :param listing: a listing of the proxy; called with ``of`` and filters
    """
    size = settings.get_page_size(request)
    marker = request.GET.get(table._meta.pagination_param)
    if marker:
        filters['marker'] = marker
    rows = list(itertools.islice(
        listing(*of, limit=size + 1, **filters), size + 1))
    return rows[:size], len(rows) > size
