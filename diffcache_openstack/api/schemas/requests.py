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
"""Schemas of the history of requests, and of the forecast."""

from diffcache_openstack.api.schemas import common

_REQUEST = common.closed({
    'id': common.STRING, 'image_id': common.STRING,
    'host': common.STRING, 'site': common.STRING, 'mode': common.STRING,
    'way': common.STRING, 'detail': common.STRING, 'seconds': common.NUMBER,
    'predicted_seconds': common.NUMBER_OR_NULL, 'wan_bytes': common.COUNT,
    'lan_bytes': common.COUNT, 'fallbacks': common.COUNT,
    'patch_id': common.TEXT_OR_NULL, 'apply_seconds': common.NUMBER,
    'started_at': common.INSTANT, 'error': common.TEXT_OR_NULL})

LIST_QUERY = common.paged_query({
    'host': {**common.NAME, 'description': 'List only requests of this host.'},
    'site': {**common.SITE, 'description': 'List only requests of this site.'},
    'image_id': {**common.IMAGE, 'description':
                 'List only requests for this image.'},
    'way': {**common.NAME, 'description':
            'List only requests served this way: local, peer, build or'
            ' repository by an agent, nova or glance without one.'},
    'failed': {**common.BOOLEAN, 'description':
               'List only requests that failed (true) or succeeded (false).'},
    'since': {**common.INSTANT, 'description':
              'List only requests since this time.'},
    'until': {**common.INSTANT, 'description':
              'List only requests before this time.'}})
LIST = common.listing('requests', _REQUEST)

FORECAST_QUERY = common.query({
    'limit': {'type': 'integer', 'minimum': 1, 'description':
              'Maximum number of entries to list; those expected most '
              'often come first.'}})
FORECAST = common.closed({'site': common.SITE, 'forecast': {
    'type': 'array', 'items': common.closed({
        'content_id': common.HASH, 'host': common.NAME,
        'images': {'type': 'array', 'items': common.IMAGE},
        'requests_per_day': common.NUMBER})}})
