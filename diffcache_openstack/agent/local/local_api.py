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
"""HTTP interface of the local socket, for the other services of its host.

Nova's driver and Glance's cache driver send their requests here. It needs
neither conductor nor broker.
"""

import collections.abc
import contextlib
import logging
import re
import threading
import typing

from werkzeug import routing
from werkzeug import wrappers

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import serving
from diffcache_openstack.agent.images import host_status
from diffcache_openstack.agent.lazy import lazy_images
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.agent.local import file_usage
from diffcache_openstack.agent.local import local_images
from diffcache_openstack.agent.local import long_work
from diffcache_openstack.agent.local import messages
from diffcache_openstack.agent.local import socket_api
from diffcache_openstack.agent.local import version_delivery
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.versions import server_images
from diffcache_openstack.agent.versions import version_service
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import fields as object_fields

LOG = logging.getLogger(__name__)

# Requests with a thread of their own, and those that only keep a connection:
# together they leave threads of the server to requests that are short.
MOST_EXPECTATIONS = 24
# Bytes of a version that one request returns.
MOST_RANGE = 64 << 20
# Seconds that a request waits for a volume to be written back.
_MOST_DRAIN_S = 300
# Paths as they are sent, before they are unquoted: ids may have slashes.
_ROUTES = routing.Map([
    routing.Rule(path, methods=[method], endpoint=name)
    for method, path, name in (
        ('GET', '/v1/status', 'show_status'),
        ('GET', '/v1/images', 'list_images'),
        ('GET', '/v1/images/<image_id>', 'show_image'),
        ('DELETE', '/v1/images/<image_id>', 'drop_image'),
        ('GET', '/v1/images/<image_id>/file', 'send_file'),
        ('PUT', '/v1/images/<image_id>/file', 'take_file'),
        ('POST', '/v1/images/<image_id>/prefetched', 'prefetch'),
        ('POST', '/v1/images/<image_id>/content', 'deliver'),
        ('POST', '/v1/images/<image_id>/expected', 'expect'),
        ('POST', '/v1/images/<image_id>/lent', 'lend'),
        ('POST', '/v1/images/<image_id>/lazy', 'open_lazy'),
        ('GET', '/v1/lazy', 'list_lazy'),
        ('POST', '/v1/lazy/<content_id>/released', 'release_lazy'),
        ('PUT', '/v1/lazy-servers/<server_id>', 'add_lazy_server'),
        ('DELETE', '/v1/lazy-servers/<server_id>', 'remove_lazy_server'),
        ('POST', '/v1/servers/<server_id>/versions', 'save_server'),
        ('POST', '/v1/servers/<server_id>/image', 'write_server_image'),
        ('POST', '/v1/versions/<version_id>/lazy', 'open_version'),
        ('POST', '/v1/versions/<version_id>/content', 'deliver_version'),
        ('GET', '/v1/version-contents/<content_id>', 'read_version'),
        ('GET', '/v1/queue', 'list_queue'),
        ('PUT', '/v1/queue/<image_id>', 'enqueue'),
        ('DELETE', '/v1/queue/<image_id>', 'dequeue'),
        ('GET', '/v1/ssd-cache', 'show_ssd_cache'),
        ('PUT', '/v1/ssd-cache/volumes/<volume_id>', 'attach_volume'),
        ('DELETE', '/v1/ssd-cache/volumes/<volume_id>', 'detach_volume'),
        ('POST', '/v1/ssd-cache/volumes/<volume_id>/guest-ended',
         'end_volume_guest'),
        ('POST', '/v1/ssd-cache/volumes/<volume_id>/resize', 'resize_volume'),
        ('POST', '/v1/ssd-cache/volumes/<volume_id>/disconnect',
         'disconnect_volume'),
        ('POST', '/v1/ssd-cache/volumes/<volume_id>/expected',
         'expect_volume'),
        ('PUT', '/v1/ssd-cache/volumes/<volume_id>/mode', 'set_volume_mode'),
        ('PUT', '/v1/ssd-cache/volumes/<volume_id>/leave', 'drain_volume'),
        ('DELETE', '/v1/ssd-cache/volumes/<volume_id>/leave',
         'give_volume_back'),
        ('POST', '/v1/ssd-cache/volumes/<volume_id>/forgotten',
         'forget_volume'),
        ('POST', '/v1/fallbacks', 'fallback'))
])
# What Glance's cache driver needs: files of images, no path of this host, no
# server and no volume.
_OF_GLANCE = frozenset((
    'dequeue', 'drop_image', 'enqueue', 'expect', 'fallback', 'list_images',
    'list_queue', 'prefetch', 'send_file', 'show_image', 'take_file'))
