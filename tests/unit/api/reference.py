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
"""The API reference, written from the routes and from answers to samples.

Run as a program it writes the document anew; a test compares.
"""

import json
import pathlib
import re
import textwrap
import typing

from diffcache_openstack.api import handlers
from diffcache_openstack.api import microversions
from diffcache_openstack.api import policies
from diffcache_openstack.api import routing

PATH = (pathlib.Path(__file__).parents[3] / 'doc' / 'source' / 'reference'
        / 'api-routes.inc')

_INSTANT = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z')
_UUID = re.compile(r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-'
                   r'[0-9a-f]{12}')
# Numbers that differ from run to run, and what stands for them.
_VARYING = {
    'cost_s': 12.5, 'lower_bound_s': 12.0, 'gap': 0.04, 'mean_s': 1.5,
    'saving': 0.25, 'solver_seconds': 0.2, 'saved_seconds': 2.5,
    'saves_s': 2.5, 'requests_per_day': 0.3, 'seconds': 1.5,
    'predicted_seconds': 1.5, 'generation': 1, 'base_generation': 0,
    'plan_generation': 1, 'map_generation': 1, 'requests': 3,
    'saved_wan_bytes': 40000000, 'cost_wan_bytes': 20000000,
    'mean_wan_bytes': 1500000, 'saving_wan': 0.1, 'fill_seconds': 40.0,
    'proved_optimal': False, 'eviction': 1, 'priority': 1, 'why': '…',
    'request_id': 'req-00000000-0000-4000-8000-000000000000'}
_MOST_ENTRIES = 1


def steady(document: typing.Any) -> typing.Any:
    """A document without what differs from run to run."""
    if isinstance(document, list):
        return [steady(entry) for entry in document[:_MOST_ENTRIES]]
    if isinstance(document, dict):
        return {name: _VARYING[name]
                if name in _VARYING and _is_scalar(value) else steady(value)
                for name, value in document.items()}
    if isinstance(document, str):
        document = _INSTANT.sub('2026-01-31T12:00:00Z', document)
        return _UUID.sub('3f6a2c52-8d0e-4d0b-9f0a-6f1f5a1e7c11', document)
    return document


def _is_scalar(value):
    return value is not None and not isinstance(value, (list, dict))


def text(samples: dict[tuple[str, str], typing.Any]) -> str:
    """The document.

    :param samples: for each method and path: the path that was asked for,
        the body that was sent and the one that came
    """
    parts = ['.. Written by tests/unit/api/reference.py; do not edit.\n\n'
             'Resources\n=========\n']
    for route in handlers.routes():
        parts.append(_section(route, samples[route.method, route.template]))
    return '\n'.join(parts)


def _section(route, sample):
    title = f'{route.method} {route.template}'
    lines = [title, '-' * len(title), '',
             route.handler.__doc__.splitlines()[0], '']
    rule = next(rule for rule in policies.list_rules()
                if rule.name == route.policy)
    lines += [f':Policy: ``{route.policy}``, by default ``{rule.check_str}``',
              f':Since version: {route.since}',
              f':Good answer: {route.status}', '']
    lines += _parameters('Parameters', route.query)
    if route.body is not None:
        [inner] = route.body['properties'].values() \
            if _is_wrapped(route.body) else [route.body]
        lines += _parameters('Body', inner)
    return '\n'.join(lines + _sample(route, *sample)) + '\n'


def _is_wrapped(schema):
    [*values] = schema['properties'].values()
    return len(values) == 1 and values[0].get('type') == 'object'


def _parameters(heading, schema):
    if not schema['properties']:
        return []
    lines = [f'.. list-table:: {heading}', '   :widths: 25 20 55', '']
    for name, kind in sorted(schema['properties'].items()):
        needed = ' (needed)' if name in schema.get('required', ()) else ''
        lines += [f'   * - ``{name}``{needed}', f'     - {_kind(kind)}',
                  f'     - {kind.get("description", "")}'.rstrip()]
    return [*lines, '']


def _kind(schema):
    kind = schema.get('type', 'object')
    text = kind if isinstance(kind, str) else ' or '.join(kind)
    if 'enum' in schema:
        text = ', '.join(f'``{value}``' for value in schema['enum'])
    return text


def _sample(route, path, sent, came):
    request = [f'{route.method} {path}']
    if sent is not None:
        request += ['', *json.dumps(sent, indent=2).splitlines()]
    lines = ['.. code-block:: text', '', *_indented(request), '']
    if came is not None:
        answer = json.dumps(steady(came), indent=2, ensure_ascii=False)
        lines += ['.. code-block:: json', '',
                  *_indented(answer.splitlines()), '']
    return lines


def _indented(lines):
    return textwrap.indent('\n'.join(lines), '   ').splitlines()


def routes_without(samples: typing.Container) -> list[routing.Route]:
    """Routes that no sample is of."""
    return [route for route in handlers.routes()
            if (route.method, route.template) not in samples]


# What the samples ask for, when the version does not matter.
VERSION = str(microversions.MAXIMUM)
