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
"""Tables of images, where they are, and their patches."""

import typing

from django.utils.translation import gettext_lazy as _
from horizon import tables

from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.hosts import tables as host_tables
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.sites import tables as site_tables

STATUSES = (('active', _('Active')), ('deactivated', _('Deactivated')),
            ('deleted', _('Deleted')))


class ImagesFilter(tables.FilterAction):
    """Filters of the service."""

    filter_type = 'server'
    filter_choices = (
        ('name', _('Name ='), True), ('host', _('On host ='), True),
        ('family', _('Family ='), True, _('ID of an image.')),
        ('status', _('Status ='), True,
         _('active, deactivated or deleted')))


class ImagesTable(tables.DataTable):
    """Images of the catalogue by ID."""

    name = tables.WrappingColumn(
        lambda image: image.name or image.id, verbose_name=_('Name'),
        link='horizon:admin:image_cache_images:detail')
    status = tables.Column('status', verbose_name=_('Status'),
                           display_choices=STATUSES)
    size = tables.Column(lambda image: formats.size(image.size),
                         verbose_name=_('Size'),
                         help_text=_('Bytes that a server sees.'))
    data = tables.Column(lambda image: formats.size(image.data_size),
                         verbose_name=_('Data'),
                         help_text=_('Bytes that are not zero.'))
    compressed = tables.Column(
        lambda image: formats.size(image.compressed_size),
        verbose_name=_('Compressed'),
        help_text=_('Bytes that cross the WAN.'))
    hosts = tables.Column('host_count', verbose_name=_('Hosts'),
                          help_text=_('Hosts that hold the whole image.'))
    family = tables.WrappingColumn(
        'family_name', verbose_name=_('Family'), empty_value=formats.NOTHING,
        help_text=_('Image that this one was made from.'))

    class Meta(pages.Look):
        name = 'images'
        verbose_name = _('Images')
        pagination_param = 'image_marker'
        table_actions = (ImagesFilter,)


def caches_of(place: typing.Any) -> str:
    """Format in which caches of a host an image is."""
    return ', '.join(str(name) for name, has in (
        (_('Cache of the host'), place.is_held),
        (_("Nova's image cache"), place.is_borrowed)) if has)


class LocationsTable(tables.DataTable):
    """Hosts that have a whole image, and why."""

    host = tables.Column('host', verbose_name=_('Host'),
                         link=host_tables.DETAIL)
    site = tables.Column('site', verbose_name=_('Site'))
    bytes = tables.Column(lambda place: formats.size(place.bytes),
                          verbose_name=_('Size'))
    caches = tables.Column(caches_of, verbose_name=_('Kept In'))
    why = tables.WrappingColumn('why', verbose_name=_('Reason'), help_text=_(
        'Why the current plan of the site places the image here.'))

    class Meta(pages.Look):
        name = 'locations'
        verbose_name = _('Hosts')
        pagination_param = 'location_marker'

    def get_object_id(self, datum: typing.Any) -> str:
        """Return what names the row."""
        return datum.host


class StartsTable(pages.TabTable):
    """Hosts, and how a start of a server would get an image there."""

    tab = 'image__starts'

    name = tables.Column('host', verbose_name=_('Host'),
                         link=host_tables.DETAIL)
    site = tables.Column('site', verbose_name=_('Site'))
    way = tables.Column(lambda lookup: lookup.way.get('way'),
                        verbose_name=_('Way'),
                        display_choices=site_tables.WAYS,
                        empty_value=formats.NOTHING)
    seconds = tables.Column(
        lambda lookup: formats.seconds(lookup.way.get('seconds')),
        verbose_name=_('Takes'), help_text=_(
            'Until the whole image is there. A server that boots lazily starts'
            ' before.'))
    lazy_boot = tables.Column(
        lambda lookup: formats.seconds(
            (lookup.lazy_boot or {}).get('seconds')),
        verbose_name=_('Lazy Boot Waits'), help_text=_(
            'For what earlier boots have read of the image; less where a host'
            ' of the site has it in a boot set.'))
    wan = tables.Column(
        lambda lookup: formats.size(lookup.way.get('wan_bytes')),
        verbose_name=_('Over the WAN'))
    lan = tables.Column(
        lambda lookup: formats.size(lookup.way.get('lan_bytes')),
        verbose_name=_('Between Hosts'))
    detail = tables.WrappingColumn('detail', verbose_name=_('From'),
                                   empty_value=formats.NOTHING)

    class Meta(pages.Look):
        name = 'starts'
        verbose_name = _('Time to Start')
        pagination_param = 'start_marker'

    def get_object_id(self, datum: typing.Any) -> str:
        """Return what names the row."""
        return datum.host


class PatchesTable(pages.TabTable):
    """Patches that build an image, or others from it."""

    tab = 'image__patches'

    base = tables.WrappingColumn('base_name', verbose_name=_('From Image'))
    target = tables.WrappingColumn('target_name', verbose_name=_('To Image'))
    size = tables.Column(lambda patch: formats.size(patch.size),
                         verbose_name=_('Size'))
    apply_seconds = tables.Column(
        lambda patch: formats.seconds(patch.apply_seconds),
        verbose_name=_('Applied In'))
    hosts = tables.Column('host_count', verbose_name=_('Hosts'))
    id = tables.Column(lambda patch: formats.digits(patch.id),
                       verbose_name=_('ID'))


class IncomingTable(PatchesTable):
    """Patches that build an image from others."""

    class Meta(pages.Look):
        name = 'incoming'
        hidden_title = False
        verbose_name = _('Patches to This Image')
        pagination_param = 'incoming_marker'


class OutgoingTable(PatchesTable):
    """Patches that build other images from one."""

    class Meta(pages.Look):
        name = 'outgoing'
        hidden_title = False
        verbose_name = _('Patches from This Image')
        pagination_param = 'outgoing_marker'
