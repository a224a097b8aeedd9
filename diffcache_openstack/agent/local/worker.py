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
"""What the agent answers on its local socket."""

import contextlib
import logging
import os
import pathlib
import stat
import typing

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images import costs as prices
from diffcache_openstack.agent.images import recipes
from diffcache_openstack.agent.local import server
from diffcache_openstack.agent.local import usage as usages
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)

OUTPUT_MODE = 0o644
_DESCRIBED = ('id', 'name', 'content_id', 'size', 'data_size', 'disk_format',
              'file_size', 'os_hash_algo', 'os_hash_value', 'owner',
              'visibility', 'status')


class Agent(typing.Protocol):
    """What is needed of the agent; see :mod:`.service`."""

    def status(self) -> dict:
        """What the agent is doing."""

    def find_template(self, template_id: str) -> views.TemplateRef:
        """A template that may be served."""

    def current_view(self) -> views.SiteView:
        """The site map."""

    def deliver(self, template: views.TemplateRef, output: str,
                mode: str | None, watch: contents.Watch | None
                ) -> objects.Request:
        """Write an image's raw content to a path."""

    def save_server(self, server_id: str, project_id: str, trigger: str,
                    image_id: str | None,
                    watch: typing.Callable[[int, int], bool]
                    ) -> dict[str, typing.Any]:
        """Save a server that is about to go, if its policy says so."""

    def expecting(self, template: views.TemplateRef
                  ) -> contextlib.AbstractContextManager[None]:
        """Raw content is on its way here by the hands of others."""

    def keep_content(self, template: views.TemplateRef,
                     path: pathlib.Path) -> None:
        """Hold, or lend, raw content that came another way."""

    def let_go(self, template: views.TemplateRef) -> None:
        """Hold an image's content no longer, unless the plan wants it."""


