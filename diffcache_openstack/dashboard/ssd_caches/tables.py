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
"""Tables of SSD caches, of the volumes in one, and of decisions."""

import typing

from django.utils.translation import gettext_lazy as _
from horizon import tables

from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages

STATES = (('ok', _('In use')), ('failed', _('Failed')),
          ('unreachable', _('Unreachable')),
          ('pass-through', _('Without the cache')))
MODES = (('write-through', _('Write-through')),
         ('write-back', _('Write-back')),
         ('write-around', _('Write-around')),
         ('pass-through', _('Pass-through')))
_STATUSES = tuple((name, name == 'ok') for name, _label in STATES)


def hit_ratio(volume: typing.Any) -> str:
    """Format which part of a volume's references hit."""
    return formats.share(volume.hits, volume.hits + volume.misses)


class CachesTable(tables.DataTable):
    """SSD caches of hosts."""

    host = tables.Column(
        'host', verbose_name=_('Host'),
        link='horizon:admin:image_cache_ssd_caches:detail')
    state = tables.Column('state', verbose_name=_('State'), status=True,
                          display_choices=STATES, status_choices=_STATUSES)
    capacity = tables.Column(lambda cache: formats.blocks(cache.capacity),
                             verbose_name=_('Capacity'))
    volumes = tables.Column('volumes', verbose_name=_('Volumes'))
    policy = tables.Column('policy', verbose_name=_('Policy'), help_text=_(
        'How the capacity is shared by the volumes.'))
    epoch = tables.Column(lambda cache: formats.seconds(cache.epoch),
                          verbose_name=_('Epoch'), help_text=_(
                              'How often sizes are decided.'))
    updated_at = tables.Column(
        lambda cache: formats.instant(cache.updated_at),
        verbose_name=_('Last Report'))

    class Meta(pages.Look):
        name = 'ssd_caches'
        verbose_name = _('SSD Caches')
        pagination_param = 'ssd_cache_marker'
        status_columns = ['state']

    def get_object_id(self, datum: typing.Any) -> str:
        """Return what names the row."""
        return datum.host

    def get_object_display(self, datum: typing.Any) -> str:
        """Return what messages call the row."""
        return datum.host


class VolumesTable(pages.TabTable):
    """Volumes in the SSD cache of a host."""

    tab = 'ssd_cache__volumes'

    id = tables.Column('id', verbose_name=_('Volume'),
                       link='horizon:admin:image_cache_ssd_caches:volume')
    mode = tables.Column('mode', verbose_name=_('Mode'),
                         display_choices=MODES)
    state = tables.Column('state', verbose_name=_('State'), status=True,
                          display_choices=STATES, status_choices=_STATUSES)
    limit = tables.Column(lambda volume: formats.blocks(volume.limit),
                          verbose_name=_('Size'), help_text=_(
                              'Of its part of the cache.'))
    blocks = tables.Column(lambda volume: formats.blocks(volume.blocks),
                           verbose_name=_('Cached'))
    hits = tables.Column(hit_ratio, verbose_name=_('Hits'),
                         cell_attributes_getter=formats.percentage)
    explain = tables.WrappingColumn(
        lambda volume: ' '.join(volume.explain or ()),
        verbose_name=_('Reason'), empty_value=formats.NOTHING,
        help_text=_('Why its part has this size.'))

    class Meta(pages.Look):
        name = 'volume_caches'
        verbose_name = _('Volumes')
        pagination_param = 'volume_cache_marker'
        status_columns = ['state']

    def get_object_display(self, datum: typing.Any) -> str:
        """Return what messages call the row."""
        return datum.id


class DecisionsTable(tables.DataTable):
    """Decisions about sizes, the latest first."""

    time = tables.Column(lambda each: formats.instant(each['time']),
                         verbose_name=_('Decided'))
    policy = tables.Column(lambda each: each['policy'],
                           verbose_name=_('Policy'))
    changed = tables.Column(
        lambda each: _('Yes') if each['changed'] else _('No'),
        verbose_name=_('Sizes Changed'))
    explain = tables.WrappingColumn(lambda each: ' '.join(each['explain']),
                                    verbose_name=_('Reasons'))

    class Meta(pages.Look):
        name = 'decisions'
        verbose_name = _('Decisions')
        no_data_message = _('No epoch has ended yet.')

    def get_object_id(self, datum: dict[str, typing.Any]) -> str:
        """Return what names the row."""
        return datum['time']

    def get_object_display(self, datum: dict[str, typing.Any]) -> str:
        """Return what messages call the row."""
        return datum['time']
