//! Peers that answer as a test wants.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The start that these peers name.
const BOOT: &str = "0123456789abcdef0123456789abcdef";

/// Answers each request with what a function makes of its text, until that returns `None`.
pub struct Peer {
    pub address: SocketAddr,
    pub requests: Arc<Mutex<Vec<String>>>,
}

type Respond = dyn Fn(&str, &mut TcpStream) -> Option<()> + Send + Sync;

impl Peer {
    pub fn new(
        respond: impl Fn(&str, &mut TcpStream) -> Option<()> + Send + Sync + 'static,
    ) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let respond: Arc<Respond> = Arc::new(respond);
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (respond, seen) = (respond.clone(), seen.clone());
                std::thread::spawn(move || converse(stream.unwrap(), &*respond, &seen));
            }
        });
        Peer { address, requests }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests for objects that came so far.
    pub fn asked(&self) -> usize {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|one| one.contains("/objects/"))
            .count()
    }
}

/// A constant address of a server that may end, and begin anew at another one: a port that was let go may be another program's soon.
pub struct Relay {
    pub address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
    /// The bytes of its clients.
    pub seen: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    pub fn new() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay {
            address: listener.local_addr().unwrap(),
            target: Arc::default(),
            seen: Arc::default(),
        };
        let (target, seen) = (relay.target.clone(), relay.seen.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let target = *target.lock().unwrap();
                // Clients are left where there is no server.
                if let Some(server) = target.and_then(|at| TcpStream::connect(at).ok()) {
                    pass_on(client.unwrap(), server, seen.clone());
                }
            }
        });
        relay
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Have the connections to come go to another server.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = Some(target);
    }
}

fn pass_on(mut client: TcpStream, mut server: TcpStream, seen: Arc<Mutex<Vec<u8>>>) {
    let (mut from, mut into) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut into);
        let _ = into.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut chunk) {
            seen.lock().unwrap().extend_from_slice(&chunk[..count]);
            if server.write_all(&chunk[..count]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    });
}

fn converse(mut stream: TcpStream, respond: &Respond, seen: &Mutex<Vec<String>>) {
    let mut buffer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let head_end = buffer.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = head_end else {
            match stream.read(&mut chunk) {
                Ok(count) if count > 0 => buffer.extend_from_slice(&chunk[..count]),
                _ => return,
            }
            continue;
        };
        let request = String::from_utf8_lossy(&buffer[..end]).into_owned();
        buffer.drain(..end + 4);
        seen.lock().unwrap().push(request.clone());
        let outcome = match request.starts_with("HEAD /v1/health") {
            true => write!(
                stream,
                "HTTP/1.1 401 X\r\nContent-Length: 9\r\nX-DiffCache-Boot: {BOOT}\r\n\r\n"
            )
            .ok(),
            false => respond(&request, &mut stream),
        };
        if outcome.is_none() {
            return;
        }
    }
}

/// Answer a request for a range of an object of `size` bytes with a correct head; the range's length.
pub fn send_range_head(request: &str, stream: &mut TcpStream, size: usize) -> Option<usize> {
    let (start, end) = range_of(request)?;
    let last = end - 1;
    let length = end - start;
    send_head(
        stream,
        206,
        &format!("Content-Length: {length}\r\nContent-Range: bytes {start}-{last}/{size}\r\n"),
    )?;
    Some(length)
}

pub fn send_head(stream: &mut TcpStream, status: u16, fields: &str) -> Option<()> {
    write!(stream, "HTTP/1.1 {status} X\r\n{fields}\r\n").ok()
}

pub fn range_of(request: &str) -> Option<(usize, usize)> {
    let line = request.lines().find(|line| line.starts_with("Range: "))?;
    let (start, last) = line.strip_prefix("Range: bytes=")?.split_once('-')?;
    Some((start.parse().ok()?, last.parse::<usize>().ok()? + 1))
}
