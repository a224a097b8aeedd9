//! Requests and answers of the mounter: one message each on a connection of type `SOCK_SEQPACKET`.
//!
//! A request is `VERB CONTENT_ID`, an answer `OUTCOME TEXT`, in UTF-8. With `done` for a mount comes one descriptor (`SCM_RIGHTS`).

use std::fmt;

/// Bytes of a message at most.
pub const LONGEST: usize = 4096;

/// What the mounter is to do with the mount of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Mount a new file system.
    Mount,
    /// Unmount what no process uses.
    Unmount,
    /// Unmount for new readers; those that have the file open keep it.
    Detach,
}

const VERBS: [(Verb, &str); 3] = [
    (Verb::Mount, "mount"),
    (Verb::Unmount, "unmount"),
    (Verb::Detach, "detach"),
];

/// A content ID: 64 lower-case hexadecimal digits, so no path of more than one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentId(String);

impl ContentId {
    /// Return the ID that a text is; none if it is none.
    pub fn parse(text: &str) -> Option<ContentId> {
        let is_digit = |c| matches!(c, b'0'..=b'9' | b'a'..=b'f');
        let is_id = text.len() == 64 && text.bytes().all(is_digit);
        is_id.then(|| ContentId(text.to_owned()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// With the mount of which image.
    pub id: ContentId,
}

impl Request {
    /// Return the request of a message; none if it is none.
    pub fn parse(message: &[u8]) -> Option<Request> {
        let (verb, id) = std::str::from_utf8(message).ok()?.split_once(' ')?;
        let (verb, _) = VERBS.into_iter().find(|(_, word)| *word == verb)?;
        Some(Request {
            verb,
            id: ContentId::parse(id)?,
        })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = VERBS.iter().find(|(verb, _)| verb == self);
        f.write_str(found.map_or("", |(_, word)| word))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.id.as_str())
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As requested.
    Done,
    /// Not unmounted: a process uses it.
    Busy,
    /// Nothing is mounted there.
    Absent,
    /// Refused, or failed.
    Failed,
}

const OUTCOMES: [(Outcome, &str); 4] = [
    (Outcome::Done, "done"),
    (Outcome::Busy, "busy"),
    (Outcome::Absent, "absent"),
    (Outcome::Failed, "failed"),
];

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How the request ended.
    pub outcome: Outcome,
    /// The path of the mount, or why it failed.
    pub text: String,
}

impl Answer {
    /// Return the answer of a message; none if it is none.
    pub fn parse(message: &[u8]) -> Option<Answer> {
        let (outcome, text) = std::str::from_utf8(message).ok()?.split_once(' ')?;
        let (outcome, _) = OUTCOMES.into_iter().find(|(_, word)| *word == outcome)?;
        Some(Answer {
            outcome,
            text: text.to_owned(),
        })
    }

    /// Return its message.
    pub fn encode(&self) -> Vec<u8> {
        let found = OUTCOMES
            .iter()
            .find(|(outcome, _)| *outcome == self.outcome);
        let word = found.map_or("", |(_, word)| word);
        format!("{word} {}", self.text).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_verb_and_a_content_id() {
        let id = "0a".repeat(32);
        for (verb, word) in VERBS {
            let found = Request::parse(format!("{word} {id}").as_bytes()).unwrap();
            assert_eq!((found.verb, found.id.as_str()), (verb, id.as_str()));
            assert_eq!(found.to_string(), format!("{word} {id}"));
        }
    }

    #[test]
    fn all_else_is_no_request() {
        let id = "0a".repeat(32);
        for bad in [
            String::new(),
            "mount".to_owned(),
            format!("mount {id} "),
            format!("mount {id}\n"),
            format!("mount  {id}"),
            format!("remount {id}"),
            format!("MOUNT {id}"),
            format!("mount {}", "0A".repeat(32)),
            format!("mount {}", "../".repeat(22)),
            format!("mount ../{}", "0".repeat(61)),
            format!("mount {}/x", &id[2..]),
            format!("mount {id}{id}"),
            format!("mount {}\0", &id[1..]),
        ] {
            assert_eq!(Request::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(Request::parse(b"mount \xff"), None);
    }

    /// Texts that were changed in some places; the same in each run.
    fn spoilt(text: &str, seed: u64) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % end.max(1)
        };
        for _ in 0..next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes.insert(at, next(256) as u8),
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
        bytes
    }

    #[test]
    fn whatever_a_client_sends_names_one_folder_or_is_no_request() {
        let mut requests = 0;
        for seed in 0..20_000 {
            let bytes = spoilt(&format!("mount {}", "0a".repeat(32)), seed);
            if let Some(request) = Request::parse(&bytes) {
                let id = request.id.as_str();
                assert!(id.len() == 64 && id.bytes().all(|c| c.is_ascii_hexdigit()));
                assert_eq!(request.to_string().as_bytes(), bytes);
                requests += 1;
            }
            let bytes = spoilt("done /a folder: why", seed);
            if let Some(answer) = Answer::parse(&bytes) {
                assert_eq!(answer.encode(), bytes);
            }
        }
        assert!(requests > 0);
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        for (outcome, _) in OUTCOMES {
            let answer = Answer {
                outcome,
                text: "/a folder: why".to_owned(),
            };
            assert_eq!(Answer::parse(&answer.encode()), Some(answer));
        }
        for bad in [b"" as &[u8], b"done", b"well /a", b"done \xff"] {
            assert_eq!(Answer::parse(bad), None, "{bad:?}");
        }
    }
}
