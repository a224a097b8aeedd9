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
"""``diffcache-manage site report``: what a site's cache is worth."""

import argparse
import collections.abc
import datetime
import pathlib
import typing

from cliff import columns

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.cmd.manage import report_page
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import units
from diffcache_openstack.db.views import savings_views
from diffcache_openstack.db.views import site_views
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import conductor_control_api

_DAYS = 30
_GB = 1000 ** 3
_HOUR = 3600
# Lines of a list in a table; JSON has all.
_SHOWN = 10


class Sentences(columns.FormattableColumn):
    """A value with a function that puts it into words for tables."""

    def __init__(self, value: typing.Any, words: collections.abc.Callable[
            [typing.Any], str]) -> None:
        super().__init__(value)
        self._words = words

    def human_readable(self) -> str:
        return self._words(self._value)


class SiteReport(base.ShowOne):
    """Report what the cache of a site is worth, and what would improve it

    The WAN bytes of requests are compared with the files of the requested
    images, which plain Nova downloads; the time, with what these files take
    at the rate that hosts have measured. Estimates of changes come from the
    conductor, by the demand of today.
    """

    examples = ('edge-1 --days 30 --page report.html',)
    arguments = (
        cli.Argument('site', metavar='SITE', help='Name of the site.'),
        cli.Argument('--days', type=cli.whole(1), default=_DAYS, metavar='N',
                     help='Report on the requests of this many days (default:'
                          ' %(default)s).'),
        cli.Argument('--price', type=cli.real(0), metavar='AMOUNT',
                     help='Price of 1 GB (10^9 bytes) over the WAN, in any'
                          ' currency; adds the money that was saved.'),
        cli.Argument('--add-capacity', type=cli.size(), default=100 * _GB,
                     metavar='SIZE',
                     help='Estimate what this much more cache on each host'
                          ' would save (default: 100 GB).'),
        cli.Argument('--page', type=pathlib.Path, metavar='FILE',
                     help='Write the report as an HTML page, too.'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        since = versioned.now() - datetime.timedelta(days=parsed_args.days)
        with self.database() as database:
            facts = database.read(_facts, parsed_args.site, since)
        report = summary(facts, parsed_args.days, parsed_args.price)
        report['what_if'] = self._estimates(
            parsed_args.site, parsed_args.add_capacity, facts['mbps'])
        values = {name: Sentences(value, WORDS[name]) if name in WORDS
                  else value for name, value in report.items()}
        if parsed_args.page:
            with files.replacing(parsed_args.page) as page:
                page.write_text(report_page.render(
                    {name: _in_words(value)
                     for name, value in values.items()}), encoding='utf-8')
        return tuple(values), tuple(values.values())

    def _estimates(self, site, disk, mbps):
        """Return the savings of changes, or why there are none."""
        changes = {f'{units.format_size(disk)} more cache on each host':
                   {'capacity_bytes': disk}}
        if mbps:
            changes[f'a link of {2 * mbps:.0f} instead of {mbps:.0f} Mbit/s'
                    ] = {'repository_mbps': 2 * mbps}
        found = []
        with self.bus() as bus:
            control = conductor_control_api.ControlAPI(bus, self.conf)
            for text, change in changes.items():
                try:
                    answer = control.what_if(
                        base.service_context(), site, change)
                except exceptions.DiffCacheError as error:
                    found.append({'change': text, 'error': str(error)})
                    continue
                before, after = answer['before'], answer['after']
                found.append({
                    'change': text,
                    'saves_s_per_day': before['cost_s'] - after['cost_s'],
                    'saves_wan_bytes_per_day': (before['cost_wan_bytes']
                                                - after['cost_wan_bytes'])})
        return found


def summary(facts: dict[str, typing.Any], days: int, price: float | None
            ) -> dict[str, typing.Any]:
    """Compute the report of what was read from the database.

    :param facts: ``site``, ``hosts``, ``mbps`` and ``unused_images``
    :param price: of 10^9 bytes over the WAN
    """
    hosts = facts['hosts']
    total = {name: sum(host[name] for host in hosts) for name in
             ('requests', 'without_wan', 'seconds', 'wan_bytes',
              'whole_bytes')}
    saved_bytes = total['whole_bytes'] - total['wan_bytes']
    whole_s = facts['mbps'] and units.transfer_seconds(
        total['whole_bytes'], facts['mbps'])
    report = {
        'site': facts['site'], 'days': days,
        'requests': {'count': total['requests'],
                     'without_wan': total['without_wan']},
        'wan': {'bytes': total['wan_bytes'],
                'whole_bytes': total['whole_bytes'],
                'saved_bytes': saved_bytes},
        'time': {'seconds': total['seconds'], 'whole_seconds': whole_s,
                 'saved_seconds': None if whole_s is None
                 else whole_s - total['seconds'],
                 'repository_mbps': facts['mbps']}}
    if price is not None:
        report['money'] = {'price_per_gb': price,
                           'saved': round(saved_bytes / _GB * price, 2)}
    return {**report, 'hosts': hosts,
            'hosts_without_benefit': [host['name'] for host in hosts
                                      if _is_without_benefit(host)],
            'unused_images': facts['unused_images']}


def _facts(session, site, since):
    site_views.get_site(session, site)
    return {'site': site,
            'hosts': savings_views.hosts(session, site, since),
            'mbps': savings_views.repository_mbps(session, site),
            'unused_images': savings_views.unused_images(session, site,
                                                         since)}


def _is_without_benefit(host):
    """Return whether a cache has served its host nothing, and will not."""
    return (host['capacity'] > 0 and host['without_wan'] == 0
            and host['plan_saves_s'] <= 0)


def _requests_in_words(requests):
    if not requests['count']:
        return 'none'
    part = requests['without_wan'] / requests['count']
    return (f'{requests["count"]}, of which {requests["without_wan"]}'
            f' ({part:.0%}) took nothing from the WAN')


def _wan_in_words(wan):
    text = (f'{units.format_size(wan["bytes"])} crossed the WAN; the files of'
            f' the images are {units.format_size(wan["whole_bytes"])}')
    if not wan['whole_bytes']:
        return text
    return text + (f'\n{units.format_size(wan["saved_bytes"])} saved'
                   f' ({wan["saved_bytes"] / wan["whole_bytes"]:.0%})')


def _time_in_words(time):
    waited = f'requests took {_duration(time["seconds"])}'
    if time['saved_seconds'] is None:
        return waited + '; no host has measured its link to a repository'
    return (f'{waited}; downloads at {time["repository_mbps"]:.0f} Mbit/s'
            f' would take {_duration(time["whole_seconds"])}\n'
            f'{_duration(time["saved_seconds"])} saved')


def _money_in_words(money):
    return (f'{money["saved"]:.2f} saved, at {money["price_per_gb"]:g} for'
            f' 1 GB')


def _hosts_in_words(hosts):
    return _lines(
        f'{host["name"]}: {host["requests"]} requests,'
        f' {host["without_wan"]} without the WAN; holds'
        f' {units.format_size(host["held_bytes"])} of'
        f' {units.format_size(host["capacity"])}; its plan saves'
        f' {_duration(host["plan_saves_s"])} a day' for host in hosts)


def _names_in_words(names):
    return _lines(names)


def _images_in_words(images):
    return _lines(
        f'{image["name"]} ({image["id"]}):'
        f' {units.format_size(image["bytes"])} on {image["hosts"]} hosts'
        for image in images)


def _estimates_in_words(estimates):
    return _lines(
        f'{each["change"]}: ' + (
            each.get('error')
            or f'{_duration(each["saves_s_per_day"])} and'
               f' {units.format_size(each["saves_wan_bytes_per_day"])}'
               f' over the WAN saved a day') for each in estimates)


WORDS: dict[str, collections.abc.Callable[[typing.Any], str]] = {
    'requests': _requests_in_words, 'wan': _wan_in_words,
    'time': _time_in_words, 'money': _money_in_words,
    'hosts': _hosts_in_words, 'hosts_without_benefit': _names_in_words,
    'unused_images': _images_in_words, 'what_if': _estimates_in_words}


def _in_words(value):
    return value.human_readable() if isinstance(value, Sentences) \
        else str(value)


def _lines(sentences):
    found = list(sentences)
    shown = found[:_SHOWN]
    if len(found) > _SHOWN:
        shown.append(f'and {len(found) - _SHOWN} more')
    return '\n'.join(shown) or 'none'


def _duration(seconds):
    if abs(seconds) >= _HOUR:
        return f'{seconds / _HOUR:.1f} h'
    return f'{seconds:.1f} s'
