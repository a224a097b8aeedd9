//! Control sockets of daemons: a client sends one command, an object of JSON in a line, and gets one in return.
//!
//! A command that fails is answered with `{"error": {"type": ..., "message": ...}}`. Each connection has one command.

mod sockets;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{json, Value};

pub use sockets::{listen, listen_for_group, remove_socket};

/// How long a client may take to send its command, and to take the answer.
const CLIENT_TIME: Duration = Duration::from_secs(10);
/// How long to wait after a client could not be served.
const PAUSE: Duration = Duration::from_millis(100);

/// What clients of a socket may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a command.
    pub command: u64,
    /// Commands at the same time.
    pub clients: usize,
}

/// Return the answer to a command that failed for a reason of a kind that clients know by its name.
pub fn error(kind: &str, message: &str) -> Value {
    json!({"error": {"type": kind, "message": message}})
}

/// Read a command of a known form.
///
/// # Errors
/// The answer to what is none.
pub fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Value> {
    serde_json::from_slice(line)
        .map_err(|refused| error("InvalidInput", &format!("not a command: {refused}")))
}

/// Answer commands, each in a thread of its own, until the process ends.
pub fn serve(
    listener: &UnixListener,
    limits: Limits,
    answer: impl Fn(&[u8]) -> Value + Send + Sync + 'static,
) {
    let answer = Arc::new(answer);
    for stream in listener.incoming() {
        let started = stream.and_then(|stream| {
            // A reference for each client, and one that stays here.
            if Arc::strong_count(&answer) > limits.clients {
                let busy = "too many commands at the same time; repeat it";
                send(&stream, &error("ServiceUnavailable", busy));
                return Ok(());
            }
            let answer = answer.clone();
            let run = move || {
                if let Ok(line) = receive(&stream, limits.command) {
                    send(&stream, &answer(&line));
                }
                // Who sees the end of this connection may open the next one.
                drop(answer);
                drop(stream);
            };
            let thread = std::thread::Builder::new().name("command".to_owned());
            thread.spawn(run).map(drop)
        });
        if let Err(error) = started {
            // Out of descriptors, of threads or of memory: others may free some.
            log::warn!("Could not serve a client of the control socket: {error}");
            std::thread::sleep(PAUSE);
        }
    }
}

fn receive(stream: &UnixStream, longest: u64) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(CLIENT_TIME))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(longest)).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn send(mut stream: &UnixStream, answer: &Value) {
    let sent = stream
        .set_write_timeout(Some(CLIENT_TIME))
        .and_then(|()| stream.write_all(format!("{answer}\n").as_bytes()));
    match sent {
        // It only wanted to know whether this process answers.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => log::warn!("Could not answer a command: {error}"),
        Ok(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serve commands that are answered with themselves, and return where.
    fn served(limits: Limits) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = listen(&path).unwrap();
        let echo = |line: &[u8]| parse::<Value>(line).unwrap_or_else(|refused| refused);
        std::thread::spawn(move || serve(&listener, limits, echo));
        (folder, path)
    }

    fn answer_of(mut stream: UnixStream, command: &[u8]) -> Value {
        stream.write_all(command).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        serde_json::from_reader(stream).unwrap()
    }

    #[test]
    fn a_command_is_a_line_and_so_is_its_answer() {
        let limits = Limits {
            command: 64,
            clients: 4,
        };
        let (_folder, path) = served(limits);
        let connect = || UnixStream::connect(&path).unwrap();
        assert_eq!(json!({"a": 1}), answer_of(connect(), b"{\"a\": 1}\n"));
        for nonsense in [b"".as_slice(), b"\n", b"{", b"\xff\n"] {
            let refused = answer_of(connect(), nonsense);
            assert_eq!(json!("InvalidInput"), refused["error"]["type"]);
        }
        // A client that leaves at once.
        drop(connect());
        assert_eq!(json!({}), answer_of(connect(), b"{}\n"));
    }

    #[test]
    fn clients_beyond_the_limit_are_to_repeat_their_command() {
        let limits = Limits {
            command: 64,
            clients: 1,
        };
        let (_folder, path) = served(limits);
        let first = UnixStream::connect(&path).unwrap();
        let mut second = UnixStream::connect(&path).unwrap();
        let mut refused = String::new();
        second.read_to_string(&mut refused).unwrap();
        assert!(refused.contains("ServiceUnavailable"), "{refused}");
        assert_eq!(json!({}), answer_of(first, b"{}\n"));
    }
}
