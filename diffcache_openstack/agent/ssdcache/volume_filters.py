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
"""Which requests to volumes are cached."""

import collections.abc

from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.ssdcache import wear_budget
from diffcache_openstack.ssdcache import engines

# Bytes in sequence and admission, as of an attachment.
_Settings = tuple[int, int | None]
_Known = collections.abc.Mapping[str, volume_settings.VolumeSettings]
_States = collections.abc.Mapping[str, engines.State]


class Filters:
    """Decides which requests are cached, and has the cache do so.

    :param engine: the cache
    :param sequential: of volumes that do not have a number of their own
    :param admission: of volumes that do not have one of their own
    :param wear: bounds what is written to the SSD, if it is to
    """

    def __init__(self, engine: engines.Engine, sequential: int,
                 admission: int, wear: wear_budget.Wear | None) -> None:
        self._engine = engine
        self._sequential = sequential
        self._admission = admission
        self.wear = wear
        # What this agent has set in the cache.
        self._applied: dict[str, _Settings] = {}

    def of(self, name: str, wanted: volume_settings.VolumeSettings
           ) -> _Settings:
        """Return what a volume's attachment has; see :class:`.Attachment`."""
        sequential = self._sequential if wanted.sequential is None \
            else wanted.sequential
        if self.wear is None:
            return sequential, wanted.admission
        return sequential, self.wear.admission(name, wanted.admission)

    def note_attached(self, name: str, wanted: volume_settings.VolumeSettings
                      ) -> None:
        """Remember what a volume was attached with."""
        self._applied[name] = self.of(name, wanted)

    def note_detaching(self, name: str) -> None:
        """Count what a volume has written, before it is detached."""
        if self.wear is not None:
            self.wear.note(self._engine.volumes())
        self._applied.pop(name, None)

    def change(self, name: str, before: volume_settings.VolumeSettings,
               wanted: volume_settings.VolumeSettings
               ) -> None:
        """Have an attached volume cached by its present settings."""
        if self.of(name, wanted) != self.of(name, before):
            self._set(name, wanted)

    def end_epoch(self, states: _States, known: _Known,
                  saved_us: collections.abc.Mapping[str, float]) -> list[str]:
        """Have volumes write no more to the SSD than its budget allows.

        Settings that a former budget left in the cache are undone.

        :param known: what attached volumes want
        :param saved_us: microseconds that hits saved in the last epoch
        :returns: why, in numbers; nothing without a budget
        """
        explain = [] if self.wear is None else self.wear.end_epoch(
            states, saved_us, {name: wanted.admission or self._admission
                               for name, wanted in known.items()})
        for name, wanted in known.items():
            is_ours = self.wear is not None or wanted.origin
            if is_ours and self._applied.get(name) != self.of(name, wanted):
                self._set(name, wanted)
        return explain

    def _set(self, name: str, wanted: volume_settings.VolumeSettings) -> None:
        settings = self.of(name, wanted)
        self._engine.set_filters(name, *settings)
        self._applied[name] = settings
