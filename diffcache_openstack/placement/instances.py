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
"""An instance of cache placement: objects, hosts, links and demand.

Sizes are megabytes of 1e6 bytes, bandwidths megabits per second, times
seconds. Sizes and capacities are rounded to whole bytes, in which is decided
what fits; see :func:`to_bytes`. Templates are numbered 0..N-1, hosts 1..K;
host 0 is the repository, which holds everything. Columns of ``rates`` and
entries of ``capacities`` belong to host ``column + 1``.

The fields are those of the paper's Table III. Beyond them an instance may
name sites (hosts that are each other's peers), links per host, what is
already placed, what must stay where it is, and hosts that take nothing.
"""

import dataclasses
import json
import typing

import numpy as np

from diffcache_openstack.common import exceptions

REPOSITORY = 0

_LINKS = ('local', 'peer', 'repo')

# Beyond these, sums of products would not be finite or mean nothing.
_LARGEST = 1e15
_SLOWEST = 1e-9
# Beyond it, numbers of bytes are not exact in 64 bits of floating point.
_LARGEST_MB = 1e9
_SMALLEST_MB = 1e-6
_TOO_LARGE = f'must be finite, at most {_LARGEST:g}'
_TOO_MANY_MB = f'must be at most {_LARGEST_MB:g} MB'
_TOO_FEW_MB = f'must be at least a byte ({_SMALLEST_MB:g} MB)'


class InstanceError(exceptions.InvalidInput):
    """The instance cannot be used; the message opens with the field."""


@dataclasses.dataclass(frozen=True)
class Bandwidths:
    """What each host receives at, in Mbps, by where the bytes come from.

    Every field is an array over hosts 1..K: from its own disk, from a peer
    of its site, and from the repository.
    """

    local: np.ndarray
    peer: np.ndarray
    repo: np.ndarray

    @classmethod
    def uniform(cls, hosts: int, local: float, peer: float,
                repo: float) -> 'Bandwidths':
        """Give each of ``hosts`` hosts the same three links."""
        return cls(*(np.full(hosts, float(b)) for b in (local, peer, repo)))


