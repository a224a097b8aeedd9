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
"""What the placement solvers reach, beside what they have to reach.

Every instance is made from a seed. Costs are computed anew from each
placement, and a sample of them by the finder of the services, which shares no
code with the solvers. CPU seconds are this process's: on a machine shared with
others wall times say little.
"""

from bench.harness import cases

_PAGE = ('reference/placement-benchmark',)
_SEEDS = cases.Option('seeds', 2, 'instances of each kind', quick=1)


def _case(name: str, about: str, *options: cases.Option,
          pages: tuple[str, ...] = _PAGE) -> cases.Case:
    return cases.Case(
        name, about, f'solvers:{name}', pages, options)


CASES = (
    _case('proofs', 'Instances with N<=10, K<=4 proved optimal.', _SEEDS),
    _case('synthetic', 'N=10, K=5-10 in two seconds, against the best known.',
          _SEEDS, cases.Option('best', 20.0, 'seconds to look for the best'
                               ' known', quick=1.0)),
    _case('chains', 'What chains of patches save on sparse patch graphs.'),
    _case('traces', 'Request traces against cache policies.', _SEEDS,
          pages=(*_PAGE, 'user/placement')),
    _case('scale', "The trace's scale, in 60 seconds on one core.", _SEEDS,
          cases.Option('hosts', (10, 50, 100), 'hosts', quick=(10,),
                       many=True)),
    _case('huge', '10,000 templates and 500 hosts.',
          cases.Option('seconds', 280, 'of the solver', quick=5),
          cases.Option('templates', 10000, 'in trees', quick=500),
          cases.Option('hosts', 500, 'hosts', quick=10)),
)
