//! Options of the data plane as Python gives them.

use diffcache_dataplane::serving::admission::Room;
use diffcache_dataplane::serving::service::Limits;
use diffcache_dataplane::transport::auth::{Keys, SiteKey};
use diffcache_dataplane::transport::tls::{Options, PlainPeers};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dataplane_handles::translate;
use crate::errors::InvalidInput;

/// An option, taken out of those that were given.
pub fn take<'py, T>(options: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let Some(value) = options.get_item(name)? else {
        return Ok(None);
    };
    options.del_item(name)?;
    if value.is_none() {
        return Ok(None);
    }
    value.extract().map(Some)
}

/// The key that requests are signed with, and those that are accepted beside it.
pub fn parse_keys(name: &str, secret: &[u8], accepted: Vec<(String, Vec<u8>)>) -> PyResult<Keys> {
    let parse = |name: &str, secret: &[u8]| {
        SiteKey::new(name, secret).map_err(|error| InvalidInput::new_err(error.to_string()))
    };
    Ok(Keys {
        signing: parse(name, secret)?,
        accepted: accepted
            .iter()
            .map(|(name, secret)| parse(name, secret))
            .collect::<PyResult<_>>()?,
    })
}

/// Limits of connections; 0 leaves no room, so there is room for one at least.
pub fn take_room(options: &Bound<'_, PyDict>) -> PyResult<Room> {
    let default = Limits::default().room;
    let number = |name: &str, default: usize| -> PyResult<usize> {
        Ok(take(options, name)?.unwrap_or(default).max(1))
    };
    let proven = number("max_connections", default.proven)?;
    Ok(Room {
        proven,
        per_address: number("max_connections_per_address", proven.div_ceil(2))?,
        unproven: number("max_unproven_connections", default.unproven)?,
    })
}

pub fn take_tls(options: &Bound<'_, PyDict>) -> PyResult<Option<Options>> {
    let plain = match take(options, "tls_plain_peers")?.unwrap_or(false) {
        true => PlainPeers::Tolerated,
        false => PlainPeers::Refused,
    };
    let (authority, certificate, key) = (
        take(options, "tls_ca_file")?,
        take(options, "tls_cert_file")?,
        take(options, "tls_key_file")?,
    );
    let revoked = take(options, "tls_crl_file")?;
    Options::from_files(authority, certificate, key, revoked, plain)
        .map_err(|error| translate(error.into()))
}