@dataclasses.dataclass(frozen=True)
class Held:
    """Objects on hosts: what is placed already, or what is pinned."""

    templates: tuple[tuple[int, int], ...] = ()
    patches: tuple[tuple[int, int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.templates or self.patches)


@dataclasses.dataclass(frozen=True)
class Instance:
    """The data of equations 1-5.

    :param sizes: MB of each template, shape (N,)
    :param patch_base: base template of each patch, shape (E,)
    :param patch_target: target template of each patch, shape (E,)
    :param patch_sizes: MB of each patch, shape (E,)
    :param patch_seconds: time to apply each patch, shape (E,)
    :param capacities: MB each host may hold, shape (K,)
    :param rates: requests for each template at each host, shape (N, K)
    :param bandwidths: links of the hosts
    :param sites: a number per host; equal numbers are peers, shape (K,)
    :param placed: what hosts hold already (bytes that need not move)
    :param pinned: what must be held whatever it costs
    :param excluded: hosts that take nothing (drained), 1..K
    :param wire_sizes: MB of each template that cross the link to the
        repository, where it is compressed, shape (N,); its size by default
    """

    sizes: np.ndarray
    patch_base: np.ndarray
    patch_target: np.ndarray
    patch_sizes: np.ndarray
    patch_seconds: np.ndarray
    capacities: np.ndarray
    rates: np.ndarray
    bandwidths: Bandwidths
    sites: np.ndarray = None  # type: ignore[assignment]
    placed: Held = Held()
    pinned: Held = Held()
    excluded: frozenset = frozenset()
    name: str = ''
    meta: dict = dataclasses.field(default_factory=dict)
    wire_sizes: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self):
        for field in ('sizes', 'patch_sizes', 'capacities', 'wire_sizes'):
            given = getattr(self, field)
            if given is not None:
                object.__setattr__(self, field, to_bytes(given) / 1e6)
        if self.wire_sizes is None:
            object.__setattr__(self, 'wire_sizes', self.sizes)
        if self.sites is None:
            object.__setattr__(self, 'sites',
                               np.zeros(self.host_count, dtype=np.int64))

    @property
    def template_count(self) -> int:
        """N."""
        return len(self.sizes)

    @property
    def host_count(self) -> int:
        """K, the repository not counted."""
        return len(self.capacities)

    @property
    def patch_count(self) -> int:
        """E, the patches that exist."""
        return len(self.patch_sizes)

    @property
    def demand(self) -> float:
        """All requests of all hosts."""
        return float(self.rates.sum())

    def patch_index(self) -> dict[tuple[int, int], int]:
        """Number the existing patches by (base, target)."""
        pairs = zip(self.patch_base.tolist(), self.patch_target.tolist())
        return {pair: e for e, pair in enumerate(pairs)}

    def usable_bytes(self) -> np.ndarray:
        """Return bytes of capacity, zero for excluded hosts, shape (K,)."""
        usable = to_bytes(self.capacities)
        for host in self.excluded:
            usable[host - 1] = 0
        return usable

    def wire_sizes_priced(self) -> np.ndarray:
        """Return MB from the repository as costs count them, shape (N,).

        No less than makes the repository as far as the peers of every host:
        solvers take a template near to be no dearer than one from afar.
        """
        links = self.bandwidths
        nearest = (links.repo / np.maximum(links.peer, links.repo)).max()
        return np.maximum(self.wire_sizes, self.sizes * nearest)

    def without_patches(self) -> 'Instance':
        """Return the instance where only whole templates can be held."""
        none = np.zeros(0, dtype=np.int64)
        return dataclasses.replace(self, patch_base=none, patch_target=none,
                                   patch_sizes=np.zeros(0),
                                   patch_seconds=np.zeros(0),
                                   placed=Held(self.placed.templates),
                                   pinned=Held(self.pinned.templates))

    def site_hosts(self) -> list[np.ndarray]:
        """List the columns of each site's hosts, one array per site."""
        return [
            np.flatnonzero(self.sites == site)
            for site in np.unique(self.sites)
        ]

    def only_hosts(self, columns: np.ndarray) -> 'Instance':
        """Return the instance of some hosts alone, renumbered from 1.

        Sites share nothing but the repository, so a site's instance can be
        solved by itself.
        """
        number = {int(c) + 1: n + 1 for n, c in enumerate(columns)}

        def renumber(held: Held) -> Held:
            return Held(
                tuple((i, number[h]) for i,
                      h in held.templates if h in number),
                tuple((i, j, number[h]) for i, j,
                      h in held.patches if h in number),
            )

        return dataclasses.replace(
            self,
            capacities=self.capacities[columns],
            rates=self.rates[:, columns],
            bandwidths=Bandwidths(
                *(getattr(self.bandwidths, f)[columns] for f in _LINKS)
            ),
            sites=self.sites[columns],
            placed=renumber(self.placed),
            pinned=renumber(self.pinned),
            excluded=frozenset(
                number[h] for h in self.excluded if h in number
            ),
        )


def to_bytes(megabytes) -> np.ndarray:
    """Return whole bytes, as integers, to decide what fits."""
    return np.rint(np.asarray(megabytes, dtype=float) * 1e6).astype(np.int64)


def load(path: str) -> Instance:
    """Read an instance file.

    :raises InstanceError: the file is no JSON, or a field is unusable
    """
    try:
        with open(path, encoding='utf-8') as source:
            data = json.load(source)
    except OSError as error:
        raise InstanceError(f'{path}: {error.strerror}; name an instance file')
    except UnicodeDecodeError:
        raise InstanceError(f'{path}: not a JSON file')
    except (ValueError, RecursionError) as error:
        raise InstanceError(f'{path}: not a JSON file: {error}')
    try:
        return from_dict(data)
    except InstanceError as error:
        raise InstanceError(f'{path}: {error}') from error


