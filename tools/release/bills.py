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
"""Software bills of materials in CycloneDX's JSON, as PEP 770 places them.

One bill lists the crates and libraries that the native parts are linked from,
the other the Python packages that the distribution requires, with the versions
of constraints.txt. Equal input gives equal bytes.
"""

import collections
import dataclasses
import datetime
import json
import tomllib
import typing
import uuid

SPECIFICATION = '1.6'
# The crates that are built into files of the wheel.
ROOTS = ('diffcache-py', 'diffcache-daemon', 'diffcache-ssdcached')
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, 'diffcache-openstack')

Bill = dict[str, typing.Any]


@dataclasses.dataclass(frozen=True)
class Subject:
    """The distribution that a bill is about.

    :ivar epoch: time of its commit, in seconds since 1970
    """

    name: str
    version: str
    epoch: int

    @property
    def purl(self) -> str:
        return f'pkg:pypi/{self.name}@{self.version}'


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A library of a compiler that is linked into the native parts.

    :ivar licence: SPDX expression
    """

    name: str
    version: str
    purl: str
    licence: str


def encode(bill: Bill) -> bytes:
    """Return the bill as the bytes of its file."""
    return (json.dumps(bill, indent=1, sort_keys=True) + '\n').encode()


def python_bill(subject: Subject, pins: typing.Iterable[str]) -> Bill:
    """Return the bill of the Python packages that are required.

    :param pins: lines like ``name==version ; marker`` for each package
    """
    components = []
    for line in pins:
        requirement, _, _marker = line.partition(';')
        name, separator, version = requirement.strip().partition('==')
        if not separator:
            raise ValueError(f'Not a pinned version: {line}')
        name = name.partition('[')[0]
        components.append(_component(
            'library', name, version, f'pkg:pypi/{name}@{version}'))
    refs = [component['bom-ref'] for component in components]
    return _bill(subject, 'python', components, {subject.purl: refs})


def native_bill(subject: Subject, metadata: dict[str, typing.Any],
                lock: str, runtimes: typing.Iterable[Runtime] = ()) -> Bill:
    """Return the bill of what is linked into the native parts.

    Crates that only run during the build are not in it: build scripts' and
    procedural macros.

    :param metadata: what ``cargo metadata`` printed
    :param lock: text of Cargo.lock, whose checksums are those of the crates
    :param runtimes: libraries of the compilers; none if nothing is linked yet
    """
    packages = {each['id']: each for each in metadata['packages']}
    edges = _linked(metadata, packages)
    checksums = {(each['name'], each['version']): each['checksum']
                 for each in tomllib.loads(lock)['package']
                 if 'checksum' in each}
    refs = {key: _cargo_purl(packages[key]) for key in edges}
    components = [_crate(packages[key], checksums) for key in edges]
    dependencies = {refs[key]: [refs[each] for each in found]
                    for key, found in edges.items()}
    dependencies[subject.purl] = [
        refs[key] for key in edges if packages[key]['name'] in ROOTS]
    for runtime in runtimes:
        library = _component('library', runtime.name, runtime.version,
                             runtime.purl)
        library['licenses'] = [{'expression': runtime.licence}]
        components.append(library)
        dependencies[subject.purl].append(runtime.purl)
    return _bill(subject, 'native', components, dependencies)


def _linked(metadata: dict[str, typing.Any],
            packages: dict[str, dict[str, typing.Any]],
            ) -> dict[str, list[str]]:
    """Return the crates that each crate links, of all that the roots reach."""
    nodes = {node['id']: node for node in metadata['resolve']['nodes']}
    edges: dict[str, list[str]] = {}
    queue = collections.deque(
        key for key, each in packages.items() if each['name'] in ROOTS)
    while queue:
        key = queue.popleft()
        if key in edges:
            continue
        edges[key] = [
            dependency['pkg'] for dependency in nodes[key]['deps']
            if any(kind['kind'] is None for kind in dependency['dep_kinds'])
            and not _is_macro(packages[dependency['pkg']])]
        queue.extend(edges[key])
    return edges


def _is_macro(package: dict[str, typing.Any]) -> bool:
    return any('proc-macro' in target['kind'] for target in package['targets'])


def _cargo_purl(package: dict[str, typing.Any]) -> str:
    return f'pkg:cargo/{package["name"]}@{package["version"]}'


def _crate(package: dict[str, typing.Any],
           checksums: dict[tuple[str, str], str]) -> dict[str, typing.Any]:
    component = _component('library', package['name'], package['version'],
                           _cargo_purl(package))
    if package['license']:
        # An old spelling of OR.
        expression = package['license'].replace('/', ' OR ')
        component['licenses'] = [{'expression': expression}]
    checksum = checksums.get((package['name'], package['version']))
    if checksum:
        component['hashes'] = [{'alg': 'SHA-256', 'content': checksum}]
    return component


def _component(kind: str, name: str, version: str,
               purl: str) -> dict[str, typing.Any]:
    return {'type': kind, 'bom-ref': purl, 'name': name, 'version': version,
            'purl': purl}


def _bill(subject: Subject, part: str,
          components: list[dict[str, typing.Any]],
          dependencies: dict[str, list[str]]) -> Bill:
    time = datetime.datetime.fromtimestamp(subject.epoch, datetime.UTC)
    about = _component('application', subject.name, subject.version,
                       subject.purl)
    about['licenses'] = [{'license': {'id': 'Apache-2.0'}}]
    bill = {
        'bomFormat': 'CycloneDX',
        'specVersion': SPECIFICATION,
        'version': 1,
        'metadata': {'timestamp': time.isoformat(), 'component': about},
        'components': sorted(components, key=lambda each: each['bom-ref']),
        'dependencies': [
            {'ref': ref, 'dependsOn': sorted(set(dependencies[ref]))}
            for ref in sorted(dependencies)],
    }
    # Derived from the content: different bills have different numbers.
    number = uuid.uuid5(_NAMESPACE, f'{part} {encode(bill).decode()}')
    return bill | {'serialNumber': f'urn:uuid:{number}'}
