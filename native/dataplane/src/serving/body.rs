//! Sending objects: as they are, or in frames.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use diffcache_core::compressed::Encoder;

use crate::counters::Event;
use crate::flight::Flight;
use crate::ids::{Kind, ObjectKey};
use crate::serving::borrowed::VerifiedReader;
use crate::serving::connection::Connection;
use crate::serving::hints;
use crate::serving::objects::Found;
use crate::serving::partial::{PartialError, PartialReader, Piece, ARRIVING_TIME};
use crate::serving::ranges::Want;
use crate::serving::referrals;
use crate::serving::request::{self, Request};
use crate::serving::response::{After, Length, Refusal};
use crate::shaper::Place;
use crate::transport::frames;

/// A response may take its patience and one second for every this many bytes.
const SLOWEST_RATE: f64 = 1024.0;
/// Level of zstd of frames.
const LEVEL: i32 = 1;
/// How long bytes that the kernel has taken may be on their way until they count as sent.
const LONGEST_SENDING: Duration = Duration::from_secs(2);

impl Connection<'_> {
    /// Answers a request for an object's bytes.
    pub(super) fn send_object(
        &mut self,
        key: ObjectKey,
        request: &Request,
        after: After,
    ) -> io::Result<After> {
        let method = request.method.as_str();
        let began = SystemTime::now();
        match self.open_object(key, request) {
            Ok(mut body) => {
                let hold = Duration::from_secs(request.hold);
                let _reading = self.service.objects.read(key, hold);
                let service = self.service;
                let slot = match request.takes_frames && body.may_be_coded(key, method) {
                    true => service.coders.take(),
                    false => None,
                };
                let (status, length) = body.status_and_length();
                let mut fields = body.fields(key);
                if let (Some(known), "GET") = (&request.known, method) {
                    fields.push_str(&self.hints(key, known));
                }
                let sent = if method == "HEAD" {
                    let message = self.head(status, Length::Known(length), after, &fields);
                    self.wire.write_all(message.as_bytes(), service.limits.send)
                } else if slot.is_some() {
                    fields.push_str(&format!("X-DiffCache-Coding: {}\r\n", frames::CODING));
                    let message = self.head(status, Length::Chunked, after, &fields);
                    self.send_frames(key, &mut body, &message)
                } else {
                    let message = self.head(status, Length::Known(length), after, &fields);
                    self.send_body(key, &mut body, &message)
                };
                if sent.is_err() && method != "HEAD" {
                    service.counters.count(Event::Dropped);
                }
                if let (Some(traces), Some(trace), "GET") =
                    (&service.traces, &request.trace, method)
                {
                    traces.note(trace, key, began, length);
                }
                if body.is_counted() && sent.is_ok() {
                    self.wire.wait_until_taken(LONGEST_SENDING);
                }
                sent.map(|()| after)
            }
            // No failure: another host has the bytes, and hints come with this answer.
            Err(Refusal::Referred(name)) => {
                let known = request.known.as_ref();
                let hints = known.map_or(String::new(), |known| self.hints(key, known));
                let fields = format!("{}: {}\r\n{hints}", referrals::HEADER, name.as_str());
                self.decline(method, &Refusal::Referred(name), after, &fields)
            }
            Err(refusal) => self.refuse(method, &refusal, after),
        }
    }

    /// The field with hints for a requester whose request for the object is answered; empty if there are none.
    fn hints(&self, key: ObjectKey, known: &str) -> String {
        let Some(partial) = self.service.objects.partial(key) else {
            return String::new();
        };
        match partial.hints(known) {
            Ok(Some(text)) => format!("{}: {text}\r\n", hints::HINTS),
            Ok(None) => String::new(),
            // The object is served without.
            Err(_) => {
                self.service.counters.count(Event::Unhinted);
                String::new()
            }
        }
    }

    /// Finds the object and the bytes asked for; of an arriving one, waits until the first of them is there.
    fn open_object(&self, key: ObjectKey, request: &Request) -> Result<Body, Refusal> {
        // What is arriving is waited for, unless only what is here is asked for.
        let stall = match request.want {
            Want::Present => Duration::ZERO,
            Want::Arriving => ARRIVING_TIME,
            Want::Fetched => self.service.limits.stall,
        };
        let not_here = |error| match request.want {
            Want::Present | Want::Arriving => Refusal::Missing,
            Want::Fetched => Refusal::Stalled(error),
        };
        let (mut content, size) = match self.find(key)? {
            Found::Whole(file, size) => (Content::Whole(file), size),
            Found::Borrowed(borrowed) => {
                let size = borrowed.size();
                (Content::Borrowed(VerifiedReader::new(borrowed)), size)
            }
            Found::Arriving(flight) => {
                let (file, size) = flight.content(stall).map_err(not_here)?;
                (Content::Arriving(file, flight), size)
            }
            Found::Partial(partial) => {
                let size = partial.size();
                let requester = match request.want {
                    Want::Fetched => request.requester.clone(),
                    // Those that were referred here are not referred on.
                    Want::Present | Want::Arriving => None,
                };
                let reader = PartialReader::new(partial, request.want).referable(requester);
                (Content::Partial(reader), size)
            }
        };
        let range = request::resolve_range(&request.range, size).map_err(Refusal::Request)?;
        let (start, end) = range.unwrap_or((0, size));
        match &mut content {
            Content::Arriving(_, flight) if request.method == "GET" => {
                flight.readable(start, end, stall).map_err(not_here)?;
            }
            Content::Partial(reader) if request.method == "GET" && start < end => {
                reader.read(start, end).map_err(|error| match error {
                    PartialError::Absent => Refusal::Missing,
                    PartialError::Referred(name) => Refusal::Referred(name),
                    error => Refusal::Unfetched(error),
                })?;
            }
            Content::Borrowed(reader) if start < end => {
                // What changed is refused where that is seen at once, and cut off later.
                self.read_borrowed(key, reader, start, start + 1)
                    .map_err(|_| Refusal::Missing)?;
            }
            _ => (),
        }
        Ok(Body {
            content,
            size,
            partial: range.is_some(),
            start,
            end,
        })
    }

    fn find(&self, key: ObjectKey) -> Result<Found, Refusal> {
        match self.service.objects.find(key) {
            Ok(found) => found.ok_or(Refusal::Missing),
            Err(error) => Err(Refusal::NotServable(error.to_string())),
        }
    }

    /// Reads verified bytes of a borrowed file, which is no longer served if it has changed.
    fn read_borrowed<'r>(
        &self,
        key: ObjectKey,
        reader: &'r mut VerifiedReader,
        start: u64,
        end: u64,
    ) -> io::Result<&'r [u8]> {
        let borrowed = reader.borrowed().clone();
        reader.read(start, end).map_err(|error| {
            self.service.objects.note_changed(key, &borrowed);
            io::Error::new(io::ErrorKind::InvalidData, error)
        })
    }

    fn send_body(&mut self, key: ObjectKey, body: &mut Body, message: &str) -> io::Result<()> {
        let time = self.service.limits.send;
        if body.start == body.end {
            return self.wire.write_all(message.as_bytes(), time);
        }
        self.wire.write_head(message.as_bytes(), time)?;
        let (mut position, mut patience) = (body.start, Patience::new(time));
        while position < body.end {
            let ready = match &body.content {
                Content::Whole(_) | Content::Borrowed(_) | Content::Partial(_) => body.end,
                Content::Arriving(_, flight) => flight
                    .readable(position, body.end, self.service.limits.stall)
                    .map_err(timed_out)?,
            };
            let slice = (ready - position).min(self.service.shaper.slice());
            let place = if position == body.start {
                Place::First
            } else {
                Place::Next
            };
            if !self.service.shaper.take(slice, place) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let slice_end = position + slice;
            while position < slice_end {
                let begun = Instant::now();
                let sent = self.send_piece(key, &mut body.content, &mut position, slice_end)?;
                self.service.counters.add_sent(key.kind, sent as u64);
                // Nothing to send means that the file shrank under us.
                if sent == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                patience.note(sent, begun.elapsed())?;
            }
        }
        Ok(())
    }

    /// Sends bytes of an object, up to `end`; returns how many.
    fn send_piece(
        &mut self,
        key: ObjectKey,
        content: &mut Content,
        position: &mut u64,
        end: u64,
    ) -> io::Result<usize> {
        let time = self.service.limits.send;
        match content {
            Content::Whole(file) | Content::Arriving(file, _) => {
                let count = (end - *position) as usize;
                self.wire.send_file(file, position, count, time)
            }
            Content::Borrowed(reader) => {
                let bytes = self.read_borrowed(key, reader, *position, end)?;
                self.wire.write_all(bytes, time)?;
                *position += bytes.len() as u64;
                Ok(bytes.len())
            }
            Content::Partial(reader) => {
                let piece = reader.read(*position, end);
                match piece.map_err(timed_out)? {
                    Piece::File(file, end) => {
                        let count = (end - *position) as usize;
                        self.wire.send_file(&file, position, count, time)
                    }
                    Piece::Bytes(bytes) => {
                        self.wire.write_all(bytes, time)?;
                        *position += bytes.len() as u64;
                        Ok(bytes.len())
                    }
                }
            }
        }
    }

    /// Sends the bytes of an object compressed, one chunk for each frame.
    fn send_frames(&mut self, key: ObjectKey, body: &mut Body, message: &str) -> io::Result<()> {
        let time = self.service.limits.send;
        let mut encoder = Encoder::new(LEVEL).map_err(io::Error::other)?;
        let (mut raw, mut frame) = (Vec::new(), Vec::new());
        let (mut position, mut place) = (body.start, Place::First);
        let mut patience = Patience::new(time);
        self.wire.write_head(message.as_bytes(), time)?;
        while position < body.end {
            let end = frames::frame_end(position, body.end);
            raw.resize((end - position) as usize, 0);
            self.read(key, &mut body.content, position, &mut raw)?;
            encoder.encode(&raw, &mut frame).map_err(io::Error::other)?;
            let line = frames::chunk_line(frame.len());
            frame.extend_from_slice(b"\r\n");
            for bytes in [line.as_bytes(), &frame] {
                for slice in bytes.chunks(self.service.shaper.slice() as usize) {
                    if !self.service.shaper.take(slice.len() as u64, place) {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                    place = Place::Next;
                    let begun = Instant::now();
                    self.wire.write_all(slice, time)?;
                    self.service.counters.add_sent(key.kind, slice.len() as u64);
                    patience.note(slice.len(), begun.elapsed())?;
                }
            }
            position = end;
        }
        let last = frames::LAST_CHUNK;
        self.wire.write_all(last, time)?;
        let counters = &self.service.counters;
        counters.add_sent(key.kind, last.len() as u64);
        Ok(())
    }

    /// Reads bytes of an object, waiting for those that are arriving.
    fn read(
        &self,
        key: ObjectKey,
        content: &mut Content,
        mut position: u64,
        mut target: &mut [u8],
    ) -> io::Result<()> {
        while !target.is_empty() {
            let end = position + target.len() as u64;
            let count = match content {
                Content::Whole(file) => read_at(file, target, position, end)?,
                Content::Arriving(file, flight) => {
                    let ready = flight
                        .readable(position, end, self.service.limits.stall)
                        .map_err(timed_out)?;
                    read_at(file, target, position, ready)?
                }
                Content::Borrowed(reader) => {
                    let bytes = self.read_borrowed(key, reader, position, end)?;
                    target[..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                }
                Content::Partial(reader) => match reader.read(position, end).map_err(timed_out)? {
                    Piece::File(file, ready) => read_at(&file, target, position, ready)?,
                    Piece::Bytes(bytes) => {
                        target[..bytes.len()].copy_from_slice(bytes);
                        bytes.len()
                    }
                },
            };
            position += count as u64;
            target = &mut target[count..];
        }
        Ok(())
    }
}

fn read_at(file: &File, target: &mut [u8], position: u64, end: u64) -> io::Result<usize> {
    let count = (end - position) as usize;
    file.read_exact_at(&mut target[..count], position)?;
    Ok(count)
}

fn timed_out(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, error)
}