def from_dict(data: typing.Any) -> Instance:
    """Build the instance that a parsed JSON document describes.

    :raises InstanceError: one line that opens with the field at fault
    """
    if not isinstance(data, dict):
        raise InstanceError('instance: expected a JSON object of fields')
    sizes = _vector(data, 'sizes')
    _reject_size('sizes', sizes)
    capacities = _vector(data, 'capacities')
    if capacities.min() < 0:
        _reject_at('capacities', capacities < 0, 'must not be negative')
    if capacities.max() > _LARGEST_MB:
        _reject_at('capacities', capacities > _LARGEST_MB, _TOO_MANY_MB)
    rates = _rates(data, len(sizes), len(capacities))
    patches = _patches(data, len(sizes))
    instance = Instance(
        sizes=sizes,
        patch_base=patches[:, 0].astype(np.int64),
        patch_target=patches[:, 1].astype(np.int64),
        patch_sizes=patches[:, 2].copy(),
        patch_seconds=patches[:, 3].copy(),
        capacities=capacities,
        rates=rates,
        bandwidths=_bandwidths(data, len(capacities)),
        sites=_sites(data, len(capacities)),
        placed=_held(data, 'placed', len(sizes), len(capacities)),
        pinned=_held(data, 'pinned', len(sizes), len(capacities)),
        excluded=_excluded(data, len(capacities)),
        wire_sizes=_wire_sizes(data, sizes),
        name=str(data.get('name', '')),
        meta=data.get('meta') or {},
    )
    _check_useful(instance)
    return instance


def _field(data: dict, field: str) -> typing.Any:
    if field not in data:
        raise InstanceError(f'{field}: missing; the instance must give it')
    return data[field]


def _vector(data: dict, field: str) -> np.ndarray:
    values = _field(data, field)
    if not isinstance(values, list) or not values:
        raise InstanceError(f'{field}: expected a list of numbers')
    for n, value in enumerate(values):
        _number(f'{field}[{n}]', value)
    return np.array(values, dtype=float)


