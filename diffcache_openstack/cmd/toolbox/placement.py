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
"""``diffcache placement``: cache placement on files, without a service."""

import argparse
import json
import math
import os
import signal
import sys
import threading
import time
import typing


from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import units
from diffcache_openstack.placement import cost
from diffcache_openstack.placement import explain
from diffcache_openstack.placement import figures
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import objectives
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import whatif


_HOPS = cli.Argument(
    '--hops', type=cli.whole(1), default=1, metavar='N',
    help='Apply at most N patches one after another to build an image'
         ' (default: 1, as in the paper).')
_INSTANCE = cli.Argument('instance', metavar='INSTANCE.json',
                         help='Problem instance to read.')
_PLACEMENT = cli.Argument('placement', metavar='PLACEMENT.json',
                          help='Placement to read.')
_SOLVER = (
    cli.Argument('--solver', metavar='SOLVER', default='auto',
                 help='auto, ilp (proves optima of small instances) or greedy'
                      " (the paper's Algorithm 1); default: auto."),
    cli.Argument('--time-limit', type=cli.seconds(), metavar='SECONDS',
                 help='Maximum seconds of the solver, such as 90 or 5m; it'
                      ' returns the best placement found (default: no'
                      ' limit).'),
    cli.Argument('--threads', type=cli.whole(1), default=1, metavar='N',
                 help='Threads of the solver (default: 1).'),
    _HOPS)


def _write_placement(placement: placements.Placement, path: str) -> None:
    try:
        with files.replacing(path, durable=False) as part:
            part.write_text(json.dumps(placement.to_dict()) + '\n')
    except OSError as error:
        raise exceptions.InvalidInput(
            f'{path}: {error.strerror}; choose another --output')


def _check_writable(path: str) -> None:
    """Refuse an unwritable output before a long solve."""
    folder = os.path.dirname(path) or '.'
    if not os.path.isdir(folder) or os.path.isdir(path):
        raise exceptions.InvalidInput(
            f'{path}: cannot be written; choose another --output')


class _Watcher:
    """Shows progress on a terminal; the first Ctrl-C ends the solve early."""

    def __init__(self, stream: typing.TextIO):
        self.stop = threading.Event()
        self._stream = stream
        self._drawn = False
        self._before: dict = {}

    def __enter__(self) -> '_Watcher':
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._restore()
        if self._drawn:
            self._stream.write('\r\x1b[K')
            self._stream.flush()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _end(self, number, frame) -> None:
        # A second one ends the program as it always would.
        self._restore()
        self.stop.set()

    def __call__(self, progress: solving.Progress) -> None:
        if not self._stream.isatty():
            return
        gap = 1.0
        if progress.cost_s > 0:
            gap = max(0.0, 1.0 - progress.lower_bound_s / progress.cost_s)
        self._stream.write(
            f'\r{progress.seconds:6.1f} s  {progress.stage:<16}'
            f' cost {progress.cost_s:.6g} s, gap {gap:.2%} ')
        self._stream.flush()
        self._drawn = True


def _rounded(number: float) -> float:
    """Round away what is left of computing with floats."""
    return round(number, 6)


def _solution_fields(solution: solving.Solution) -> dict[str, typing.Any]:
    return {
        'cost_s': _rounded(solution.cost_s),
        'lower_bound_s': _rounded(solution.lower_bound_s),
        'gap': _rounded(solution.gap),
        'proved_optimal': solution.proved_optimal,
        'seconds': round(solution.seconds, 3),
        'templates': len(solution.placement.templates),
        'patches': len(solution.placement.patches)}


def _solver_options(args: argparse.Namespace) -> dict[str, typing.Any]:
    return {
        'time_limit': args.time_limit,
        'hops': args.hops,
        'threads': args.threads}


class Solve(quick.ShowOne):
    """Compute which templates and patches each host should cache.

    Ctrl-C stops the solver early and writes the best placement found so far.
    """

    examples = ('instance.json --output placement.json --time-limit 60',)
    arguments = (
        _INSTANCE,
        cli.Argument('--output', required=True, metavar='PLACEMENT.json',
                     help='Placement to write.'),
        *_SOLVER)

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        _check_writable(args.output)
        solver = solving.load(args.solver)
        instance = instances.load(args.instance)
        begin = time.process_time()
        with _Watcher(sys.stderr) as watcher:
            solution = solver.solve(
                instance, progress=watcher, stop=watcher.stop,
                **_solver_options(args))
        spent = time.process_time() - begin
        _write_placement(solution.placement, args.output)
        fields = _solution_fields(solution)
        fields['cpu_seconds'] = round(spent, 3)
        return fields