/// How long a reader may take for what was sent so far.
struct Patience {
    least: Duration,
    blocked: Duration,
    sent: u64,
}

impl Patience {
    fn new(least: Duration) -> Patience {
        Patience {
            least,
            blocked: Duration::ZERO,
            sent: 0,
        }
    }

    /// Notes bytes and the time that sending them took; fails if the reader is too slow.
    fn note(&mut self, bytes: usize, time: Duration) -> io::Result<()> {
        self.sent += bytes as u64;
        self.blocked += time;
        let most = self.least.as_secs_f64() + self.sent as f64 / SLOWEST_RATE;
        match self.blocked.as_secs_f64() > most {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }
}

/// Where the bytes of an object come from.
enum Content {
    Whole(Arc<File>),
    Arriving(Arc<File>, Arc<Flight>),
    Borrowed(VerifiedReader),
    Partial(PartialReader),
}

/// The bytes of an object that a response carries.
struct Body {
    content: Content,
    size: u64,
    partial: bool,
    start: u64,
    end: u64,
}

impl Body {
    fn status_and_length(&self) -> (u16, u64) {
        let status = if self.partial { 206 } else { 200 };
        (status, self.end - self.start)
    }

    /// Whether diffcached is to know when it was sent.
    fn is_counted(&self) -> bool {
        matches!(&self.content, Content::Partial(reader) if reader.is_counted())
    }

    /// Whether the answer to a request for it may be in frames.
    fn may_be_coded(&self, key: ObjectKey, method: &str) -> bool {
        let length = self.end - self.start;
        key.kind == Kind::Images && method == "GET" && length >= frames::SHORTEST
    }

    fn fields(&self, key: ObjectKey) -> String {
        let state = match self.content {
            Content::Arriving(..) | Content::Partial(_) => "arriving",
            Content::Whole(_) | Content::Borrowed(_) => "held",
        };
        let mut fields = format!(
            "Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\nETag: \"{}\"\r\nX-DiffCache-State: {state}\r\n",
            key.id_hex()
        );
        if self.partial {
            let last = self.end - 1;
            fields.push_str(&format!(
                "Content-Range: bytes {}-{last}/{}\r\n",
                self.start, self.size
            ));
        }
        fields
    }
}
