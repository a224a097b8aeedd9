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
"""Keys that services of a deployment sign with, and what vouches for them.

Each host has an Ed25519 key and a certificate (X.509) of the deployment's
authority, together in one file that only the service may read. The certificate
names the host and its role in one URI, diffcache://ROLE/HOST?site=SITE;
controllers and Cinder's services are of no site. Who verifies needs nothing
but the authority's own certificate, which is no secret. The authority's key is
needed to issue certificates, and nowhere else.
"""

import base64
import collections.abc
import dataclasses
import datetime
import functools
import os
import pathlib
import re
import time
import typing

from cryptography import exceptions as crypto_exceptions
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives import serialization
from cryptography import x509
from cryptography.x509 import oid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys

COMPUTE = 'compute'
REPOSITORY = 'repository'
CONTROLLER = 'controller'
# cinder-volume and cinder-backup: they hold and back up volumes.
CINDER = 'cinder'
ROLES = (COMPUTE, REPOSITORY, CONTROLLER, CINDER)
# Of hosts that are no agents'.
WITHOUT_SITE = (CONTROLLER, CINDER)

SCHEME = 'diffcache'
_HOST = r'([A-Za-z0-9][A-Za-z0-9._-]{0,254})'
_NAME = re.compile(
    rf'{SCHEME}://(?:({CONTROLLER}|{CINDER})/{_HOST}'
    rf'|({COMPUTE}|{REPOSITORY})/{_HOST}\?site=([A-Za-z0-9._-]{{1,64}}))')
_SKEW = datetime.timedelta(minutes=5)
_MOST_DAYS = 36_500
_KEPT_CERTIFICATES = 10_000
_LARGEST_CERTIFICATE = 8192
# What reading a hostile certificate raises; not all are ValueErrors.
_UNREADABLE = (ValueError, crypto_exceptions.UnsupportedAlgorithm,
               x509.DuplicateExtension, x509.InvalidVersion,
               x509.UnsupportedGeneralNameType)
_PEM = serialization.Encoding.PEM


@dataclasses.dataclass(frozen=True)
class Subject:
    """What a certificate says of a host.

    :param site: None for one of :data:`WITHOUT_SITE`
    """

    name: str
    role: str
    site: str | None = None

    def __str__(self) -> str:
        return f'{self.role} {self.name}'

    @property
    def uri(self) -> str:
        """The name in the certificate."""
        site = f'?site={self.site}' if self.site is not None else ''
        return f'{SCHEME}://{self.role}/{self.name}{site}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signer(Subject):
    """A host, as its certificate names it.

    :param issued: when its certificate became valid, in seconds since 1970
    """

    issued: float

    @property
    def issued_at(self) -> datetime.datetime:
        """When its certificate became valid."""
        return datetime.datetime.fromtimestamp(self.issued, datetime.UTC)


class HostKey:
    """A host's key, with the certificate that names the host.

    :ivar expires_at: when signatures of this key are accepted no more
    :param path: of the file that :func:`create_host_key` wrote
    :raises InvalidInput: the file cannot be used
    """

    def __init__(self, path: str | os.PathLike) -> None:
        data = keys.read_secret(path)
        try:
            key = serialization.load_pem_private_key(data, None)
            certificate = x509.load_pem_x509_certificate(data)
            self.signer = _signer(certificate)
        except (ValueError, TypeError) as error:
            raise _unusable(path, error) from error
        if not isinstance(key, ed25519.Ed25519PrivateKey) \
                or key.public_key() != certificate.public_key():
            raise _unusable(path, 'key and certificate do not belong together')
        self._key = key
        self.expires_at = certificate.not_valid_after_utc
        self.certificate = base64.b64encode(certificate.public_bytes(
            serialization.Encoding.DER)).decode()

    def sign(self, content: bytes) -> str:
        """Return the signature of some bytes, in base64."""
        return base64.b64encode(self._key.sign(content)).decode()


class RevocationList(typing.Protocol):
    """Keys that count no more before their certificates expire."""

    def check(self, signer: Signer) -> None:
        """Check that the key of a host is not revoked.

        :raises Forbidden: it is
        """


