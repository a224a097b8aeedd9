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
"""The fields of the API's documents: who sees each, and since which version.

Every document passes :func:`select` before it is sent. A field that is not in
the table of its resource is shown to operators alone, so that a new one is no
leak before it was thought about; a test compares table and schemas.
"""

import collections.abc
import dataclasses
import typing

from diffcache_openstack.api import explanations
from diffcache_openstack.api import microversions
from diffcache_openstack.cloud import quotas

Document = dict[str, typing.Any]
# Returns what callers get in place of a field that they may not see. It is
# called with the document.
Substitute = collections.abc.Callable[[Document], typing.Any]


def nothing(document: Document) -> None:
    """Give null in place of a field."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a resource.

    :param operators: whether only those see it whom the rule
        ``diffcache:infrastructure:show`` allows
    :param since: the first version that has it
    :param substitute: what other callers get; null by default
    :param parts: fields of the object, or of the objects of the list, that it
        is
    """

    operators: bool = False
    since: microversions.Version = microversions.MINIMUM
    substitute: Substitute = nothing
    parts: 'dict[str, Field] | None' = None


@dataclasses.dataclass(frozen=True, eq=False)
class Resource:
    """The fields of a resource; None if those who may use its route see all.

    :param name: as the documentation calls it
    """

    name: str
    fields: dict[str, Field] | None


def _open(*names: str) -> dict[str, Field]:
    return dict.fromkeys(names, Field())


def _closed(*names: str) -> dict[str, Field]:
    return dict.fromkeys(names, Field(operators=True))


# Routes whose policies are for operators: who may use them sees all of it.
OPERATORS = Resource('operator', None)
# Discovery.
PUBLIC = Resource('discovery', None)

IMAGE = Resource('image', {
    **_open('id', 'name', 'content_id', 'size', 'data_size', 'disk_format',
            'file_size', 'owner', 'visibility', 'status', 'family',
            'created_at', 'compressed_size'),
    # Other projects' images may have the same content.
    **_closed('host_count'),
    # Counts images that the caller may see.
    **_open('members')})

_ERROR = {
    'error': Field(operators=True, substitute=explanations.of_task),
    **_open('error_code')}

VERSION = Resource('version', {
    **_open('id', 'name', 'description', 'server_id', 'project_id', 'user_id',
            'request_id', 'trigger', 'protected', 'alpha', 'base_image',
            'size', 'bytes_changed', 'bytes_read', 'bytes_stored', 'seconds',
            'pause_ms', 'frozen_ms', 'quiesced', 'parent_id', 'state',
            'generation', 'image_id', 'created_at', 'updated_at'),
    **_closed('host'), **_ERROR,
    'disks': Field(parts=_open('device', 'size', 'volume_id')),
    'task': Field(parts=_open('id', 'kind', 'state', 'done', 'total'))})

VOLUME_CACHE = Resource('volume_cache', {
    **_open('id', 'server_id', 'project_id', 'mode', 'state', 'limit',
            'blocks', 'dirty', 'reads', 'writes', 'hits', 'misses',
            'evictions', 'bypassed', 'min', 'max', 'weight', 'priority',
            'sla', 'generation', 'explain', 'admission', 'losses',
            'guest_path', 'guest_path_reason', 'rates', 'updated_at'),
    **_closed('host')})

VOLUME_CURVE = Resource('volume_curve', _open(
    'seconds', 'references', 'distinct', 'sampled', 'hit_us', 'miss_us',
    'sizes', 'hits'))

_PROFILE = _open(
    'id', 'image_id', 'project_id', 'label', 'generation', 'instances',
    'chunks', 'carried_from', 'created_at', 'updated_at')

PROFILE = Resource('profile', _PROFILE)

PROFILE_WITH_ROWS = Resource('profile_with_rows', {
    **_PROFILE, **_open('chunk', 'rows')})

HYDRATION = Resource('hydration', {
    **_open('server_id', 'project_id', 'image_id', 'state', 'percent',
            'chunk', 'chunks', 'present', 'remaining_bytes', 'bytes_fetched',
            'misses', 'stall_ms', 'mode', 'paused', 'deadline_at',
            'expected_at', 'kept', 'rate', 'measured_rate', 'generation',
            'updated_at'),
    **_closed('host'),
    'sources': Field(operators=True, parts=_open(
        'url', 'requests', 'bytes', 'failures'))})

