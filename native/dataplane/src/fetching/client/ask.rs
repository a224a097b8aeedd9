//! The variable parts of a request, and its head.

use crate::fetching::peer::Peer;
use crate::serving::hints;
use crate::serving::ranges::Want;
use crate::serving::referrals::{self, HostName};
use crate::traces::{self, Trace};
use crate::transport::frames;

/// A request's variable parts.
pub struct Ask<'a> {
    /// The method.
    pub method: &'a str,
    /// The target.
    pub path: &'a str,
    /// Bytes `start..end`, if not all.
    pub range: Option<(u64, u64)>,
    /// The body, mostly empty.
    pub body: &'a [u8],
    /// For how many seconds the asking side may come back for more.
    pub hold: u64,
    /// What becomes of bytes that the peer lacks.
    pub want: Want,
    /// Whether the peer may answer in frames.
    pub takes_frames: bool,
    /// What is known here of the image, if hints are wanted.
    pub known: Option<&'a str>,
    /// This host's name, if it follows a referral.
    pub requester: Option<&'a HostName>,
}

/// A question that every peer answers.
pub(super) const HEALTH: Ask<'static> = Ask {
    method: "HEAD",
    path: "/v1/health",
    range: None,
    body: b"",
    hold: 0,
    want: Want::Fetched,
    takes_frames: false,
    known: None,
    requester: None,
};

impl Ask<'_> {
    /// Returns the value of the header `Range`; empty for all bytes.
    pub(super) fn range_header(&self) -> String {
        self.range
            .map(|(start, end)| format!("bytes={start}-{}", end - 1))
            .unwrap_or_default()
    }

    /// Returns the head of the request, without its credentials and its end.
    pub(super) fn head(&self, peer: &Peer, range: &str, trace: Option<&Trace>) -> String {
        let mut message = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            self.method,
            self.path,
            peer.authority()
        );
        if self.hold > 0 {
            message.push_str(&format!("X-DiffCache-Hold: {}\r\n", self.hold));
        }
        match self.want {
            Want::Present => message.push_str("X-DiffCache-Fetch: no\r\n"),
            Want::Arriving => message.push_str("X-DiffCache-Fetch: arriving\r\n"),
            Want::Fetched => {}
        }
        if let Some(name) = self.requester {
            message.push_str(&format!("{}: {}\r\n", referrals::HEADER, name.as_str()));
        }
        if self.takes_frames {
            message.push_str(&format!("X-DiffCache-Accept: {}\r\n", frames::CODING));
        }
        if let Some(known) = self.known {
            message.push_str(&format!("{}: {known}\r\n", hints::KNOWN));
        }
        if let Some(trace) = trace {
            message.push_str(&format!("{}: {}\r\n", traces::HEADER, trace.as_str()));
        }
        if !range.is_empty() {
            message.push_str(&format!("Range: {range}\r\n"));
        }
        if !self.body.is_empty() {
            message.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                self.body.len()
            ));
        }
        message
    }
}
