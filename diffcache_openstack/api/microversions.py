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

A request names one in its header ``OpenStack-API-Version: diffcache X.Y``. A
change that a client can notice makes a new one, and its text below is its
place in the history.
"""

import collections.abc
import typing

import microversion_parse
from werkzeug import exceptions as http

SERVICE_TYPE = 'diffcache'
HEADER = 'OpenStack-API-Version'

# What each version brought, oldest first.
HISTORY: dict[str, str] = {
    '1.0': 'Hosts, templates, patches, plans, lookups, requests, forecasts,'
           ' precache jobs and reports of sites.',
    '1.1': 'Templates tell their ``members``: how many images name them as'
           ' their family.',
    '1.2': 'Versions of servers, tasks that work on them, and policies that'
           ' say when servers are saved.',
    '1.3': 'Targets of precache jobs tell ``attempts`` and ``retry_at``.',
    '1.4': 'Restores of versions take a ``method``, and tell in their result'
           ' which one it was, and why.',
    '1.5': 'A host that is alive is not forgotten: ``DELETE`` of it is'
           ' answered with 409.',
}


class Version(typing.NamedTuple):
    """A microversion; compares as numbers do."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f'{self.major}.{self.minor}'


def parse(text: str) -> Version:
    """The version that a text such as 1.0 names.

    :raises ValueError: it names none
    """
    major, minor = text.split('.')
    if not (major.isdecimal() and minor.isdecimal()):
        raise ValueError(text)
    return Version(int(major), int(minor))


VERSIONS = [parse(text) for text in HISTORY]
MINIMUM = VERSIONS[0]
MAXIMUM = VERSIONS[-1]


def of_request(headers: collections.abc.Mapping[str, str]) -> Version:
    """The version that a request asks for; without a wish the oldest.

    :raises BadRequest: the header holds no version
    :raises NotAcceptable: the version is none of those supported
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
            f'"{text}" is no version; send "{HEADER}: {SERVICE_TYPE}'
            f' {MAXIMUM}".') from None
    if found not in VERSIONS:
        raise http.NotAcceptable(
            f'Version {text} is not supported; {MINIMUM} to {MAXIMUM} are.')
    return found
