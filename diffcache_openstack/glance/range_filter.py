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
"""Parts of images from what the site holds.

Glance's own cache leaves requests with a range to its store. This filter,
placed between ``cache`` and the application in glance-api-paste.ini, answers
them if the driver can::

    [filter:diffcache]
    paste.filter_factory = diffcache_openstack.glance.range_filter:factory
"""

import logging
import typing

import webob

from diffcache_openstack.glance import driver
from glance.api.middleware import cache
from glance.common import wsgi

LOG = logging.getLogger(__name__)

Bounds = tuple[int, int]


class RangeFilter(cache.CacheFilter):
    """Answers downloads of a part of an image.

    The rights of the caller are looked at as Glance's own cache does.
    """

    def process_request(self, request: typing.Any) -> webob.Response | None:
        """Answer a range; return None to let Glance answer."""
        match = self._match_request(request)
        if match is None or request.method != 'GET' \
                or not request.headers.get('Range') \
                or not isinstance(self.cache.driver, driver.Driver):
            return None
        version, _, image_id = match
        if version != 'v2' or not self.cache.driver.is_at_site(image_id):
            return None
        image, _ = self._get_v2_image_metadata(request, image_id)
        if image.status != 'active':
            return None
        self._enforce(request, image)
        wanted = wsgi.Request(request.environ).get_range_from_request(
            image.size)
        return self._answer(request, image, _bounds(wanted, image.size))

    def process_response(self, resp: typing.Any) -> typing.Any:
        """Return the response unchanged."""
        return resp

    def _answer(self, request, image, bounds) -> webob.Response:
        start, end = bounds
        LOG.debug('Bytes %d to %d of image %s come from the site', start,
                  end, image.image_id)
        response = webob.Response(request=request, status=206)
        response.app_iter = self.cache.driver.source.part(image.image_id,
                                                          start, end)
        response.headers['Content-Type'] = 'application/octet-stream'
        response.headers['Content-Length'] = str(end - start)
        response.headers['Content-Range'] = (
            f'bytes {start}-{end - 1}/{image.size}')
        response.headers['Accept-Ranges'] = 'bytes'
        return response


def _bounds(wanted: typing.Any, size: int) -> Bounds:
    """Return the first byte of a range, and the one after its last."""
    start, end = wanted.start, wanted.end
    if start < 0:
        start = max(0, size + start)
    return start, size if end is None else min(end, size)


def factory(global_conf: dict, **local_conf: str) -> typing.Callable:
    """Create the filter for Paste."""
    def make(app: typing.Any) -> RangeFilter:
        return RangeFilter(app)

    return make
