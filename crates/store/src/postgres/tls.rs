//! Encryption of the connection, and which certificates of a server are accepted.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::error::ConnectError;
use super::url::{Tls, Trust};

/// Returns the connector for these demands.
pub(crate) fn connector(tls: &Tls) -> Result<MakeRustlsConnect, ConnectError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier::new(tls, provider.clone()).map_err(certificates_error)?);
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| certificates_error(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn certificates_error(error: String) -> ConnectError {
    ConnectError::Certificates { error }
}

/// Decides whether a server's certificate is accepted.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` if any certificate is accepted.
    check: Option<Check>,
}

#[derive(Debug)]
struct Check {
    /// Verifies that a root has signed the certificate, and then its name.
    chain: Arc<WebPkiServerVerifier>,
    /// The certificates of the file that the address names. A server that signs its own certificate presents one of
    /// them itself, which `chain` refuses because it is a root.
    roots: Vec<CertificateDer<'static>>,
    /// Whether the certificate has to name the host.
    named: bool,
}

impl Verifier {
    fn new(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Verifier, String> {
        let check = match tls.trust {
            Trust::Anybody => None,
            Trust::Certified | Trust::Named => Some(Check::new(tls, provider.clone())?),
        };
        Ok(Verifier { provider, check })
    }
}

impl Check {
    fn new(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Check, String> {
        let mut store = RootCertStore::empty();
        let roots = match &tls.root {
            Some(file) => read_certificates(file)?,
            None => Vec::new(),
        };
        if tls.root.is_some() {
            for root in &roots {
                store.add(root.clone()).map_err(|error| error.to_string())?;
            }
        } else {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(
                    "this system has no trusted root certificates; name a file with sslrootcert"
                        .to_owned(),
                );
            }
        }
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Check { chain, roots, named: tls.trust == Trust::Named })
    }
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    let found = read().map_err(|error| format!("{}: {error}", file.display()))?;
    if found.is_empty() {
        return Err(format!("{} contains no certificate", file.display()));
    }
    Ok(found)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(check) = &self.check else { return Ok(ServerCertVerified::assertion()) };
        if check.roots.contains(certificate) {
            verify_dates(certificate, now)?;
            if check.named {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match check.chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is the last thing that is verified.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !check.named => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn verify_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let parsed = Certificate::from_der(certificate)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let validity = parsed.tbs_certificate.validity;
    let now = now.as_secs();
    if now < validity.not_before.to_unix_duration().as_secs() {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now > validity.not_after.to_unix_duration().as_secs() {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}
