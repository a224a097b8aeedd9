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
"""Reading Glance's own store, from inside of Glance."""

import collections.abc

import glance_store
from oslo_log import log

from glance import context

LOG = log.getLogger(__name__)


def read_from(image_id: str, offset: int) -> collections.abc.Iterator[bytes]:
    """Yield an image's bytes from an offset on.

    Whether the caller may have them was decided before.
    """
    # Glance's gateway imports the cache: not before it is there.
    from glance import gateway  # noqa: H301

    admin = context.RequestContext(is_admin=True, roles=['admin'])
    image = gateway.Gateway().get_repo(admin).get(image_id)
    if not offset:
        yield from image.get_data()
        return
    try:
        pieces = image.get_data(offset=offset,
                                chunk_size=image.size - offset)
    except glance_store.StoreRandomGetNotSupported:
        pieces = _skipped(image.get_data(), offset)
    yield from pieces


def _skipped(pieces, count):
    """Yield all but the first bytes of a stream read from its start."""
    for piece in pieces:
        rest = piece[count:]
        count -= len(piece) - len(rest)
        if rest:
            yield rest


def prefetch_with(agent: collections.abc.Callable[[str], bool]) -> None:
    """Make Glance's prefetcher ask the agent before it reads the store.

    Glance reads all of an image before it calls its driver;
    for an image that the site can make, that would be a transfer for nothing.

    :param agent: brings an image to the site, and returns whether it could
    """
    from glance.image_cache import prefetcher  # noqa: H301

    own = getattr(prefetcher.Prefetcher.fetch_image_into_cache, 'own',
                  prefetcher.Prefetcher.fetch_image_into_cache)

    def fetch_image_into_cache(self, image_id):
        if agent(image_id):
            LOG.info('Image %s has arrived at the site', image_id)
            return True
        return own(self, image_id)

    fetch_image_into_cache.own = own  # type: ignore[attr-defined]
    prefetcher.Prefetcher.fetch_image_into_cache = fetch_image_into_cache
