//! Requests to the mounter.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::protocol::{Answer, Request, LONGEST};

/// How long the mounter may take for each step.
const TIME: Duration = Duration::from_secs(10);

/// No answer of the mounter.
#[derive(Debug)]
pub struct NoAnswer {
    socket: PathBuf,
    error: io::Error,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no answer of the mounter at {}: {}; start diffcache-lazy-mount.socket, and see the log of \
             diffcache-lazy-mount.service",
            self.socket.display(),
            self.error
        )
    }
}

impl std::error::Error for NoAnswer {}

/// Have the mounter carry out a request. For a mount that is done, the descriptor of the file system comes with the answer.
///
/// # Errors
/// If it cannot be reached, or does not answer in time.
pub fn ask(socket: &Path, request: &Request) -> Result<(Answer, Option<OwnedFd>), NoAnswer> {
    connect(socket)
        .and_then(|connection| exchange(&connection, request))
        .map_err(|error| no_answer(socket, error))
}

/// Check that the mounter can be reached.
///
/// # Errors
/// If it cannot.
pub fn check(socket: &Path) -> Result<(), NoAnswer> {
    connect(socket)
        .map(drop)
        .map_err(|error| no_answer(socket, error))
}

fn no_answer(socket: &Path, error: io::Error) -> NoAnswer {
    NoAnswer {
        socket: socket.to_owned(),
        error,
    }
}

fn connect(socket: &Path) -> io::Result<OwnedFd> {
    let connection = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for kind in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&connection, kind, Some(TIME))?;
    }
    rustix::net::connect(&connection, &SocketAddrUnix::new(socket)?)?;
    Ok(connection)
}

fn exchange(connection: impl AsFd, request: &Request) -> io::Result<(Answer, Option<OwnedFd>)> {
    rustix::net::send(
        &connection,
        request.to_string().as_bytes(),
        SendFlags::NOSIGNAL,
    )?;
    let mut message = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        &connection,
        &mut [IoSliceMut::new(&mut message)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let fuse = control.drain().find_map(|found| match found {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if received.bytes == 0 {
        let reason = "it closed the connection";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
    }
    let answer = Answer::parse(&message[..received.bytes]);
    let answer = answer.ok_or_else(|| io::Error::other("what it sent is no answer"))?;
    Ok((answer, fuse))
}
