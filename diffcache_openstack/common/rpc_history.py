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
"""What each version of a remote interface added.

A server accepts a call of its own version of the interface, and of earlier
ones. So a call is sent with the version that it needs, and not with the newest
that the client knows: while services are upgraded one after the other, it is
then refused only by a server that cannot answer it.
"""

import collections.abc


class History:
    """The methods of an interface by the version that they came with."""

    def __init__(self, added: collections.abc.Mapping[
            str, collections.abc.Sequence[str]]) -> None:
        """Describe an interface.

        :param added: by version, ``MAJOR.MINOR`` in ascending order: names
            of methods that it added, and ``METHOD.ARGUMENT`` of arguments
            that it added to a method of an earlier version
        """
        self._since = {name: _parsed(version)
                       for version, names in added.items() for name in names}
        self.latest = _shown(max(map(_parsed, added)))

    @property
    def methods(self) -> set[str]:
        """Return the names of all methods."""
        return {name for name in self._since if '.' not in name}

    def needed(self, method: str,
               arguments: collections.abc.Iterable[str]) -> str:
        """Return the earliest version that has a method and its arguments.

        :param arguments: names of those that are sent
        :raises KeyError: the history does not have the method
        """
        since = self._since[method]
        return _shown(max([since, *(
            self._since.get(f'{method}.{name}', since)
            for name in arguments)]))


def _parsed(version: str) -> tuple[int, int]:
    major, minor = version.split('.')
    return int(major), int(minor)


def _shown(version: tuple[int, int]) -> str:
    return f'{version[0]}.{version[1]}'
