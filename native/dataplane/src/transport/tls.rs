//! TLS between hosts: certificates of the deployment's own authorities tell who belongs to it.
//!
//! TLS 1.3 alone, and both sides show a certificate. What a host is asked under, its name or address, has to be in its certificate; of a host that
//! asks it is enough that its certificate is of one of the authorities. Sessions are not resumed, so that each connection is judged by
//! today's files. Requests are signed all the same.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Instant;

use diffcache_base::locks::Unpoisoned;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};

use crate::transport::session::{Session, SessionError};

/// Permissions of other users.
const OTHERS: u32 = 0o007;

/// Paths of a host's certificate, key and authorities, as PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// Certificates of the authorities whose word counts.
    pub ca: PathBuf,
    /// This host's certificate, followed by those between it and an authority.
    pub cert: PathBuf,
    /// The private key of this host's certificate.
    pub key: PathBuf,
    /// Lists of certificates that the authorities have revoked.
    pub crl: Option<PathBuf>,
}

/// What becomes of peers that speak no TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainPeers {
    /// They are not answered, and nothing is asked of them in the clear.
    Refused,
    /// They are answered, and asked in the clear if that is how they announce themselves.
    Tolerated,
}

/// How a host speaks TLS.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its identity.
    pub files: Files,
    /// The others.
    pub plain: PlainPeers,
}

impl Options {
    /// From options as a configuration has them: all three files, or none for no TLS.
    pub fn from_files(
        ca: Option<PathBuf>,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        crl: Option<PathBuf>,
        plain: PlainPeers,
    ) -> Result<Option<Options>, TlsError> {
        match (ca, cert, key) {
            (None, None, None) if crl.is_none() => Ok(None),
            (Some(ca), Some(cert), Some(key)) => Ok(Some(Options {
                files: Files { ca, cert, key, crl },
                plain,
            })),
            _ => Err(TlsError::Incomplete),
        }
    }
}

/// Why a host's identity cannot be used. Messages name the option concerned.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Some of the files are given.
    #[error("tls_ca_file, tls_cert_file and tls_key_file go together, and tls_crl_file with them; set all three or none")]
    Incomplete,
    /// A file is not what it has to be.
    #[error("{option} {path}: {reason}")]
    File {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The files are each right but do not fit.
    #[error("tls_cert_file {cert} and tls_key_file {key} cannot be used together: {reason}")]
    Unfit {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What does not fit.
        reason: String,
    },
}

struct Loaded {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// A host's identity in use.
pub struct Tls {
    options: Options,
    loaded: RwLock<Loaded>,
    generation: AtomicU64,
}

impl Tls {
    /// Reads the files.
    pub fn open(options: Options) -> Result<Tls, TlsError> {
        let loaded = RwLock::new(load(&options.files)?);
        Ok(Tls {
            options,
            loaded,
            generation: AtomicU64::new(0),
        })
    }

    /// Reads the files again, for the connections to come; after an error everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = load(&self.options.files)?;
        *self.loaded.write().unpoisoned() = fresh;
        self.generation.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// How often the files were read again; connections of an earlier generation were judged by others.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Returns whether peers without TLS are accepted.
    pub fn tolerates_plain(&self) -> bool {
        self.options.plain == PlainPeers::Tolerated
    }

    /// Answers a peer's handshake.
    pub fn accept(&self, stream: &TcpStream, deadline: Instant) -> Result<Session, SessionError> {
        let config = self.read(|loaded| loaded.server.clone());
        let connection = rustls::ServerConnection::new(config).map_err(SessionError::Tls)?;
        Session::shake_hands(connection.into(), stream, deadline)
    }

    /// Begins a handshake with the peer that is reached as `host`, a name or an address.
    pub fn connect(
        &self,
        host: &str,
        stream: &TcpStream,
        deadline: Instant,
    ) -> Result<Session, SessionError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| {
            SessionError::Tls(rustls::Error::General(format!(
                "'{host}' is neither a name nor an address that a certificate could have"
            )))
        })?;
        let config = self.read(|loaded| loaded.client.clone());
        let connection = rustls::ClientConnection::new(config, name).map_err(SessionError::Tls)?;
        Session::shake_hands(connection.into(), stream, deadline)
    }

    fn read<T>(&self, take: impl FnOnce(&Loaded) -> T) -> T {
        take(&self.loaded.read().unpoisoned())
    }
}

