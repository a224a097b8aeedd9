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
"""The quickstart after everything is installed and the images are built.

Runs the testbed on the images, boots one that the site has built itself, and
leaves the table, the chart and quickstart.json. tools/quickstart calls it.
"""

import argparse
import logging
import pathlib
import sys
import time

from diffcache_openstack.common import exceptions
from diffcache_openstack.embedded import boot
from diffcache_openstack.embedded import report
from diffcache_openstack.embedded import sites
from diffcache_openstack.embedded import testbed

MARKER = 'DIFFCACHE-GUEST-READY'
# Mbit/s. As far apart as in the paper's testbed, 20 Mbit/s and gigabit
# Ethernet, and fast enough for images of hundreds of MB within minutes.
WAN = 440.0
LAN = 50 * WAN
# A copy on a host itself shares blocks with its source: next to nothing.
LOCAL = 8 * LAN
# The paper's caches of 5, 8 and 8 GB for images of 7 GB, as shares of the
# mean image.
CAPACITIES = (5 / 7, 8 / 7, 8 / 7)
BLOCK = 512
# The first one that asks for each of five images three times.
SEED = 53
SOLVER = 'auto'


def host_specs(images: list[testbed.Image]) -> tuple[sites.HostSpec, ...]:
    """Three hosts whose caches hold less than the images."""
    data = [image.path.stat().st_blocks * BLOCK for image in images]
    mean = sum(data) / len(data)
    return tuple(
        sites.HostSpec(f'host-{number}', round(share * mean))
        for number, share in enumerate(CAPACITIES, start=1)
    )


def find_images(folder: pathlib.Path) -> list[testbed.Image]:
    """Return the raw images of a folder, by name.

    :raises NotFound: fewer than two
    """
    paths = sorted(folder.glob('*.raw'))
    if len(paths) < 2:
        raise exceptions.NotFound(
            f'{folder} has {len(paths)} raw images, two are needed: run '
            'tools/quickstart, which builds them'
        )
    return [testbed.Image(path.stem, path) for path in paths]


class Quickstart:
    """One run, with progress on standard output."""

    def __init__(self, started: float) -> None:
        """Prepare; progress counts from ``started``, a monotonic time."""
        self._started = started

    def run(self, options: argparse.Namespace) -> bool:
        """Return whether all went as it should.

        :raises DiffCacheError: it could not be carried through
        """
        images = find_images(options.images)
        links = sites.LinkSpec(options.wan, options.lan, options.local)
        setup = testbed.Setup(
            host_specs(images), links, seed=SEED, solver=options.solver
        )
        result = testbed.run(images, setup, options.site, self._say)
        document = result.document
        document['boot'] = self._boot(result)
        report.write_json(document, options.output / 'quickstart.json')
        report.draw(document, options.output / 'quickstart.png')
        print(f'\n{report.table(document)}')
        print(f'Details: {options.output / "quickstart.json"}, chart: '
              f'{options.output / "quickstart.png"}')
        booted = document['boot']
        return bool(document['identical']
                    and booted and booted['marker_seen'])

    def _boot(self, result: testbed.Result) -> report.Document | None:
        """Boot the image that the site built, and tell how it went.

        :returns: None if the site built none
        """
        if result.built is None:
            return None
        name = result.built.image.name
        self._say(f'booting {name} as {result.built.host} built it')
        booted = boot.boot(result.built.output, f'{MARKER} {name}')
        if not booted.marker_seen:
            print(booted.console)
        self._say(f'guest: {booted.line or "no word of its start"}')
        return {
            'image': name,
            'host': result.built.host,
            'source': result.built.request.detail,
            'sha256': result.built.sha256,
            'marker_seen': booted.marker_seen,
            'marker': booted.line,
            'seconds': booted.seconds,
            'wan_bytes': result.built.request.wan_bytes,
        }

    def _say(self, text: str) -> None:
        seconds = time.monotonic() - self._started
        print(f'[{seconds:4.0f}s] testbed: {text}', flush=True)


def log_to(path: pathlib.Path) -> None:
    """Have what the services log in a file, and not between the progress."""
    logging.basicConfig(
        filename=path,
        filemode='w',
        level=logging.INFO,
        format='%(asctime)s %(levelname)s %(name)s %(message)s',
    )
    for name in ('alembic', 'oslo_messaging', 'oslo.messaging', 'stevedore'):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, text in (
        ('--images', 'folder with the raw images'),
        ('--site', 'folder for the site; a second run finds its patches'),
        ('--output', 'folder for quickstart.json and quickstart.png'),
    ):
        parser.add_argument(
            name, type=pathlib.Path, required=True, metavar='DIR', help=text
        )
    parser.add_argument('--wan', type=float, default=WAN, metavar='MBITS')
    parser.add_argument('--lan', type=float, default=LAN, metavar='MBITS')
    parser.add_argument('--local', type=float, default=LOCAL, metavar='MBITS')
    parser.add_argument('--solver', default=SOLVER)
    parser.add_argument(
        '--elapsed', type=float, default=0.0, metavar='SECONDS',
        help='seconds that have passed, to count progress from',
    )
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    started = time.monotonic() - options.elapsed
    log_to(options.output / 'quickstart.log')
    try:
        return 0 if Quickstart(started).run(options) else 1
    except exceptions.DiffCacheError as error:
        print(f'quickstart: {error}', file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
