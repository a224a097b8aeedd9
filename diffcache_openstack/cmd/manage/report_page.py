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
"""The report of ``diffcache-manage site report`` as a page."""

import collections.abc
import html

# What the page calls the fields, in their order.
_TITLES = {
    'requests': 'Requests', 'wan': 'Over the WAN', 'time': 'Time',
    'money': 'Money', 'what_if': 'What would help', 'hosts': 'Hosts',
    'hosts_without_benefit': 'Hosts whose cache saves nothing',
    'unused_images': 'Images that the site holds and did not request'}
_STYLE = '''
body { font: 16px/1.5 sans-serif; margin: 2em auto; max-width: 50em;
       padding: 0 1em; color: #222; background: #fff; }
h1 { font-size: 1.5em; }
h2 { font-size: 1.1em; margin: 1.5em 0 0.3em; }
p { margin: 0.2em 0; }
'''


def render(values: collections.abc.Mapping[str, str]) -> str:
    """Return an HTML page of one file, which loads nothing.

    :param values: fields of the report in words; a line break separates
        sentences
    """
    title = html.escape(
        f'Site {values["site"]}: {values["days"]} days of its image cache')
    sections = '\n'.join(
        f'<h2>{html.escape(heading)}</h2>\n{_paragraphs(values[name])}'
        for name, heading in _TITLES.items() if name in values)
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n'
            f'<meta charset="utf-8">\n<title>{title}</title>\n'
            f'<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n'
            f'{sections}\n</body>\n</html>\n')


def _paragraphs(text):
    return '\n'.join(f'<p>{html.escape(line)}</p>'
                     for line in text.splitlines())
