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
"""Replays in virtual time."""

import collections.abc
import dataclasses
import statistics

from bench.harness import runs
from bench.harness import tables
from bench.lazy import boots as recorded
from diffcache_openstack.prefetch import replay

MODES = ('local', 'on-demand', 'first', 'later', 'oracle', 'broadcast')
# Of the paper: figure 4, of 120 instances.
PAPER_SHARES, PAPER_USED = (0.83, 0.65), (27000, 54000)


def chosen_boot(run: runs.Run) -> recorded.Boot:
    """Return the boot that the options name."""
    options = run.options
    if getattr(options, 'synthetic', False):
        return recorded.synthetic_boot(options.seed)
    return recorded.recorded_boot(
        str(getattr(options, 'trace', None) or recorded.RECORDED),
        options.speed)


def replay_all(boot: recorded.Boot, count: int, setting: str, seed: int,
               ) -> dict[str, dict]:
    """Return figures of all modes, and of the carried profile."""
    scenario = recorded.make(boot, count, setting, seed)
    found = {mode: replay.replay(scenario, mode) for mode in MODES}
    # Later and carried meet other jitter than the run that they learned from.
    again = recorded.make(boot, count, setting, seed + 1)
    known = [tuple(row) for row in found['first']['profile']]
    found['next'] = replay.replay(again, 'on-demand')
    found['next oracle'] = replay.replay(again, 'oracle')
    partly = recorded.carried(known, seed, again.chunks)
    for name, profile in (('later', known), ('carried', partly)):
        found[name] = replay.replay(
            dataclasses.replace(again, profile=profile), 'later')
    return {mode: {
        'last': each['boot_s']['last'], 'stall': each['stall_s']['sum'],
        'used': each['prefetched_used'],
        'wasted': tables.share(each['wasted_bytes'],
                               each['prefetched'] * recorded.CHUNK),
        'wan': each['wan_bytes'] / max(each['unique_bytes'], 1),
        'nodes': each['tree']['remote'] / max(each['tree']['accesses'], 1)}
        for mode, each in found.items()}


def add_tables(run: runs.Run, setting: str, results: dict[int, dict]) -> None:
    """Add the tables of a setting."""
    run.table(f'{setting}: total time to boot all, s (figure 4a)', (
        'Instances', *MODES, 'first of on-demand', 'later of on-demand'), [
            (count, *(f'{found[mode]["last"]:.1f}' for mode in MODES),
             tables.share(found['first']['last'], found['on-demand']['last']),
             tables.share(found['later']['last'], found['next']['last']))
            for count, found in results.items()])

    def stall(found: dict, mode: str, whole: str) -> str:
        return tables.share(found[mode]['stall'], found[whole]['stall'])

    rows = [(count, f'{found["on-demand"]["stall"]:.1f}',
             stall(found, 'first', 'on-demand'), stall(found, 'later', 'next'),
             stall(found, 'carried', 'next'),
             stall(found, 'next oracle', 'next'),
             f'{found["later"]["last"] / found["next oracle"]["last"]:.3f}',
             *(found[mode]['wasted'] for mode in (
                 'first', 'later', 'carried')))
            for count, found in results.items()]
    run.table(f'{setting}: stall, s in all, and shares of it; last boot over'
              " the oracle's; wasted of what was prefetched", (
                  'Instances', 'on-demand', 'first', 'later', 'carried',
                  'oracle', 'over oracle', 'wasted first', 'wasted later',
                  'wasted carried'), rows)
    rows = [(count, found['first']['used'], found['later']['used'],
             f'{found["later"]["nodes"]:.3f}', f'{found["first"]["wan"]:.3f}',
             f'{found["later"]["wan"]:.3f}')
            for count, found in results.items()]
    run.table(f'{setting}: prefetched and used (figure 4b); tree nodes fetched'
              ' for each access; WAN over distinct bytes', (
                  'Instances', 'first', 'later', 'nodes, later', 'WAN first',
                  'WAN later'), rows)


def stall_of_first(scenario, whole: float | None = None) -> dict[str, str]:
    """Return the stall of a first run as share of on-demand, and its waste."""
    if whole is None:
        whole = replay.replay(scenario, 'on-demand')['stall_s']['sum']
    first = replay.replay(scenario, 'first')
    return {'stall': tables.share(first['stall_s']['sum'], whole),
            'wasted': tables.share(first['wasted_bytes'],
                                   first['prefetched'] * recorded.CHUNK)}