class Outputs:
    """Where clients may have images written.

    :param directories: and what is below them
    """

    def __init__(self, directories: list[str]) -> None:
        self._directories = [pathlib.Path(name) for name in directories]

    def check(self, output: str) -> pathlib.Path:
        """The output's real path.

        :raises InvalidInput: it must not be written; the message names the
            option
        """
        path = pathlib.Path(output)
        if not path.is_absolute() or path.name in ('', '.', '..'):
            raise exceptions.InvalidInput(
                f'The output {output} is not an absolute path of a file.')
        parent = pathlib.Path(os.path.realpath(path.parent))
        if not any(parent.is_relative_to(os.path.realpath(directory))
                   for directory in self._directories):
            raise exceptions.InvalidInput(
                f'The output {output} is below none of [agent]'
                f' output_directories; add its directory there.')
        path = parent / path.name
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise exceptions.InvalidInput(
                    f'The output {output} exists and is no regular file; name'
                    f' another one.')
        return path

    @staticmethod
    def hand_over(path: pathlib.Path) -> None:
        """Let the directory's owner use the file, and everybody read it.

        That owner may have put a link to somebody else's file in its place.

        :raises Conflict: it is no longer the file that was written
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                         | os.O_CLOEXEC)
        except OSError as error:
            raise _replaced(path) from error
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise _replaced(path)
            os.fchmod(fd, OUTPUT_MODE)
            if os.geteuid() == 0:
                owner = path.parent.stat()
                os.fchown(fd, owner.st_uid, owner.st_gid)
        finally:
            os.close(fd)


def _replaced(path: pathlib.Path) -> exceptions.Conflict:
    return exceptions.Conflict(
        f'The output {path} was replaced while it was handed over; see who'
        f' else writes to its directory.')


class LocalWorker:
    """See :class:`diffcache_openstack.agent.local.server.Worker`.

    :param agent: serves images
    :param costs: what images cost here
    :param made: images as files
    :param usage: counts
    :param outputs: where images may be written
    """

    def __init__(self, agent: Agent, costs: prices.Costs, made: recipes.Files,
                 usage: usages.Usage, outputs: Outputs) -> None:
        self._agent = agent
        self._costs = costs
        self._files = made
        self._usage = usage
        self._outputs = outputs

    def status(self) -> dict:
        """What the agent is doing."""
        found = self._agent.status()
        return {**found, 'counters': found['data_plane'],
                'fallbacks': self._usage.fallbacks(),
                'files_used': self._files.store.used(),
                'files': [{'image_id': self._image_of(name), 'bytes': size}
                          for name, size in
                          self._files.store.oldest_first()]}

    def image(self, image_id: str) -> dict:
        """What is known of an image, and what it costs here.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        return self._describe(self._agent.find_template(image_id))

    def images(self) -> list[dict]:
        """The same of all that may be served, by id."""
        return [self._describe(template) for template in
                sorted(self._agent.current_view().templates,
                       key=lambda template: template.id)
                if template.status == views.ACTIVE]

    def content(self, image_id: str, output: str, mode: str | None,
                watch: contents.Watch) -> objects.Request:
        """Write an image's raw content to a path.

        :raises InvalidInput: the path must not be written
        :raises DiffCacheError: the image cannot be had; there is no output
        """
        path = self._outputs.check(output)
        template = self._agent.find_template(image_id)
        watch.progress(0, template.size)
        request = self._agent.deliver(template, str(path), mode, watch)
        if watch.gone.is_set():
            LOG.info('Nobody waits for %s any more; removed', path)
            path.unlink(missing_ok=True)
        else:
            self._outputs.hand_over(path)
        return request

    @contextlib.contextmanager
    def file(self, image_id: str, site_only: bool
             ) -> typing.Iterator[server.Reader]:
        """The file that Glance has.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        :raises Conflict: ``site_only``, and that would take the WAN
        """
        template = self._agent.find_template(image_id)
        with self._files.open(template, site_only) as reader:
            self._usage.hit(image_id)
            yield reader

    @contextlib.contextmanager
    def expecting(self, image_id: str) -> typing.Iterator[None]:
        """An image's file is on its way: no fill is to bring it besides.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        template = self._agent.find_template(image_id)
        LOG.debug('The file of image %s is on its way', image_id)
        with self._agent.expecting(template):
            yield

    def give_file(self, image_id: str, source: typing.BinaryIO,
                  length: int) -> None:
        """Take an image's file that somebody had to fetch himself.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        :raises IntegrityError: it is another file
        """
        template = self._agent.find_template(image_id)
        raw = self._files.take(template, source, length)
        self._usage.admit(image_id)
        if raw is None:
            return
        try:
            self._agent.keep_content(template, raw)
        except exceptions.RetryableError as error:
            LOG.warning('The content of image %s is of no use to the site'
                        ' now: %s', image_id, error)
        finally:
            files.discard(raw)

    def drop(self, image_id: str) -> None:
        """Forget what clients have of an image.

        What the plan wants here stays: it serves Nova, and would be fetched
        again.

        :raises NotFound: the catalogue does not have it, or it was withdrawn
        """
        template = self._agent.find_template(image_id)
        self._files.drop(template)
        self._agent.let_go(template)
        self._usage.dismiss(image_id)

    def queue(self) -> list[str]:
        """Images to be cached, oldest first."""
        return self._usage.queue()

    def enqueue(self, image_id: str) -> bool:
        """Queue an image; whether it was neither queued nor cached."""
        with contextlib.suppress(exceptions.NotFound):
            if self.image(image_id)['cached']:
                return False
        return self._usage.enqueue(image_id)

    def dequeue(self, image_id: str) -> bool:
        """Take an image out of the queue; whether it was in it."""
        return self._usage.dequeue(image_id)

    def fallback(self, service: str, reason: str, count: int) -> None:
        """Count what a service did without the agent."""
        self._usage.fallback(service, reason, count)

    def save_server(self, server_id: str, wish: dict[str, typing.Any],
                    watch: contents.Watch) -> dict[str, typing.Any]:
        """Save a server that is about to go, if its policy says so.

        :param wish: ``project_id``, ``trigger`` (shutdown or delete) and
            ``image_id``
        :raises InvalidInput: the wish is none
        :raises ServiceUnavailable: nobody can tell what the policy is
        """
        project_id, trigger = wish.get('project_id'), wish.get('trigger')
        image_id = wish.get('image_id')
        if not (isinstance(project_id, str) and isinstance(trigger, str)
                and isinstance(image_id, (str, type(None)))):
            raise exceptions.InvalidInput(
                'A server is saved with a project_id, a trigger and maybe an'
                ' image_id.')

        def tell(done: int, total: int) -> bool:
            watch.progress(done, total)
            return not watch.gone.is_set()

        return self._agent.save_server(server_id, project_id, trigger,
                                       image_id, tell)

    def forget_withdrawn(self) -> None:
        """Drop files of images that may not be served any more."""
        view = self._agent.current_view()
        gone = [template for template in view.templates
                if template.status != views.ACTIVE]
        served = {template.form_id or template.content_id
                  for template in view.templates
                  if template.status == views.ACTIVE}
        for template in gone:
            if (template.form_id or template.content_id) not in served:
                self._files.drop(template)
        self._usage.forget({template.id for template in gone})

    def _describe(self, template: views.TemplateRef) -> dict:
        content = self._costs.content(template)
        file = self._files.cost(template, content)
        use = self._usage.of(template.id)
        return {
            **{name: getattr(template, name) for name in _DESCRIBED},
            'way': content.way,
            'predicted_seconds': content.seconds,
            'wan_bytes': content.wan_bytes,
            'at_site': content.at_site,
            'arriving': content.arriving,
            'planned': self._costs.planned(template),
            'file_wan_bytes': file.wan_bytes,
            'file_at_site': file.at_site,
            'file_arriving': file.arriving,
            'hits': use.hits,
            'last_access': use.last_access,
            'cached': file.at_site and not use.dismissed,
        }

    def _image_of(self, name: str) -> str:
        """The image that a kept file is of."""
        return next((template.id for template
                     in self._agent.current_view().templates
                     if name in (template.form_id, template.content_id)),
                    name)