/// What a peer did wrong, for who runs this host.
pub fn describe(error: &rustls::Error) -> String {
    match error {
        // Two authorities may have the same name.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "its certificate is of no authority in tls_ca_file".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::Revoked) => {
            "its certificate was revoked (tls_crl_file)".to_owned()
        }
        rustls::Error::InvalidCertificate(other) => {
            format!("its certificate cannot be accepted: {other}")
        }
        rustls::Error::NoCertificatesPresented => {
            "it shows no certificate; set its tls_cert_file".to_owned()
        }
        rustls::Error::InvalidMessage(_) => "what it sends is no TLS".to_owned(),
        rustls::Error::AlertReceived(alert) => format!(
            "it refuses this host's certificate or TLS ({alert:?}); compare tls_cert_file here with tls_ca_file there"
        ),
        other => other.to_string(),
    }
}

fn load(files: &Files) -> Result<Loaded, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let roots = Arc::new(load_authorities(&files.ca)?);
    let chain = load_certificates("tls_cert_file", &files.cert)?;
    let key = load_key(&files.key)?;
    let unfit = |error: rustls::Error| TlsError::Unfit {
        cert: files.cert.clone(),
        key: files.key.clone(),
        reason: error.to_string(),
    };
    let revoked = load_revoked(files.crl.as_deref())?;
    // An authority without a list has revoked nothing.
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .with_crls(revoked.clone())
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| verifier_error(files, error))?;
    let server_verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .with_crls(revoked)
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| verifier_error(files, error))?;
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unfit)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(unfit)?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    let client = load_client(provider, server_verifier, (chain, key)).map_err(unfit)?;
    Ok(Loaded {
        client: Arc::new(client),
        server: Arc::new(server),
    })
}

fn load_client(
    provider: Arc<CryptoProvider>,
    verifier: Arc<WebPkiServerVerifier>,
    (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
) -> Result<ClientConfig, rustls::Error> {
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(chain, key)?;
    client.resumption = Resumption::disabled();
    Ok(client)
}

fn load_authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in load_certificates("tls_ca_file", path)? {
        let added = roots.add(certificate);
        added.map_err(|error| file_error("tls_ca_file", path, error))?;
    }
    Ok(roots)
}

fn load_revoked(
    path: Option<&Path>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let Some(path) = path else {
        return Ok(Vec::new());
    };
    let read = CertificateRevocationListDer::pem_file_iter(path).and_then(Iterator::collect);
    let lists: Vec<_> = read.map_err(|error| file_error("tls_crl_file", path, error))?;
    match lists.is_empty() {
        true => Err(file_error(
            "tls_crl_file",
            path,
            "it has no revocation list in PEM",
        )),
        false => Ok(lists),
    }
}

/// Why what peers show cannot be judged, by the file that is at fault.
fn verifier_error(files: &Files, error: VerifierBuilderError) -> TlsError {
    match (&error, &files.crl) {
        (VerifierBuilderError::InvalidCrl(_), Some(crl)) => file_error("tls_crl_file", crl, error),
        _ => file_error("tls_ca_file", &files.ca, error),
    }
}

fn load_certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| file_error(option, path, error))?;
    match certificates.is_empty() {
        true => Err(file_error(option, path, "it has no certificate in PEM")),
        false => Ok(certificates),
    }
}

fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let fail = |reason: String| file_error("tls_key_file", path, reason);
    let metadata = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?;
    if metadata.permissions().mode() & OTHERS != 0 {
        return Err(fail(
            "other users may read or change it; remove their rights (chmod o=)".to_owned(),
        ));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        fail(format!(
            "it has no private key in PEM without a passphrase: {error}"
        ))
    })
}

fn file_error(option: &'static str, path: &Path, reason: impl ToString) -> TlsError {
    TlsError::File {
        option,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