def parts_of_gain(run: runs.Run, boot: recorded.Boot) -> None:
    """Add first runs with each part switched off in turn."""
    count, seed = max(run.options.counts), run.options.seed
    rows: dict[str, list[str]] = {}
    for setting in recorded.SETTINGS:
        base = recorded.make(boot, count, setting, seed)
        for name, scenario in (
                ('all', base),
                ('without read-ahead', dataclasses.replace(
                    base, read_ahead=0)),
                ('without hints', dataclasses.replace(
                    base, threshold=count + 1)),
                ('all start together', recorded.make(
                    boot, count, setting, seed, spread_s=0.0))):
            rows.setdefault(name, []).append(run.keep(
                f'{setting}: {name}', lambda scenario=scenario: stall_of_first(
                    scenario))['stall'])
    run.table(f'Stall of a first run of {count} as share of on-demand', (
        'Part', *recorded.SETTINGS), [
            (name, *cells) for name, cells in rows.items()])


def rest_of_files(run: runs.Run, boot: recorded.Boot) -> None:
    """Add first runs without and with the rest of the files they read."""
    extents, rows = recorded.files_of(run.options.image), []
    for count in run.options.counts:
        base = recorded.make(boot, count, 'wan', run.options.seed)
        whole = replay.replay(base, 'on-demand')['stall_s']['sum']
        plain = stall_of_first(base, whole)
        rest = stall_of_first(dataclasses.replace(
            base, rest=recorded.REST, files=extents), whole)
        rows.append((count, plain['stall'], rest['stall'], rest['wasted']))
    run.table('Stall of first runs over the WAN as share of on-demand, without'
              ' and with the rest of files', (
                  'Instances', 'Without', 'With rest', 'Wasted with'), rows)


def boots(run: runs.Run) -> None:
    """Replay boots in all modes, over all links."""
    boot, options = chosen_boot(run), run.options
    run.table('Reads', ('Reads', 'Chunks', 'Thinking, s'), [(
        len(boot.steps), len(boot.chunks()), f'{boot.thinking():.1f}')])
    results: dict[str, dict[int, dict]] = {}
    for setting in recorded.SETTINGS:
        results[setting] = {count: run.keep(
            f'{setting}, {count} instances', lambda count=count,
            setting=setting: replay_all(boot, count, setting, options.seed))
            for count in options.counts}
        add_tables(run, setting, results[setting])
    parts_of_gain(run, boot)
    if options.image:
        rest_of_files(run, boot)
    if not run.quick:
        run.chart(lambda axes: plot(axes, boot, options.seed,
                                    results['striped']), 3, 2, 'png')


def accesses(events: list[dict]) -> collections.abc.Iterator[tuple]:
    """Yield chunk, first, mean and last access, in seconds."""
    times: dict[int, dict[int, float]] = {}
    for event in events:
        times.setdefault(event['chunk'], {}).setdefault(
            event['instance'], event['t_us'] / 1e6)
    for chunk, found in sorted(times.items()):
        seconds = found.values()
        yield chunk, min(seconds), statistics.fmean(seconds), max(seconds)


def requests(found: dict) -> list[tuple]:
    """Return chunk, first, mean and last request, in seconds."""
    return [(chunk, first / 1e6, mean / 1e6, last / 1e6)
            for chunk, _, first, mean, last in found['requests']]


def plot(axes: list, boot: recorded.Boot, seed: int,
         results: dict[int, dict]) -> None:
    """Plot figures 1, 4 and 5 of the paper on self-adaptive prefetching."""
    # The library takes a while.
    from bench.harness import charts
    scenario = recorded.make(boot, 100, 'striped', seed)
    plain = replay.replay(scenario, 'on-demand', events=True)
    first = replay.replay(scenario, 'first', events=True)
    known = [tuple(row) for row in first['profile']]
    later = replay.replay(dataclasses.replace(scenario, profile=known),
                          'later', events=True)
    for axis, title, rows in (
            (axes[0], 'Figure 1: accesses, 100 instances',
             list(accesses(plain['events']))),
            (axes[4], 'Figure 5(a): remote accesses, first run',
             requests(first)),
            (axes[5], 'Figure 5(b): remote accesses, later run',
             requests(later))):
        offsets = [row[0] * recorded.CHUNK / 1e6 for row in rows]
        axis.hlines(offsets, [row[1] for row in rows],
                    [row[3] for row in rows], color='tab:red', lw=0.6)
        axis.plot([row[2] for row in rows], offsets, '.', ms=2)
        axis.set(title=title, xlabel='time (s)', ylabel='offset (MB)')
        axis.set_xlim(left=0)
    most = max(results)
    for axis, title, field, names, paper in (
            (axes[2], 'Figure 4(a): time to boot all, s', 'last',
             ('on-demand', 'first', 'later', 'oracle'),
             [share * results[most]['on-demand']['last']
              for share in PAPER_SHARES]),
            (axes[3], 'Figure 4(b): prefetches used', 'used',
             ('first', 'later'), PAPER_USED)):
        axis.plot([most] * 2, paper, 'k+', label='paper')
        charts.lines(axis, title, '', {
            name: [(count, found[name][field])
                   for count, found in results.items()] for name in names},
            xlabel='instances')
    axes[1].axis('off')
