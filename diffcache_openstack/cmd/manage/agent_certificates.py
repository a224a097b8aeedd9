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
"""Certificates for TLS between agents, as ``setup`` issues them.

X.509 with ECDSA on P-256 (RFC 5280), what the page on TLS has openssl create.
"""

import datetime
import ipaddress
import pathlib

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys

_AUTHORITY_DAYS = 3650
_COMMON_NAME = x509.oid.NameOID.COMMON_NAME
_PEM = serialization.Encoding.PEM


def create_authority(key_path: pathlib.Path, certificate_path: pathlib.Path
                     ) -> None:
    """Create the authority of all agents' certificates.

    :raises Conflict: a file exists
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name('DiffCache agents')
    now = datetime.datetime.now(datetime.UTC)
    certificate = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now,
        now + datetime.timedelta(days=_AUTHORITY_DAYS)).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    ).add_extension(_of_key(key.public_key()), critical=False).sign(
        key, hashes.SHA256())
    _write(key_path, key, certificate_path, certificate)


def create_certificate(authority: tuple[pathlib.Path, pathlib.Path],
                       names: tuple[str, ...], key_path: pathlib.Path,
                       certificate_path: pathlib.Path) -> None:
    """Create a host's key and certificate, valid as long as the authority.

    :param authority: files of its key and certificate
    :param names: names and addresses under which peers reach the agent
    :raises Conflict: a file exists
    :raises InvalidInput: the authority is none of agents
    """
    issuer_key = serialization.load_pem_private_key(
        keys.read_secret(authority[0]), None)
    issuer = x509.load_pem_x509_certificate(authority[1].read_bytes())
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise exceptions.InvalidInput(
            f'{authority[0]} is not the key of an authority of agents.')
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = x509.CertificateBuilder(
        issuer.subject, _name(names[0]), key.public_key(),
        x509.random_serial_number(), datetime.datetime.now(datetime.UTC),
        issuer.not_valid_after_utc).add_extension(
        x509.SubjectAlternativeName([_general(each) for each in names]),
        critical=False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(
                issuer_key.public_key()), critical=False).sign(
        issuer_key, hashes.SHA256())
    _write(key_path, key, certificate_path, certificate)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(_COMMON_NAME, text[:64])])


def _general(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _of_key(key: ec.EllipticCurvePublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _write(key_path, key, certificate_path, certificate):
    keys.write_secret(key_path, key.private_bytes(
        _PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()))
    keys.write_new(certificate_path, certificate.public_bytes(_PEM), 0o644)
