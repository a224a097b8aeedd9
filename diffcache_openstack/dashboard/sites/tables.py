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
"""Tables of sites and of how one serves requests."""

import typing

from django.utils.translation import gettext_lazy as _
from horizon import tables

from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages

WAYS = (('local', _('Held on the host')), ('peer', _('From another host')),
        ('build', _('Built from a base and a patch')),
        ('repository', _('From the repository')),
        ('nova', _('Servers started by Nova')),
        ('glance', _('Images sent by Glance')), ('none', _('Failed')))


def alive(hosts: dict[str, int]) -> typing.Any:
    """Format how many hosts of a site are alive."""
    return _('%(alive)s of %(count)s') % hosts


class SitesTable(tables.DataTable):
    """Sites and their hosts."""

    name = tables.WrappingColumn(
        'name', verbose_name=_('Name'),
        link='horizon:admin:image_cache_sites:detail')
    state = tables.Column(
        lambda site: 'up' if site.hosts['alive'] == site.hosts['count']
        else 'down', hidden=True, status=True,
        status_choices=(('up', True), ('down', False)))
    hosts = tables.Column(lambda site: alive(site.hosts),
                          verbose_name=_('Hosts Up'))
    capacity = tables.Column(
        lambda site: formats.size(site.hosts['capacity']),
        verbose_name=_('Capacity'),
        help_text=_('Of the caches of hosts that are up.'))
    planned_at = tables.Column(
        lambda site: formats.instant(site.planned_at),
        verbose_name=_('Last Planned'))

    class Meta(pages.Look):
        name = 'sites'
        verbose_name = _('Sites')
        pagination_param = 'site_marker'
        status_columns = ['state']

    def get_object_id(self, datum: typing.Any) -> str:
        """Return what names the row."""
        return datum.name


class WaysTable(tables.DataTable):
    """Ways in which requests were served."""

    way = tables.Column(lambda way: way['way'], verbose_name=_('Way'),
                        display_choices=WAYS)
    requests = tables.Column(lambda way: way['requests'],
                             verbose_name=_('Requests'))
    failed = tables.Column(lambda way: way['failed'],
                           verbose_name=_('Failed'))
    mean = tables.Column(lambda way: formats.seconds(way['mean_s']),
                         verbose_name=_('Mean Time'))
    longest = tables.Column(lambda way: formats.seconds(way['longest_s']),
                            verbose_name=_('Longest Time'))
    wan = tables.Column(lambda way: formats.size(way['wan_bytes']),
                        verbose_name=_('Over the WAN'))
    lan = tables.Column(lambda way: formats.size(way['lan_bytes']),
                        verbose_name=_('Between Hosts'))

    class Meta(pages.Look):
        name = 'ways'
        verbose_name = _('Requests')

    def get_object_id(self, datum: dict[str, typing.Any]) -> str:
        """Return what names the row."""
        return datum['way']

    def get_object_display(self, datum: dict[str, typing.Any]) -> str:
        """Return what messages call the row."""
        return datum['way']


class ProblemsTable(tables.DataTable):
    """What needs attention."""

    text = tables.WrappingColumn(lambda text: text,
                                 verbose_name=_('Problem'))

    class Meta(pages.Look):
        name = 'problems'
        verbose_name = _('Problems')
        no_data_message = _('Nothing needs attention.')

    def get_object_id(self, datum: str) -> str:
        """Return what names the row."""
        return datum

    def get_object_display(self, datum: str) -> str:
        """Return what messages call the row."""
        return datum
