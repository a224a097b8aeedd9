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
"""Tables of hosts and of what one has."""

import typing

from django import http
from django import urls
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from django.utils.translation import pgettext_lazy
from horizon import tables
from horizon.utils import filters

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages

DETAIL = 'horizon:admin:image_cache_hosts:detail'
ROLES = (('compute', _('Compute')), ('repository', _('Repository')))
STATES = (('up', pgettext_lazy('state of a host', 'Up')),
          ('down', pgettext_lazy('state of a host', 'Down')))
PENDING = (('adding', _('Adding')), ('waiting', _('Waiting')),
           ('waiting_for_space', _('Waiting for space')),
           ('refused', _('Refused')))


def state(host: typing.Any) -> str:
    """Return whether the agent of a host reports."""
    return 'up' if host.is_alive else 'down'


def address(name: str | None) -> str | None:
    """Return the address of the page of a host, whose name may be hidden."""
    return urls.reverse(DETAIL, args=[name]) if name else None


def standing_state(standing: dict[str, typing.Any]) -> str:
    """Return whether a repository or host answers."""
    return 'up' if standing['answers'] else 'down'


class RemoveHost(tables.DeleteAction):
    """Remove a host that was retired; one that is alive would come back."""

    policy_rules = (('diffcache', 'diffcache:hosts:delete'),)

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Remove Host', 'Remove Hosts', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Removed Host', 'Removed Hosts', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: for hosts that are down."""
        return datum is None or not datum.is_alive

    def delete(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not remove the host'),
                          escalate=True):
            api.client(request).delete_host(obj_id)


class HostsFilter(tables.FilterAction):
    """Filters of the service."""

    filter_type = 'server'
    filter_choices = (
        ('site', _('Site ='), True),
        ('role', _('Role ='), True, _('compute or repository')),
        ('holds', _('Holds object ='), True,
         _('All 64 digits of the ID of an object.')))


class HostsTable(tables.DataTable):
    """Hosts and how full they are."""

    name = tables.WrappingColumn('name', verbose_name=_('Name'), link=DETAIL)
    site = tables.Column('site', verbose_name=_('Site'))
    role = tables.Column('role', verbose_name=_('Role'),
                         display_choices=ROLES)
    state = tables.Column(
        state, verbose_name=_('State'), status=True, display_choices=STATES,
        status_choices=(('up', True), ('down', False)))
    seen_at = tables.Column(
        'seen_at', verbose_name=_('Last Report'),
        filters=(filters.parse_isotime, filters.timesince_or_never),
        help_text=_('Time since the agent last reported.'))
    objects = tables.Column(lambda host: host.held['objects'],
                            verbose_name=_('Objects'))
    held = tables.Column(lambda host: formats.size(host.held['bytes']),
                         verbose_name=_('Held'))
    capacity = tables.Column(lambda host: formats.size(host.capacity),
                             verbose_name=_('Capacity'))
    full = tables.Column(
        lambda host: formats.share(host.held['bytes'], host.capacity),
        verbose_name=_('Full'))
    plan = tables.Column(
        lambda host: formats.progress(host.plan), verbose_name=_('Plan Held'),
        help_text=_('Part of the objects that the current plan places on the'
                    ' host.'))

    class Meta(pages.Look):
        name = 'hosts'
        verbose_name = _('Hosts')
        status_columns = ['state']
        pagination_param = 'host_marker'
        row_actions = (RemoveHost,)
        table_actions = (HostsFilter,)

    def get_object_id(self, datum: typing.Any) -> str:
        """Return what names the row."""
        return datum.name


class ObjectsTable(pages.TabTable):
    """Objects that a host holds."""

    tab = 'host__objects'

    id = tables.Column(lambda held: formats.digits(held.id),
                       verbose_name=_('ID'))
    kind = tables.Column('kind', verbose_name=_('Kind'),
                         display_choices=formats.KINDS)
    bytes = tables.Column(lambda held: formats.size(held.bytes),
                          verbose_name=_('Size'))
    images = tables.WrappingColumn(
        lambda held: formats.names(held.names), verbose_name=_('Images'))
    reason = tables.WrappingColumn(
        'reason', verbose_name=_('Reason'),
        help_text=_('Why the current plan of the site places the object'
                    ' here.'))

    class Meta(pages.Look):
        name = 'objects'
        verbose_name = _('Objects')
        pagination_param = 'object_marker'

    def get_object_id(self, datum: typing.Any) -> str:
        """Return what names the row: an image and its manifest share an ID."""
        return f'{datum.kind}.{datum.id}'

    def get_marker(self) -> str:
        """Return the marker of the next page."""
        return self.data[-1].id if self.data else ''


class PendingTable(pages.TabTable):
    """Images that a repository could not add yet."""

    tab = 'host__pending'

    image_id = tables.Column('image_id', verbose_name=_('Image'))
    state = tables.Column('state', verbose_name=_('State'),
                          display_choices=PENDING)
    attempts = tables.Column('attempts', verbose_name=_('Attempts'))
    retry_at = tables.Column(
        lambda image: formats.instant(image.retry_at),
        verbose_name=_('Next Attempt'))
    error = tables.WrappingColumn('error', verbose_name=_('Reason'))

    class Meta(pages.Look):
        name = 'pending'
        verbose_name = _('Pending Images')
        pagination_param = 'pending_marker'

    def get_object_id(self, datum: typing.Any) -> str:
        """Return what names the row."""
        return datum.image_id


class StandingsTable(tables.DataTable):
    """Repositories or hosts at the other end of a connection."""

    name = tables.Column(
        lambda standing: standing.get('name') or standing.get('host'),
        verbose_name=_('Name'), link=DETAIL)
    state = tables.Column(
        standing_state, verbose_name=_('State'), status=True,
        display_choices=STATES, status_choices=(('up', True),
                                                ('down', False)))
    since = tables.Column(
        lambda standing: formats.instant(standing['since']),
        verbose_name=_('Down Since'))
    mbps = tables.Column(
        lambda standing: formats.bandwidth(standing['mbps']),
        verbose_name=_('Measured Bandwidth'))
    transfers = tables.Column(lambda standing: standing['transfers'],
                              verbose_name=_('Transfers'))
    failures = tables.Column(lambda standing: standing['failures'],
                             verbose_name=_('Failures'))
    bytes = tables.Column(lambda standing: formats.size(standing['bytes']),
                          verbose_name=_('Received'))
    reason = tables.WrappingColumn(
        lambda standing: standing['reason'], verbose_name=_('Last Error'))

    def get_object_id(self, datum: dict[str, typing.Any]) -> str:
        """Return what names the row."""
        return datum.get('name') or datum['host']

    def get_object_display(self, datum: dict[str, typing.Any]) -> str:
        """Return the name of the row."""
        return self.get_object_id(datum)


class RepositoriesTable(StandingsTable):
    """Repositories that a host reads from."""

    class Meta(pages.Look):
        name = 'repositories'
        hidden_title = False
        verbose_name = _('Reads From')


class ClientsTable(StandingsTable):
    """Hosts that read from a repository."""

    class Meta(pages.Look):
        name = 'clients'
        hidden_title = False
        verbose_name = _('Read By')
