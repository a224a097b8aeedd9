//! Requests for claims, and answers, as JSON.

use serde::{Deserialize, Serialize};

use crate::serving::claims::Holder;
use crate::serving::request::RequestError;
use crate::serving::response::Refusal;

const LONGEST_NAME: usize = 255;
const LONGEST_URL: usize = 1024;

/// What a host asks a coordinator for.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The applicant's name.
    pub holder: String,
    /// The base URL of the applicant's data plane.
    #[serde(default)]
    pub url: String,
    /// A holder that the applicant found dead.
    #[serde(default)]
    pub suspect: Option<String>,
}

/// The answer on a claim that no host holds.
pub(super) const UNCLAIMED: &str = "null";

/// What a coordinator answers.
#[derive(Serialize, Deserialize)]
pub struct ClaimAnswer {
    /// Who holds the claim now.
    pub holder: String,
    /// Where the object can be read while it arrives there.
    pub url: String,
}

pub(super) fn claim_answer(holder: Holder) -> Result<String, Refusal> {
    let answer = ClaimAnswer {
        holder: holder.name,
        url: holder.url,
    };
    serde_json::to_string(&answer).map_err(|error| Refusal::NotServable(error.to_string()))
}

pub(super) fn parse_claim(body: &[u8]) -> Result<ClaimRequest, Refusal> {
    let malformed = Refusal::Request(RequestError::Malformed(
        "the body of a claim is {\"holder\": name, \"url\": url, \"suspect\": name or null}",
    ));
    let Ok(asked) = serde_json::from_slice::<ClaimRequest>(body) else {
        return Err(malformed);
    };
    if asked.holder.is_empty() || asked.holder.len() > LONGEST_NAME || asked.url.len() > LONGEST_URL
    {
        return Err(malformed);
    }
    Ok(asked)
}