class Evaluate(quick.ShowOne):
    """Compute the cost of a cache placement and check that it is feasible."""

    examples = ('instance.json placement.json',)
    arguments = (_INSTANCE, _PLACEMENT, _HOPS)

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        instance = instances.load(args.instance)
        placement = placements.load(args.placement)
        result = cost.evaluate(instance, placement, args.hops)
        return {
            'total_cost_s': _rounded(result.total_cost_s),
            'mean_service_s': _rounded(result.mean_service_s),
            'feasible': result.feasible,
            'errors': list(result.errors)}


class Explain(quick.Lister):
    """List what each placed object saves and which requests read it.

    An object is a template, such as 2, or a patch from one to another, such
    as 0->2. Templates are numbered from 0, as in the instance, and hosts from
    1: host 0 is the repository.
    """

    examples = ('instance.json placement.json',)
    arguments = (
        _INSTANCE,
        _PLACEMENT,
        cli.Argument('--host', metavar='HOST', type=cli.whole(1),
                     help='Only this host (1..K).'),
        _HOPS)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        args = parsed_args
        instance = instances.load(args.instance)
        placement = placements.load(args.placement)
        if args.host and args.host > instance.host_count:
            raise exceptions.InvalidInput(
                f'--host: there are {instance.host_count} hosts')
        return ('host', 'object', 'mb', 'requests', 'saves_s', 'evicted',
                'why'), [
            (reason.host, '->'.join(str(t) for t in reason.key),
             cells.Line(reason.megabytes), cells.Line(reason.requests),
             round(reason.saves_s, 3), reason.eviction,
             cells.Text(reason.why))
            for reason in explain.explain(instance, placement, args.hops)
            if args.host in (None, reason.host)]


_TERMS = replan.Terms()


class Plan(quick.ShowOne):
    """Plan the transition from the current cache placement to a better one.

    The field "placed" of the instance lists what hosts hold now. If the
    transfers cost more than they save, the current placement is kept.
    """

    examples = (
        'instance.json --max-rate 20MBps --window 3600 --output next.json',)
    arguments = (
        _INSTANCE,
        cli.Argument('--output', metavar='PLACEMENT.json',
                     help='Placement to write.'),
        cli.Argument('--period', type=cli.seconds(), default=_TERMS.period_s,
                     metavar='SECONDS',
                     help='Time that the request rates of the instance cover'
                          ' (default: %(default)g).'),
        cli.Argument('--horizon', type=cli.seconds(), metavar='SECONDS',
                     default=_TERMS.horizon_s,
                     help='Time that the new placement is expected to last'
                          ' (default: %(default)g).'),
        cli.Argument('--move-weight', type=cli.real(0), metavar='W',
                     default=_TERMS.move_weight,
                     help='Seconds of service time that one second of'
                          ' transfer counts as (default: %(default)g).'),
        cli.Argument('--max-rate', type=cli.bandwidth, metavar='RATE',
                     help='Limit the transfers to each host, such as 20MBps'
                          ' (a bare number: Mbit/s).'),
        cli.Argument('--window', type=cli.seconds(), metavar='SECONDS',
                     default=_TERMS.fill.window_s,
                     help='Time per day in which transfers run (default:'
                          ' %(default)g).'),
        *_SOLVER)

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        if args.solver != 'auto':
            raise exceptions.InvalidInput(
                '--solver: only auto weighs what moving costs')
        if args.output:
            _check_writable(args.output)
        instance = instances.load(args.instance)
        terms = replan.Terms(
            period_s=args.period, horizon_s=args.horizon,
            move_weight=args.move_weight,
            fill=replan.FillLimits(args.max_rate, args.window))
        with _Watcher(sys.stderr) as watcher:
            plan = replan.replan(
                instance, terms, progress=watcher, stop=watcher.stop,
                **_solver_options(args))
        if args.output:
            _write_placement(plan.placement, args.output)
        return {
            'changed': plan.changed,
            'moves': len(plan.moves),
            'drops': len(plan.drops),
            'wan_mb': _rounded(plan.wan_mb),
            'peer_mb': _rounded(plan.peer_mb),
            'fill_s': {str(h): round(s, 3)
                       for h, s in sorted(plan.fill_s.items())},
            'cost_before_s': _rounded(plan.cost_before_s),
            'cost_after_s': _rounded(plan.cost_after_s),
            'saving_per_hour_s': _rounded(plan.saving_per_hour_s),
            'lower_bound_s': _rounded(plan.solution.lower_bound_s)}


