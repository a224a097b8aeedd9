//! Clients of an export whose bytes are read past the memory of the system.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::super::{check_ring, Disk, Pieces};
use super::*;

const BLOCK: u64 = 4096;

/// Bytes that a disk has, too, but those of writes. The ends of the disk are read in other ways.
struct OnDisk {
    memory: Arc<Memory>,
    direct: File,
    buffered: File,
    /// Reads that were of the disk.
    taken: AtomicU64,
    /// Others whose bytes the disk did not have.
    refused: AtomicU64,
}

impl OnDisk {
    fn new() -> Arc<Self> {
        let memory = Memory::new();
        // Of the build, because some systems' temporary files have no `O_DIRECT`.
        let folder = std::env::current_exe().unwrap();
        let file = tempfile::tempfile_in(folder.parent().unwrap()).unwrap();
        file.write_all_at(&memory.bytes.lock().unwrap(), 0).unwrap();
        file.sync_all().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let opened = File::options().read(true).custom_flags(direct).open(path);
        Arc::new(Self {
            memory,
            direct: opened.unwrap(),
            buffered: file,
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    fn count(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.taken), count(&self.refused))
    }
}

impl Export for OnDisk {
    type Read = (u64, usize);

    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn begin_read(&self, offset: u64, length: usize) -> Self::Read {
        (offset, length)
    }

    fn read_now(&self, _read: &Self::Read, _buffer: &mut [u8]) -> bool {
        false
    }

    fn disk(&self) -> Option<Disk<'_>> {
        check_ring().ok()?;
        Some(Disk {
            direct: self.direct.as_fd(),
            buffered: self.buffered.as_fd(),
        })
    }

    /// Each block is a piece.
    fn pieces(&self, (offset, length): &Self::Read) -> Option<Vec<(u64, usize)>> {
        let end = (offset + *length as u64).div_ceil(BLOCK);
        let blocks = offset / BLOCK..end;
        let slow = Memory::SLOW / BLOCK;
        let is_there = !blocks.contains(&slow) && end < SIZE as u64 / BLOCK;
        is_there.then(|| {
            blocks
                .map(|block| (block * BLOCK, BLOCK as usize))
                .collect()
        })
    }

    fn take_pieces(
        &self,
        (offset, length): &Self::Read,
        pieces: Pieces<'_>,
        buffer: &mut [u8],
    ) -> bool {
        let skip = (offset % BLOCK) as usize;
        let found = &pieces.bytes.unwrap()[skip..skip + length];
        self.memory.copy(*offset, buffer);
        let is_right = found == buffer;
        if !is_right {
            buffer.fill(0xee);
        }
        let counter = if is_right { &self.taken } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        is_right
    }

    fn read(&self, (offset, _): Self::Read, buffer: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, buffer)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if offset == Memory::SLOW {
            self.memory.read(offset, &mut [0])?;
        }
        self.memory.write(data, offset)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.memory.zero(offset, length)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
}

impl Client {
    /// Receives the answer to a read of the disk as it was, and returns its number.
    fn block(&mut self, length: usize, offset: impl Fn(u64) -> u64) -> u64 {
        let (error, cookie) = self.reply();
        assert_eq!(0, error);
        let data = self.receive(length);
        let byte = |at: u64| (at % 251) as u8;
        let begin = offset(cookie);
        assert!((begin..).zip(data).all(|(at, found)| byte(at) == found));
        cookie
    }
}

#[test]
fn more_reads_than_at_once_are_all_answered() {
    let disk = OnDisk::new();
    let mut client = Client::chosen(&disk);
    let offset = |cookie| cookie * 517 % 400_000;
    for length in [1_u32, 4096, 9000, 60_000] {
        let mut bytes = Vec::new();
        for cookie in 0..300 {
            bytes.extend(request(READ, cookie, offset(cookie), length));
        }
        let mut sender = client.stream.try_clone().unwrap();
        let sent = std::thread::spawn(move || sender.write_all(&bytes));
        let mut cookies: Vec<u64> = (0..300)
            .map(|_| client.block(length as usize, offset))
            .collect();
        cookies.sort_unstable();
        assert!((0..300).eq(cookies));
        sent.join().unwrap().unwrap();
    }
    if check_ring().is_ok() {
        assert_eq!((1200, 0), disk.count());
    }
    client.leave().unwrap();
}

