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
"""Certificates for tests, made when they are needed."""

import datetime
import ipaddress
import pathlib

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509
from cryptography.x509 import oid

ADDRESS = '127.0.0.1'
_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM


class Authority:
    """Issues certificates into a directory, which is made if need be."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name('Authority')
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        now = datetime.datetime.now(datetime.timezone.utc)
        self._certificate = _begin(
            self._name, self._key, (now - _DAY, now + _DAY)).issuer_name(
                self._name).add_extension(constraints, critical=True).sign(
                    self._key, hashes.SHA256())

    def issue(self, name: str, subject: str = ADDRESS, days: int = 1
              ) -> dict[str, str]:
        """Write a certificate, its key and that of the authority.

        :param name: of the files
        :param subject: address or name of the host
        :param days: until it expires, in days; negative if it has
        :returns: the paths by option of ``[data_plane]``
        """
        paths = {end: self._directory / f'{name}.{end}'
                 for end in ('ca', 'cert', 'key')}
        key = ec.generate_private_key(ec.SECP256R1())
        end = datetime.datetime.now(datetime.timezone.utc) + days * _DAY
        certificate = _begin(_name(name), key, (end - 3 * _DAY, end))
        signed = certificate.issuer_name(self._name).add_extension(
            x509.SubjectAlternativeName([_subject(subject)]),
            critical=False).sign(self._key, hashes.SHA256())
        # The key last, as tools that renew certificates do.
        paths['ca'].write_bytes(self._certificate.public_bytes(_PEM))
        paths['cert'].write_bytes(signed.public_bytes(_PEM))
        paths['key'].touch(mode=0o600)
        paths['key'].write_bytes(key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()))
        return {f'tls_{end}_file': str(path) for end, path in paths.items()}


def _begin(name: x509.Name, key: ec.EllipticCurvePrivateKey,
           times: tuple[datetime.datetime, datetime.datetime]
           ) -> x509.CertificateBuilder:
    return x509.CertificateBuilder().subject_name(name).public_key(
        key.public_key()).serial_number(
            x509.random_serial_number()).not_valid_before(
                times[0]).not_valid_after(times[1])


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, text)])


def _subject(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
