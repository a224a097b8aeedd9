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
"""Parts of schemas that several resources share."""

import typing

Schema = dict[str, typing.Any]

STRING: Schema = {'type': 'string'}
TEXT_OR_NULL: Schema = {'type': ['string', 'null']}
COUNT: Schema = {'type': 'integer', 'minimum': 0}
COUNT_OR_NULL: Schema = {'type': ['integer', 'null'], 'minimum': 0}
NUMBER: Schema = {'type': 'number'}
NUMBER_OR_NULL: Schema = {'type': ['number', 'null']}
BOOLEAN: Schema = {'type': 'boolean'}
BOOLEAN_OR_NULL: Schema = {'type': ['boolean', 'null']}
INSTANT: Schema = {'type': 'string', 'format': 'date-time'}
INSTANT_OR_NULL: Schema = {'type': ['string', 'null'], 'format': 'date-time'}
HASH: Schema = {'type': 'string', 'pattern': '^[0-9a-f]{64}$'}
UUID: Schema = {'type': 'string', 'format': 'uuid'}
# Names are compared, never interpreted; the columns' lengths bound them.
NAME: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 255}
# Names that users give to resources; they need not be unique.
LABEL: Schema = {'type': 'string', 'maxLength': 255, 'format': 'printable'}
SITE: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 64}
IMAGE: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 128}

_LINKS: Schema = {
    'type': 'array',
    'items': {
        'type': 'object',
        'properties': {'rel': STRING, 'href': {'type': 'string',
                                               'format': 'uri'}},
        'required': ['rel', 'href'], 'additionalProperties': False}}
MARKER: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 255,
                  'description': 'List entries after this ID.'}
_PAGING: Schema = {
    'limit': {'type': 'integer', 'minimum': 1,
              'description': 'Maximum number of entries in one response.'},
    'marker': MARKER}


def closed(properties: Schema, optional: typing.Iterable[str] = ()
           ) -> Schema:
    """Return the schema of an object with exactly these properties."""
    return {'type': 'object', 'properties': properties,
            'required': sorted(set(properties) - set(optional)),
            'additionalProperties': False}


def or_null(schema: Schema) -> Schema:
    """Return a schema of an object that may be missing."""
    return {**schema, 'type': [schema['type'], 'null']}


def listing(name: str, entry: Schema) -> Schema:
    """Return the schema of one page of a listing."""
    links = f'{name}_links'
    return closed({name: {'type': 'array', 'items': entry}, links: _LINKS},
                  [links])


def query(properties: Schema) -> Schema:
    """Return the schema of optional parameters of a request."""
    return closed(properties, properties)


def paged_query(properties: Schema) -> Schema:
    """Return the schema of filters and paging of a listing.

    :param properties: the filters, and the marker if its IDs are longer
    """
    return query({**_PAGING, **properties})
