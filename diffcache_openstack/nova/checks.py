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
"""What must be right in nova.conf before the driver may start.

A mistake that made every image fall back to Nova's own download would go
unnoticed, so it stops the service. An agent that is not up yet does not.
"""

import errno
import logging
import os
import pathlib
import socket
import stat

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import option_names
from diffcache_openstack.nova import options

LOG = logging.getLogger(__name__)

IMAGES_TYPES = ('default', 'qcow2', 'raw', 'flat')
VIRT_TYPES = ('kvm', 'qemu')
# sockaddr_un has room for this many bytes, the last of them zero.
_LONGEST_SOCKET = 107


def check(conf: cfg.ConfigOpts) -> None:
    """Check Nova's configuration.

    :raises InvalidInput: it cannot work; the message names the option
    """
    _check_names(conf)
    _check_images(conf)
    _check_state_file(pathlib.Path(conf.diffcache.state_file))
    path = _socket_path(conf.diffcache.socket)
    _check_socket(path, conf.diffcache.connect_timeout)


def _check_names(conf):
    try:
        option_names.check_group(
            option_names.files_of(conf), options.GROUP.name,
            [*options.COMPUTE_OPTS, *options.SCHEDULER_OPTS])
    except option_names.UnknownOptionError as error:
        raise exceptions.InvalidInput(str(error)) from error


def _check_images(conf):
    if conf.libvirt.images_type not in IMAGES_TYPES:
        raise exceptions.InvalidInput(
            f'[libvirt] images_type is {conf.libvirt.images_type}, but'
            f' compute_driver = diffcache.LibvirtDriver provides base images'
            f' for {", ".join(IMAGES_TYPES)} only; set one of them, or'
            f' compute_driver = libvirt.LibvirtDriver.')
    if conf.libvirt.virt_type not in VIRT_TYPES:
        raise exceptions.InvalidInput(
            f'[libvirt] virt_type is {conf.libvirt.virt_type}, but'
            f' compute_driver = diffcache.LibvirtDriver works with'
            f' {" and ".join(VIRT_TYPES)} only.')
    if not conf.force_raw_images:
        raise exceptions.InvalidInput(
            '[DEFAULT] force_raw_images is false, but the base images that'
            ' compute_driver = diffcache.LibvirtDriver provides are raw; set'
            ' it to true.')


def _check_state_file(path):
    if not path.is_absolute():
        raise exceptions.InvalidInput(
            f'[diffcache] state_file is {path}; give an absolute path.')
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise exceptions.InvalidInput(
            f'[diffcache] state_file is {path}, in a directory that does not'
            f' exist or that nova-compute cannot write to; make it, or name'
            f' another file.')


def _socket_path(text):
    if not text:
        raise exceptions.InvalidInput(
            '[diffcache] socket is not set; name the socket of this host\'s'
            ' agent, "[agent] socket" of its diffcache.conf.')
    path = pathlib.Path(text)
    if not path.is_absolute() or len(os.fsencode(path)) > _LONGEST_SOCKET:
        raise exceptions.InvalidInput(
            f'[diffcache] socket is {text}; give an absolute path of at most'
            f' {_LONGEST_SOCKET} bytes.')
    return path


def _check_socket(path, timeout):
    """Check whether there is an agent, or could be one later.

    :raises InvalidInput: there can be none
    """
    try:
        kind = path.lstat().st_mode
    except PermissionError as error:
        raise _no_right(path) from error
    except OSError as error:
        if not path.parent.is_dir():
            raise exceptions.InvalidInput(
                f'[diffcache] socket is {path}, but there is no directory'
                f' {path.parent}; name the socket of this host\'s agent,'
                f' "[agent] socket" of its diffcache.conf.') from error
        _warn(path, error)
        return
    if not stat.S_ISSOCK(kind):
        raise exceptions.InvalidInput(
            f'[diffcache] socket is {path}, which is no socket; name the'
            f' socket of this host\'s agent.')
    _try_to_connect(path, timeout)


def _try_to_connect(path, timeout):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
        except PermissionError as error:
            raise _no_right(path) from error
        except OSError as error:
            _warn(path, error)


def _no_right(path):
    return exceptions.InvalidInput(
        f'[diffcache] socket is {path}, to which this user may not connect;'
        f' put it into the group that "[agent] socket_group" of'
        f' diffcache.conf names, and QEMU\'s user into none of them.')


def _warn(path, error):
    LOG.warning('Agent unreachable at %s ([diffcache] socket): %s; images are'
                ' fetched as [diffcache] fallback says until it answers', path,
                os.strerror(error.errno) if error.errno in errno.errorcode
                else error)
