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
"""Validation of requests, and optionally of responses, against schemas."""

import collections.abc
import datetime
import functools
import json
import math
import re
import typing
import unicodedata

import jsonschema
from oslo_config import cfg
from oslo_log import log
from oslo_utils import timeutils
from oslo_utils import uuidutils
from werkzeug import datastructures
from werkzeug import exceptions as http

LOG = log.getLogger(__name__)

_MOST_SHOWN = 200
_HINTS = {'date-time': 'give it as 2026-01-31T22:00:00Z',
          'uuid': 'give it as 8-4-4-4-12 hexadecimal digits',
          'printable': 'leave out characters that control, that are not'
                       ' visible, or that change the direction of text'}
# Controls, formats (bidirectional ones, too), surrogates, separators of lines.
_UNPRINTABLE = ('Cc', 'Cf', 'Cs', 'Zl', 'Zp')
# Letters and marks without a glyph: joiners, fillers, selectors of variants.
_INVISIBLE = re.compile(
    '[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f'
    '\uffa0\U000e0100-\U000e01ef]')
_TRUE = ('true', '1', 'yes', 'on')
_FALSE = ('false', '0', 'no', 'off')


# Of those that jsonschema knows, some take packages that may be missing and
# then pass anything.
_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks('date-time', raises=(ValueError, OverflowError))
def _is_instant(value: object) -> bool:
    if isinstance(value, str):
        # In UTC, as databases have it, the last years may not exist.
        timeutils.parse_isotime(value.replace(' ', '+')).astimezone(
            datetime.UTC)
    return True


@_FORMATS.checks('uuid')
def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or uuidutils.is_uuid_like(value)


@_FORMATS.checks('printable')
def _is_printable(value: object) -> bool:
    # Names are shown in other users' terminals, where one is to look like
    # itself alone.
    return not isinstance(value, str) or not any(
        unicodedata.category(character) in _UNPRINTABLE
        or _INVISIBLE.match(character) for character in value)


class ResponseMismatch(Exception):
    """A response does not match its own schema."""


@functools.cache
def _validator(text: str) -> jsonschema.protocols.Validator:
    schema = json.loads(text)
    return jsonschema.Draft202012Validator(schema, format_checker=_FORMATS)


def _first_error(schema, document):
    validator = _validator(json.dumps(schema, sort_keys=True))
    return jsonschema.exceptions.best_match(validator.iter_errors(document))


def check_body(schema: dict, document: typing.Any) -> None:
    """Refuse a body that does not match its schema.

    :raises BadRequest: naming the field, and what is wrong with it
    """
    _check(schema, document, 'The body')


def _check(schema, document, whole):
    error = _first_error(schema, document)
    if error is not None:
        where = '/'.join(str(part) for part in error.absolute_path)
        raise http.BadRequest(f'{where or whole}: {_message(error)}')


def _message(error):
    """Return the message of an error, with long values shortened."""
    text = error.message
    value = repr(error.instance)
    if len(text) > _MOST_SHOWN and text.startswith(value):
        reason = text[len(value):][-_MOST_SHOWN // 2:]
        text = f'{value[:_MOST_SHOWN // 4]}…{reason}'
    text = text[:_MOST_SHOWN]
    if error.validator in ('maxLength', 'maxItems'):
        text += f'; {error.validator_value} are allowed'
    if error.validator == 'format':
        text += f'; {_HINTS[error.validator_value]}'
    return text


def parse_query(schema: dict, given: datastructures.MultiDict
                ) -> dict[str, typing.Any]:
    """Return the parameters of a query with the types of the schema.

    Those that are arrays in the schema may be repeated.

    :raises BadRequest: one is unknown, repeated or invalid
    """
    properties = schema['properties']
    found = {}
    for name, values in given.lists():
        if name not in properties:
            known = ', '.join(sorted(properties)) or 'none'
            raise http.BadRequest(
                f'Parameter "{name[:_MOST_SHOWN]}" is unknown; known are'
                f' {known}.')
        if properties[name].get('type') == 'array':
            found[name] = values
            continue
        if len(values) > 1:
            raise http.BadRequest(f'Parameter "{name}" is given twice.')
        found[name] = _typed(name, values[0], properties[name])
    _check(schema, found, 'The query')
    return found


def _typed(name, text, schema):
    kind = schema.get('type')
    try:
        if kind == 'integer':
            return int(text)
        if kind == 'number' and math.isfinite(float(text)):
            return float(text)
    except ValueError:
        kind = 'number'
    if kind == 'number':
        raise http.BadRequest(
            f'{name}: "{text[:_MOST_SHOWN]}" is not a number.')
    if kind == 'boolean':
        return _boolean(name, text)
    return text


def _boolean(name, text):
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise http.BadRequest(
        f'{name}: "{text[:_MOST_SHOWN]}" is neither true nor false.')


def check_response(conf: cfg.ConfigOpts, schema: dict,
                   document: collections.abc.Mapping) -> None:
    """Check a response if the option response_validation says so.

    :raises ResponseMismatch: it does not match, and the option is "error"
    """
    mode = conf.api.response_validation
    if mode == 'ignore':
        return
    # Through JSON, to check what is really sent.
    error = _first_error(schema, json.loads(json.dumps(document)))
    if error is None:
        return
    where = '/'.join(str(part) for part in error.absolute_path)
    text = (f'The response does not match its schema at {where}:'
            f' {error.message}')
    if mode == 'error':
        raise ResponseMismatch(text)
    LOG.warning('%s', text)
