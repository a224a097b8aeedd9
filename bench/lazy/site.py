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
"""Boots of a site's hosts in real time, and hydration.

Each host has a data plane, a diffcached and a mount of its own, and a process
that replays a boot. The image is at the repository only. The same scenario is
replayed in virtual time beside it.
"""

import contextlib
import dataclasses
import os
import time

from bench.harness import processes
from bench.harness import runs
from bench.lazy import boots
from bench.lazy import boots_virtual
from bench.lazy import hosts as lazy_hosts
from diffcache_openstack.prefetch import replay

CHUNK = boots.CHUNK


def homes(hosts: list[lazy_hosts.Host]) -> list[dict]:
    """Return the hosts in the form that diffcached reads."""
    return [{'name': host.name, 'url': host.plane.url} for host in hosts]


class Counters:
    """Bytes and CPU seconds of data planes and workers, from now on."""

    def __init__(self, site: lazy_hosts.Repository,
                 hosts: list[lazy_hosts.Host]) -> None:
        self._site = site
        self._hosts = hosts
        self._workers = {host: host.status()['worker_pid'] for host in hosts}
        self._cpu = processes.cpu_seconds(os.getpid(),
                                          *self._workers.values())
        self._sent = site.sent()
        self._moved = self._lan(hosts)

    @staticmethod
    def _lan(hosts: list[lazy_hosts.Host]) -> int:
        return sum(host.status()['peers']['bytes'] for host in hosts)

    def figures(self, living: list[lazy_hosts.Host]) -> dict[str, float]:
        """Return bytes over both links, and CPU for each chunk moved."""
        cpu = processes.cpu_seconds(
            os.getpid(), *(self._workers[host] for host in living))
        wan = self._site.sent() - self._sent
        lan = self._lan(living) - self._moved
        return {'wan': wan, 'lan': lan,
                'cpu_ms': 1e3 * (cpu - self._cpu) * CHUNK / max(
                    wan + lan, CHUNK)}


def fetch_sets(site: lazy_hosts.Repository, hosts: list[lazy_hosts.Host],
               ) -> dict[str, float]:
    """Wait until boot sets arrived, and return what that took."""
    sent, start, found = site.sent(), time.monotonic(), -1
    while found != (found := sum(len(host.present()) for host in hosts)):
        last = time.monotonic()
        time.sleep(3)
    return {'set_bytes': found * CHUNK / len(hosts),
            'set_wan': site.sent() - sent, 'set_seconds': last - start}


def boot_all(site: lazy_hosts.Repository, scenario, profile: list,
             mode: str, fan_out: int) -> dict[str, float]:
    """Boot all hosts; return what that took."""
    wanted = {**site.wanted, 'prefetch': mode not in ('alone', 'on-demand')}
    if mode == 'boot-set':
        wanted['hydrate'] = 'profile'
    tuning = {} if fan_out < 0 else {'fan_out': fan_out}
    with site.hosts(len(scenario.reads), files=mode != 'no-files',
                    tuning=tuning) as hosts:
        if mode in ('later', 'boot-set'):
            path = hosts[0].folder.with_name('profile')
            path.write_text(boots.profile(profile))
            wanted['profile'] = str(path)
        for host in hosts:
            host.serve(site.image, wanted if mode == 'alone' else {
                **wanted, 'homes': {'own': host.name, 'hosts': homes(hosts)}})
        found = fetch_sets(site, hosts) if mode == 'boot-set' else {}
        for host, reads in zip(hosts, scenario.reads):
            host.open(reads)
        return found | replay_all(site, hosts, scenario, mode == 'kill')


def replay_all(site: lazy_hosts.Repository, hosts: list[lazy_hosts.Host],
               scenario, kills: bool) -> dict[str, float]:
    """Have all readers start; return what their boots took.

    :param kills: end two hosts in the middle
    """
    before = set().union(*(host.present() for host in hosts))
    counters = Counters(site, hosts)
    thinks = {host: sum(row[0] for row in reads) / 1e6
              for host, reads in zip(hosts, scenario.reads)}
    start = time.monotonic() + 0.5
    for host, start_us in zip(hosts, scenario.starts_us):
        host.reader.stdin.write(f'{start + start_us / 1e6}\n')
        host.reader.stdin.flush()
    living, present = hosts, set()
    if kills:
        time.sleep(0.5 + thinks[hosts[0]] / 2)
        living = hosts[1:-1]
        for host in (hosts[0], hosts[-1]):
            present |= host.present()
            host.kill()
    seconds = [processes.answer(host.reader)['seconds'] for host in living]
    # What was prefetched last may still be on its way.
    time.sleep(1)
    found = [host.status() for host in living]
    for host in living:
        present |= host.present()
    return {
        'last': max(seconds),
        'stall': sum(seconds) - sum(thinks[host] for host in living),
        'distinct': len(present - before) * CHUNK,
        'errors': sum(each['errors'] for each in found),
        **{way: sum(each['referrals'][way] for each in found)
           for way in ('followed', 'failed')}, **counters.figures(living)}


