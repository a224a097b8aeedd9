#!/usr/bin/env python3
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
"""Keep the translations of Horizon's panels.

usage: tools/lib/messages.py update|check

``update`` writes the messages of code and templates to the catalogues of each
language, django.po and djangojs.po, and compiles them. ``check`` fails where
that would change something, or where a message is not translated. Run it in an
environment with Horizon, whose Django and Babel it uses.
"""

import collections.abc
import io
import pathlib
import sys

from babel.messages import catalog
from babel.messages import extract
from babel.messages import mofile
from babel.messages import pofile
from django import conf
from django.utils.translation import template

PANELS = (pathlib.Path(__file__).resolve().parents[2]
          / 'diffcache_openstack/dashboard')
_KEYWORDS: dict = {
    name + end: spec
    for name, spec in (('gettext', None), ('ngettext', (1, 2)),
                       ('pgettext', ((1, 'c'), 2)),
                       ('npgettext', ((1, 'c'), 2, 3)))
    for end in ('', '_lazy')}
_KEYWORDS['_'] = None
_STATIC = PANELS / 'static'


def _templatized(path: pathlib.Path) -> str:
    """Return the messages of a template of Django as Python code."""
    if _STATIC in path.parents:
        return ''
    return template.templatize(path.read_text())


# How messages are found, by the endings of files.
_SOURCES: dict = {
    'django': {'.py': ('python', pathlib.Path.read_text),
               '.html': ('python', _templatized)},
    'djangojs': {'.js': ('javascript', pathlib.Path.read_text)}}


def extracted(domain: str) -> catalog.Catalog:
    """Return the messages of code and templates.

    :param domain: ``django``, or ``djangojs`` for what browsers run
    """
    found = catalog.Catalog(project='diffcache-openstack',
                            charset='utf-8', fuzzy=False)
    for path in sorted(PANELS.rglob('*')):
        method, read = _SOURCES[domain].get(path.suffix, (None, None))
        if method is None or not path.is_file():
            continue
        for line, message, _comments, context in extract.extract(
                method, io.BytesIO(read(path).encode()), _KEYWORDS):
            found.add(message, context=context, locations=[
                (str(path.relative_to(PANELS)), line)])
    return found


def updated(path: pathlib.Path) -> catalog.Catalog:
    """Return a language's catalogue with the messages of today."""
    with path.open('rb') as file:
        kept = pofile.read_po(file, locale=path.parts[-3])
    kept.update(extracted(path.stem), no_fuzzy_matching=True,
                update_creation_date=False)
    kept.obsolete.clear()
    return kept


def written(messages: catalog.Catalog) -> tuple[bytes, bytes]:
    """Return a catalogue as files: of text, and compiled."""
    text, compiled = io.BytesIO(), io.BytesIO()
    # Lines of code would change the file with every change of the code.
    pofile.write_po(text, messages, omit_header=False, no_location=True,
                    sort_output=True, width=79)
    mofile.write_mo(compiled, messages)
    return text.getvalue(), compiled.getvalue()


def catalogues() -> collections.abc.Iterator[tuple[
        pathlib.Path, catalog.Catalog, bytes, bytes]]:
    """Yield each language's files, their messages, and files' contents."""
    for path in sorted(PANELS.glob('locale/*/LC_MESSAGES/*.po')):
        messages = updated(path)
        yield path, messages, *written(messages)


def update() -> int:
    """Write what has changed."""
    for path, _messages, text, compiled in catalogues():
        path.write_bytes(text)
        path.with_suffix('.mo').write_bytes(compiled)
    return 0


def check() -> int:
    """Report what is missing."""
    wrong = []
    for path, messages, text, compiled in catalogues():
        wrong += [f'{path}: not translated: {message.id!r}'
                  for message in messages if message.id
                  and not all(message.string if isinstance(
                      message.string, tuple) else (message.string,))]
        if path.read_bytes() != text:
            wrong.append(f'{path}: not current; run "tox -e messages"')
        elif path.with_suffix('.mo').read_bytes() != compiled:
            wrong.append(f'{path}: not compiled; run "tox -e messages"')
    print('\n'.join(wrong))
    return 1 if wrong else 0


if __name__ == '__main__':
    conf.settings.configure(USE_I18N=False)
    sys.exit({'update': update, 'check': check}[sys.argv[1]]())
