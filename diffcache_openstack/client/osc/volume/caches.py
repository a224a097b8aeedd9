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
"""``openstack volume cache``."""

import argparse
import bisect
import typing

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc.volume import write_back
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

# A bare number is bytes here, as in all commands of OpenStack.
_BLOCKS = cli.blocks(bare=1)
_SETTINGS = ('limit', 'min', 'max', 'weight', 'priority', 'mode', 'sla',
             'admission')
_LISTED: list[formats.Column] = [
    ('Volume', 'id', None), ('Server', 'server_id', None),
    ('Host', 'host', None), ('Mode', 'mode', None),
    ('State', 'state', None), ('Size', 'limit', formats.Blocks),
    ('Cached', 'blocks', formats.Blocks),
    ('Hit Ratio', 'hit_ratio', cells.Share)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Project', 'project_id', None),
    ('Dirty', 'dirty', formats.Blocks), ('Reads', 'reads', None),
    ('Writes', 'writes', None), ('Hits', 'hits', None),
    ('Misses', 'misses', None), ('Evictions', 'evictions', None),
    ('Bypassed', 'bypassed', None), ('Minimum', 'min', formats.Blocks),
    ('Maximum', 'max', formats.Blocks), ('Weight', 'weight', None),
    ('Priority', 'priority', None), ('SLA', 'sla', None),
    ('Admission', 'admission', None),
    ('Losses', 'losses', cells.Lines),
    ('Guest Path', 'guest_path', None),
    ('Guest Path Reason', 'guest_path_reason', None),
    ('Limits per Second', 'rates', cells.Lines),
    ('Reasons', 'explain', cells.Lines),
    ('Updated At', 'updated_at', cells.Time)]
_HOSTS: list[formats.Column] = [
    ('Host', 'host', None), ('State', 'state', None),
    ('Capacity', 'capacity', formats.Blocks), ('Policy', 'policy', None),
    ('Epoch', 'epoch', cells.Duration), ('Volumes', 'volumes', None),
    ('Updated At', 'updated_at', cells.Time)]
_HOST: list[formats.Column] = [
    *_HOSTS, ('Decisions', 'decisions', formats.Decisions)]


class _VolumeCommand(commands.Command):
    """Base of the commands that concern one volume."""

    arguments: cli.Arguments = (
        cli.Argument('volume', metavar='<volume>',
                     help='Volume (name or ID)'),)


