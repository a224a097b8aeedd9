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
"""Microversions of the API.

A request selects one by its header ``OpenStack-API-Version: diffcache X.Y``.
Every change that a client can notice gets a new one, with its text below.
"""

import collections.abc
import typing

import microversion_parse
from werkzeug import exceptions as http

SERVICE_TYPE = 'diffcache'
HEADER = 'OpenStack-API-Version'

# Changes of each version, oldest first.
HISTORY: dict[str, str] = {
    '1.0': 'The first version.',
}


class Version(typing.NamedTuple):
    """A microversion; compares as numbers do."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f'{self.major}.{self.minor}'


def parse(text: str) -> Version:
    """Parse a version such as 1.0.

    :raises ValueError: the text is not a version
    """
    major, minor = text.split('.')
    if not (major.isdecimal() and minor.isdecimal()):
        raise ValueError(text)
    return Version(int(major), int(minor))


VERSIONS = [parse(text) for text in HISTORY]
MINIMUM = VERSIONS[0]
MAXIMUM = VERSIONS[-1]


def of_request(headers: collections.abc.Mapping[str, str]) -> Version:
    """Return the version that a request selects; the oldest by default.

    :raises BadRequest: the header contains no version
    :raises NotAcceptable: the version is not supported
    """
    text = microversion_parse.get_version(dict(headers), SERVICE_TYPE)
    if text is None:
        return MINIMUM
    if text == 'latest':
        return MAXIMUM
    try:
        found = parse(text)
    except ValueError:
        raise http.BadRequest(
            f'"{text}" is not a version; send "{HEADER}: {SERVICE_TYPE}'
            f' {MAXIMUM}".') from None
    if found not in VERSIONS:
        raise http.NotAcceptable(
            f'Version {text} is not supported; {MINIMUM} to {MAXIMUM} are.')
    return found