_GLANCE_ROUTES = routing.Map([
    routing.Rule('/v1/status', methods=['GET'], endpoint='show_files'),
    *(rule.empty() for rule in _ROUTES.iter_rules()
      if rule.endpoint in _OF_GLANCE)])


class Versions(typing.NamedTuple):
    """What saves servers, and provides what was saved.

    :ivar service: saves servers
    :ivar content: has readers of versions that are served
    :ivar delivery: writes versions to paths
    :ivar images: makes images of servers
    """

    service: version_service.VersionService
    content: version_reads.VersionReads
    delivery: version_delivery.VersionDelivery
    images: server_images.ServerImages


def _on_volume(name: str) -> collections.abc.Callable:
    """Return the handler that calls a method of the cache with a volume."""
    def handle(self, _request, volume_id):
        getattr(self._volumes(), name)(_volume(volume_id))
        return wrappers.Response(status=204)

    return handle


class LocalApi(socket_api.SocketApi):
    """The WSGI application of Nova's socket; :meth:`for_glance` is Glance's.

    :param status: describes this host
    :param images: of this host
    :param image_server: writes images to paths
    :param usage: counts
    :param versions: what saves servers, and provides versions
    :param lazy: serves images while they arrive
    :param volumes: in the SSD cache; None without one
    """

    def __init__(self, status: host_status.HostStatus,
                 images: local_images.LocalImages,
                 image_server: serving.ImageServer,
                 usage: file_usage.FileUsage,
                 versions: Versions,
                 lazy: lazy_images.LazyImages,
                 volumes: cached_volumes.CachedVolumes | None = None) -> None:
        self._status = status
        self._images = images
        self._image_server = image_server
        self._usage = usage
        self._versions = versions
        self._lazy = lazy
        self._cached_volumes = volumes
        self._work = long_work.LongWork()
        self._expectations = threading.BoundedSemaphore(MOST_EXPECTATIONS)

    def __call__(self, environ: dict, start_response: typing.Callable
                 ) -> collections.abc.Iterable[bytes]:
        """Answer a request of Nova's."""
        return self.serve(_ROUTES, environ, start_response)

    def for_glance(self, environ: dict, start_response: typing.Callable
                   ) -> collections.abc.Iterable[bytes]:
        """Answer a request of Glance's."""
        return self.serve(_GLANCE_ROUTES, environ, start_response)

    # -- handlers

    def _show_status(self, _request):
        found = self._status.report()
        return messages.answer({
            **found, 'counters': found['data_plane'],
            'fallbacks': self._usage.fallbacks(), **self._images.status()})

    def _show_files(self, _request):
        return messages.answer(self._images.status())

    def _list_images(self, _request):
        return messages.answer({'images': self._images.list()})

    def _show_image(self, request, image_id):
        size = request.args.get('new_file_size', '')
        if messages.DIGITS.fullmatch(size):
            return messages.answer(
                self._images.describe_new(image_id, int(size)))
        return messages.answer(self._images.describe(image_id))

    def _drop_image(self, _request, image_id):
        self._images.drop(image_id)
        return wrappers.Response(status=204)

    def _list_queue(self, _request):
        return messages.answer({'images': self._usage.queue()})

    def _enqueue(self, _request, image_id):
        return messages.answer({'queued': self._images.enqueue(image_id)})

    def _dequeue(self, _request, image_id):
        return messages.answer({'queued': self._usage.dequeue(image_id)})

    def _fallback(self, request):
        body = messages.read_json(request)
        service, reason = body.get('service'), body.get('reason')
        count = body.get('count', 1)
        if not (messages.is_name(service) and messages.is_name(reason)
                and isinstance(count, int) and count > 0):
            raise exceptions.InvalidInput(
                f'A fallback has a service and a reason, each of 1 to'
                f' {messages.LONGEST_NAME} printable characters, and a count'
                f' of at least one.')
        LOG.warning('%s worked without the agent %d times (%s), image %s',
                    service, count, reason, body.get('image_id'))
        self._usage.fallback(service, reason, count)
        return wrappers.Response(status=204)

    def _volumes(self) -> cached_volumes.CachedVolumes:
        if self._cached_volumes is None:
            raise exceptions.NotFound(
                'This host has no SSD cache; set [ssd_cache] control.')
        return self._cached_volumes

    def _show_ssd_cache(self, _request):
        return messages.answer(self._volumes().status())

    def _attach_volume(self, request, volume_id):
        wanted = volume_settings.parse(messages.read_json(request))
        return messages.answer(
            self._volumes().attach(_volume(volume_id), wanted))

    _detach_volume = _on_volume('detach')
    _end_volume_guest = _on_volume('end_guest')
    _resize_volume = _on_volume('resize')
    _disconnect_volume = _on_volume('disconnect')
    _give_volume_back = _on_volume('give_back')
    _forget_volume = _on_volume('forget')

    def _set_volume_mode(self, request, volume_id):
        mode = messages.read_json(request).get('mode')
        if not isinstance(mode, str) or mode not in choices.MODES:
            raise exceptions.InvalidInput(
                f'The mode of a volume is one of'
                f' {", ".join(choices.MODES)}.')
        self._volumes().set_mode(_volume(volume_id), mode)
        return wrappers.Response(status=204)

    def _expect_volume(self, request, volume_id):
        host = messages.read_json(request).get('host')
        if not isinstance(host, str) \
                or not re.fullmatch(object_fields.HOST_PATTERN, host):
            raise exceptions.InvalidInput(
                'A volume is expected from a host, which has a name.')
        self._volumes().expect(_volume(volume_id), host)
        return wrappers.Response(status=204)

    def _drain_volume(self, request, volume_id):
        body = messages.read_json(request)
        seconds, leaves = body.get('seconds'), body.get('leaves')
        if not (isinstance(seconds, (int, float)) and seconds is not True
                and isinstance(leaves, bool)
                and 0 <= seconds <= _MOST_DRAIN_S):
            raise exceptions.InvalidInput(
                f'A volume is drained for 0 to {_MOST_DRAIN_S} seconds, and'
                f' its server leaves or may leave: true or false.')
        self._volumes().drain(_volume(volume_id), seconds, leaves)
        return wrappers.Response(status=204)

    def _send_file(self, request, image_id):
        site_only = request.args.getlist('site_only')[-1:] == ['1']
        with contextlib.ExitStack() as stack:
            reader = stack.enter_context(
                self._images.file(image_id, site_only))
            wanted = messages.parse_range(request.headers.get('Range'),
                                          reader.size)
            start, end = wanted or (0, reader.size)
            # Before the head: a read that fails can still be an error.
            first = reader.read(start, min(messages.PIECE, end - start))
            response = wrappers.Response(
                messages.pieces(reader, first, start, end),
                status=206 if wanted else 200,
                mimetype='application/octet-stream',
                headers={'Content-Length': str(end - start),
                         'Accept-Ranges': 'bytes'})
            if wanted:
                response.headers['Content-Range'] = (
                    f'bytes {start}-{end - 1}/{reader.size}')
            response.call_on_close(stack.pop_all().close)
        return response

    def _take_file(self, request, image_id):
        if 'Content-Length' not in request.headers:
            raise exceptions.InvalidInput(
                'The length of the file is missing; send Content-Length.')
        self._images.give_file(
            image_id, request.environ['wsgi.input'],
            int(request.headers['Content-Length']))
        return wrappers.Response(status=204)

    def _prefetch(self, _request, image_id):
        self._images.prefetch(image_id)
        return wrappers.Response(status=204)

    def _expect(self, request, image_id):
        with contextlib.ExitStack() as stack:
            long_work.take_place(self._expectations, 'expected images')
            stack.callback(self._expectations.release)
            stack.enter_context(self._images.expecting(image_id))
            response = wrappers.Response(messages.until_closed(request),
                                         mimetype=messages.JSON_LINES)
            response.call_on_close(stack.pop_all().close)
        return response

    def _deliver(self, request, image_id):
        body = messages.read_json(request)
        output, mode = body.get('output'), body.get('mode')
        own_bytes = body.get('own_bytes')
        if not (isinstance(output, str)
                and isinstance(mode, (str, type(None)))
                and (own_bytes is None or type(own_bytes) is int)):
            raise exceptions.InvalidInput(
                'The content of an image needs an output, a path, and may'
                ' have a mode and own_bytes, a number.')
        watch = contents.Watch(own_bytes)
        name = f'content-{image_id[:8]}'
        return self._work.stream(request, name, watch, lambda: {
            'request': messages.plain(self._image_server.deliver_image(
                image_id, output, mode, watch))})

    def _lend(self, request, image_id):
        path = messages.read_json(request).get('path')
        if not isinstance(path, str):
            raise exceptions.InvalidInput(
                'A file with the content of an image has a path.')
        return messages.answer(
            {'borrowed': self._images.lend(image_id, path)})

    def _open_lazy(self, request, image_id):
        return messages.answer(self._lazy.open(
            image_id, _rate_of(messages.read_json(request))))

    def _list_lazy(self, _request):
        return messages.answer({'images': self._lazy.describe_served()})

    def _release_lazy(self, _request, content_id):
        self._lazy.release(content_id)
        return wrappers.Response(status=204)

    def _add_lazy_server(self, request, server_id):
        document = messages.read_json(request)
        self._lazy.add_server(lazy_servers.parse(server_id, document),
                              lazy_servers.parse_wish(document))
        return wrappers.Response(status=204)

    def _remove_lazy_server(self, _request, server_id):
        self._lazy.remove_server(server_id)
        return wrappers.Response(status=204)

    def _save_server(self, request, server_id):
        body = messages.read_json(request)
        project_id, trigger = body.get('project_id'), body.get('trigger')
        image_id = body.get('image_id')
        if not (isinstance(project_id, str) and isinstance(trigger, str)
                and isinstance(image_id, (str, type(None)))):
            raise exceptions.InvalidInput(
                'A server is saved with a project_id, a trigger and maybe'
                ' an image_id.')
        watch = contents.Watch()
        name = f'save-{server_id[:8]}'
        return self._work.stream(request, name, watch, lambda: {
            'saved': self._versions.service.save_before(
                server_id, project_id, trigger, image_id, watch.advance)})

    def _write_server_image(self, request, server_id):
        body = messages.read_strings(request, 'project_id', 'disk', 'output',
                                     'format')
        watch = contents.Watch()
        new = server_images.NewImage(server_id, body['project_id'],
                                     body['disk'], body['output'],
                                     body['format'])
        return self._work.stream(
            request, f'image-{server_id[:8]}', watch,
            lambda: {'written': self._versions.images.write(new, watch)})

    def _open_version(self, request, version_id):
        body = messages.read_strings(request, 'project_id', 'image_id')
        return messages.answer(self._lazy.open_version(
            version_id, body['project_id'], body['image_id'],
            _rate_of(body)))

    def _deliver_version(self, request, version_id):
        body = messages.read_strings(request, 'project_id', 'output')
        watch = contents.Watch()

        def work() -> dict:
            self._versions.delivery.deliver(
                version_id, body['project_id'], body['output'], watch)
            return {'delivered': version_id}

        return self._work.stream(request, f'version-{version_id[:8]}', watch,
                                 work)

    def _read_version(self, request, content_id):
        reader = self._versions.content.open_reader(content_id)
        wanted = messages.parse_range(request.headers.get('Range'),
                                      reader.size)
        if wanted is None or wanted[1] - wanted[0] > MOST_RANGE:
            raise exceptions.InvalidInput(
                f'A version is read by ranges of at most {MOST_RANGE} bytes.')
        start, end = wanted
        return wrappers.Response(
            reader.read(start, end - start), status=206,
            mimetype='application/octet-stream', headers={
                'Content-Range': f'bytes {start}-{end - 1}/{reader.size}'})


def _rate_of(body: dict[str, typing.Any]) -> int | None:
    """Return the rate at which an image is to be fetched, in bytes per second.

    :raises InvalidInput: it is not within its limits
    """
    wish = lazy_servers.parse_wish(body)
    return wish.rate if wish else None


def _volume(text: str) -> str:
    """Return the id of a volume.

    :raises InvalidInput: it is none
    """
    if not messages.is_name(text):
        raise exceptions.InvalidInput(
            f'A volume\'s id has 1 to {messages.LONGEST_NAME} printable'
            f' characters.')
    return text