class Authority:
    """Verifies signatures of hosts.

    :param path: of the authority's certificate; while an authority is being
        replaced, of a file with those of both
    :raises InvalidInput: the file has no certificate
    """

    def __init__(self, path: str | os.PathLike) -> None:
        try:
            data = pathlib.Path(path).read_bytes()
            self._issuers = x509.load_pem_x509_certificates(data)
        except (OSError, ValueError) as error:
            raise _unusable(path, error) from error
        # Of a host the certificate is the same in each message.
        self._read = functools.lru_cache(_KEPT_CERTIFICATES)(self._read_anew)
        self._revoked: RevocationList | None = None

    def refuse_revoked(self, revoked: RevocationList) -> None:
        """Refuse signatures of keys on a list from now on."""
        self._revoked = revoked

    def check_revoked(self, signer: Signer) -> None:
        """Check that the key of a host is not revoked.

        :raises Forbidden: it is
        """
        if self._revoked is not None:
            self._revoked.check(signer)

    def verify(self, certificate: object, signature: object, content: bytes,
               when: float | None = None) -> Signer:
        """Return who signed some bytes.

        :param certificate: of the signer, as :class:`HostKey` has it
        :param when: when the certificate has to be valid, in seconds since
            1970; now if it is None
        :raises Forbidden: this authority did not issue the certificate, it is
            not valid at that time, its key is revoked, or the signature is not
            that of its key
        """
        if not isinstance(certificate, str) or not isinstance(signature, str) \
                or len(certificate) > _LARGEST_CERTIFICATE:
            raise exceptions.Forbidden('The signature has no certificate.')
        read, signer = self._read(certificate)
        instant = datetime.datetime.fromtimestamp(
            time.time() if when is None else when, datetime.UTC)
        if not (read.not_valid_before_utc - _SKEW <= instant
                <= read.not_valid_after_utc):
            raise exceptions.Forbidden(
                f'The certificate of {signer} is valid from'
                f' {read.not_valid_before_utc} to {read.not_valid_after_utc};'
                f' issue a new one with "diffcache-manage host-key create".')
        key = read.public_key()
        assert isinstance(key, ed25519.Ed25519PublicKey)
        try:
            key.verify(base64.b64decode(signature, validate=True), content)
        except (crypto_exceptions.InvalidSignature, ValueError) as error:
            raise exceptions.Forbidden(
                f'The signature is not that of {signer}.') from error
        self.check_revoked(signer)
        return signer

    def _read_anew(self, text: str) -> tuple[x509.Certificate, Signer]:
        try:
            certificate = x509.load_der_x509_certificate(
                base64.b64decode(text, validate=True))
            signer = _signer(certificate)
        except _UNREADABLE as error:
            raise exceptions.Forbidden(
                f'A certificate cannot be used: {error}.') from error
        for issuer in self._issuers:
            try:
                certificate.verify_directly_issued_by(issuer)
            except (*_UNREADABLE, TypeError,
                    crypto_exceptions.InvalidSignature):
                continue
            return certificate, signer
        raise exceptions.Forbidden(
            f'The certificate of {signer} was not issued by the authority of'
            f' this deployment; issue one with "diffcache-manage host-key'
            f' create".')


def create_authority(key_path: str | os.PathLike,
                     certificate_path: str | os.PathLike, days: int) -> None:
    """Create a deployment's authority.

    :param key_path: file of its key, which must not exist
    :param certificate_path: file of its certificate, which must not exist
    :raises Conflict: a file exists
    :raises InvalidInput: a file cannot be written, or no certificate be valid
        for this many days
    """
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(
        oid.NameOID.COMMON_NAME, f'DiffCache {os.urandom(4).hex()}')])
    certificate = _begin(name, name, key.public_key(), days).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(
            key, None)
    keys.write_secret(key_path, _private(key))
    keys.write_new(certificate_path, certificate.public_bytes(_PEM), 0o644)


def create_host_key(authority: tuple[str | os.PathLike, str | os.PathLike],
                    host: Subject, path: str | os.PathLike, days: int
                    ) -> None:
    """Create the key of a host, with its certificate.

    :param authority: files of the authority's key and certificate
    :param host: with ``[agent] host`` and ``[agent] site`` of its agent
    :param path: file to write, which must not exist
    :raises Conflict: the file exists
    :raises InvalidInput: a file cannot be read or written, a name not be
        used, or no certificate be valid for this many days
    """
    if not _NAME.fullmatch(host.uri):
        raise exceptions.InvalidInput(
            f'There can be no key for the {host.role} "{host.name}" of site'
            f' {host.site}: roles are {", ".join(ROLES)}, names of hosts and'
            f' sites consist of letters, digits, ".", "-" and "_", and all but'
            f' {" and ".join(WITHOUT_SITE)} have a site.')
    issuer_key, issuer = _load_authority(*authority)
    key = ed25519.Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME,
                                            host.name[:64])])
    certificate = _begin(subject, issuer.subject, key.public_key(),
                         days).add_extension(
        x509.SubjectAlternativeName([
            x509.UniformResourceIdentifier(host.uri)]),
        critical=False).sign(issuer_key, None)
    keys.write_secret(path, _private(key) + certificate.public_bytes(_PEM))


def _load_authority(key_path, certificate_path):
    data = keys.read_secret(key_path)
    try:
        key = serialization.load_pem_private_key(data, None)
        certificate = x509.load_pem_x509_certificate(
            pathlib.Path(certificate_path).read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise _unusable(f'{key_path} or {certificate_path}', error) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey) \
            or key.public_key() != certificate.public_key():
        raise _unusable(key_path,
                        f'its key is not that of {certificate_path}')
    return key, certificate


def _begin(subject: x509.Name, issuer: x509.Name,
           key: ed25519.Ed25519PublicKey, days: int
           ) -> x509.CertificateBuilder:
    if not 1 <= days <= _MOST_DAYS:
        raise exceptions.InvalidInput(
            f'A certificate cannot be valid for {days} days; give 1 to'
            f' {_MOST_DAYS}.')
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), now,
        now + datetime.timedelta(days=days))


def _private(key: ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())


def _signer(certificate: x509.Certificate) -> Signer:
    """Return whom a certificate names.

    :raises ValueError: it is not that of a host
    """
    if not isinstance(certificate.public_key(), ed25519.Ed25519PublicKey):
        raise ValueError('its key is no Ed25519 key')
    try:
        names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value.get_values_for_type(
                x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        names = []
    found: collections.abc.Sequence[re.Match | None] = [
        _NAME.fullmatch(name) for name in names]
    if len(found) != 1 or found[0] is None:
        raise ValueError('it names no host of DiffCache')
    siteless, itself, role, name, site = found[0].groups()
    return Signer(itself or name, siteless or role, site,
                  issued=certificate.not_valid_before_utc.timestamp())


def _unusable(path: object, reason: object) -> exceptions.InvalidInput:
    return exceptions.InvalidInput(
        f'Key file {path} cannot be used ({reason}); see "diffcache-manage'
        f' host-key create --help".')
