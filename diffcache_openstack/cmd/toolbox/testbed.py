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
"""``diffcache testbed``: the paper's testbed on one machine."""

import argparse
import pathlib
from typing import Any


from diffcache_openstack.blocks import operands
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.embedded import report
from diffcache_openstack.embedded import sites
from diffcache_openstack.embedded import testbed

# Capacities of the hosts as fractions of the mean image: the paper's 5, 8 and
# 8 GB for images of 7 GB.
_CAPACITIES = (5 / 7, 8 / 7, 8 / 7)


class Run(quick.ShowOne):
    """Serve images at an embedded site in four modes and compare them."""

    examples = (
        'debian-12.raw debian-12.1.raw --state /var/tmp/testbed --wan '
        '100Mbps',)
    arguments = (
        cli.Argument('images', nargs='+', metavar='IMAGE',
                     help='Raw disk image; at least two.'),
        cli.Argument('--state', required=True, metavar='DIR',
                     help='Directory for all images, patches, caches and'
                          ' results.'),
        cli.Argument('--wan', type=cli.bandwidth, default=200.0,
                     metavar='RATE',
                     help='Bandwidth of the link to the repository, such as'
                          ' 200Mbps (a bare number: Mbit/s; default: 200).'),
        cli.Argument('--lan', type=cli.bandwidth, default=10000.0,
                     metavar='RATE',
                     help="Bandwidth of each host's link to its peers (a bare"
                          ' number: Mbit/s; default: 10000).'),
        cli.Argument('--local', type=cli.bandwidth, default=10000.0,
                     metavar='RATE',
                     help='Bandwidth of copies on one host in the cost model'
                          ' (a bare number: Mbit/s; default: 10000).'),
        cli.Argument('--capacity', action='append', metavar='SIZE',
                     type=cli.size(),
                     help='Cache capacity of a host, such as 300MB; repeat for'
                          ' each host (default: three hosts with 5/7, 8/7 and'
                          ' 8/7 of the mean image).'),
        cli.Argument('--requests', type=cli.whole(1), default=15, metavar='N',
                     help='Requests to serve (default: 15).'),
        cli.Argument('--seed', type=int, default=1, metavar='N',
                     help='Seed of the random requests (default: 1).'),
        cli.Argument('--solver', default='greedy', metavar='NAME',
                     help='Solver that computes the plan (default: greedy).'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        images = [self._image(name) for name in args.images]
        if len(images) < 2:
            raise exceptions.InvalidInput(
                'One image has no other to be patched from; name at least '
                'two.')
        links = sites.LinkSpec(args.wan, args.lan,
                               args.local)
        setup = testbed.Setup(
            self._hosts(args, images), links,
            requests=args.requests, seed=args.seed,
            solver=args.solver)
        state = pathlib.Path(args.state).resolve()
        result = testbed.run(images, setup, state, self._report)
        report.write_json(result.document, state / 'testbed.json')
        if not result.document['identical']:
            raise exceptions.IntegrityError(
                f'A delivered image differs from the registered one; see '
                f'{state / "testbed.json"}.')
        columns = {'identical': True}
        for mode, found in result.document['modes'].items():
            for field in ('mean_s', 'mean_filled_s', 'wan_bytes'):
                columns[f'{mode}_{field}'] = found[field]
        return columns

    def _report(self, text: str) -> None:
        print(text, file=self.app.stderr, flush=True)

    @staticmethod
    def _image(name: str) -> testbed.Image:
        operands.check_disk(name, 'image')
        path = pathlib.Path(name).resolve()
        return testbed.Image(path.stem, path)

    @staticmethod
    def _hosts(args: argparse.Namespace, images: list[testbed.Image]
               ) -> tuple[sites.HostSpec, ...]:
        if args.capacity:
            sizes = args.capacity
        else:
            data = [image.path.stat().st_blocks * 512 for image in images]
            mean = sum(data) / len(data)
            sizes = [round(share * mean) for share in _CAPACITIES]
        return tuple(sites.HostSpec(f'host-{number}', size)
                     for number, size in enumerate(sizes, start=1))
