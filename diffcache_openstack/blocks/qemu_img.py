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
"""Conversions of images by qemu-img."""

import subprocess

from diffcache_openstack.common import exceptions


def compress(raw: str, packed: str, method: str = 'zlib') -> None:
    """Create a compressed qcow2 image of a raw one.

    :param method: ``zlib``, or ``zstd``, which takes a sixth of the CPU time
    :raises InvalidInput: ``qemu-img`` is missing
    :raises NoSpace: the file system of ``packed`` is full
    :raises PermanentError: ``qemu-img`` failed
    """
    _convert('-c', '-f', 'raw', '-O', 'qcow2', '-o',
             f'compression_type={method}', raw, packed)


def expand(packed: str, raw: str) -> None:
    """Create a raw image of a qcow2 one, as Nova does.

    :raises InvalidInput: ``qemu-img`` is missing
    :raises NoSpace: the file system of ``raw`` is full
    :raises PermanentError: ``qemu-img`` failed
    """
    _convert('-f', 'qcow2', '-O', 'raw', packed, raw)


def _convert(*arguments: str) -> None:
    """Run ``qemu-img convert``; the last argument is the output."""
    try:
        done = subprocess.run(['qemu-img', 'convert', *arguments],
                              capture_output=True, text=True)
    except FileNotFoundError as exc:
        raise exceptions.InvalidInput(
            'qemu-img is missing, which converts qcow2 images: install the '
            'package qemu-utils, or use raw images.') from exc
    if done.returncode == 0:
        return
    output, message = arguments[-1], done.stderr.strip()
    if 'No space left' in message:
        raise exceptions.NoSpace(
            f'{output}: no space left; free some and try again.')
    raise exceptions.PermanentError(
        f'qemu-img could not write {output}: {message}')
