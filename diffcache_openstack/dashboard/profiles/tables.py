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
"""Table of the profiles of an image."""

import typing

from django import http
from django import urls
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from horizon import tables

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages

TAB = 'image__profiles'
IMAGE = 'horizon:admin:image_cache_images:detail'


def label_of(profile: typing.Any) -> typing.Any:
    """Return the label of the servers that a profile is of."""
    return profile.servers_label or _('(no label)')


def source_of(profile: typing.Any) -> str | None:
    """Return the address of the image that a profile was carried from.

    :returns: None if servers have read this one
    """
    source = profile.carried_from
    return urls.reverse(IMAGE, args=[source]) if source else None


class DeleteProfile(pages.OwnedAction, tables.DeleteAction):
    """Delete a profile, which servers' boots form anew."""

    policy_rules = (('diffcache', 'diffcache:profiles:delete'),)
    help_text = _('Later lazy boots learn the profile anew.')

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Delete Profile', 'Delete Profiles', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Deleted Profile', 'Deleted Profiles', count))

    def delete(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not delete the profile'),
                          escalate=True):
            api.client(request).delete_profile(obj_id)

    def get_success_url(self, request: http.HttpRequest) -> str:
        """Return the address of the tab without the deleted profile."""
        return f'{request.path}?tab={TAB}'


class ProfilesTable(pages.TabTable):
    """Profiles of an image; a label leads to its heat maps."""

    tab = TAB

    label = tables.Column(
        label_of, verbose_name=_('Label'),
        link=lambda profile: f'?tab={TAB}&profile={profile.id}',
        help_text=_('Of servers that read alike, such as a flavor.'))
    project = tables.Column(
        lambda profile: profile.project_id or _('All'),
        verbose_name=_('Project'))
    instances = tables.Column('instances', verbose_name=_('Servers'),
                              help_text=_('That read the most frequent'
                                          ' chunk.'))
    chunks = tables.Column('chunks', verbose_name=_('Chunks Read'))
    source = tables.WrappingColumn(
        'source_name', verbose_name=_('Carried From'), link=source_of,
        empty_value=formats.NOTHING, help_text=_(
            'Image whose profile is used at the corresponding places, until'
            ' enough servers have read this one.'))
    updated_at = tables.Column(
        lambda profile: formats.instant(profile.updated_at),
        verbose_name=_('Updated'))

    class Meta(pages.Look):
        name = 'profiles'
        verbose_name = _('Profiles')
        pagination_param = 'profile_marker'
        no_data_message = _('No server has booted lazily from this image yet.')
        row_actions = (DeleteProfile,)

    def get_object_display(self, datum: typing.Any) -> str:
        """Return what messages call the row."""
        return str(label_of(datum))
