//! Clients and servers of NBD that say anything.

use std::collections::HashSet;
use std::io::{self, Cursor, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use diffcache_base::words::Words;
use diffcache_nbd::address::Address;
use diffcache_nbd::client::Connection;
use diffcache_nbd::negotiation::{choose, offer, Exports};
use diffcache_nbd::protocol::{export, Command, Reply, Request, REPLY, REPLY_BYTES};
use diffcache_nbd::server::{transmit, Export};

const SIZE: usize = 64 << 10;
const NAME: &str = "a";
/// Bytes that describe a request.
const DESCRIBED: usize = 8;

struct Memory(Mutex<Vec<u8>>);

impl Export for Memory {
    type Read = u64;

    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn begin_read(&self, offset: u64, _length: usize) -> u64 {
        offset
    }

    fn read_now(&self, offset: &u64, buffer: &mut [u8]) -> bool {
        *offset % 2 == 0 && self.read(*offset, buffer).is_ok()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().unwrap();
        buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.lock().unwrap()[offset as usize..][..length as usize].fill(0);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

struct One(Arc<Memory>);

impl Exports for One {
    type Export = Memory;

    fn find(&self, name: &str) -> io::Result<Option<Arc<Memory>>> {
        Ok((name == NAME).then(|| self.0.clone()))
    }
}

/// A stream whose other side has sent all that it ever will.
struct Sent<'a> {
    sent: Cursor<&'a [u8]>,
    answered: Vec<u8>,
}

impl<'a> Sent<'a> {
    fn new(sent: &'a [u8]) -> Self {
        Self {
            sent: Cursor::new(sent),
            answered: Vec::new(),
        }
    }
}

impl Read for Sent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.sent.read(buffer)
    }
}

impl Write for Sent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answered.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory(Mutex::new(vec![0; SIZE])))
}

/// What a server answers to what a client sends, and how the connection ended.
fn answers(sent: &[u8]) -> (Vec<u8>, io::Result<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| transmit(theirs, memory()));
        let sending = scope.spawn(|| {
            // The server leaves early when the protocol is broken.
            let _ = (&ours).write_all(sent);
            let _ = ours.shutdown(Shutdown::Write);
        });
        let mut answered = Vec::new();
        let _ = (&ours).read_to_end(&mut answered);
        sending.join().unwrap();
        (answered, serving.join().unwrap())
    })
}

/// Requests, as some bytes describe them.
fn requests(described: &[u8]) -> Vec<Request> {
    const COMMANDS: [Command; 6] = [
        Command::Read,
        Command::Write,
        Command::Flush,
        Command::Trim,
        Command::WriteZeroes,
        Command::Other,
    ];
    let described = described.chunks_exact(DESCRIBED).take(64);
    let request = |(cookie, bytes): (u64, &[u8])| Request {
        command: COMMANDS[usize::from(bytes[0]) % COMMANDS.len()],
        is_durable: bytes[1] & 1 != 0,
        cookie,
        offset: match bytes[1] & 6 {
            0 => u64::MAX - u64::from(bytes[2]),
            _ => u64::from(Words(bytes).le16(2)) * 2 + u64::from(bytes[1] >> 7),
        },
        length: u32::from(Words(bytes).le16(4)) >> (bytes[6] % 16),
    };
    (0..).zip(described).map(request).collect()
}

/// A client that sends valid requests with any numbers: each is answered once.
fn ask(described: &[u8]) {
    let asked = requests(described);
    let mut sent = Vec::new();
    for request in &asked {
        sent.extend(request.encode());
        if request.command == Command::Write {
            sent.resize(sent.len() + request.length as usize, 5);
        }
    }
    let (answered, ended) = answers(&sent);
    ended.unwrap();
    let (mut rest, mut seen) = (&answered[..], HashSet::new());
    while !rest.is_empty() {
        assert_eq!(REPLY, Words(rest).be32(0));
        let reply = Reply::receive(&mut rest).unwrap();
        assert!(seen.insert(reply.cookie), "answered twice");
        let request = &asked[reply.cookie as usize];
        if request.command == Command::Read && reply.error == 0 {
            rest = &rest[request.length as usize..];
        }
    }
    assert_eq!(asked.len(), seen.len(), "not answered");
}

/// Serves a client that sends anything: in the handshake, after it, or in valid requests.
pub fn serve(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    match kind % 3 {
        0 => drop(offer(&mut Sent::new(rest), &One(memory()))),
        1 => {
            let (answered, _) = answers(rest);
            assert!(answered.len() >= REPLY_BYTES || answered.is_empty());
        }
        _ => ask(rest),
    }
}

/// The answers of a server in the handshake that an export is chosen with.
fn chosen(flags: u16) -> Vec<u8> {
    let mut sent = Sent::new(&[]);
    let mut asked = Sent::new(&[]);
    // The client's words are those of any export with this name.
    let _ = choose(&mut asked, NAME);
    let mut client = 3_u32.to_be_bytes().to_vec();
    client.extend(diffcache_nbd::protocol::IHAVEOPT.to_be_bytes());
    client.extend(diffcache_nbd::protocol::option::GO.to_be_bytes());
    client.extend(7_u32.to_be_bytes());
    client.extend(1_u32.to_be_bytes());
    client.extend(b"a\0\0");
    sent.sent = Cursor::new(&client);
    offer(&mut sent, &One(memory())).unwrap();
    let mut answered = sent.answered;
    // The flags of the export, in the first answer.
    let at = 18 + 20 + 10;
    answered[at..at + 2].copy_from_slice(&(flags | export::HAS_FLAGS).to_be_bytes());
    answered
}

/// Uses a server that sends anything, in the handshake or after it.
pub fn connect(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    if let Ok(address) = std::str::from_utf8(rest).map(Address::parse) {
        let _ = address.map(|address| address.identity());
    }
    if kind % 2 == 0 {
        let _ = choose(&mut Sent::new(rest), NAME);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let answers = [&chosen(u16::from(kind >> 1))[..], rest].concat();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(&answers);
            let _ = stream.shutdown(Shutdown::Write);
            // What the client sends is taken until it leaves.
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        let Ok(connection) = Connection::open(&Address::unix(path.clone(), NAME)) else {
            return;
        };
        let mut buffer = [0; 600];
        let _ = connection.read(&mut buffer, 0);
        let _ = connection.write(&buffer, 512, true);
        let _ = connection.zero(0, 100);
        let _ = connection.flush();
        let _ = connection.read(&mut buffer, 0);
    });
}
