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
"""Replays boots in virtual time, with the policy of native/prefetch."""

import statistics
import typing

from diffcache_openstack import _native
from diffcache_openstack.common import profile_files
from diffcache_openstack.prefetch import scenarios

MODES = ('local', 'on-demand', 'first', 'later', 'broadcast', 'oracle',
         'refer')

_EVENT = ('t_us', 'instance', 'chunk', 'miss', 'hints', 'remote', 'cached',
          'skipped')


def replay(scenario: scenarios.Scenario, mode: str, events: bool = False
           ) -> dict[str, typing.Any]:
    """Replay the boots of a scenario; the same scenario, the same result.

    :param mode: one of :data:`MODES`
    :param events: whether every access to a chunk is returned, and when
        chunks were requested
    :returns: a JSON document: times in seconds or, where the name says so,
        microseconds; see ``doc/source/user/lazy-boot.rst``
    :raises ScenarioError: the message opens with the field at fault
    """
    _check_size(scenario, mode, events)
    try:
        found = _native.prefetch_replay(scenario, mode, events)
    except ValueError as error:
        raise scenarios.ScenarioError(str(error))
    boots = found['boots']
    taken = [boot['boot_s'] for boot in boots]
    stalls = [boot['stall_s'] for boot in boots]
    document = {
        'mode': mode,
        # It is a profile, too.
        'format': profile_files.FORMAT,
        'chunk': scenario.chunk,
        'boot_s': {'first': min(taken), 'mean': statistics.fmean(taken),
                   'last': max(taken)},
        'stall_s': {'mean': statistics.fmean(stalls), 'max': max(stalls),
                    'sum': sum(stalls)},
        'misses': sum(boot['misses'] for boot in boots),
        'prefetched': sum(boot['prefetched'] for boot in boots),
        'prefetched_used': sum(boot['used'] for boot in boots),
    }
    for name in ('wasted_bytes', 'wan_bytes', 'lan_bytes', 'unique_bytes',
                 'bound_s'):
        document[name] = found[name]
    document['tree'] = {name: found[name] for name in (
        'accesses', 'remote', 'cached', 'skipped')}
    document['instances'] = boots
    document['profile'] = [list(row) for row in found['profile']]
    if events:
        document['events'] = [dict(zip(_EVENT, row))
                              for row in found['events']]
        document['requests'] = [list(row) for row in found['requests']]
    return document


def _check_size(scenario: scenarios.Scenario, mode: str, events: bool
                ) -> None:
    instances = len(scenario.reads)
    if mode == 'broadcast' and (
            scenario.chunks * instances > scenarios.MAX_TRANSFERS):
        raise scenarios.ScenarioError(
            f'chunk: a broadcast to {instances} instances takes'
            f' {scenario.chunks * instances} transfers, at most'
            f' {scenarios.MAX_TRANSFERS} are possible; choose larger chunks')
    if events and scenario.accesses > scenarios.MAX_EVENTS:
        raise scenarios.ScenarioError(
            f'instances: there are {scenario.accesses} events, at most'
            f' {scenarios.MAX_EVENTS} can be shown; leave out --events')
