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
"""A cache placement: the templates and patches that each host holds."""

import dataclasses
import json
import typing

import numpy as np

from diffcache_openstack.common import exceptions
from diffcache_openstack.placement import instances


class PlacementError(exceptions.InvalidInput):
    """The placement cannot be read, or names what does not exist."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """Objects on hosts 1..K; the repository holds everything.

    :param templates: (template, host) pairs
    :param patches: (base, target, host) triples
    """

    templates: frozenset = frozenset()
    patches: frozenset = frozenset()

    @classmethod
    def of(cls, templates: typing.Iterable[tuple[int, int]] = (),
           patches: typing.Iterable[tuple[int, int, int]] = ()) -> 'Placement':
        """Build a placement from iterables of pairs and triples."""
        return cls(frozenset(templates), frozenset(patches))

    def only_hosts(self, columns: np.ndarray) -> 'Placement':
        """Return what some hosts hold, renumbered from 1.

        :param columns: of the hosts; see :meth:`.Instance.only_hosts`
        """
        number = {int(c) + 1: n + 1 for n, c in enumerate(columns)}
        return Placement.of(
            ((i, number[h]) for i, h in self.templates if h in number),
            ((i, j, number[h]) for i, j, h in self.patches if h in number),
        )

    def to_dict(self) -> dict:
        """Return the JSON document of this placement."""
        return {'templates': [list(t) for t in sorted(self.templates)],
                'patches': [list(p) for p in sorted(self.patches)]}


def from_dict(data: typing.Any) -> Placement:
    """Build the placement that a parsed JSON document describes.

    :raises PlacementError: one line that opens with the field at fault
    """
    if not isinstance(data, dict):
        raise PlacementError('placement: expected templates and patches')
    kinds = []
    for kind, width in (('templates', 2), ('patches', 3)):
        rows = data.get(kind)
        if not isinstance(rows, list):
            raise PlacementError(f'{kind}: missing, or not a list')
        for n, row in enumerate(rows):
            whole = isinstance(row, list) and all(
                isinstance(v, int) and not isinstance(v, bool) for v in row
            )
            if not whole or len(row) != width:
                raise PlacementError(
                    f'{kind}[{n}]: expected {width} whole numbers'
                )
        kinds.append(frozenset(tuple(row) for row in rows))
        if len(kinds[-1]) != len(rows):
            raise PlacementError(f'{kind}: an entry is listed twice')
    return Placement(*kinds)


def load(path: str) -> Placement:
    """Read a placement file.

    :raises PlacementError: the file is no JSON, or a field is unusable
    """
    try:
        with open(path, encoding='utf-8') as source:
            data = json.load(source)
    except OSError as error:
        raise PlacementError(
            f'{path}: {error.strerror}; name a placement file'
        )
    except UnicodeDecodeError:
        raise PlacementError(f'{path}: not a JSON file')
    except (ValueError, RecursionError) as error:
        raise PlacementError(f'{path}: not a JSON file: {error}')
    try:
        return from_dict(data)
    except PlacementError as error:
        raise PlacementError(f'{path}: {error}') from error


def used(instance: instances.Instance, placement: Placement) -> np.ndarray:
    """Sum the bytes that the placement takes on each host, shape (K,).

    :raises PlacementError: it names what the instance does not have
    """
    check_names(instance, placement)
    patch_index = instance.patch_index()
    sizes = instances.to_bytes(instance.sizes)
    patch_sizes = instances.to_bytes(instance.patch_sizes)
    taken = np.zeros(instance.host_count, dtype=np.int64)
    for i, host in placement.templates:
        taken[host - 1] += sizes[i]
    for i, j, host in placement.patches:
        taken[host - 1] += patch_sizes[patch_index[i, j]]
    return taken


def errors(instance: instances.Instance, placement: Placement) -> list[str]:
    """List why the placement is not feasible; empty if it is.

    :raises PlacementError: it names what the instance does not have
    """
    found = []
    taken = used(instance, placement)
    limit = instance.usable_bytes()
    for column in np.flatnonzero(taken > limit):
        found.append(
            f'host {column + 1}: holds {taken[column] / 1e6:.12g} MB,'
            f' has {limit[column] / 1e6:.12g} MB'
        )
    for i, host in sorted(set(instance.pinned.templates)):
        if (i, host) not in placement.templates:
            found.append(f'host {host}: template {i} is pinned, not held')
    for i, j, host in sorted(set(instance.pinned.patches)):
        if (i, j, host) not in placement.patches:
            found.append(f'host {host}: patch {i}, {j} is pinned, not held')
    return found


def check_names(instance: instances.Instance, placement: Placement) -> None:
    """Refuse a placement of templates, patches or hosts that are not there.

    :raises PlacementError: names the first such entry
    """
    hosts, templates = instance.host_count, instance.template_count
    for entry in sorted(placement.templates):
        if not (0 <= entry[0] < templates and 1 <= entry[1] <= hosts):
            raise PlacementError(
                f'templates: {list(entry)} names no template and host of'
                ' the instance'
            )
    patch_index = instance.patch_index()
    for entry in sorted(placement.patches):
        if entry[:2] not in patch_index or not 1 <= entry[2] <= hosts:
            raise PlacementError(
                f'patches: {list(entry)} names no patch and host of the'
                ' instance'
            )
