//! The cluster's certificates: one authority, made anew for each bed.

use std::net::IpAddr;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// The authority that signs servers and clients.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "coder-operator-bed");
        let key = KeyPair::generate().context("make the authority's key")?;
        let issuer = CertifiedIssuer::self_signed(params, key).context("make the certificate authority")?;
        Ok(Self { issuer })
    }

    /// The authority's own certificate, as PEM.
    pub(super) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// A server that answers on that address.
    pub(super) fn server(&self, address: IpAddr) -> Result<Identity> {
        let names =
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned);
        let mut params = CertificateParams::new(names).context("name the API server")?;
        params.subject_alt_names.push(SanType::IpAddress(address));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// A client that Kubernetes knows as that user, in that group.
    pub(super) fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Identity> {
        let key = KeyPair::generate().context("make a key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("sign a certificate")?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// The key pair that signs service account tokens, as PEM: private, then public.
pub(super) fn service_account_keys() -> Result<(String, String)> {
    let key = KeyPair::generate().context("make the service account key")?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}
