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
"""The REST API, as Tempest's clients call it."""

import json
import typing
import urllib.parse

from tempest.lib.common import rest_client

SERVICE = 'diffcache'
VERSION_HEADER = 'OpenStack-API-Version'


class DiffCacheClient(rest_client.RestClient):
    """Sends requests, checks the status and parses the response."""

    api_version = 'v1'
    #: The microversion that requests ask for; None for none.
    microversion: str | None = '1.0'

    def get_headers(self, accept_type: str | None = None,
                    send_type: str | None = None) -> dict[str, str]:
        """Return the headers of every request."""
        headers = super().get_headers(accept_type, send_type)
        if self.microversion:
            headers[VERSION_HEADER] = f'{SERVICE} {self.microversion}'
        return headers

    def fetch(self, path: str, **query: typing.Any
              ) -> rest_client.ResponseBody:
        """GET a path of the API.

        :param query: values; those of a list are parameters each
        :raises tempest.lib.exceptions.RestClientException: it was refused
        """
        if query:
            path = f'{path}?{urllib.parse.urlencode(query, doseq=True)}'
        response, body = self.get(path)
        return self._answer(response, body, 200)

    def send(self, path: str, document: typing.Any, status: int = 200
             ) -> rest_client.ResponseBody:
        """POST a document to a path.

        :param status: of the answer that is expected
        """
        response, body = self.post(path, json.dumps(document))
        return self._answer(response, body, status)

    def change(self, path: str, document: typing.Any
               ) -> rest_client.ResponseBody:
        """PATCH what a path names."""
        response, body = self.patch(path, json.dumps(document))
        return self._answer(response, body, 200)

    def remove(self, path: str) -> None:
        """DELETE what a path names."""
        response, _body = self.delete(path)
        self.expected_success(204, response.status)

    def _answer(self, response, body, status):
        self.expected_success(status, response.status)
        return rest_client.ResponseBody(response,
                                        json.loads(body) if body else {})
