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
"""The file of an operator's history: images, sites, and servers' times.

``openstack image cache history export`` writes it from Glance and Nova, and
``diffcache-manage simulate`` reads it.
"""

import collections.abc
import dataclasses
import datetime
import pathlib
import typing

import jsonschema

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files

_TEXT = {'type': 'string', 'minLength': 1, 'maxLength': 255}
_TIME = {'type': 'string', 'maxLength': 40}
_MBPS = {'type': 'number', 'exclusiveMinimum': 0, 'maximum': 1e9}
_BYTES = {'type': 'integer', 'minimum': 0, 'maximum': 10 ** 15}


def _object(required, **others):
    return {'type': 'object', 'properties': {**required, **others},
            'required': list(required), 'additionalProperties': False}


SCHEMA = _object({
    'images': {'type': 'array', 'items': _object(
        {'id': _TEXT, 'bytes': _BYTES, 'created_at': _TIME},
        name={'type': 'string'}, family={'type': ['string', 'null']})},
    'sites': {'type': 'array', 'items': _object(
        {'name': _TEXT, 'hosts': {'type': 'array', 'items': _TEXT,
                                  'minItems': 1, 'uniqueItems': True}},
        wan_mbps=_MBPS, lan_mbps=_MBPS, disk_mbps=_MBPS,
        capacity_bytes=_BYTES)},
    'servers': {'type': 'array', 'items': _object(
        {'image': _TEXT, 'site': _TEXT, 'host': _TEXT, 'created_at': _TIME},
        deleted_at={'type': ['string', 'null'], 'maxLength': 40})},
}, patches={'type': 'array', 'items': _object(
    {'base': _TEXT, 'target': _TEXT, 'bytes': _BYTES})})


class Image(typing.NamedTuple):
    """An image of Glance.

    :param size: bytes
    :param family: images with the same one are similar; None for its own
    :param created_s: seconds since 1970
    """

    id: str
    size: int
    family: str | None
    created_s: float


class Server(typing.NamedTuple):
    """When a server was on a host.

    :param image: number of its image
    :param host: number of its host at its site, from 1 on
    :param begin_s: seconds since 1970
    :param end_s: infinite while it is there
    """

    image: int
    host: int
    begin_s: float
    end_s: float


@dataclasses.dataclass(frozen=True)
class Site:
    """Hosts that are each other's peers.

    :param settings: those of ``SCHEMA`` that the file gives: links in Mbps,
        bytes of capacity of each host
    :param servers: the first to begin comes first
    """

    name: str
    hosts: tuple[str, ...]
    settings: collections.abc.Mapping[str, float]
    servers: tuple[Server, ...]


@dataclasses.dataclass(frozen=True)
class History:
    """What happened.

    :param images: the oldest first
    :param patches: bytes by (base, target), both numbers of images, where
        they are known
    """

    images: tuple[Image, ...]
    sites: tuple[Site, ...]
    patches: collections.abc.Mapping[tuple[int, int], int]


def load(path: pathlib.Path) -> History:
    """Read a file.

    :raises InvalidInput: it is none, or contradicts itself
    """
    document = files.read_json(path)
    if document is None:
        raise exceptions.InvalidInput(
            f'{path}: there is no such file, or it has no JSON; write one'
            f' with "openstack image cache history export {path}".')
    problem = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(SCHEMA).iter_errors(document))
    if problem is not None:
        place = problem.json_path.removeprefix('$.')
        raise exceptions.InvalidInput(f'{path}: {place}: {problem.message}')
    try:
        return _history(document)
    except exceptions.InvalidInput as error:
        raise exceptions.InvalidInput(f'{path}: {error}') from error


def _history(document):
    images = sorted(
        (Image(each['id'], max(1, each['bytes']), each.get('family'),
               _seconds(each['created_at']))
         for each in document['images']), key=lambda image: image.created_s)
    number = _numbers((image.id for image in images), 'images')
    places = _numbers((each['name'] for each in document['sites']), 'sites')
    servers: dict[str, list[Server]] = {name: [] for name in places}
    hosts = {each['name']: _numbers(each['hosts'], 'hosts')
             for each in document['sites']}
    for each in document['servers']:
        if each['image'] not in number:
            # It was deleted, so that nothing is known of it.
            continue
        if each['host'] not in hosts.get(each['site'], ()):
            raise exceptions.InvalidInput(
                f'servers: no site {each["site"]} with a host {each["host"]}')
        ended = each.get('deleted_at')
        servers[each['site']].append(Server(
            number[each['image']], hosts[each['site']][each['host']] + 1,
            _seconds(each['created_at']),
            _seconds(ended) if ended else float('inf')))
    sites = tuple(Site(
        each['name'], tuple(each['hosts']),
        {name: value for name, value in each.items()
         if name not in ('name', 'hosts')},
        tuple(sorted(servers[each['name']], key=lambda one: one.begin_s)))
        for each in document['sites'])
    patches = {(number[each['base']], number[each['target']]): each['bytes']
               for each in document.get('patches', ())
               if each['base'] in number and each['target'] in number}
    return History(tuple(images), sites, patches)


def _numbers(names, what):
    names = list(names)
    found = {name: at for at, name in enumerate(names)}
    if len(found) != len(names):
        raise exceptions.InvalidInput(f'{what}: one is listed twice')
    return found


def _seconds(text):
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise exceptions.InvalidInput(f'"{text}" is no time of ISO 8601'
                                      ) from error
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.timezone.utc)
    return when.timestamp()