def _number(where: str, value: typing.Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InstanceError(f'{where}: expected a number, not {value!r}')
    if not abs(value) <= _LARGEST:
        raise InstanceError(f'{where}: {_TOO_LARGE}')
    return value


def _index(where: str, value: typing.Any, low: int, high: int) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise InstanceError(
            f'{where}: expected a whole number {low}..{high}, not {value!r}'
        )
    return value


def _reject_at(field: str, bad: np.ndarray, reason: str) -> None:
    at = np.argwhere(bad)[0]
    where = ''.join(f'[{n}]' for n in at)
    raise InstanceError(f'{field}{where}: {reason}')


def _reject_size(field: str, sizes: np.ndarray, inside: str = '') -> None:
    """Refuse sizes that cannot be counted in bytes.

    :param inside: position of the size within an entry of the field
    """
    for bad, reason in ((sizes < _SMALLEST_MB, _TOO_FEW_MB),
                        (sizes > _LARGEST_MB, _TOO_MANY_MB)):
        if bad.any():
            raise InstanceError(
                f'{field}[{int(np.argmax(bad))}]{inside}: {reason}')


def _matrix(field: str, rows: typing.Any, width: int) -> np.ndarray:
    """Build an array of finite numbers from rows of one width.

    Large files make this the slow part of loading, so numbers are looked at
    one by one only to name the one at fault.
    """
    if not isinstance(rows, list):
        raise InstanceError(f'{field}: expected a list of rows')
    for n, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width:
            raise InstanceError(f'{field}[{n}]: expected {width} numbers')
    try:
        matrix = np.array(rows).reshape(len(rows), width)
    except (ValueError, OverflowError):
        matrix = np.zeros((0, 0), dtype=object)
    if rows and (matrix.dtype.kind not in 'if' or not matrix.size):
        for n, row in enumerate(rows):
            for m, value in enumerate(row):
                _number(f'{field}[{n}][{m}]', value)
    matrix = matrix.astype(float)
    usable = np.abs(matrix) <= _LARGEST
    if not usable.all():
        _reject_at(field, ~usable, _TOO_LARGE)
    return matrix


def _rates(data: dict, templates: int, hosts: int) -> np.ndarray:
    rows = _field(data, 'rates')
    if isinstance(rows, list) and len(rows) != templates:
        raise InstanceError(
            f'rates: {len(rows)} rows for {templates} templates'
        )
    rates = _matrix('rates', rows, hosts)
    if (rates < 0).any():
        _reject_at('rates', rates < 0, 'must not be negative')
    return rates


def _patches(data: dict, templates: int) -> np.ndarray:
    field = 'patch_sizes'
    rows = _field(data, field)
    patches = _matrix(field, rows, 4)
    ends = patches[:, :2]
    bad = (ends < 0) | (ends >= templates) | (ends != np.floor(ends))
    if bad.any():
        _reject_at(field, bad, f'expected a template 0..{templates - 1}')
    if (patches[:, 0] == patches[:, 1]).any():
        _reject_at(field, patches[:, 0] == patches[:, 1],
                   'a patch from a template to itself')
    _reject_size(field, patches[:, 2], '[2]')
    if (patches[:, 3] < 0).any():
        n = int(np.argmax(patches[:, 3] < 0))
        raise InstanceError(f'{field}[{n}][3]: seconds must not be negative')
    keys = patches[:, 0] * templates + patches[:, 1]
    _, first = np.unique(keys, return_index=True)
    if len(first) != len(keys):
        n = int(np.setdiff1d(np.arange(len(keys)), first)[0])
        i, j = (int(v) for v in patches[n, :2])
        raise InstanceError(f'{field}[{n}]: the pair {i}, {j} is listed twice')
    return patches


def _bandwidths(data: dict, hosts: int) -> Bandwidths:
    given = _field(data, 'bandwidths')
    if not isinstance(given, dict):
        raise InstanceError('bandwidths: expected local, peer and repo')
    links = []
    for field in _LINKS:
        where = f'bandwidths.{field}'
        if field not in given:
            raise InstanceError(f'{where}: missing; give Mbps')
        value = given[field]
        values = value if isinstance(value, list) else [value] * hosts
        if len(values) != hosts:
            raise InstanceError(f'{where}: {len(values)} for {hosts} hosts')
        for number in values:
            if _number(where, number) < _SLOWEST:
                raise InstanceError(
                    f'{where}: must be above 0 (at least {_SLOWEST:g} Mbps)'
                )
        links.append(np.array(values, dtype=float))
    return Bandwidths(*links)


def _wire_sizes(data: dict, sizes: np.ndarray) -> np.ndarray:
    field = 'wire_sizes'
    if field not in data:
        return sizes
    found = _vector(data, field)
    if len(found) != len(sizes):
        raise InstanceError(
            f'{field}: {len(found)} for {len(sizes)} templates'
        )
    _reject_size(field, found)
    if (found > sizes).any():
        _reject_at(field, found > sizes, 'must be at most the size')
    return found


def _sites(data: dict, hosts: int) -> np.ndarray:
    sites = data.get('sites', [0] * hosts)
    if not isinstance(sites, list) or len(sites) != hosts:
        raise InstanceError(f'sites: expected {hosts} numbers, one per host')
    for n, site in enumerate(sites):
        _index(f'sites[{n}]', site, 0, 2**31)
    return np.array(sites, dtype=np.int64)


def _held(data: dict, field: str, templates: int, hosts: int) -> Held:
    given = data.get(field) or {}
    if not isinstance(given, dict):
        raise InstanceError(f'{field}: expected templates and patches')
    found = []
    for kind, width in (('templates', 2), ('patches', 3)):
        rows = given.get(kind, [])
        if not isinstance(rows, list):
            raise InstanceError(f'{field}.{kind}: expected a list')
        found.append([])
        for n, row in enumerate(rows):
            where = f'{field}.{kind}[{n}]'
            if not isinstance(row, list) or len(row) != width:
                raise InstanceError(f'{where}: expected {width} numbers')
            for template in row[:-1]:
                _index(where, template, 0, templates - 1)
            _index(where, row[-1], 1, hosts)
            found[-1].append(tuple(row))
    return Held(tuple(found[0]), tuple(found[1]))


def _excluded(data: dict, hosts: int) -> frozenset:
    given = data.get('excluded', [])
    if not isinstance(given, list):
        raise InstanceError('excluded: expected a list of hosts')
    return frozenset(_index(f'excluded[{n}]', host, 1, hosts) for n,
                     host in enumerate(given))


def _check_useful(instance: Instance) -> None:
    """Refuse files that describe nothing to decide."""
    if not instance.demand > 0:
        raise InstanceError('rates: no template is ever requested')
    smallest = instance.sizes.min()
    if instance.patch_count:
        smallest = min(smallest, instance.patch_sizes.min())
    if to_bytes(instance.capacities).max() < to_bytes(smallest):
        raise InstanceError(
            f'capacities: no host can hold even the smallest object'
            f' ({smallest:g} MB)'
        )
    patches = instance.patch_index()
    for field in ('placed', 'pinned'):
        for n, (i, j, _) in enumerate(getattr(instance, field).patches):
            if (i, j) not in patches:
                raise InstanceError(
                    f'{field}.patches[{n}]: there is no patch {i}, {j}'
                )
