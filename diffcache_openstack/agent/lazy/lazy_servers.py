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
"""Servers of this host whose base images are still arriving.

Nova's driver names them. They are kept on disk: what their instances have read
counts once, also after a restart of the agent.
"""

import dataclasses
import pathlib
import re
import threading
import time
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.objects import fields as objects_fields
from diffcache_openstack.objects import hydration
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import conductor_lazy_api

_ID = re.compile(objects_fields.ID_PATTERN)
_WISHES = ('hydrate_by', 'hydrate_rate')


@dataclasses.dataclass(frozen=True)
class LazyServer:
    """A server, as Nova's driver names it.

    :ivar label: of servers that read alike; empty for none
    """

    id: str
    project_id: str
    image_id: str
    label: str = ''


@dataclasses.dataclass(frozen=True)
class Wish:
    """The hydration of a server's image: its deadline and its rate.

    :ivar seconds: from now; None for no deadline
    :ivar rate: bytes per second at most; None for no limit
    """

    seconds: float | None = None
    rate: int | None = None


def parse(server_id: str, document: dict[str, typing.Any]) -> LazyServer:
    """Return the server that a request describes.

    :raises InvalidInput: a field is missing, unknown or not as it has to be
    """
    fields = {'id': server_id, 'label': '', **document}
    for name in _WISHES:
        fields.pop(name, None)
    wanted = {'id': _ID, 'project_id': _ID, 'image_id': _ID,
              'label': re.compile(profiles.LABEL_PATTERN)}
    if set(fields) != set(wanted) or not all(
            isinstance(fields[name], str) and pattern.fullmatch(fields[name])
            for name, pattern in wanted.items()):
        raise exceptions.InvalidInput(
            'A server that boots lazily has a project_id, an image_id and'
            ' maybe a label.')
    return LazyServer(**fields)


def parse_wish(document: dict[str, typing.Any]) -> Wish | None:
    """Return what a request says of hydration; None if it says nothing.

    :raises InvalidInput: a value is not within its limits
    """
    seconds, rate = (document.get(name) for name in _WISHES)
    if seconds is None and rate is None:
        return None
    limits = ((seconds, hydration.LONGEST_DEADLINE),
              (rate, hydration.HIGHEST_RATE))
    if not all(value is None or type(value) is int and 1 <= value <= most
               for value, most in limits):
        raise exceptions.InvalidInput(
            f'hydrate_by is a number of 1 to {hydration.LONGEST_DEADLINE}'
            f' seconds, hydrate_rate one of 1 to {hydration.HIGHEST_RATE}'
            f' bytes per second.')
    return Wish(seconds, rate)


@dataclasses.dataclass
class ContentUse:
    """How an image has been used since it is served.

    All of its readers share one record of what they read, so that reads count
    for those that have opened it at any time.

    :ivar run: number of the run that is reported
    :ivar reads: instances that read chunks, summed over chunks, when it was
        reported last; a smaller sum is another record
    :ivar teaches: whether other hosts learn from what is read of it
    """

    run: int
    images: set[str] = dataclasses.field(default_factory=set)
    projects: set[str] = dataclasses.field(default_factory=set)
    labels: set[str] = dataclasses.field(default_factory=set)
    reads: int = 0
    teaches: bool = True
    servers: dict[str, LazyServer] = dataclasses.field(default_factory=dict)

    def add(self, server: LazyServer) -> None:
        """Note one more user."""
        self.servers[server.id] = server
        self.images.add(server.image_id)
        self.projects.add(server.project_id)
        self.labels.add(server.label)

    def report(self, rows: profiles.Rows) -> conductor_lazy_api.Reads | None:
        """Return what is to be reported; begin another run if need be.

        :param rows: all that was read since the image is served
        :returns: None if the reads are of no one image
        """
        reads = sum(count for count, _ in rows.values())
        if reads < self.reads:
            self.run = _new_run(self.run)
        self.reads = reads
        if len(self.images) != 1:
            return None
        [image] = self.images
        label = next(iter(self.labels)) if len(self.labels) == 1 else ''
        return conductor_lazy_api.Reads(image, sorted(self.projects), label,
                                        self.run, reads, rows)


class Servers:
    """Uses by content, kept in a file.

    :param path: of the file
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._uses = {content_id: _parse(document) for content_id, document
                      in (files.read_json(path) or {}).items()}

    def add(self, content_id: str, server: LazyServer) -> bool:
        """Note that a server uses a content that is served.

        :returns: whether it did not use it before
        :raises NotFound: it is not served
        """
        with self._lock:
            if content_id not in self._uses:
                raise exceptions.NotFound(
                    f'Image {server.image_id} is not served while it'
                    f' arrives.')
            use = self._uses[content_id]
            is_new = server.id not in use.servers
            use.add(server)
            self._save()
            return is_new

    def remove(self, server_id: str) -> list[str]:
        """Note that a server is no longer on this host.

        :returns: the contents that it used
        """
        with self._lock:
            contents = [content_id for content_id, use in self._uses.items()
                        if use.servers.pop(server_id, None) is not None]
            self._save()
            return contents

    def follow(self, content_id: str, teaches: bool = True) -> None:
        """Note that a content is served; a new run begins if it was not.

        :param teaches: whether other hosts learn from what is read of it
        """
        with self._lock:
            if content_id not in self._uses:
                self._uses[content_id] = ContentUse(_new_run(0),
                                                    teaches=teaches)
                self._save()

    def forget(self, content_id: str) -> None:
        """Note that a content is no longer served."""
        with self._lock:
            if self._uses.pop(content_id, None) is not None:
                self._save()

    def all_contents(self) -> list[str]:
        """Return the contents that are served, as far as they are known."""
        with self._lock:
            return list(self._uses)

    def contents(self) -> list[str]:
        """Return the contents from which other hosts learn, with users."""
        with self._lock:
            return [content_id for content_id, use in self._uses.items()
                    if use.images and use.teaches]

    def of(self, content_id: str) -> list[LazyServer]:
        """Return the servers that use a content."""
        with self._lock:
            use = self._uses.get(content_id)
            return list(use.servers.values()) if use else []

    def report(self, content_id: str, rows: profiles.Rows
               ) -> conductor_lazy_api.Reads | None:
        """Return the use of each content, for the report."""
        with self._lock:
            use = self._uses.get(content_id)
            if use is None:
                return None
            before = (use.run, use.reads)
            found = use.report(rows)
            if (use.run, use.reads) != before:
                self._save()
            return found

    def _save(self) -> None:
        files.write_json(self._path, {
            content_id: {
                'run': use.run, 'reads': use.reads,
                'teaches': use.teaches,
                **{name: sorted(getattr(use, name))
                   for name in ('images', 'projects', 'labels')},
                'servers': [dataclasses.asdict(server)
                            for server in use.servers.values()]}
            for content_id, use in self._uses.items()})


def _new_run(last: int) -> int:
    """Return the number of a run that begins now: microseconds since 1970."""
    return max(last + 1, time.time_ns() // 1000)


def _parse(document: dict[str, typing.Any]) -> ContentUse:
    return ContentUse(
        document['run'], set(document['images']), set(document['projects']),
        set(document['labels']), document['reads'],
        document['teaches'],
        {each['id']: LazyServer(**each) for each in document['servers']})
