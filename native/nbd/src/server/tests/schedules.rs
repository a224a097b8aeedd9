//! The threads of a connection in many schedules: each is decided by a seed, see [`sync`](diffcache_base::sync).

use std::collections::BTreeMap;

use diffcache_base::sync::{chance, explore, measured, point};

use super::*;
use crate::protocol::{Command, Request, REPLY_BYTES};

/// Requests of a client; each has a block of its own.
const REQUESTS: u64 = 10;
const LENGTH: usize = 64;

/// Blocks that note what is done with them.
#[derive(Default)]
struct Noting {
    done: Mutex<BTreeMap<u64, u32>>,
}

impl Noting {
    fn note(&self, offset: u64) {
        point();
        *self.done.lock().unwrap().entry(offset).or_default() += 1;
        point();
    }
}

impl Export for Noting {
    type Read = u64;

    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn may_begin(&self, _request: &Request) -> bool {
        measured(true)
    }

    fn begin_read(&self, offset: u64, _length: usize) -> u64 {
        offset
    }

    fn read_now(&self, offset: &u64, buffer: &mut [u8]) -> bool {
        let is_there = measured(true);
        if is_there {
            self.note(*offset);
            buffer.fill(*offset as u8);
        }
        is_there
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.note(offset);
        buffer.fill(offset as u8);
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        assert!(data.iter().all(|byte| *byte == offset as u8));
        self.note(offset);
        Ok(())
    }

    fn zero(&self, offset: u64, _length: u64) -> io::Result<()> {
        self.note(offset);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        point();
        Ok(())
    }
}

/// What a client sends: the commands, and the bytes.
fn requests() -> (Vec<Command>, Vec<u8>) {
    let choices = [Command::Read, Command::Write, Command::WriteZeroes];
    let choose = |_| choices[(chance() % 3) as usize];
    let commands: Vec<Command> = (0..REQUESTS).map(choose).collect();
    let mut bytes = Vec::new();
    for (cookie, command) in (0..).zip(&commands) {
        let request = Request {
            command: *command,
            is_durable: *command == Command::Write && measured(false),
            cookie,
            offset: cookie,
            length: LENGTH as u32,
        };
        bytes.extend(request.encode());
        if *command == Command::Write {
            bytes.extend([cookie as u8; LENGTH]);
        }
    }
    (commands, bytes)
}

/// The answers, by the numbers of their requests. All are there.
fn answers(mut client: &UnixStream, commands: &[Command]) -> Vec<u64> {
    client.set_nonblocking(true).unwrap();
    let mut found = Vec::new();
    for _ in commands {
        let mut reply = [0; REPLY_BYTES];
        client.read_exact(&mut reply).unwrap();
        assert_eq!([0; 4], reply[4..8], "an error");
        let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
        if commands[cookie as usize] == Command::Read {
            let mut data = [0; LENGTH];
            client.read_exact(&mut data).unwrap();
            assert_eq!([cookie as u8; LENGTH], data);
        }
        found.push(cookie);
    }
    found.sort_unstable();
    found
}

/// Seen failing without the notification in `close`, and without that of a thread's end: threads wait for ever.
#[test]
fn each_request_is_done_and_answered_once_in_every_schedule() {
    explore(200, || {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (commands, bytes) = requests();
        client.write_all(&bytes).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let export = Arc::new(Noting::default());
        transmit(server, export.clone()).unwrap();
        let all: Vec<u64> = (0..REQUESTS).collect();
        assert_eq!(all, answers(&client, &commands));
        let done = export.done.lock().unwrap();
        assert_eq!(all, done.keys().copied().collect::<Vec<_>>());
        assert!(done.values().all(|times| *times == 1), "{done:?}");
    });
}