class WhatIf(quick.ShowOne):
    """Estimate the savings if hosts, capacity or links were different."""

    examples = ('instance.json --add-hosts 2',)
    arguments = (
        _INSTANCE,
        cli.Argument('--add-hosts', type=cli.whole(0), default=0,
                     metavar='N',
                     help='Add N hosts, which take a share of the requests.'),
        cli.Argument('--add-capacity', metavar='SIZE', default=0,
                     type=cli.size(-math.inf, bare=units.MB),
                     help='Capacity to add to each host, such as 50GB (a bare'
                          ' number: MB); to take away with =-50GB.'),
        cli.Argument('--repository-rate', type=cli.bandwidth, metavar='RATE',
                     help='Bandwidth from the repository, such as 200Mbps (a'
                          ' bare number: Mbit/s).'),
        cli.Argument('--peer-rate', type=cli.bandwidth, metavar='RATE',
                     help='Bandwidth between hosts of the site, such as'
                          ' 10Gbps (a bare number: Mbit/s).'),
        cli.Argument('--demand-factor', type=cli.positive(), default=1.0,
                     metavar='X', help='Multiply all request rates by X.'),
        cli.Argument('--objective', choices=sorted(objectives.OBJECTIVES),
                     default='seconds',
                     help='Minimize seconds of waiting (default), or bytes'
                          ' from the repository.'),
        *_SOLVER)

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        solver = solving.load(args.solver)
        instance = instances.load(args.instance)
        change = whatif.Change(
            hosts=args.add_hosts, capacity_mb=args.add_capacity / units.MB,
            repo_mbps=args.repository_rate, peer_mbps=args.peer_rate,
            demand=args.demand_factor)
        if change == whatif.Change():
            raise exceptions.InvalidInput(
                'what-if: name a change, for instance --add-hosts 1')
        objective = objectives.OBJECTIVES[args.objective]
        with _Watcher(sys.stderr) as watcher:
            def find(case, seconds):
                return solver.solve(
                    case, progress=watcher, stop=watcher.stop,
                    **{**_solver_options(args), 'time_limit': seconds})

            result = whatif.compare(
                instance, change, lambda case: objective.solve_afresh(
                    case, find, time_limit=args.time_limit, hops=args.hops),
                args.hops)
        before, after = result.before, result.after
        return {
            'mean_before_s': _rounded(before.mean_s),
            'mean_after_s': _rounded(after.mean_s),
            'saving': _rounded(result.saving),
            'cost_before_s': _rounded(before.solution.cost_s),
            'cost_after_s': _rounded(after.solution.cost_s),
            'gap_before': _rounded(before.solution.gap),
            'gap_after': _rounded(after.solution.gap),
            'objective': objective.name,
            'mean_wan_before_mb': _rounded(before.mean_wan_mb),
            'mean_wan_after_mb': _rounded(after.mean_wan_mb),
            'saving_wan': _rounded(result.saving_wan)}


class Simulate(quick.ShowOne):
    """Draw one of the paper's simulated figures."""

    examples = ('--figure 2 --output figure-2.png --seeds 3',)
    arguments = (
        cli.Argument('--figure', type=int, choices=sorted(figures.FIGURES),
                     required=True, help='Number of the figure in the paper.'),
        cli.Argument('--output', required=True, metavar='FILE.png',
                     help='Image file to write; its data is written to'
                          ' FILE.csv.'),
        cli.Argument('--seeds', type=cli.whole(1), default=3, metavar='N',
                     help='Instances averaged for each point.'),
        cli.Argument('--solver', default='auto', metavar='NAME',
                     help='Solver to use (default: auto).'))

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        if not args.output.lower().endswith('.png'):
            raise exceptions.InvalidInput(
                f'--output: {args.output} must end in .png')
        _check_writable(args.output)
        solver = solving.load(args.solver)
        figure = figures.FIGURES[args.figure]
        rows = figures.points(figure, solver, args.seeds,
                              progress=self._progress)
        figures.write(figure, rows, args.output)
        saved = [1 - row[1] / row[2] for row in rows]
        return {
            'figure': figure.number,
            'points': len(rows),
            'png': args.output,
            'csv': figures.csv_path(args.output),
            'least_saving': min(saved),
            'largest_saving': max(saved)}

    def _progress(self, done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = '\n' if done == total else ''
            sys.stderr.write(f'\r{done} of {total} points{end}')
            sys.stderr.flush()
