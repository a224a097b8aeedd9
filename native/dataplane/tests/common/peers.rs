//! Peers that answer as a test wants.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
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
