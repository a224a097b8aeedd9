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
import datetime
import os
import time

from cryptography import x509
from cryptography.x509 import oid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys
from tests import base
from tests import certificates
from tests import host_key_files

CONTENT = b'content'


class HostKeysTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.keys = host_key_files.Keys(self.directory / 'keys')
        self.key = self.keys.key('compute', 'host-1.example')
        self.authority = self.keys.authority()

    def refused(self, *arguments, authority=None):
        error = self.assertRaises(
            exceptions.Forbidden, (authority or self.authority).verify,
            *arguments)
        return str(error)


class TestVerification(HostKeysTest):

    def test_signer_is_named(self):
        signer = self.authority.verify(
            self.key.certificate, self.key.sign(CONTENT), CONTENT)
        self.assertEqual(('host-1.example', 'compute'),
                         (signer.name, signer.role))
        self.assertLess(abs(time.time() - signer.issued), 60)

    def test_other_content_or_signature(self):
        other = self.keys.key('compute', 'host-2')
        for signature in (self.key.sign(b'other'), other.sign(CONTENT), '',
                          '?', None, 7):
            self.refused(self.key.certificate, signature, CONTENT)

    def test_no_certificate(self):
        for certificate in (None, '', 'AAAA', '?', 'A' * 10_000):
            self.refused(certificate, self.key.sign(CONTENT), CONTENT)

    def test_certificates_of_unknown_algorithms(self):
        der = host_keys.base64.b64decode(self.key.certificate)
        # The identifier of Ed25519, of the key and of the signature.
        known, unknown = bytes.fromhex('06032b6570'), bytes.fromhex(
            '0603006570')
        for changed in (der.replace(known, unknown),
                        der.replace(known, unknown, 1),
                        # Version 3 becomes one that there is not.
                        der.replace(bytes.fromhex('a003020102'),
                                    bytes.fromhex('a003020109'))):
            self.assertNotEqual(der, changed)
            self.refused(host_keys.base64.b64encode(changed).decode(),
                         self.key.sign(CONTENT), CONTENT)

    def test_signatures_that_are_no_ascii(self):
        for signature in ('\x80', 'é' * 88, '\ud800'):
            self.refused(self.key.certificate, signature, CONTENT)

    def test_other_authority(self):
        other = host_key_files.Keys(self.directory / 'others')
        key = other.key('controller', 'host-1.example')
        self.assertIn('not issued by the authority', self.refused(
            key.certificate, key.sign(CONTENT), CONTENT))

    def test_two_authorities_while_one_is_replaced(self):
        other = host_key_files.Keys(self.directory / 'others')
        both = self.write_file('both', self.keys.pair[1].read_bytes()
                               + other.pair[1].read_bytes())
        authority = host_keys.Authority(both)
        for key in (self.key, other.key('compute', 'x')):
            authority.verify(key.certificate, key.sign(CONTENT), CONTENT)

    def test_expired(self):
        signature = self.key.sign(CONTENT)
        for seconds in (-3600, 31 * 86400):
            error = self.assertRaises(
                exceptions.Forbidden, self.authority.verify,
                self.key.certificate, signature, CONTENT,
                time.time() + seconds)
            self.assertIn('host-key create', str(error))

    def test_a_host_issues_no_certificates(self):
        forged = host_keys._begin(
            x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, 'x')]),
            x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME,
                                          'host-1.example')]),
            self.key._key.public_key(), 1).add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(
                    'diffcache://controller/x')]), critical=False).sign(
                        self.key._key, None)
        text = host_keys.base64.b64encode(forged.public_bytes(
            host_keys.serialization.Encoding.DER)).decode()
        self.refused(text, self.key.sign(CONTENT), CONTENT)

    def test_authority_is_no_host(self):
        certificate = x509.load_pem_x509_certificate(
            self.keys.pair[1].read_bytes())
        text = host_keys.base64.b64encode(certificate.public_bytes(
            host_keys.serialization.Encoding.DER)).decode()
        self.assertIn('names no host', self.refused(
            text, self.key.sign(CONTENT), CONTENT))


class TestFiles(HostKeysTest):

    def test_keys_are_private(self):
        for path in (self.keys.pair[0], self.keys.path('compute', 'x')):
            self.assertEqual(0o600, path.stat().st_mode & 0o777)
        path = self.keys.path('compute', 'x')
        path.chmod(0o640)
        error = self.assertRaises(exceptions.InvalidInput, host_keys.HostKey,
                                  path)
        self.assertIn('chmod 600', str(error))

    def test_nothing_is_overwritten(self):
        self.assertRaises(exceptions.Conflict, host_keys.create_authority,
                          *self.keys.pair, 1)
        path = self.keys.path('compute', 'x')
        before = path.read_bytes()
        self.assertRaises(exceptions.Conflict, self.keys.create, 'compute',
                          'x', path)
        self.assertEqual(before, path.read_bytes())

    def test_names_and_roles(self):
        for host, role in (('a/b', 'compute'), ('', 'compute'),
                           ('x', 'boss'), ('x' * 256, 'compute')):
            self.assertRaises(exceptions.InvalidInput, self.keys.create, role,
                              host, self.directory / 'new')
        self.assertRaises(exceptions.InvalidInput, self.keys.create,
                          'compute', 'x', self.directory / 'new', 'a site')
        self.assertFalse((self.directory / 'new').exists())
        path = self.directory / 'long'
        self.keys.create('compute', 'x' * 255, path)
        self.assertEqual('edge', host_keys.HostKey(path).signer.site)
        self.assertEqual('x' * 255, host_keys.HostKey(path).signer.name)

    def test_no_certificate_that_has_expired_when_it_is_issued(self):
        for days in (-4, 0, 10 ** 9):
            path = self.directory / f'{days}'
            self.assertRaises(
                exceptions.InvalidInput, host_keys.create_host_key,
                self.keys.pair, host_keys.Subject('x', 'compute', 'edge'),
                path, days)
            self.assertRaises(
                exceptions.InvalidInput, host_keys.create_authority, path,
                path, days)
            self.assertFalse(path.exists())

    def test_unusable_files(self):
        for content in (b'', b'no key', self.keys.pair[1].read_bytes(),
                        self.keys.pair[0].read_bytes()):
            path = self.write_file('bad', content)
            os.chmod(path, 0o600)
            self.assertRaises(exceptions.InvalidInput, host_keys.HostKey,
                              path)
        for path in (self.directory / 'none', self.keys.pair[0]):
            self.assertRaises(exceptions.InvalidInput, host_keys.Authority,
                              path)

    def test_key_and_certificate_of_two_hosts(self):
        one, other = (self.keys.path('compute', name).read_bytes()
                      for name in ('a', 'b'))
        mark = b'-----BEGIN CERTIFICATE'
        path = self.write_file('mixed', one.split(mark)[0] + mark
                               + other.split(mark)[1])
        path.chmod(0o600)
        self.assertRaises(exceptions.InvalidInput, host_keys.HostKey, path)

    def test_certificates_of_the_data_plane_are_no_host_keys(self):
        tls = certificates.Authority(self.directory / 'tls').issue('h1')
        path = self.write_file('tls.pem', b''.join(
            open(tls[name], 'rb').read()
            for name in ('tls_key_file', 'tls_cert_file')))
        path.chmod(0o600)
        self.assertRaises(exceptions.InvalidInput, host_keys.HostKey, path)

    def test_when_it_was_issued(self):
        self.assertEqual(datetime.timedelta(0),
                         self.key.signer.issued_at.utcoffset())
