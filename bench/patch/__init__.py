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
"""Patches between images, beside other tools that make them.

Tables I and II of the DiffCache paper: bytes, CPU and wall seconds and peak
memory, each tool on one core, with the images in the page cache. Every patch
is applied, and the outcome compared with the target. A tool that is not
installed is left out: rdiff, zstd, xdelta3 and casync are Debian packages,
desync is at github.com/folbricht/desync.

Images are built by bench/patch/build-family DIR and bench/patch/build-upgrades
DIR (root, mmdebstrap); with --quick tiny ones are made.
"""

import pathlib

from bench.harness import cases

FAMILY_TOOLS = ('block', 'block-1', 'rdiff', 'zstd', 'xdelta3', 'casync',
                'desync')
UPGRADE_TOOLS = ('block', 'block-1', 'block-19', 'zstd', 'rdiff', 'xdelta3-9',
                 'casync', 'desync', 'zstd-19')
_PAGE = ('reference/patch-benchmark',)
_IMAGES = cases.Option('images', None, 'folder of the images',
                       kind=pathlib.Path)
_PAIRS = cases.Option('pairs', (), 'pairs BASE:TARGET, instead of all',
                      kind=str, many=True, selects=True)


def _tools(names: tuple[str, ...]) -> cases.Option:
    return cases.Option('tools', names, 'tools to measure', many=True,
                        quick=('block', 'block-1', 'rdiff', 'zstd'),
                        selects=True)


CASES = (
    cases.Case('family', 'Images that differ by what is installed.',
               'codecs:family', _PAGE, (_IMAGES, _PAIRS,
                                        _tools(FAMILY_TOOLS))),
    cases.Case('upgrades', 'Images before and after an upgrade.',
               'codecs:upgrades', ('reference/patch-upgrades',), (
                   _IMAGES, _PAIRS, _tools(UPGRADE_TOOLS),
                   cases.Option('held', False, 'also the package set that'
                                ' nothing is tuned by', selects=True))),
    cases.Case('apply', 'Applying, beside cp and rdiff patch, on XFS.',
               'applying:apply', _PAGE, (
                   _IMAGES, cases.Option('rounds', 3, 'of each way', quick=1),
                   cases.Option('pairs', (
                       'both:database', 'system:rebuild', 'database:system',
                       'system:both'), 'pairs BASE:TARGET', many=True,
                       quick=('system:both',))),
               ('mkfs.xfs', 'rdiff'), root=True),
)
