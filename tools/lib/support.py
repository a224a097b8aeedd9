#!/usr/bin/env python3
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
"""What was tried with each series of OpenStack, and the table of it.

Usage: support.py record SERIES STATE RESULTS
       support.py table

``record`` writes doc/source/admin/support/SERIES.json from the files of
RESULTS with the ending ``.subunit``, and from the OpenStack that is in STATE.
Features that were not tried there stay as they were found with the same
packages before. ``table`` writes the table of the documentation from all such
files. Run by ``tools/test series``.
"""

import datetime
import json
import pathlib
import platform
import re
import subprocess
import sys

import results

TREE = pathlib.Path(__file__).resolve().parents[2]
SERIES = TREE / 'tools/openstack.d/series'
FOLDER = TREE / 'doc/source/admin/support'
TABLE = FOLDER / 'table.txt'
# What is tried, by the names of tests.
FEATURES = {
    'Unit tests of the plug-ins': r'^tests\.unit\.',
    'Tempest plug-in': r'^diffcache_openstack\.tempest_plugin\.',
    'Images delivered to Nova': r'openstack\.test_nova_(operations|wan)\.',
    'Lazy boot, also while the WAN is away': r'openstack\.test_nova_lazy\.',
    "Glance's image cache": r'openstack\.test_glance\.',
    'Server versions and roll back':
        r'openstack\.test_(versions|version_volumes)\.',
    'SSD cache of volumes, live migration':
        r'openstack\.test_(volumes|write_back)\.',
    'Upgrade from it under running guests': r'openstack\.test_upgrade\.',
}
PACKAGES = ('nova', 'glance', 'keystone', 'cinder', 'neutron', 'os-brick',
            'eventlet', 'oslo.service', 'oslo.messaging', 'openstacksdk',
            'python-openstackclient', 'cliff', 'libvirt-python')
GAP = 'largest_hub_gap_seconds'


class Tests:
    """Results of tests by their names; the last of several counts."""

    def __init__(self) -> None:
        self.statuses: dict[str, str] = {}

    def add(self, status: str, name: str) -> None:
        """Add one test."""
        self.statuses[name] = status

    def of(self, pattern: str) -> dict[str, int]:
        """Count the tests with a name by how they ended."""
        found = [status for name, status in self.statuses.items()
                 if re.search(pattern, name)]
        return {status: found.count(status) for status in sorted(set(found))}


def versions(state: pathlib.Path, series: str) -> dict[str, str]:
    """Return the packages that the services of a series ran with."""
    listed = json.loads(subprocess.run(
        [state / 'venv/bin/uv', 'pip', 'list', '--format', 'json',
         '--python', state / f'openstack-{series}/bin/python'],
        check=True, capture_output=True, text=True).stdout)
    known = {one['name'].replace('-', '.'): one['version'] for one in listed}
    return {name: known[name.replace('-', '.')] for name in PACKAGES
            if name.replace('-', '.') in known}


def python_version(state: pathlib.Path, series: str) -> str:
    """Return the version of the Python that runs the services."""
    return subprocess.run(
        [state / f'openstack-{series}/bin/python', '-c',
         'import platform; print(platform.python_version())'],
        check=True, capture_output=True, text=True).stdout.strip()


def largest_gap(log: pathlib.Path, before: dict) -> dict[str, float | None]:
    """Return the longest time that a hub stood still, in seconds, by its name.

    It is None where no eventlet ran, and nothing has a name where nova-compute
    did not run.

    :param log: the folder with the logs of an OpenStack
    :param before: what was found earlier
    """
    known = {GAP: before[GAP]} if GAP in before else {}
    if not list(log.glob('compute-*-nova.log')):
        return known
    files = list(log.glob('*-hub-gaps'))
    gaps = [float(line.split()[1]) for path in files
            for line in path.read_text().splitlines()]
    return {GAP: max([known.get(GAP) or 0.0, *gaps]) if files else None}


def earlier(series: str, packages: dict[str, str]) -> dict:
    """Return what was found with the same packages of a series before."""
    path = FOLDER / f'{series}.json'
    found = json.loads(path.read_text()) if path.exists() else {}
    return found if found.get('packages') == packages else {}


def counted(tests: Tests, before: dict[str, dict]) -> dict[str, dict]:
    """Return how the tests of each feature ended, and when.

    :param before: the same of an earlier time, for what was not tried
    """
    today = datetime.date.today().isoformat()
    return {name: {**found, 'date': today}
            if (found := tests.of(pattern)) else before.get(name, {})
            for name, pattern in FEATURES.items()}


def record(series: str, state: pathlib.Path, folder: pathlib.Path) -> None:
    """Write what was found with a series."""
    tests = Tests()
    for path in sorted(folder.glob('*.subunit')):
        results.read_subunit(path, tests)
    system = platform.freedesktop_os_release()
    packages = versions(state, series)
    before = earlier(series, packages)
    (FOLDER / f'{series}.json').write_text(json.dumps({
        'series': series,
        'command': f'tools/test series {series}',
        'system': f'{system["NAME"]} {system["VERSION_ID"]}',
        'python': python_version(state, series),
        'packages': packages,
        **largest_gap(state / 'log', before),
        'features': counted(tests, before.get('features', {})),
    }, indent=2) + '\n')


def cell(found: dict) -> str:
    """Return what the table says of a feature with a series."""
    passed, failed = found.get('passed', 0), found.get('failed', 0)
    if not passed + failed:
        return 'not tried'
    return f'{passed} of {passed + failed} passed, {found["date"]}'


def records() -> list[dict]:
    """Return what was found with each series; of some only the name."""
    names = sorted(path.stem for path in SERIES.glob('*.txt'))
    found = {path.stem: json.loads(path.read_text())
             for path in FOLDER.glob('*.json')}
    return [found.get(name, {'series': name}) for name in names]


def _title(one: dict) -> str:
    nova = one.get('packages', {}).get('nova')
    return one['series'] if nova is None else f'{one["series"]} (Nova {nova})'


def _gap(one: dict) -> str:
    if GAP not in one:
        return 'not tried'
    gap = one[GAP]
    return 'no eventlet' if gap is None else f'{gap:.2f} s'


def _command(one: dict) -> str:
    return f'``{one["command"]}``' if 'command' in one else 'not tried'


def _system(one: dict) -> str:
    return (f'{one["system"]}, Python {one["python"]}' if 'system' in one
            else 'not tried')


def table(found: list[dict]) -> str:
    """Return the table of all series, in reStructuredText."""
    rows = [['', *map(_title, found)]]
    for name in FEATURES:
        rows.append([name, *(
            cell(one.get('features', {}).get(name, {})) for one in found)])
    rows += [
        ['Longest time that eventlet\'s hub stood still', *map(_gap, found)],
        ['Tried by', *map(_command, found)],
        ['On', *map(_system, found)]]
    lines = ['.. list-table::', '   :header-rows: 1', '   :stub-columns: 1',
             '']
    for row in rows:
        for number, text in enumerate(row):
            start = '   * - ' if number == 0 else '     - '
            lines.append((start + text).rstrip())
    return '\n'.join(lines) + '\n'


def main(words: list[str]) -> int:
    """Run the command; return the exit code."""
    match words:
        case ['record', series, state, folder]:
            record(series, pathlib.Path(state), pathlib.Path(folder))
        case ['table']:
            pass
        case _:
            print('usage: support.py record SERIES STATE RESULTS | table',
                  file=sys.stderr)
            return 2
    TABLE.write_text(table(records()))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
