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
"""Images that repositories do not have yet, as these report them."""

import collections.abc

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects

_COPIED = ('image_id', 'state', 'attempts', 'error', 'retry_at')


def put(session: orm.Session, host: str,
        images: collections.abc.Iterable[objects.PendingImage]) -> None:
    """Replace what is known of a host.

    :raises NotFound: the host is not registered
    """
    host_id = host_rows.lock_host(session, host)
    session.execute(
        sa.delete(models.PendingImage)
        .where(models.PendingImage.host_id == host_id)
        .execution_options(synchronize_session=False))
    rows = [{'host_id': host_id,
             **{name: getattr(image, name) for name in _COPIED}}
            for image in {image.image_id: image for image in images}.values()]
    if rows:
        session.execute(sa.insert(models.PendingImage), rows)
