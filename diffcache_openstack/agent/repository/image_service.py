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
"""What an image service is asked, and what it says of an image."""

import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class ServiceImage:
    """An image as its service describes it.

    :param status: active, deactivated, deleted, or one on the way there
    :param os_hash_value: of the file, made with os_hash_algo
    :param members: projects that it is shared with, sorted
    """

    id: str
    name: str
    status: str
    disk_format: str | None
    container_format: str | None
    size: int | None
    os_hash_algo: str | None
    os_hash_value: str | None
    owner: str | None
    visibility: str
    family: str | None = None
    members: list[str] = dataclasses.field(default_factory=list)


class ImageService(typing.Protocol):
    """An image service."""

    def images(self) -> typing.Iterable[ServiceImage]:
        """Return all images of all projects.

        :raises RetryableError: the service does not answer
        """

    def image(self, image_id: str) -> ServiceImage | None:
        """Return one image; None if there is none (any more).

        :raises RetryableError: the service does not answer
        """

    def download(self, image_id: str) -> typing.Iterable[bytes]:
        """Yield an image's file, in pieces.

        :raises RetryableError: the service does not answer, or broke off
        """

    def start(self, changed: typing.Callable[[str], None],
              deleted: typing.Callable[[str], None]) -> None:
        """Start to report the IDs of images that changed or were deleted."""

    def stop(self) -> None:
        """Stop reporting."""
