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
"""Tables and the chart of patches."""

from bench.harness import runs
from bench.harness import tables

NAMES = {'block': 'block', 'block-1': 'block, level 1',
         'block-19': 'block, level 19',
         'rdiff': 'rdiff', 'rdiff, zstd -1': 'rdiff, zstd -1',
         'zstd': 'zstd --patch-from', 'zstd-19': 'zstd -19 --patch-from',
         'xdelta3': 'xdelta3', 'xdelta3-9': 'xdelta3 -9',
         'casync': 'casync', 'desync': 'desync'}

# Figures by tool and pair.
Rows = dict[str, dict[tuple[str, str], dict]]


def _ratio(part: float, whole: float | None) -> str:
    return f'{part / whole:.2f}' if whole else ''


def totals(run: runs.Run, tools: Rows) -> None:
    """Add a row for each tool, over the pairs that block was run on."""
    def total(name: str, *keys: str) -> float:
        found = 0.0
        for pair in pairs:
            value = tools[name][pair]
            for key in keys:
                value = value[key]
            found += value
        return found

    rows = []
    for name, every in tools.items():
        pairs = [pair for pair in every if pair in tools.get('block', {})]
        if not pairs:
            continue
        rows.append((
            NAMES[name], len(pairs), f'{total(name, "bytes") / 1e6:.1f}',
            f'{total("block", "bytes") / total(name, "bytes"):.3f}',
            f'{total(name, "create", "cpu_s"):.1f}',
            f'{total(name, "create", "wall_s"):.1f}',
            _ratio(total('block', 'create', 'cpu_s'),
                   total(name, 'create', 'cpu_s')),
            f'{max(every[pair]["create"]["peak_mb"] for pair in pairs):.0f}',
            f'{total(name, "apply", "cpu_s"):.1f}',
            f'{total(name, "apply", "wall_s"):.1f}'))
    run.table('All pairs', (
        'Tool', 'Pairs', 'MB', 'Block to this, bytes', 'Create, CPU-s',
        'Create, s', 'Block to this, CPU', 'Peak, MB', 'Apply, CPU-s',
        'Apply, s'), rows)


def limits(run: runs.Run, tools: Rows, costs: dict[str, dict]) -> None:
    """Add how near creating patches comes to hashing both images."""
    size = sum(cost['bytes'] for cost in costs.values()) / 1e9
    rows = [(f'{what} the data, GB/s of CPU time', f'{size / spent:.1f}')
            for what in ('read', 'hash')
            if (spent := sum(cost[what] for cost in costs.values())) > 0]
    for tool in ('block', 'block-1'):
        pairs = tools.get(tool, {})
        floor = sum(costs[name]['hash'] for pair in pairs for name in pair)
        if pairs and floor > 0:
            made = sum(row['create']['cpu_s'] for row in pairs.values())
            rows.append((f'{NAMES[tool]}: CPU over that of reading and hashing'
                         ' both images', f'{made / floor:.1f}'))
    run.table('What reading and hashing takes', ('Limit', 'Value'), rows)


def each(run: runs.Run, tools: Rows) -> None:
    """Add a row for each pair and tool, and the chart."""
    zstd = tools.get('zstd', {})
    rows = []
    pairs = list(dict.fromkeys(pair for found in tools.values()
                               for pair in found))
    for pair in pairs:
        for name in (name for name in NAMES if pair in tools.get(name, {})):
            row, other = tools[name][pair], zstd.get(pair)
            made, applied = row['create'], row['apply']
            rows.append((
                *pair, NAMES[name], tables.megabytes(row['bytes']),
                _ratio(row['bytes'], other and other['bytes']),
                f'{made["cpu_s"]:.2f}',
                _ratio(made['cpu_s'], other and other['create']['cpu_s']),
                f'{made["wall_s"]:.2f}',
                f'{made["peak_mb"]:.0f}', f'{applied["cpu_s"]:.2f}',
                f'{applied["wall_s"]:.2f}'))
    run.table('Each pair', (
        'Base', 'Target', 'Tool', 'MB', 'To zstd -3', 'Create, CPU-s',
        'CPU to zstd -3', 'Create, s', 'Peak, MB',
        'Apply, CPU-s', 'Apply, s'), rows)

    def plot(axes: list) -> None:
        for name, found in tools.items():
            axes[0].scatter(
                [row['create']['cpu_s'] for row in found.values()],
                [row['bytes'] / 1e6 for row in found.values()],
                label=NAMES[name], s=28, alpha=0.8)
        axes[0].set(xscale='log', yscale='log', ylabel='patch, MB',
                    xlabel='CPU seconds to make')
        axes[0].grid(True, which='both', alpha=0.2)
        axes[0].legend()
    run.chart(plot, suffix='png')