#[test]
fn a_read_whose_bytes_the_disk_lacks_is_done_in_another_way() {
    let disk = OnDisk::new();
    let mut client = Client::chosen(&disk);
    client.request(WRITE, 1, 5000, 3);
    client.send(b"abc");
    assert_eq!((0, 1), client.reply());
    for cookie in 2..50 {
        client.request(READ, cookie, 5000, 3);
        assert_eq!((0, cookie), client.reply());
        assert_eq!(b"abc", &client.receive(3)[..]);
    }
    if check_ring().is_ok() {
        assert_eq!((0, 48), disk.count());
    }
    client.leave().unwrap();
}

#[test]
fn slow_writes_among_reads_keep_no_read_from_being_answered() {
    let disk = OnDisk::new();
    let mut client = Client::chosen(&disk);
    let mut bytes = Vec::new();
    for cookie in 0..40 {
        bytes.extend(request(READ, cookie, cookie * 5000, 4096));
        bytes.extend(request(WRITE, 1000 + cookie, Memory::SLOW, 1));
        bytes.push(7);
        bytes.extend(request(READ, 100 + cookie, cookie * 3000, 4096));
    }
    client.send(&bytes);
    let offset = |cookie| match cookie {
        0..100 => cookie * 5000,
        _ => (cookie - 100) * 3000,
    };
    for _ in 0..80 {
        client.block(4096, offset);
    }
    disk.memory.wait_for_slow(40);
    disk.memory.release();
    for _ in 0..40 {
        assert_eq!(0, client.reply().0);
    }
    client.leave().unwrap();
}

#[test]
fn more_slow_writes_than_threads_among_reads_are_all_answered() {
    let disk = OnDisk::new();
    let mut client = Client::chosen(&disk);
    let mut bytes = Vec::new();
    for cookie in 0..150 {
        bytes.extend(request(READ, cookie, cookie, 1));
        bytes.extend(request(WRITE, 1000 + cookie, Memory::SLOW, 1));
        bytes.push(7);
    }
    client.send(&bytes);
    disk.memory.wait_for_slow(64);
    disk.memory.release();
    let mut written = 0;
    for _ in 0..300 {
        match client.reply() {
            (0, 1000..) => written += 1,
            (0, cookie) => assert_eq!(vec![(cookie % 251) as u8], client.receive(1)),
            failed => panic!("{failed:?}"),
        }
    }
    assert_eq!(150, written);
    client.leave().unwrap();
}

#[test]
fn reads_under_way_are_answered_before_a_client_is_disconnected() {
    for is_disconnect in [true, false] {
        let disk = OnDisk::new();
        let mut client = Client::chosen(&disk);
        let mut bytes = Vec::new();
        for cookie in 0..50 {
            bytes.extend(request(READ, cookie, cookie * 4096, 4096));
        }
        if is_disconnect {
            bytes.extend(request(DISCONNECT, 0, 0, 0));
        }
        client.send(&bytes);
        if !is_disconnect {
            client.stream.shutdown(Shutdown::Write).unwrap();
        }
        for _ in 0..50 {
            client.block(4096, |cookie| cookie * 4096);
        }
        assert!(client.is_ended());
        client.leave().unwrap();
    }
}

#[test]
fn long_writes_among_reads_are_written() {
    let disk = OnDisk::new();
    let mut client = Client::chosen(&disk);
    let (long, from) = (200_000, 600_000);
    for round in 0..10 {
        for cookie in 0..4 {
            client.request(READ, cookie, cookie * 4096, 4096);
        }
        client.request(WRITE, 9, from, long);
        client.send(&vec![round; long as usize]);
        let mut left = 5;
        while left > 0 {
            match client.reply() {
                (0, 9) => {}
                (0, _) => drop(client.receive(4096)),
                failed => panic!("{failed:?}"),
            }
            left -= 1;
        }
        client.request(READ, 1, from, long);
        assert_eq!((0, 1), client.reply());
        assert_eq!(vec![round; long as usize], client.receive(long as usize));
    }
    client.leave().unwrap();
}

#[test]
fn a_client_that_vanishes_with_reads_of_the_disk_under_way_is_left() {
    let disk = OnDisk::new();
    for count in 1..60 {
        let mut client = Client::chosen(&disk);
        for cookie in 0..count {
            client.request(READ, cookie, cookie * 4096, 60_000);
        }
        // That the client is gone is an error only for those that wanted to answer it.
        let _ = client.leave();
    }
}