class ListVolumes(commands.Lister):
    """List volumes in SSD caches of the hosts of their servers"""

    examples = ('--mode write-back',)
    wide = frozenset({'Server', 'Mode', 'Cached'})

    arguments = (
        cli.Argument('--server', metavar='<server>', dest='server_id',
                     help='List only volumes of this server (name or ID)'),
        cli.Argument('--host', metavar='<host>',
                     help='List only volumes in the SSD cache of this host'
                          ' (operators only)'),
        cli.Argument('--mode', choices=choices.MODES,
                     help='List only volumes in this mode'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service.

        :raises NotFoundException: there is no such server
        """
        if parsed_args.server_id:
            parsed_args.server_id = self.server_id(parsed_args.server_id)
        found = self.client.volume_caches(**commands.query(
            parsed_args, 'server_id', 'host', 'mode'))
        return formats.table(_LISTED, map(_with_ratio, found))


class ShowVolume(_VolumeCommand, commands.ShowOne):
    """Show a volume in the SSD cache of its server's host"""

    examples = ('database',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.fields(_SHOWN, _with_ratio(
            self.client.get_volume_cache(
                self.volume_id(parsed_args.volume))))


class SetVolume(_VolumeCommand):
    """Override how a volume is cached according to its type

    Settings stay on the host, even while the volume is detached.
    """

    examples = ('database --min 2GiB --mode write-back',)
    arguments = (
        cli.Argument('--limit', metavar='<size>', type=_BLOCKS,
                     help='Fixed cache size of the volume, such as 2GiB'),
        cli.Argument('--min', metavar='<size>', type=_BLOCKS,
                     help='Minimum cache size of the volume'),
        cli.Argument('--max', metavar='<size>', type=_BLOCKS,
                     help='Maximum cache size of the volume'),
        cli.Argument('--weight', metavar='<number>', type=cli.positive(),
                     help='Relative value of its hits'),
        cli.Argument('--priority', metavar='<number>', type=cli.positive(),
                     help='With the policy "priority": volumes with the'
                          ' highest number get space first'),
        cli.Argument('--mode', choices=choices.MODES,
                     help='What the cache does with reads and writes.'
                          f' {write_back.MEANING}'),
        cli.Argument('--sla', metavar='<target>',
                     type=cli.checked(choices.parse_target),
                     help='Target of the volume: hit=0.9 (share of references'
                          ' that hit), or latency=2ms (mean of references)'),
        cli.Argument('--admission', metavar='<number>',
                     type=cli.whole(1, choices.MAX_ADMISSION),
                     help='Cache a block on this reference to it (1:'
                          ' the first); 2 writes less to the SSD and keeps out'
                          ' what is read only once'),
        cli.Argument('--accept-loss', action='store_true',
                     help='Have flushes of the volume succeed although its'
                          ' storage lost what "openstack volume cache show"'
                          ' lists as losses; check the file systems of the'
                          ' server first'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if not parsed_args.accept_loss:
            commands.changes(parsed_args, *_SETTINGS)
        values = commands.given(parsed_args, *_SETTINGS)
        volume_id = self.volume_id(parsed_args.volume)
        if values:
            self.client.update_volume_cache(volume_id, **values)
            write_back.explain(values.get('mode'))
        if parsed_args.accept_loss:
            self.client.accept_volume_loss(volume_id)


class UnsetVolume(_VolumeCommand):
    """Remove settings of a volume, so that it is cached as its type says"""

    examples = ('database --min',)
    arguments = commands.unset(*_SETTINGS)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        values = dict.fromkeys(commands.changes(parsed_args, *_SETTINGS))
        self.client.update_volume_cache(
            self.volume_id(parsed_args.volume), **values)


class FlushVolume(_VolumeCommand):
    """Write the dirty blocks of a volume back to its storage"""

    examples = ('database',)
    arguments = (
        cli.Argument('--invalidate', action='store_true',
                     help='Also drop what is cached of the volume; use it'
                          ' after the volume was changed elsewhere'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        volume_id = self.volume_id(parsed_args.volume)
        if parsed_args.invalidate:
            self.client.invalidate_volume_cache(volume_id)
        else:
            self.client.flush_volume_cache(volume_id)


class ShowCurve(_VolumeCommand, commands.ShowOne):
    """Show what was requested of a volume in the last epoch of its host

    References, the working set, and the hits that partitions of several sizes
    would have had. --graph draws all sizes.
    """

    examples = ('database --graph curve.svg',)
    arguments = (
        commands.graph('the curve of all sizes'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        volume_id = self.volume_id(parsed_args.volume)
        curve = self.client.volume_curve(volume_id)
        if parsed_args.graph:
            volume = self.client.get_volume_cache(volume_id)
            _draw(curve, volume, parsed_args.graph)
        return formats.fields([
            ('Seconds', 'seconds', cells.Rounded),
            ('References', 'references', None),
            ('Working Set', 'distinct', formats.Blocks),
            ('Sampled', 'sampled', cells.Share),
            ('Hit us', 'hit_us', cells.Rounded),
            ('Miss us', 'miss_us', cells.Rounded),
            ('Curve', 'curve', formats.Curve)],
            {**curve, 'curve': curve})


class Explain(_VolumeCommand, commands.ShowOne):
    """Explain the size of a volume's partition, and what more would save

    The reasons are those of the last decision of its host.
    """

    examples = ('database --add 10GiB',)
    arguments = (
        cli.Argument('--add', metavar='<size>', type=cli.size(),
                     help='Estimate what this much more SSD for the volume'
                          ' would save, such as 100GiB'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        volume_id = self.volume_id(parsed_args.volume)
        volume = self.client.get_volume_cache(volume_id)
        found: dict[str, typing.Any] = {
            'limit': volume.limit, 'explain': volume.explain}
        columns: list[formats.Column] = [
            ('Size', 'limit', formats.Blocks),
            ('Reasons', 'explain', cells.Lines)]
        if parsed_args.add is not None:
            curve = self.client.volume_curve(volume_id)
            found |= _with_more(curve, volume.limit,
                                parsed_args.add // cli.BLOCK)
            columns += [
                ('Size With More', 'limit_with_more', formats.Blocks),
                ('Hit Ratio', 'hit_ratio', cells.Share),
                ('Hit Ratio With More', 'hit_ratio_with_more',
                 cells.Share),
                ('Saved us', 'saved_us', cells.Rounded)]
        return formats.fields(columns, found)


class ListHosts(commands.Lister):
    """List SSD caches of hosts"""

    arguments = commands.PAGING

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(_HOSTS, self.client.ssd_caches(
            **commands.query(parsed_args)))


class ShowHost(commands.HostCommand, commands.ShowOne):
    """Show the SSD cache of a host, and the last decisions about sizes"""

    examples = ('edge-1-host-2',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.fields(_HOST,
                              self.client.get_ssd_cache(parsed_args.host))


def _with_ratio(volume: typing.Any) -> dict[str, typing.Any]:
    """Return a volume's fields, and the part of its references that hit."""
    references = volume.hits + volume.misses
    return {**volume.to_dict(computed=False),
            'hit_ratio': volume.hits / references if references else None}


def _hits_at(curve: dict[str, typing.Any], size: int) -> int:
    """Return the hits of a partition of some blocks."""
    larger = bisect.bisect_right(curve['sizes'], size)
    return curve['hits'][larger - 1] if larger else 0


def _with_more(curve: dict[str, typing.Any], limit: int, blocks: int
               ) -> dict[str, typing.Any]:
    """Return what a larger partition would have saved in the last epoch.

    :returns: sizes in blocks, hit ratios, and in ``saved_us`` the mean
        microseconds of all references
    """
    references = curve['references']
    now, then = _hits_at(curve, limit), _hits_at(curve, limit + blocks)
    share = (then - now) / references if references else 0.0
    return {
        'limit_with_more': limit + blocks,
        'hit_ratio': now / references if references else None,
        'hit_ratio_with_more': then / references if references else None,
        'saved_us': share * max(0.0, curve['miss_us'] - curve['hit_us'])}


def _draw(curve: dict[str, typing.Any], volume: typing.Any, path: str) -> None:
    curve_graphs = commands.load_graphs('volume.curve_graphs')
    with commands.writing(path):
        curve_graphs.draw(curve, volume.id, volume.limit, path)
