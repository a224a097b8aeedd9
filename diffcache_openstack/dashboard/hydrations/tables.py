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
"""Table of the image of a server, as it arrives."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from horizon import tables

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard import servers

TAB = 'instance_details__hydration'
PANEL = 'image_cache_hydrations'
STATES = (('arriving', _('Arriving')), ('complete', _('Complete')),
          ('unknown', _('Unknown')))
MODES = (('none', _('Only what is read')), ('idle', _('While no read waits')),
         ('deadline', _('By the deadline')))
_UPDATE = (('diffcache', 'diffcache:hydrations:update'),)


def percent(hydration: typing.Any) -> str:
    """Format how much has arrived; 100% is all of it."""
    found = hydration.percent
    return formats.NOTHING if found is None else f'{int(found)}%'


def mode(hydration: typing.Any) -> typing.Any:
    """Format when what no guest reads is fetched."""
    found = dict(MODES).get(hydration.mode, hydration.mode)
    return _('Paused (%s)') % found if hydration.is_paused else found


def expected(hydration: typing.Any) -> typing.Any:
    """Format when all will have arrived, and whether that is too late."""
    found = formats.instant(hydration.expected_at)
    return _('%s, too late') % found if hydration.is_kept is False else found


def rate(count: float | None) -> str:
    """Format bytes per second."""
    return formats.NOTHING if count is None else \
        f'{formats.size(int(count))}/s'


class _ArrivingAction(servers.OwnedAction):
    """An action on an image that has not arrived."""

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: until the image is complete."""
        return datum is None or datum.state != 'complete'


class PauseArrival(_ArrivingAction, tables.BatchAction):
    """Fetch only what guests read."""

    name = 'pause'
    icon = 'pause'
    # Horizon asks for a confirmation, with the help text.
    action_type = 'danger'
    policy_rules = _UPDATE
    help_text = _('Only what guests read is fetched then. Servers of the same'
                  ' image on the same host share this.')
    paused = True

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Pause Arrival', 'Pause Arrivals', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Paused Arrival', 'Paused Arrivals', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: if it changes something."""
        return super().allowed(request, datum) and (
            datum is None or bool(datum.is_paused) != self.paused)

    def action(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not change the arrival'),
                          escalate=True):
            api.client(request).update_hydration(obj_id, paused=self.paused)


class ResumeArrival(PauseArrival):
    """Return to the former mode, deadline and rate."""

    name = 'resume'
    icon = 'play'
    help_text = _('Mode, deadline and rate are those of before.')
    paused = False

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Resume Arrival', 'Resume Arrivals', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Resumed Arrival', 'Resumed Arrivals', count))


class ChangeArrival(_ArrivingAction, tables.LinkAction):
    """Set a deadline and a rate."""

    name = 'change'
    verbose_name = _('Set Deadline and Rate')
    classes = ('ajax-modal',)
    icon = 'clock'
    policy_rules = _UPDATE

    def get_link_url(self, datum: typing.Any = None) -> str:
        return self.table.reverse('change', self.table.instance_id)


class HydrationRow(pages.LiveRow):
    """An image that arrives, or has arrived."""

    call = 'get_hydration'


class HydrationTable(servers.ServerTable):
    """The image of the server, if it is read as it arrives."""

    tab = TAB
    panel = PANEL

    percent = tables.Column(percent, verbose_name=_('Arrived'),
                            cell_attributes_getter=formats.percentage)
    state = tables.Column(
        'state', verbose_name=_('State'), status=True,
        display_choices=STATES, status_choices=(('complete', True),))
    remaining = tables.Column(
        lambda hydration: formats.size(hydration.remaining_bytes),
        verbose_name=_('Missing'))
    mode = tables.Column(mode, verbose_name=_('Fetched'),
                         help_text=_('When what no guest reads is fetched.'))
    deadline_at = tables.Column(
        lambda hydration: formats.instant(hydration.deadline_at),
        verbose_name=_('Deadline'))
    expected_at = tables.Column(expected, verbose_name=_('Expected'))
    rate = tables.Column(lambda hydration: rate(hydration.rate),
                         verbose_name=_('Rate at Most'))
    measured_rate = tables.Column(
        lambda hydration: rate(hydration.measured_rate),
        verbose_name=_('Measured Rate'))
    stall = tables.Column(
        lambda hydration: formats.seconds(hydration.stall_ms / 1000),
        verbose_name=_('Waited'),
        help_text=_('How long guests waited for what had not arrived.'))

    class Meta(pages.Look):
        name = 'hydration'
        verbose_name = _('Image Arrival')
        no_data_message = _('This server does not read its image as it'
                            ' arrives: all of it is on the host.')
        row_class = HydrationRow
        status_columns = ['state']
        row_actions = (ChangeArrival, PauseArrival, ResumeArrival)

    def get_object_display(self, datum: typing.Any) -> str:
        """Return what messages call the row."""
        return datum.server_id
