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
"""This host's certificate and keys: their replacement, and what failed."""

import ipaddress
import pathlib
import threading
import typing

from cryptography import x509
from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys

LOG = log.getLogger(__name__)

# How often files are checked and failed connections logged, seconds.
LOOK_SECONDS = 5.0
_FILES = ('tls_ca_file', 'tls_cert_file', 'tls_key_file', 'tls_crl_file')
_Stamp = tuple[int, int, int] | None


def scheme(conf: cfg.ConfigOpts) -> str:
    """Return the scheme of this host's URL: ``https`` or ``http``."""
    options = conf.data_plane
    secure = options.tls_cert_file and not options.tls_plain_peers
    return 'https' if secure else 'http'


def is_loopback(listen: str) -> bool:
    """Return whether only this machine reaches an address to listen on."""
    address = listen.rpartition(':')[0].strip('[]')
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == 'localhost'


def check_encryption(conf: cfg.ConfigOpts) -> None:
    """Check that transfers are encrypted, or need not be.

    :raises InvalidInput: they are not, and other machines reach the address
    """
    options = conf.data_plane
    if is_loopback(options.listen) \
            or (options.tls_cert_file and not options.tls_plain_peers):
        return
    if not (options.tls_cert_file or options.allow_plain):
        raise exceptions.InvalidInput(
            f'Transfers with peers would not be encrypted on'
            f' {options.listen}: set [data_plane] tls_ca_file, tls_cert_file'
            f' and tls_key_file, or listen on a loopback address. To transfer'
            f' images in the clear, set allow_plain = true.')
    LOG.warning('Transfers with peers are not encrypted on %s; set'
                ' [data_plane] tls_ca_file, tls_cert_file and tls_key_file,'
                ' and unset allow_plain and tls_plain_peers.', options.listen)


def read_keys(conf: cfg.ConfigOpts) -> orders.Keys | None:
    """Return the keys of this host; None if it has none.

    :raises InvalidInput: a file holds no key, or others may access it
    """
    options = conf.data_plane
    if not options.key_file:
        return None
    return orders.Keys(
        (options.key_name, keys.read_key(options.key_file)),
        tuple((name, keys.read_key(path))
              for name, path in options.accepted_keys.items()))


def certificate_end(conf: cfg.ConfigOpts) -> float | None:
    """Return when this host's certificate expires, in seconds since 1970.

    :returns: None if there is none, or it cannot be read: what reloads it logs
        why
    """
    path = conf.data_plane.tls_cert_file
    if not path:
        return None
    try:
        found = x509.load_pem_x509_certificate(pathlib.Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return found.not_valid_after_utc.timestamp()


class Identity:
    """Certificates and keys, which may be replaced while the agent runs.

    Created before the data plane reads the files, so that no change is
    missed.

    :param conf: a configuration with the group ``data_plane``
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._stamps = self._look_at_files()
        self._wake = threading.Event()
        self._stopped = False
        self._asked = False
        self._thread: threading.Thread | None = None

    @property
    def files(self) -> list[pathlib.Path]:
        """The files that are watched, as they are configured now."""
        options = self._conf.data_plane
        named = [options[name] for name in (*_FILES, 'key_file')]
        return [pathlib.Path(path)
                for path in (*named, *options.accepted_keys.values()) if path]

    def options(self) -> dict[str, typing.Any]:
        """Return the TLS options of the data plane."""
        options = self._conf.data_plane
        return {**{name: options[name] or None for name in _FILES},
                'tls_plain_peers': options.tls_plain_peers}

    def start(self, plane: native_plane.DataPlane) -> None:
        """Check the files regularly, and after each SIGHUP."""
        self._conf.register_mutate_hook(self._configuration_read)
        self._thread = threading.Thread(
            target=self._run, args=(plane,), daemon=True, name='identity')
        self._thread.start()

    def stop(self) -> None:
        """Stop checking."""
        self._stopped = True
        self._wake.set()
        if self._thread:
            self._thread.join()

    def look(self, plane: native_plane.DataPlane) -> None:
        """Reload changed files, and log which connections and hosts failed."""
        stamps = self._look_at_files()
        if stamps != self._stamps or self._asked:
            self._stamps, self._asked = stamps, False
            self._reload(plane)
        for address, reason, count in plane.take_complaints():
            LOG.warning('Peer %s, %d times: %s', address, count, reason)

    def _configuration_read(self, _conf, _fresh) -> None:
        self._asked = True
        self._wake.set()

    def _run(self, plane: native_plane.DataPlane) -> None:
        while not self._stopped:
            try:
                self.look(plane)
            except Exception:
                # The thread's edge: the next check may succeed.
                LOG.exception('Could not check the certificates')
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()

    def _reload(self, plane: native_plane.DataPlane) -> None:
        try:
            found = read_keys(self._conf)
            if found is not None:
                plane.set_keys(found)
            plane.reload_tls()
        except exceptions.InvalidInput as error:
            LOG.error('Could not reload keys and certificates, keeping those '
                      'in use until the files change again: %s', error)
        else:
            LOG.info('Reloaded certificates and keys')

    def _look_at_files(self) -> list[_Stamp]:
        return [_stamp(path) for path in self.files]


def _stamp(path: pathlib.Path) -> _Stamp:
    """Return what changes with a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
