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
"""A small shop's servers and images, for the pages to show."""

import json
import pathlib
import time
import typing

from diffcache_openstack.client import service
from tests.functional.openstack.dashboard import browser

_BASE = 'diffcache_base_image'
# Names of images by guests of the family; the first is the base of others.
_IMAGES = {'guest-base': 'debian-12-base', 'guest-web': 'debian-12-web',
           'guest-database': 'debian-12-database',
           'guest-both': 'debian-12-web-database',
           'guest-update': 'debian-12-base-2026-11'}
MEMBER, READER = 'shop', 'auditor'
_SECONDS = 600
_METADEFS = (pathlib.Path(__file__).parents[4]
             / 'etc/metadefs/diffcache.json')


class SampleTest(browser.BrowserTest):
    """A test with a site that holds a family of images, and two servers.

    :cvar images: IDs by name
    :cvar web: a server of the project, with two versions
    """

    images: dict[str, str]
    web: str
    site = 'site'

    @classmethod
    def setUpClass(cls) -> None:
        """Create the project's users, images and servers."""
        super().setUpClass()
        cls.cache = service.proxy_of(cls.trial.admin)
        cls._define_boot_mode()
        cls._upload()
        member = cls.trial.member(MEMBER)
        cls.trial.user(READER, MEMBER, 'reader')
        cls.member_cache = service.proxy_of(member)
        servers = [cls._server(member, 'web-1', 'debian-12-web'),
                   cls._server(member, 'db-1', 'debian-12-database')]
        cls.web = servers[0]
        # What the guest wrote is what the first version stores.
        cls.trial.wait_for_guest(cls.web, time.monotonic())
        cls.trial.wait_active(servers[1])
        for name in 'before-upgrade', 'after-upgrade':
            cls._save(name)
        cls._plan()

    @classmethod
    def _define_boot_mode(cls):
        document = json.loads(_METADEFS.read_text())
        image = cls.trial.admin.image
        image.post('/metadefs/namespaces',
                   json=document).raise_for_status()
        cls.addClassCleanup(
            image.delete,
            f'/metadefs/namespaces/{document["namespace"]}')

    @classmethod
    def _upload(cls):
        cls.images, properties = {}, {}
        guests = cls.trial.guests()
        for guest, name in _IMAGES.items():
            image = cls.trial.upload(name, guests[guest], **properties)
            cls.addClassCleanup(cls.trial.admin.image.delete_image, image,
                                ignore_missing=True)
            cls.images[name] = image
            properties = properties or {_BASE: image}
        cls.wait_until(lambda: cls._patched() >= len(_IMAGES),
                       'each image has a patch')

    @classmethod
    def _patched(cls):
        """Return to how many of the images there is a patch."""
        contents = {image.content_id for image in cls.cache.images()
                    if image.id in cls.images.values()}
        return len(contents & {patch.target for patch in
                               cls.cache.patches()})

    @classmethod
    def _server(cls, who, name, image):
        server = cls.trial.create(cls.images[image], name=name, who=who)
        cls.addClassCleanup(cls.trial.delete, server)
        return server

    @classmethod
    def _save(cls, name):
        version = cls.member_cache.create_server_version(
            server_id=cls.web, name=name)
        cls.addClassCleanup(cls._forget)
        cls.member_cache.wait_for_server_version(version.id, _SECONDS)

    @classmethod
    def _forget(cls):
        """Delete the versions of the server, and their images."""
        for version in list(cls.member_cache.server_versions(
                server_id=cls.web)):
            if version.image_id:
                cls.trial.admin.image.delete_image(version.image_id,
                                                   ignore_missing=True)
            if version.is_protected:
                cls.member_cache.update_server_version(version.id,
                                                       protected=False)
            if version.state in ('available', 'error'):
                cls.member_cache.delete_server_version(version.id)

    @classmethod
    def _plan(cls):
        """Have the site planned until a plan is applied.

        The conductor plans too, and only the latest proposal can be applied.
        """
        def is_applied():
            plan = cls.cache.wait_for_plan(
                cls.cache.create_plan(site=cls.site).id, _SECONDS)
            for current in cls.cache.plans(site=cls.site, state='current'):
                if current.generation != plan.base_generation:
                    return False
            cls.cache.apply_plan(plan.id)
            return True

        cls.wait_until(is_applied, 'a plan is applied')

    @property
    def versions_path(self) -> str:
        """Path of the tab of the server's versions."""
        return (f'/project/instances/{self.web}/'
                '?tab=instance_details__versions')

    def plan_of(self, state: str) -> typing.Any:
        """Return the latest plan of the site in a state, or None."""
        return next(iter(self.cache.plans(site=self.site, state=state)), None)