VERSION_TASK = Resource('version_task', {
    **_open('id', 'kind', 'state', 'project_id', 'server_id', 'version_id',
            'done', 'total', 'created_at', 'updated_at'),
    **_closed('host'), **_ERROR,
    'result': Field(parts={
        **_open('method', 'reason', 'bytes_differing', 'bytes_written',
                'bytes_read', 'seconds', 'dry_run', 'bytes_rebuild',
                'cheaper', 'image_id', 'uploaded', 'bytes', 'bytes_before',
                'bytes_after', 'intact', 'bytes_checked',
                'versions_damaged', 'versions_copied', 'bytes_copied',
                'blobs_copied', 'blobs_removed'),
        **_closed('damage', 'disks_damaged'),
        'disks': Field(parts=_open('device', 'bytes', 'ranges',
                                   'ranges_in_all'))})})

VERSION_STORE = Resource('version_store', {
    **_open('project_id', 'bytes', 'verified_at', 'copied_at'),
    'copy_lag': Field(parts=_open('versions', 'bytes', 'oldest'))})

VERSION_POLICY = Resource('version_policy', _open(
    'id', 'project_id', 'server_id', 'every', 'keep_last', 'keep_hourly',
    'keep_daily', 'keep_weekly', 'keep_monthly', 'on_shutdown', 'on_delete',
    'required', 'volumes', 'alpha', 'created_at', 'updated_at'))

PRECACHE_JOB = Resource('precache_job', {
    **_open('id', 'name', 'project_id', 'user_id', 'request_id', 'state',
            'generation', 'priority', 'rate', 'window', 'pinned',
            'expires_at', 'images', 'families', 'availability_zones',
            'boot_set', 'created_at', 'updated_at'),
    **_closed('hosts', 'aggregates'),
    'message': Field(operators=True, substitute=explanations.of_job),
    'progress': Field(parts=_open('targets', 'ready', 'failed', 'bytes',
                                  'bytes_done'))})

PRECACHE_TARGET = Resource('precache_target', {
    # Callers who may not see the host get its ID of Nova in it.
    **_open('id', 'image_id', 'state', 'bytes_total', 'bytes_done',
            'attempts', 'retry_at', 'updated_at'),
    # The way shows whether the content was at the site before.
    **_closed('host', 'way'),
    'message': Field(operators=True, substitute=explanations.of_target)})

LIMITS = Resource('limits', {
    **_open('project_id'),
    **dict.fromkeys(quotas.NAMES, Field(parts=_open('limit', 'usage')))})

RESOURCES = (IMAGE, VERSION, VERSION_TASK, VERSION_STORE, VERSION_POLICY,
             PRECACHE_JOB, PRECACHE_TARGET, LIMITS, VOLUME_CACHE,
             VOLUME_CURVE, PROFILE, PROFILE_WITH_ROWS, HYDRATION)


def select(document: Document, resource: Resource,
           version: microversions.Version, operator: bool) -> Document:
    """Return a document with the fields that a caller may see.

    :param document: of the route: the resource or a list of it by name, and
        links
    :param operator: whether the caller may see the operator's fields
    """
    if resource.fields is None:
        return document
    known = {name: field for name, field in resource.fields.items()
             if field.since <= version}
    absent = resource.fields.keys() - known.keys()
    view = _View(known, absent, operator)
    return {name: value if name.endswith('_links') else view.show(value)
            for name, value in document.items()}


class _View:
    """Selects the fields of documents of one kind."""

    def __init__(self, known: dict[str, Field],
                 absent: collections.abc.Set[str], operator: bool) -> None:
        self._operator = operator
        self._absent = absent
        self._known = known
        self._parts = {} if operator else {
            name: _View(field.parts, set(), False)
            for name, field in known.items() if field.parts is not None}

    def show(self, value: typing.Any) -> typing.Any:
        """Return a document, or a list of documents, with what is seen."""
        if isinstance(value, list):
            return [self.show(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        if self._operator:
            return {name: each for name, each in value.items()
                    if name not in self._absent}
        return {name: self._field(value, name) for name in value
                if name in self._known}

    def _field(self, document, name):
        field = self._known[name]
        if field.operators:
            return field.substitute(document)
        if name in self._parts:
            return self._parts[name].show(document[name])
        return document[name]
