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
"""A cloud that has the API of this process, and nothing else."""

import hashlib
import io
import types
import unittest

from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from openstack import connection
from openstack import exceptions
import requests
from requests import adapters

from diffcache_openstack.client import service

try:
    from tests.unit.api import base
    from werkzeug import test as werkzeug_test
except Exception as error:
    # The packages of the suite's services, or these with older libraries.
    raise unittest.SkipTest(
        f"the suite's services cannot run here: {error}") from error

URL = 'http://api.example/'
ENDPOINT = f'{URL}v1/'


class Wire(adapters.BaseAdapter):
    """Carries requests to a WSGI application, without a network."""

    def __init__(self, client: werkzeug_test.Client):
        super().__init__()
        self._client = client
        self.sent: list[requests.PreparedRequest] = []

    def send(self, request, **kwargs):
        """One request."""
        self.sent.append(request)
        answer = self._client.open(
            request.path_url, method=request.method, base_url=URL,
            headers=list(request.headers.items()), data=request.body)
        response = requests.Response()
        response.status_code = answer.status_code
        response.reason = answer.status.partition(' ')[2]
        response.headers.update(answer.headers)
        response.raw = io.BytesIO(answer.get_data())
        response.url, response.request = request.url, request
        return response

    def close(self):
        """Nothing to close."""


class Images:
    """Stands where Glance would."""

    def __init__(self):
        self.created = []

    def find_image(self, name, ignore_missing=True):
        """An image by name: each is named as its id."""
        if name == 'none':
            if ignore_missing:
                return None
            raise exceptions.NotFoundException('No Image found for none')
        return types.SimpleNamespace(id=name, name=name)

    def images(self, **query):
        """Images that were created, with some values."""
        return [image for image in self.created
                if query.items() <= vars(image).items()]

    def create_image(self, name, **values):
        """Create an image, active at once; it has all values."""
        image = types.SimpleNamespace(
            id=f'image-{len(self.created)}', name=name, status='active',
            properties=values, hash_algo='sha512',
            hash_value=hashlib.sha512(values['data']).hexdigest(), **values)
        self.created.append(image)
        return image


class CloudTest(base.ApiTest):
    """Has a connection for a user of the API."""

    def setUp(self):
        super().setUp()
        self.cloud = self.connect('admin')

    def connect(self, user):
        """A connection with the token of a user."""
        self.wire = Wire(self.client)
        http = requests.Session()
        http.mount('http://', self.wire)
        conn = connection.Connection(session=session.Session(
            auth=token_endpoint.Token(ENDPOINT, user), session=http))
        return service.proxy_of(conn)


class CommandTest(CloudTest):
    """Runs commands."""

    def setUp(self):
        super().setUp()
        self.app = types.SimpleNamespace(client_manager=types.SimpleNamespace(
            diffcache=self.cloud, image=Images(),
            sdk_connection=types.SimpleNamespace(image=Images())))

    def command(self, kind):
        """A command that could be run."""
        return kind(self.app, None)

    def take(self, kind, *words):
        """What a command returns for some words behind its name."""
        command = self.command(kind)
        arguments = command.get_parser('test').parse_args(list(words))
        return command.take_action(arguments)

    def shown(self, kind, *words):
        """The fields that a command shows, as programs see them."""
        names, values = self.take(kind, *words)
        return dict(zip(names, map(machine_readable, values)))

    def listed(self, kind, *words):
        """The rows that a command lists, as dicts for programs."""
        names, rows = self.take(kind, *words)
        return [dict(zip(names, map(machine_readable, row)))
                for row in rows]


def machine_readable(value):
    """What -f json prints of a value."""
    return getattr(value, 'machine_readable', lambda: value)()
