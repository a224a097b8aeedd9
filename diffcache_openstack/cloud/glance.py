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
"""Glance's API: images, their members and their files."""

import collections.abc
import typing
import urllib.parse

from glanceclient import client
from glanceclient import exc as glance_exceptions
from keystoneauth1 import exceptions as ksa_exceptions
from oslo_config import cfg
import requests

from diffcache_openstack.cloud import base
from diffcache_openstack.common import keystone
from diffcache_openstack.conf import glance

# Glance has no microversions; this is the version of its API.
_VERSION = '2'
_PAGE = 200

Document = dict[str, typing.Any]


class Glance(base.ServiceClient):
    """Glance, with the credentials of ``[glance]``.

    Every method raises what :meth:`ServiceClient._call` does.
    """

    name = 'Glance'
    errors = (glance_exceptions.BaseException,
              glance_exceptions.ClientException,
              ksa_exceptions.ClientException, requests.RequestException)

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, glance.GROUP.name)

    def images(self, hidden: bool) -> list[Document]:
        """Return all images of all projects that are hidden, or not.

        Without a visibility Glance leaves out community images of other
        projects, for administrators too.
        """
        with self._call('list images') as own:
            return [dict(image) for image in own.images.list(
                page_size=_PAGE, filters={'os_hidden': str(hidden).lower(),
                                          'visibility': 'all'})]

    def images_with(self, owner: str, name: str) -> list[Document]:
        """Return the images of a project that have a property."""
        with self._call(f'list images of project {owner}') as own:
            return [dict(image) for image in own.images.list(
                page_size=_PAGE, filters={'owner': owner}) if name in image]

    def image(self, image_id: str) -> Document:
        """Return one image."""
        with self._call(f'show image {image_id}') as own:
            return dict(own.images.get(_quoted(image_id)))

    def members(self, image_id: str) -> list[Document]:
        """Return the projects that an image is shared with."""
        with self._call(f'list the members of image {image_id}') as own:
            return [dict(member) for member
                    in own.image_members.list(_quoted(image_id))]

    def download(self, image_id: str) -> collections.abc.Iterator[bytes]:
        """Yield an image's file in pieces, none if it has no data.

        It is not verified here.
        """
        with self._call(f'download image {image_id}') as own:
            data = own.images.data(_quoted(image_id),
                                   do_checksum=False).wrapped
            # Without a Content-Length, which a proxy may leave out, its
            # length is 0, and it counts as false.
            if data is not None:
                yield from data

    def create(self, document: Document) -> None:
        """Create an image without a file."""
        with self._call(f'create image {document["id"]}') as own:
            own.images.create(**document)

    def upload(self, image_id: str, stream: typing.Any) -> None:
        """Upload an image's file.

        :param stream: has ``read(size)``; read once, so never sent again
        """
        with self._call(f'upload the file of image {image_id}') as own:
            own.images.upload(_quoted(image_id), stream)

    def delete(self, image_id: str) -> None:
        """Delete an image."""
        with self._call(f'delete image {image_id}') as own:
            own.images.delete(_quoted(image_id))

    def _connect(self, session: keystone.Session,
                 options: dict[str, typing.Any]) -> typing.Any:
        return client.Client(_VERSION, session=session, **options)


def _quoted(image_id: str) -> str:
    return urllib.parse.quote(image_id, safe='')
