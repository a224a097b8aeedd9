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
    '1.0': 'Hosts, templates, patches, plans, lookups, requests, forecasts,'
           ' precache jobs and reports of sites.',
    '1.1': 'Templates have ``members``: the number of images whose family'
           ' they are.',
    '1.2': 'Versions of servers, tasks on them, and policies about when'
           ' servers are saved.',
    '1.3': 'Targets of precache jobs have ``attempts`` and ``retry_at``.',
    '1.4': 'Restores of versions accept a ``method``; their result contains'
           ' the method used, and why.',
    '1.5': 'A host that is alive cannot be removed: ``DELETE`` responds'
           ' with 409.',
    '1.6': 'Versions of servers and tasks have ``error_code``. Limits of'
           ' projects.',
    '1.7': 'Images that a repository could not add yet:'
           ' ``GET /v1/hosts/{name}/pending-images``.',
    '1.8': 'Templates have ``compressed_size``. Their locations have ``held``'
           ' and ``borrowed``, and contain hosts whose Nova has the image.'
           ' Plans have what they move and'
           ' save: ``move_wan_bytes``, ``move_lan_bytes``, ``fill_seconds``,'
           ' ``saved_seconds`` and ``saved_wan_bytes``, and their'
           ' ``objective`` with ``cost_wan_bytes``. Pairs of images that'
           ' patches are considered for: ``GET /v1/patch-pairs``. A host has'
           ' what it reported of its links: ``fill``, ``measured``,'
           ' ``repositories`` and ``clients``. What-if has ``objective``,'
           ' ``cost_wan_bytes``, ``mean_wan_bytes`` and ``saving_wan``.',
    '1.9': 'Volumes in SSD caches of hosts: ``GET /v1/volume-caches``,'
           ' ``GET`` and ``PATCH /v1/volume-caches/{volume_id}``, its'
           ' ``curve`` and ``actions``, ``GET /v1/ssd-caches`` and'
           ' ``GET /v1/ssd-caches/{host}``.',
    '1.10': 'Profiles of images that boot lazily: ``GET`` and ``POST'
            ' /v1/profiles``, ``GET`` and ``DELETE'
            ' /v1/profiles/{profile_id}``.',
    '1.11': 'Hydrations of images that servers run from while they arrive:'
            ' ``GET /v1/hydrations``, ``GET`` and ``PATCH'
            ' /v1/hydrations/{server_id}``.',
    '1.12': 'Volumes in SSD caches have ``admission``, which ``PATCH``'
            ' changes. They follow a type that was changed: ``PUT'
            ' /v1/volume-caches/{volume_id}/specs``.',
    '1.13': 'Profiles have ``carried_from``: the image whose profile was'
            ' carried to this one, until enough instances have read it.',
    '1.14': 'Volumes in SSD caches have ``guest_page_cache``, the blocks of'
            ' their server\'s page cache.',
    '1.15': 'Boot sets, the chunks that boots read: precache jobs have'
            ' ``boot_set``, and their targets are ready by the way'
            ' ``boot_set``. ``GET /v1/hosts/{name}/boot-sets``.',
    '1.16': 'Lookups have ``lazy_boot``: how long a lazy boot waits for what'
            ' it reads, and what of that is in boot sets.',
    '1.17': 'Objects of several hosts: ``GET /v1/holdings``. Patches are'
            ' listed of several images: ``base`` and ``target`` of'
            ' ``GET /v1/patches`` may be repeated. Lookups of all hosts:'
            ' ``GET /v1/templates/{template_id}/lookups``.',
    '1.18': 'Volumes in SSD caches may be in write-back: the mode of ``PATCH'
            ' /v1/volume-caches/{volume_id}``, and specs of'
            ' ``PUT .../specs``.',
    '1.19': 'Reports of sites have ``repository_mbps``: rates from'
            ' repositories that plans assume and that hosts have measured.',
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