def in_virtual_time(scenario, image) -> tuple[dict[str, dict], list]:
    """Return the replays of modes, and the profile of a first run."""
    plain = replay.replay(scenario, 'first')
    first = plain if image is None else replay.replay(dataclasses.replace(
        scenario, rest=boots.REST, files=boots.files_of(image)), 'first')
    known = [tuple(row) for row in plain['profile']]
    return {'on-demand': replay.replay(scenario, 'on-demand'), 'first': first,
            'no-files': plain, 'later': replay.replay(
                dataclasses.replace(scenario, profile=known), 'later')}, known


def site(run: runs.Run) -> None:
    """Boot hosts in all modes, in turns."""
    options = run.options
    boot = boots_virtual.chosen_boot(run)
    with lazy_hosts.repository(run.work / 'site', boot.image_bytes,
                               options.image) as served:
        for count in options.counts:
            scenario = boots.make(boot, count, 'wan', options.seed)
            virtual, profile = in_virtual_time(scenario, options.image)
            kinds = {f'{count} hosts, {mode}, fan-out {fan_out}':
                     (mode, fan_out) for mode in options.modes
                     for fan_out in options.fan_outs}
            found = run.rounds({
                name: lambda kind=kind: boot_all(
                    served, scenario, profile, *kind)
                for name, kind in kinds.items()}, options.rounds)
            add_table(run, count, [
                (name, row, virtual.get(kinds[name][0]))
                for name, row in found.items()])


def add_table(run: runs.Run, count: int,
              rows: list[tuple[str, dict, dict | None]]) -> None:
    """Add the boots of this many hosts."""
    cells = [(
        name, f'{row["last"]:.1f}',
        f'{virtual["boot_s"]["last"]:.1f}' if virtual else '-',
        f'{row["stall"]:.1f}',
        f'{virtual["stall_s"]["sum"]:.1f}' if virtual else '-',
        f'{row["wan"] / 1e6:.1f}',
        f'{row["wan"] / max(row["distinct"], 1):.3f}',
        f'{row["lan"] / 1e6:.1f}', f'{row["cpu_ms"]:.2f}',
        *(f'{row[field]:.0f}' for field in ('errors', 'followed', 'failed')))
        for name, row, virtual in rows]
    run.table(f'{count} hosts: last boot and stall, beside virtual time; CPU'
              ' of data planes and workers for each chunk moved', (
                  'Mode', 'Last, s', 'Virtual', 'Stall, s', 'Virtual',
                  'WAN, MB', 'WAN/distinct', 'LAN, MB', 'CPU, ms', 'Errors',
                  'Followed', 'In vain'), cells)
    sets = [(name, f'{row["set_bytes"] / 1e6:.1f}',
             f'{row["set_wan"] / 1e6:.1f}', f'{row["set_seconds"]:.0f}')
            for name, row, _ in rows if 'set_bytes' in row]
    if sets:
        run.table('What hosts kept before they booted', (
            'Mode', 'MB at each host', 'WAN, MB', 's'), sets)


def hydrate(run: runs.Run) -> None:
    """Have four hosts fetch all of an image."""
    def measure() -> dict[str, float]:
        with served.hosts(4) as hosts:
            start, sent = time.monotonic(), served.sent()
            for host in hosts:
                host.serve(served.image, {
                    **served.wanted, 'hydrate': 'idle',
                    'homes': {'own': host.name, 'hosts': homes(hosts)}})
            counters = Counters(served, hosts)
            processes.until(lambda: all(
                host.status()['complete'] for host in hosts), 'hydration',
                3600)
            seconds = time.monotonic() - start
            return counters.figures(hosts) | {
                'seconds': seconds, 'wan': served.sent() - sent}

    with contextlib.ExitStack() as stack:
        size = run.options.size << 20
        served = stack.enter_context(lazy_hosts.repository(
            run.work / 'site', size))
        found = run.rounds({'hydrate': measure}, run.options.rounds)['hydrate']
    run.table('Four hosts hydrate', (
        'MiB', 's', 'WAN, MB', 'WAN over the image', 'LAN, MB',
        'CPU ms for each chunk moved'), [(
            run.options.size, f'{found["seconds"]:.1f}',
            f'{found["wan"] / 1e6:.1f}', f'{found["wan"] / size:.3f}',
            f'{found["lan"] / 1e6:.1f}', f'{found["cpu_ms"]:.2f}')])
