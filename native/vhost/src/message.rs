//! Messages of vhost-user. Names and numbers are those of its specification.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use diffcache_base::words::Words;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Requests of a frontend.
pub mod request {
    #![allow(missing_docs)]
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_LOG_FD: u32 = 7;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// Of the backend: its configuration changed.
pub const CONFIG_CHANGE: u32 = 2;

/// Features of the protocol.
pub mod protocol {
    #![allow(missing_docs)]
    pub const MQ: u64 = 1;
    pub const LOG_SHMFD: u64 = 1 << 1;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
}

const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
const HEADER: usize = 12;
/// Bytes of a message behind its header, at most.
const LONGEST: u32 = 4096;
/// Descriptors of a message at most: one for each region of memory.
const MOST_FILES: usize = 8;

/// A message.
#[derive(Debug)]
pub struct Message {
    /// Its number.
    pub request: u32,
    /// Whether the other side waits for a reply.
    pub needs_reply: bool,
    /// What follows its header.
    pub body: Vec<u8>,
    /// The descriptors that came with it.
    pub files: Vec<OwnedFd>,
}

/// An error of the other side.
pub fn invalid(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

impl Message {
    /// Receives a message; none: the other side has left.
    ///
    /// # Errors
    /// It is too long, or the connection failed.
    pub fn receive(mut stream: &UnixStream) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        let mut files = Vec::new();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut header)];
        let got = recvmsg(stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if got == 0 {
            return Ok(None);
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(found) = message {
                files.extend(found);
            }
        }
        stream.read_exact(&mut header[got..])?;
        let words = Words(&header);
        let length = words.le32(8);
        if length > LONGEST {
            return Err(invalid("a message is too long"));
        }
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body)?;
        Ok(Some(Self {
            request: words.le32(0),
            needs_reply: words.le32(4) & NEED_REPLY != 0,
            body,
            files,
        }))
    }

    /// The number of 64 bits at an offset of the body; zero if it is too short.
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        Words(&self.body).le64(at)
    }

    /// The number of 32 bits at an offset of the body; zero if it is too short.
    #[must_use]
    pub fn half(&self, at: usize) -> u32 {
        Words(&self.body).le32(at)
    }

    /// Takes its only descriptor.
    ///
    /// # Errors
    /// It has none, or several.
    pub fn file(&mut self) -> io::Result<OwnedFd> {
        let file = self.files.pop().filter(|_| self.files.is_empty());
        file.ok_or_else(|| invalid("a message has not one descriptor"))
    }
}

/// What kind of a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request without a reply.
    Request,
    /// A request whose end is waited for.
    Acknowledged,
    /// A reply.
    Reply,
}

/// Sends a message.
///
/// # Errors
/// The connection failed.
pub fn send(
    mut stream: &UnixStream,
    (request, kind): (u32, Kind),
    body: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let flags = match kind {
        Kind::Request => VERSION,
        Kind::Acknowledged => VERSION | NEED_REPLY,
        Kind::Reply => VERSION | REPLY,
    };
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    for word in [request, flags, body.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(body);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(&bytes)];
    let sent = sendmsg(stream.as_fd(), &parts, &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&bytes[sent..])
}
